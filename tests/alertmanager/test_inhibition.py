"""Which alerts silence which, in a real Alertmanager with the committed configuration."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from alertmanager.bundle import PREFIX, Addresses, Rule, alert, rule, rules, test_config
from support.alertmanager import AlertmanagerServer

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = Path(__file__).parent / "golden" / "inhibitions.txt"
RULES = rules()
_SECONDS = 30.0

Alert = dict[str, Any]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[AlertmanagerServer]:
    """An Alertmanager with the committed configuration, that sends nothing while the test runs."""
    config = test_config(Addresses(tmp_path), group_wait="1h", group_interval="1h", repeat_interval="2h")
    with AlertmanagerServer(config) as running:
        yield running


def silenced(manager: AlertmanagerServer, *alerts: Alert) -> list[bool]:
    """Let alerts fire together, and return for each whether another one silences it.

    Sources are read in the order in which they came: once the last pair is silenced, all before it were read.
    The states are asked for anew then, for an answer is put together while sources are still read.
    """
    last = f"barrier-{time.monotonic_ns()}"
    barrier = [alert(rule(name, level="model"), model_name=last) for name in ("Collapsed", "AcceptanceLow")]
    manager.post(*alerts, *barrier)
    end = time.monotonic() + _SECONDS
    while not _states(manager, f'model_name="{last}"')[_labels(barrier[1])]:
        assert time.monotonic() < end
        time.sleep(0.05)
    found = _states(manager)
    return [found[_labels(one)] for one in alerts]


def _states(manager: AlertmanagerServer, *matchers: str) -> dict[frozenset[tuple[str, str]], bool]:
    return {_labels(one): bool(one["status"]["inhibitedBy"]) for one in manager.alerts(*matchers)}


def _labels(found: Alert) -> frozenset[tuple[str, str]]:
    return frozenset(found["labels"].items())


def one(name: str, severity: str = "warning", level: str = "", **where: str) -> Alert:
    """An alert of the bundle; `where` changes or takes away its target labels."""
    more = {"level": level} if level else {}
    return alert(rule(name, severity=severity, **more), **where)


def pairs_that_silence(manager: AlertmanagerServer) -> dict[tuple[str, str], tuple[Rule, Rule]]:
    """Let every two alerts of the bundle fire together, each pair in a cluster of its own."""
    pairs = list(itertools.combinations(RULES, 2))
    alerts = [alert(each, cluster=f"pair-{number}") for number, pair in enumerate(pairs) for each in pair]
    states = silenced(manager, *alerts)
    found = {}
    for number, (a, b) in enumerate(pairs):
        first, second = states[2 * number : 2 * number + 2]
        assert not (first and second), f"{a.title} and {b.title} silence each other"
        if second:
            found[a.title, b.title] = (a, b)
        if first:
            found[b.title, a.title] = (b, a)
    return found


def test_which_alert_of_the_bundle_silences_which(manager: AlertmanagerServer) -> None:
    """All pairs on one model, engine and exporter, as a table that a person has read."""
    found = sorted(pairs_that_silence(manager))
    lines = []
    for source, group in itertools.groupby(found, key=lambda pair: pair[0]):
        lines += [source, *(f"    {target}" for _, target in group)]
    text = "\n".join(lines) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


@pytest.mark.parametrize("elsewhere", ["cluster", "namespace", "model_name"])
def test_nothing_is_silenced_from_elsewhere(manager: AlertmanagerServer, elsewhere: str) -> None:
    """Not from another cluster or namespace, nor from another model unless an exporter is lost for both."""
    alerts, expected, titles = [], [], []
    pairs = [tuple(line.strip() for line in pair) for pair in golden_pairs()]
    by_title = {each.title: each for each in RULES}
    for number, (source, target) in enumerate(pairs):
        place = {"cluster": f"pair-{number}"}
        other = {elsewhere: f"other-{number}"}
        alerts += [alert(by_title[source], **place), alert(by_title[target], **(place | other))]
        of_exporters = "model_name" not in by_title[source].target_labels
        expected.append(elsewhere == "model_name" and of_exporters)
        titles.append((source, target))
    states = silenced(manager, *alerts)
    assert dict(zip(titles, states[1::2], strict=True)) == dict(zip(titles, expected, strict=True))


def golden_pairs() -> Iterator[tuple[str, str]]:
    """The pairs of the table."""
    source = ""
    for line in GOLDEN.read_text().splitlines():
        if line.startswith(" "):
            yield source, line
        else:
            source = line


def test_no_alert_silences_itself(manager: AlertmanagerServer) -> None:
    """Each alone, and each twice: for two engines, instances or models."""
    alone = [alert(each, cluster=f"alone-{number}") for number, each in enumerate(RULES)]
    twice = [
        alert(each, cluster=f"twice-{number}", **second)
        for number, each in enumerate(RULES)
        if each.labels.get("level")
        for second in ({}, {"engine": "1", "instance": "10.0.0.2:9850", "pod": "vllm-1"})
    ]
    assert not any(silenced(manager, *alone, *twice))


def test_the_watchdog_is_never_silenced(manager: AlertmanagerServer) -> None:
    """Not even if everything else fires, in one place and without any labels of a place."""
    everything = [alert(each) for each in RULES]
    bare = [alert(each, namespace="", cluster="") for each in RULES]
    states = silenced(manager, *everything, *bare)
    watchdogs = [
        s for s, a in zip(states, everything + bare, strict=True) if a["labels"]["severity"] == "none"
    ]
    assert watchdogs == [False, False]
    assert sum(states) > 20


def test_lost_monitoring_silences_its_namespace_and_nothing_else(manager: AlertmanagerServer) -> None:
    """The page remains, and so do alerts on what else monitoring lacks in other places."""
    harmful = one("Harmful", "critical", namespace="chat")
    assert silenced(
        manager,
        one("ExporterDown", "critical", namespace="chat"),
        harmful,
        one("LowerK", namespace="chat"),
        one("DataStale", namespace="chat"),
        one("SidecarMissing", namespace="chat"),
        one("Harmful", "critical", namespace="batch"),
        one("DataStale", namespace="batch"),
        one("Harmful", "critical", namespace="chat", cluster="us"),
        one("ExporterAbsent"),
    ) == [False, True, True, True, False, False, False, False, False]


def test_the_warning_on_one_exporter_does_not_silence_the_namespace(manager: AlertmanagerServer) -> None:
    """One of several exporters is down: the model as a whole is still watched."""
    assert silenced(
        manager,
        one("ExporterDown", "warning"),
        one("Harmful", "critical"),
        one("Harmful", "warning", "engine", model_name="quiet"),
        one("Harmful", "warning", "engine", model_name="quiet", instance="10.0.0.2:9850"),
        one("ScheduleIgnored", model_name="quiet"),
        one("ExporterDown", "warning", instance="10.0.0.3:9850"),
    ) == [False, False, True, False, True, False]


def test_an_unreachable_vllm_does_not_silence_others_that_the_same_exporter_watches(
    manager: AlertmanagerServer,
) -> None:
    """Alerts carry the target where an exporter watches several, and none where it watches one."""
    a, b = "http://a:8000", "http://b:8000"
    assert silenced(
        manager,
        one("UpstreamUnreachable", "warning", target=a),
        one("EngineOutlier", target=a),
        one("EngineOutlier", target=b),
        one("ConfigReloadFailed"),
        one("UpstreamUnreachable", "warning", instance="10.0.0.9:9850"),
        one("EngineOutlier", instance="10.0.0.9:9850"),
    ) == [False, True, False, False, False, True]


def test_decisions_are_never_silenced_by_what_speculation_does(manager: AlertmanagerServer) -> None:
    """However much hurts at once: the webhook gets its decision."""
    others = [alert(each) for each in RULES if each.labels["subject"] not in ("monitoring", "decision")]
    for decision in (each for each in RULES if each.labels["subject"] == "decision"):
        cluster = f"decides-{decision.title}"
        here = [{"labels": {**other["labels"], "cluster": cluster}} for other in others]
        assert not silenced(manager, alert(decision, cluster=cluster), *here)[0], decision.title


def test_of_several_decisions_disable_remains(manager: AlertmanagerServer) -> None:
    """For its model, whatever the reason; other models are tuned on."""
    disable = alert(rule("Disable", reason="payoff"))
    tuning = ("RaiseK", "LowerK", "SwitchMethod", "Reenable")
    states = silenced(
        manager,
        disable,
        *(one(name) for name in tuning),
        one("NearBreakEven", "info"),
        *(one(name, model_name="other") for name in tuning),
    )
    assert states == [False, *[True] * 5, *[False] * 4]


@pytest.mark.parametrize("source", ["AcceptanceLow", "Disable", "MixedWorkload"])
def test_that_some_requests_lose_is_not_news_while_the_mean_is_low_or_the_workload_mixed(
    manager: AlertmanagerServer, source: str
) -> None:
    """What is to be routed away is told all the same, and other models are another matter."""
    more = {"reason": "acceptance_ratio"} if source == "Disable" else {}
    assert silenced(
        manager,
        alert(rule(source, level="model", **more)),
        one("RequestsLose"),
        one("RequestTypeLoses"),
        one("RequestsLose", model_name="other"),
    ) == [False, True, False, False]


def test_one_engine_of_low_acceptance_does_not_silence_what_is_true_of_the_model(
    manager: AlertmanagerServer,
) -> None:
    """Its requests are some of those that lose."""
    assert silenced(manager, one("AcceptanceLow", level="engine"), one("RequestsLose")) == [False, False]


def test_a_tap_that_fails_is_silent_only_with_its_own_exporter(manager: AlertmanagerServer) -> None:
    """It names an exporter and no model: neither harm to a model nor another exporter is the same matter."""
    assert silenced(
        manager,
        one("TapUpstreamFailing", "critical"),
        one("Harmful", "critical"),
        one("Harmful", "warning", "model"),
        one("ExporterDown", "warning", instance="10.0.0.2:9850"),
        one("TapUpstreamFailing", "critical", instance="10.0.0.2:9850"),
        one("UpstreamUnreachable", "warning", target="http://b:8000"),
    ) == [False, False, True, False, True, False]


def test_the_page_on_a_dead_tap_gets_through_and_takes_the_place_of_the_ticket(
    manager: AlertmanagerServer,
) -> None:
    """That nobody watches is not that clients are refused, and another exporter is another matter."""
    assert silenced(
        manager,
        one("TapDown", "critical"),
        one("ExporterDown", "warning"),
        one("ExporterDown", "warning", instance="10.0.0.2:9850"),
        one("ExporterDown", "critical", namespace="alone"),
        one("TapDown", "critical", namespace="alone"),
        one("TapDown", "critical", instance="10.0.0.3:9850"),
        one("UpstreamUnreachable", "warning", instance="10.0.0.3:9850"),
    ) == [False, True, False, False, False, False, False]


def test_places_without_cluster_and_namespace_are_places_too(manager: AlertmanagerServer) -> None:
    """Servers that are scraped by address: the same model is silenced, others and labelled ones are not."""
    bare = {"cluster": "", "namespace": ""}
    assert silenced(
        manager,
        one("Collapsed", level="model", **bare),
        one("AcceptanceLow", level="model", **bare),
        one("AcceptanceLow", level="model", model_name="other", **bare),
        one("AcceptanceLow", level="model"),
        one("ExporterDown", "warning", **bare),
        one("EngineOutlier", **bare),
        one("EngineOutlier", instance="10.0.0.2:9850", **bare),
        one("EngineOutlier"),
    ) == [False, True, False, False, False, True, False, False]


def test_lost_monitoring_without_a_namespace_silences_only_what_has_none(manager: AlertmanagerServer) -> None:
    """A namespace that is named is watched by other exporters."""
    bare = {"cluster": "", "namespace": ""}
    assert silenced(
        manager,
        one("UpstreamUnreachable", "critical", **bare),
        one("Harmful", "critical", **bare),
        one("Harmful", "critical"),
        one("Harmful", "critical", cluster=""),
    ) == [False, True, False, False]


def test_two_alerts_that_lack_the_model_are_not_about_the_same_one(manager: AlertmanagerServer) -> None:
    """An inhibition on a model needs one."""
    found = [each for each in RULES if each.labels["subject"] != "monitoring"]
    assert not any(silenced(manager, *(without(alert(each), "model_name") for each in found)))


def test_two_alerts_that_lack_the_instance_are_not_about_the_same_one(manager: AlertmanagerServer) -> None:
    """An inhibition on an exporter needs one."""
    sources = (one("ExporterDown", "warning"), one("UpstreamUnreachable", "warning"))
    targets = (one("EngineOutlier"), one("ScheduleIgnored"), one("DataStale"), one("SidecarMissing"))
    assert not any(silenced(manager, *(without(each, "instance") for each in (*sources, *targets))))


def without(found: Alert, label: str) -> Alert:
    """An alert without a label."""
    return {"labels": {name: value for name, value in found["labels"].items() if name != label}}


def test_alerts_of_other_bundles_neither_silence_nor_are_silenced(manager: AlertmanagerServer) -> None:
    """With the same labels, but another name."""
    other = {**one("Harmful", "critical")["labels"], "alertname": "SomethingElse"}
    quiet = {**other, "severity": "warning", "level": "engine", "subject": "payoff"}
    assert silenced(
        manager,
        {"labels": other},
        one("SpeedupRegressed"),
        {"labels": {**one("ExporterDown", "critical", namespace="other")["labels"]}},
        {"labels": {**quiet, "namespace": "other"}},
        {"labels": {**quiet, "namespace": "other", "alertname": f"{PREFIX}Own"}},
    ) == [False, False, False, False, True]
