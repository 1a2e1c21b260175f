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
from alerts.sweeps import SWEEPS, WATCHDOG, Sweep

if TYPE_CHECKING:
    from alerts.promtool import Expected

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
#: What an alert that judges drafts must be silent about.
DRAFT_TOPICS = frozenset({"idle", "low-traffic", "warming-up", "restart", "missing-series"})


def _title(rule: dict[str, Any]) -> str:
    more = (f"{name}={value}" for name, value in rule["labels"].items() if name != "subject")
    return " ".join((rule["alert"].removeprefix(PREFIX), *more))


def _is_of(one: Expected, rule: dict[str, Any]) -> bool:
    return bool(rule["labels"].items() <= one.labels.items())


def _topics(alert: str, level: str) -> set[str]:
    """Return what an alert has been shown to be silent about; sweeps show it of all that they do not name."""
    of_cases = {case.topic for case in CASES if case.kind == "silent" and full_name(case.alert) == alert}
    of_sweeps = {sweep.topic for sweep in SWEEPS if (alert, level) not in sweep.fires}
    return of_cases | of_sweeps


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}-{case.kind}-{case.name}")
def test_an_alert_does_what_the_case_says(case: Case, tmp_path: Path) -> None:
    complaint = verify(tmp_path, case.world(), case.checks())
    assert complaint == "", complaint


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: f"{sweep.topic}-{sweep.name}")
def test_nothing_else_fires_at_any_minute(sweep: Sweep, tmp_path: Path) -> None:
    complaint = verify(tmp_path, sweep.world(), queries=[sweep.query()], interval=sweep.interval)
    assert complaint == "", complaint


def test_names_of_cases_are_unique() -> None:
    names = Counter(case.name for case in CASES)
    assert [name for name, number in names.items() if number > 1] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_what_its_kind_says(case: Case) -> None:
    has_fired = any(check.expected for check in case.earlier)
    assert bool(case.expected) == (case.kind in ("fires", "holds"))
    assert bool(case.topic) == (case.kind == "silent")
    assert has_fired or case.kind not in ("recovers", "holds")
    assert all(full_name(check.alert) == full_name(case.alert) for check in case.earlier)


@pytest.mark.parametrize("rule", ALERTS, ids=_title)
def test_every_alert_has_a_case_in_which_it_fires_exactly_so(rule: dict[str, Any]) -> None:
    firing = [
        one
        for case in CASES
        if case.kind == "fires" and full_name(case.alert) == rule["alert"]
        for one in case.expected
        if _is_of(one, rule)
    ]
    assert any(set(one.annotations) == set(rule["annotations"]) for one in firing)


@pytest.mark.parametrize("rule", ALERTS, ids=_title)
def test_every_alert_is_shown_to_be_silent_where_it_must_be(rule: dict[str, Any]) -> None:
    level = rule["labels"].get("level", "")
    if (rule["alert"], level) == WATCHDOG:
        return
    needed: set[str] = set()
    if "vllm_specdec_drafts:increase" in rule["expr"]:
        needed |= DRAFT_TOPICS
    if level == "model":
        needed |= {"one-of-many"}
    if ":threshold" in rule["expr"]:
        needed |= {"missing-series"}
    if "beneficial_speedup" in rule["expr"]:
        needed |= {"beneficial"}
    topics = _topics(rule["alert"], level)
    assert topics & {"healthy", "idle"}
    assert needed <= topics


@pytest.mark.parametrize(
    "rule", [rule for rule in ALERTS if "keep_firing_for" in rule or "ALERTS{" in rule["expr"]], ids=_title
)
def test_every_alert_that_lasts_is_shown_to_end(rule: dict[str, Any]) -> None:
    assert any(
        _is_of(one, rule)
        for case in CASES
        if case.kind == "recovers" and full_name(case.alert) == rule["alert"]
        for check in case.earlier
        for one in check.expected
    )
