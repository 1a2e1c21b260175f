"""Rules as the YAML has them, and their expressions as the parser reads them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import promql_parser as promql
import yaml

ROOT = Path(__file__).parents[3]
RULES = ROOT / "alerts" / "rules"
RUNBOOKS = ROOT / "alerts" / "runbooks"
PREFIX = "VLLMSpecDecode"
RATES = frozenset({"rate", "increase", "irate"})
#: Labels by which rules of one name may differ.
_DISTINGUISHING = ("severity", "level", "reason", "against", "action")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as the YAML has it."""

    body: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What it records or alerts as."""
        return str(self.body.get("record") or self.body["alert"])

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
    def title(self) -> str:
        """Its name without the prefix, with what tells it from others of that name."""
        more = (self.labels[name] for name in _DISTINGUISHING if name in self.labels)
        return " ".join((self.name.removeprefix(PREFIX), *more))


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


@cache
def read_bundle() -> Bundle:
    """Return the committed rules."""
    texts = (path.read_text("utf-8") for path in sorted(RULES.glob("*.yml")))
    return Bundle(
        tuple(group for text in texts for group in yaml.safe_load(text)["groups"])
    )


# --- expressions


@cache
def parse(text: str) -> promql.Expr:
    """Return the tree of an expression.

    Raises:
        ValueError: it is none.
    """
    return promql.parse(text)


def children(node: promql.Expr) -> tuple[promql.Expr, ...]:
    """Return the expressions right below this one."""
    if isinstance(node, promql.BinaryExpr):
        return node.lhs, node.rhs
    if isinstance(node, promql.Call):
        return tuple(node.args)
    if isinstance(node, promql.MatrixSelector):
        return (node.vector_selector,)
    if isinstance(
        node,
        promql.AggregateExpr
        | promql.ParenExpr
        | promql.UnaryExpr
        | promql.SubqueryExpr,
    ):
        return (node.expr,)
    return ()


def nodes(node: promql.Expr, kind: Any, without: Any = ()) -> Iterator[Any]:
    """Yield those of an expression and all below it that are of a kind; below `without`
    there are none.
    """
    if isinstance(node, kind):
        yield node
    if not isinstance(node, without):
        for child in children(node):
            yield from nodes(child, kind, without)


def bare(node: promql.Expr) -> promql.Expr:
    """Return what parentheses hold."""
    if isinstance(node, promql.ParenExpr):
        return bare(node.expr)
    return node


def selector_name(node: promql.VectorSelector) -> str:
    """Return the metric that a selector names, however it is written; of several
    spellings the first.
    """
    named = (
        re.sub(r"\(([\w:]+)[\w:|]*\)", r"\1", m.value)
        for m in node.matchers.matchers
        if m.name == "__name__"
    )
    return node.name or next(named, "")


def names(node: promql.Expr) -> set[str]:
    """Return the series that an expression uses."""
    return {selector_name(item) for item in nodes(node, promql.VectorSelector)}
