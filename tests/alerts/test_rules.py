"""The alerts of the bundle: each fires as it should, is silent where it must be, and ends."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from alerts.case import PREFIX, Case, full_name
from alerts.promtool import RULES, verify
from alerts.sweeps import SWEEPS, Sweep

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).parent
CASES: tuple[Case, ...] = tuple(
    case
    for path in sorted(HERE.glob("cases_*.py"))
    for case in importlib.import_module(f"alerts.{path.stem}").CASES
)
ALERTS: tuple[dict[str, Any], ...] = tuple(
    rule
    for path in sorted(RULES.glob("*.yml"))
    for group in yaml.safe_load(path.read_text("utf-8"))["groups"]
    for rule in group["rules"]
    if "alert" in rule
)
#: What a person reads, by case.
TEXTS: Mapping[str, list[dict[str, Any]]] = {
    name: [one for one in yaml.safe_load((HERE / "texts.yml").read_text("utf-8")) if one["case"] == name]
    for name in {case.name for case in CASES}
}


def _texts(case: Case) -> list[dict[str, Any]]:
    return [
        {
            "eval_time": f"{one['minute']}m",
            "alertname": full_name(case.alert),
            "exp_alerts": one["exp_alerts"],
        }
        for one in TEXTS[case.name]
    ]


def _title(rule: Mapping[str, Any]) -> str:
    more = (f"{name}={value}" for name, value in rule["labels"].items() if name != "subject")
    return " ".join((rule["alert"].removeprefix(PREFIX), *more))


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if TEXTS[case.name] else pytest.mark.full, id=case.name) for case in CASES],
)
def test_an_alert_fires_when_the_case_says(case: Case, tmp_path: Path) -> None:
    complaint = verify(tmp_path, case.world(), case.queries(), texts=_texts(case), only=full_name(case.alert))
    assert complaint == "", complaint


@pytest.mark.full
@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: f"{sweep.topic}-{sweep.name}")
def test_nothing_else_fires_at_any_minute(sweep: Sweep, tmp_path: Path) -> None:
    complaint = verify(tmp_path, sweep.world(), [sweep.query()], interval=sweep.interval)
    assert complaint == "", complaint


def test_names_of_cases_are_unique() -> None:
    names = Counter(case.name for case in CASES)
    assert [name for name, number in names.items() if number > 1] == []


def test_every_text_is_of_a_case() -> None:
    texts = yaml.safe_load((HERE / "texts.yml").read_text("utf-8"))
    assert sorted(one["case"] for one in texts) == sorted(
        one["case"] for found in TEXTS.values() for one in found
    )


def test_every_rule_is_shown_to_fire_with_all_that_a_person_reads() -> None:
    shown = [
        (full_name(one["alert"]), alert)
        for found in TEXTS.values()
        for one in found
        for alert in one["exp_alerts"]
    ]
    assert [
        _title(rule)
        for rule in ALERTS
        if not any(
            name == rule["alert"]
            and rule["labels"].items() <= alert["exp_labels"].items()
            and set(alert["exp_annotations"]) == set(rule["annotations"])
            for name, alert in shown
        )
    ] == []


def test_every_alert_that_lasts_is_shown_to_end() -> None:
    lasting = {rule["alert"] for rule in ALERTS if "keep_firing_for" in rule or "ALERTS{" in rule["expr"]}
    ending = {
        full_name(case.alert)
        for case in CASES
        if any(case.fires.values()) and not case.firing(max(case.fires))
    }
    assert lasting - ending == set()


def test_every_alert_is_shown_to_be_silent() -> None:
    silent = {full_name(case.alert) for case in CASES if not any(case.fires.values())}
    always = {f"{PREFIX}Watchdog"}
    assert {rule["alert"] for rule in ALERTS} - silent == always
