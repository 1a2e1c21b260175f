"""The alerts of the bundle: each fires as it should, is silent where it must be, and
ends.
"""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from alerts.case import Case, all_cases, all_texts, full_name, promises
from alerts.lint import PREFIX, read_bundle
from alerts.promtool import History, alert_names, verify
from alerts.sweeps import SWEEPS
from alerts.world import World
from replay.faults import FAULTS

CASES = all_cases()
ALERTS: tuple[dict[str, Any], ...] = tuple(
    dict(rule.body) for rule in read_bundle().alerts
)
#: Cases of more minutes take a second or more each.
LONG = 120
#: Where they take more than a day, rules are evaluated as seldom as the minutes that
#: they ask for allow.
DAY = 1440
#: Alerts all of whose rules production evaluates every three minutes, and so does
#: promtool.
SLOW = {rule["alert"] for rule in ALERTS} - {
    rule["alert"]
    for group in read_bundle().groups
    for rule in group["rules"]
    if "alert" in rule and group.get("interval") != "3m"
}
#: How a link to a dashboard hands on a label.
_HANDED_ON = re.compile(
    r"\{\{ with \$labels\.(\w+) \}\}(&var-\w+=[\w%]*)\{\{ urlquery \. \}\}\{\{ end \}\}"
)


#: What makes a text another in another situation.
_VALUES = re.compile(r"\$value|\| query|\$labels\.lack")


def _identity(rule: Mapping[str, Any]) -> str:
    return f"{rule['alert']} {rule['labels']}"


def _rule(alert: str, labels: Mapping[str, str]) -> dict[str, Any]:
    (found,) = (
        rule
        for rule in ALERTS
        if rule["alert"] == alert and rule["labels"].items() <= labels.items()
    )
    return found


def _annotations(rule: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, str]:
    """Return all annotations: those that are shown, the rule's own that are no
    templates, and the link.
    """
    own = rule["annotations"]
    labels = shown["labels"]

    def hand_on(match: re.Match[str]) -> str:
        if match[1] in labels:
            return match[2] + quote_plus(labels[match[1]])
        return ""

    return {
        **{name: text for name, text in own.items() if "{{" not in text},
        "dashboard_url": _HANDED_ON.sub(hand_on, own["dashboard_url"]),
        **{name: text for name, text in shown.items() if name != "labels"},
    }


def _texts(case: Case) -> list[dict[str, Any]]:
    """Return what promtool expects of a case to the letter."""
    alert = full_name(case.alert)
    return [
        {
            "eval_time": f"{text['minute']}m",
            "alertname": alert,
            "exp_alerts": [
                {
                    "exp_labels": shown["labels"],
                    "exp_annotations": _annotations(
                        _rule(alert, shown["labels"]), shown
                    ),
                }
                for shown in text["alerts"]
            ],
        }
        for text in all_texts()
        if text["case"] == case.name
    ]


def _is_long(case: Case) -> bool:
    return max(case.fires) > LONG


def _interval(case: Case) -> str:
    """Return how often rules are evaluated: in hours as most are in production, but
    where minutes count.
    """
    if max(case.fires) > DAY and not any(minute % 15 for minute in case.fires):
        return "15m"
    hours = _is_long(case) and case.alert != "ObjectiveBurning"
    if hours or full_name(case.alert) in SLOW:
        return "3m"
    return "1m"


def _together(case: Case) -> tuple[str, bool, str]:
    """Return what cases that are tested together have in common."""
    return case.alert, _is_long(case), _interval(case)


@pytest.mark.parametrize(
    "common",
    [
        pytest.param(
            (alert, long, interval),
            id="-".join((alert, interval, *["long"] * long)),
            marks=[pytest.mark.full] * long,
        )
        for alert, long, interval in sorted(set(map(_together, CASES)))
    ],
)
def test_an_alert_fires_and_ends_when_its_cases_say(
    common: tuple[str, bool, str], tmp_path: Path
) -> None:
    """All of them in one history, each in a cluster of its own; what is read is of one
    history alone.
    """
    alert, _, interval = common
    rules = {full_name(alert)}
    world = World()
    queries = []
    read = []
    for case in (case for case in CASES if _together(case) == common):
        one = case.world()
        world.add(case.name, one)
        queries += case.queries()
        if texts := _texts(case):
            read.append(History(case.name, one, texts=texts))
    complaint = verify(
        tmp_path,
        History(alert, world, queries),
        rules=rules,
        interval=interval,
        texts=False,
    )
    complaint += verify(tmp_path, *read, rules=rules, interval=interval)
    assert complaint == "", complaint


@pytest.mark.full
@pytest.mark.parametrize("interval", SWEEPS)
def test_nothing_else_fires_at_any_minute(interval: str, tmp_path: Path) -> None:
    world = World()
    for sweep in SWEEPS[interval]:
        world.add(sweep.name, sweep.world())
    history = History("sweeps", world, [sweep.query() for sweep in SWEEPS[interval]])
    complaint = verify(
        tmp_path, history, rules=alert_names(), interval=interval, texts=False
    )
    assert complaint == "", complaint


# --- nothing is left out


def test_names_of_cases_are_unique() -> None:
    names = Counter(case.name for case in CASES)
    assert [name for name, number in names.items() if number > 1] == []


def test_all_that_a_person_reads_of_every_rule_is_shown_in_three_histories() -> None:
    """Three that differ; one where a text has no values, but names only what it is
    about.
    """
    shown: dict[str, set[str]] = {_identity(rule): set() for rule in ALERTS}
    for text in all_texts():
        for one in text["alerts"]:
            read = {name: part for name, part in one.items() if name != "labels"}
            shown[_identity(_rule(full_name(text["alert"]), one["labels"]))].add(
                str(sorted(read.items()))
            )
    wanted = {
        _identity(rule): 3 if _VALUES.search(str(rule["annotations"])) else 1
        for rule in ALERTS
    }
    assert {
        rule: len(read) for rule, read in shown.items() if len(read) < wanted[rule]
    } == {}


def test_every_alert_that_lasts_is_shown_to_end() -> None:
    lasting = {
        rule["alert"]
        for rule in ALERTS
        if "keep_firing_for" in rule or "ALERTS{" in rule["expr"]
    }
    ending = {
        full_name(case.alert)
        for case in CASES
        if any(case.fires.values()) and not case.firing(max(case.fires))
    }
    assert lasting - ending == set()


def test_what_alerts_promise_are_histories_that_are_run() -> None:
    """A fault of the replay, whose tests run every fault, or a case of this module."""
    fires = {(full_name(fault.alert), fault.name) for fault in FAULTS}
    fires |= {
        (full_name(case.alert), case.name) for case in CASES if any(case.fires.values())
    }
    quiet = {
        (full_name(case.alert), case.name)
        for case in CASES
        if not any(case.fires.values())
    }
    quiet |= {(f"{PREFIX}Watchdog", "")}
    promised = promises()
    assert promised.keys() == {rule["alert"] for rule in ALERTS}
    assert {
        (alert, found) for alert, (found, _, _) in promised.items()
    } - fires == set()
    assert {
        (alert, missed) for alert, (_, missed, _) in promised.items()
    } - quiet == set()
