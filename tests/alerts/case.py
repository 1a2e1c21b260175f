"""Cases of the alert rules: a world, and which series of one alert fire at which
minutes of it.

`test_rules.py` runs them all. What a person reads of an alert, with all labels and
annotations, is in `texts.yml`: in three histories, in one if a text has no values.

Most cases are in `cases_<group>.yml`. A case there names a function of `histories.py`
and has its lives. A life is a list of phases: fields of `Phase`, a number of minutes as
usual, or `idle` for so many. `times` repeats phases or lives. `fires` is by minute, by
`10-30` for each from 10 to 30, or by `10-30/5` for every fifth. Under `silent at`,
nothing fires at that minute. Other cases are in `cases_<group>.py`, in `CASES`.
"""

import importlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from ruamel.yaml import YAML

from vllm_specdec_exporter.config.thresholds import Thresholds

from .histories import engines, models, named, pods
from .lint import PREFIX
from .promtool import Query
from .world import MODEL, Phase, World, idle

_HERE = Path(__file__).parent
#: Cases of one alert by name: what builds the world, and by minute what fires.
Table = Mapping[str, "tuple[Callable[[], World], Mapping[int, str | list[str]]]"]
Worlds = Mapping[str, "Callable[[], World]"]

#: The labels that tell an alert's series apart, in the order in which `brief` writes
#: them.
_LABELS = (
    "severity", "level", "reason", "action", "recommended_k", "against",
    "target", "cluster", "model_name", "instance", "engine", "method",
)  # fmt: skip
_BARE = {
    "severity": ("critical", "warning", "info", "none"),
    "level": ("model", "engine", "instance"),
}
_ADDRESS = r"10\.0\.0\.(\d+):(?:9850|8000)"
#: What goes without saying in most worlds.
_USUAL = {"model_name": MODEL, "engine": "0"}


@dataclass(frozen=True)
class Case:
    """One history of one alert."""

    name: str  # what is stated, in kebab-case; unique among all cases
    alert: str  # the alert's name without the prefix
    world: Callable[[], World]  # builds what Prometheus has scraped
    #: By minute, exactly the series that fire under this name, as `brief` writes them;
    #: "" for none.
    fires: Mapping[int, str | list[str]]

    def firing(self, minute: int) -> list[str]:
        """Return what fires at a minute."""
        one = self.fires[minute]
        if isinstance(one, str):
            return [one] * bool(one)
        return one

    def queries(self) -> list[Query]:
        """Return the queries that say the same to Prometheus, where the world is a
        cluster of this name.
        """
        query = _query(self.alert, self.name)
        return [
            Query(minute, query, {_series(one): 1.0 for one in self.firing(minute)})
            for minute in self.fires
        ]


def of_models(series: str, number: int = 3) -> list[str]:
    """Return a series of each of so many models of `histories.models`."""
    return [
        series,
        *(f"{series} model_name={name}" for name in ("poet", "judge")[: number - 1]),
    ]


def silent(first: int, last: int) -> dict[int, str]:
    """Return that nothing fires at these minutes and between them."""
    return dict.fromkeys(range(first, last + 1), "")


def cases(alert: str, table: Table) -> tuple[Case, ...]:
    """Return cases of one alert: by name, the world and what fires."""
    return tuple(
        Case(name, alert, world, fires) for name, (world, fires) in table.items()
    )


def never(alert: str, minute: int, worlds: Worlds) -> tuple[Case, ...]:
    """Return cases, by name, in which nothing fires at a minute: each lacks one of the
    alert's reasons.
    """
    return tuple(
        Case(name, alert, world, {minute: ""}) for name, world in worlds.items()
    )


@cache
def all_cases() -> tuple[Case, ...]:
    """Return the cases of all modules."""
    modules = (
        importlib.import_module(f"alerts.{path.stem}")
        for path in sorted(_HERE.glob("cases_*.py"))
    )
    read = (case for path in sorted(_HERE.glob("cases_*.yml")) for case in _read(path))
    return (*(case for module in modules for case in module.CASES), *read)


_BUILDERS: Mapping[str, Callable[..., Callable[[], World]]] = {
    "engines": engines,
    "models": models,
    "pods": pods,
}


def _read(path: Path) -> Iterator[Case]:
    """Yield the cases of a file, in which no name stands twice."""
    for group in YAML(typ="safe").load(path)["groups"]:
        for name, case in group["cases"].items():
            fires = case.get("fires", {group.get("silent at"): ""})
            by_minute = {
                minute: one for key, one in fires.items() for minute in _minutes(key)
            }
            yield Case(name, group["alert"], _world(case), by_minute)


def _world(case: Mapping[str, Any]) -> Callable[[], World]:
    """Return what builds the world of a case."""
    if "named" in case:
        return named({name: _life(life) for name, life in case["named"].items()})
    if "thresholds" in case:
        more = {"thresholds": replace(Thresholds(), **case["thresholds"])}
    else:
        more = {}
    (builder,) = _BUILDERS.keys() & case.keys()
    return _BUILDERS[builder](*map(_life, _repeated(case[builder])), **more)


def _life(phases: list[Any]) -> tuple[Phase, ...]:
    """Return phases; an anchor of several stands for them."""
    found: list[Phase] = []
    for one in _repeated(phases):
        if isinstance(one, list):
            found += _life(one)
        elif isinstance(one, int):
            found.append(Phase(one))
        else:
            values = {
                name: tuple(v) if isinstance(v, list) else v for name, v in one.items()
            }
            found.append(
                idle(values.pop("idle"), **values)
                if "idle" in values
                else Phase(**values)
            )
    return tuple(found)


def _repeated(items: list[Any]) -> Iterator[Any]:
    """Yield what a list says, with everything below `times` so often."""
    for item in items:
        if isinstance(item, dict) and "times" in item:
            yield from item["times"] * list(_repeated(item["of"]))
        else:
            yield item


def _minutes(key: int | str) -> range:
    """Return the minutes that a key of `fires` stands for."""
    first, last, step = re.fullmatch(
        (r"(\d+)(?:-(\d+))?(?:/(\d+))?"), str(key)
    ).groups()  # type: ignore[union-attr]
    return range(int(first), int(last or first) + 1, int(step or 1))


@cache
def all_texts() -> list[dict[str, Any]]:
    """Return what a person reads: a case, a minute, and labels and annotations of all
    that fires then.
    """
    found: list[dict[str, Any]] = yaml.safe_load(
        (_HERE / "texts.yml").read_text("utf-8")
    )
    return found


@cache
def shown_labels() -> Mapping[tuple[str, str], frozenset[str]]:
    """Return the names of the labels with which alerts are shown to fire, by alert and
    level.
    """
    alerts = {case.name: full_name(case.alert) for case in all_cases()}
    found: dict[tuple[str, str], frozenset[str]] = defaultdict(frozenset)
    for text in all_texts():
        for one in text["alerts"]:
            found[alerts[text["case"]], one["labels"].get("level", "")] |= frozenset(
                one["labels"]
            )
    return found


def full_name(alert: str) -> str:
    """Return an alert's name with the prefix."""
    if alert.startswith(PREFIX):
        return alert
    return PREFIX + alert


def brief(labels: Mapping[str, str]) -> str:
    """Return what tells a series apart, such as `warning engine reason=repetition @1`
    at 10.0.0.1.
    """
    words = []
    for name in _LABELS:
        value = labels.get(name, "")
        if not value or _USUAL.get(name) == value:
            continue
        if name == "instance":
            address = re.fullmatch(_ADDRESS, value)
        else:
            address = None
        words.append(
            f"@{address[1]}"
            if address
            else value
            if name in _BARE
            else f"{name}={value}"
        )
    return " ".join(words)


def promises() -> dict[str, tuple[str, str, int]]:
    """Return what each alert promises.

    That is the histories in which it fires and in which it is silent, and the false
    alarms that it may raise.
    """
    found = yaml.safe_load((_HERE / "promises.yml").read_text("utf-8"))
    return {
        PREFIX + name: (one["finds"], one["silent"], one["false alarms"])
        for name, one in found.items()
    }


def _query(alert: str, cluster: str) -> str:
    found = (
        f'ALERTS{{alertname="{full_name(alert)}", alertstate="firing", '
        f'cluster=~"|{cluster}(/.+)?"}}'
    )
    found = f'label_replace({found}, "cluster", "$1", "cluster", "{cluster}/?(.*)")'
    found = (
        f'label_replace({found}, "instance", "@$1", "instance", {_quoted(_ADDRESS)})'
    )
    for name, value in _USUAL.items():
        found = (
            f'label_replace({found}, "{name}", "", "{name}", '
            f"{_quoted(re.escape(value))})"
        )
    return f"count by ({', '.join(_LABELS)}) ({found})"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\") + '"'


def _series(text: str) -> str:
    labels = {}
    for word in text.split():
        name, _, value = word.partition("=")
        if not value:
            bare = [label for label, values in _BARE.items() if word in values]
            name = bare[0] if bare else "instance"
            value = word
        labels[name] = value
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
