"""Rules and bundles as the YAML has them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml

from .expressions import parse
from .vocabulary import DISTINGUISHING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import promql_parser as promql

ROOT = Path(__file__).parents[3]
RULES, RUNBOOKS = ROOT / "alerts" / "rules", ROOT / "alerts" / "runbooks"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as the YAML has it."""

    body: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What it records or alerts as."""
        return str(self.body.get("record") or self.body.get("alert") or "")

    @property
    def is_alert(self) -> bool:
        """Whether it is an alert."""
        return "alert" in self.body

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels that it adds."""
        return cast("Mapping[str, str]", self.body.get("labels") or {})

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations."""
        return cast("Mapping[str, str]", self.body.get("annotations") or {})

    @property
    def tree(self) -> promql.Expr:
        """Its expression, parsed."""
        return parse(str(self.body["expr"]))

    @property
    def distinction(self) -> dict[str, str]:
        """Those of its labels that tell it from others of its name."""
        return {name: value for name, value in self.labels.items() if name in DISTINGUISHING}

    @property
    def title(self) -> str:
        """Its name, with what tells it from others of that name."""
        more = " ".join(f"{name}={value}" for name, value in self.distinction.items())
        return f"{self.name} ({more})" if more else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """All rules, in groups as the YAML has them."""

    groups: tuple[Mapping[str, Any], ...]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of all groups."""
        return tuple(Rule(body) for group in self.groups for body in group["rules"])

    @property
    def alerts(self) -> tuple[Rule, ...]:
        """The alerts."""
        return tuple(rule for rule in self.rules if rule.is_alert)


@cache
def records(bundle: Bundle) -> dict[str, Rule]:
    """Return the recording rules by name."""
    return {rule.name: rule for rule in bundle.rules if not rule.is_alert}


def read_groups(text: str) -> tuple[Mapping[str, Any], ...]:
    """Return the groups of a rule file; promtool sees whether its form is right."""
    return tuple(yaml.safe_load(text)["groups"])


@cache
def read_bundle(folder: Path = RULES) -> Bundle:
    """Return the bundle in a folder of rule files."""
    return Bundle(
        tuple(g for path in sorted(folder.glob("*.yml")) for g in read_groups(path.read_text("utf-8")))
    )
