"""Which alerts silence which, in a real Alertmanager with the committed
configuration.
"""

import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from alertmanager.bundle import PREFIX, Addresses, alert, rule, rules, test_config
from support.alertmanager import AlertmanagerServer
from support.golden import golden_text
from support.programs import eventually

pytestmark = pytest.mark.full

GOLDEN = Path(__file__).parent / "golden/inhibitions.txt"
RULES = rules()

Alert = dict[str, Any]
#: Alerts that fire together; those that another one silences are marked by `silent`.
Scenario = list[Alert]


def server(folder: Path, program: str) -> AlertmanagerServer:
    """An Alertmanager with the committed configuration, that sends nothing while the
    test runs.
    """
    times = {"group_wait": "1h", "group_interval": "1h", "repeat_interval": "2h"}
    return AlertmanagerServer(test_config(Addresses(folder), **times), program=program)


@pytest.fixture(scope="module")
def manager(
    tmp_path_factory: pytest.TempPathFactory, program: str
) -> Iterator[AlertmanagerServer]:
    """One for alerts that have clusters of their own."""
    with server(tmp_path_factory.mktemp("manager"), program) as running:
        yield running


@pytest.fixture
def empty(tmp_path: Path, program: str) -> Iterator[AlertmanagerServer]:
    """One in which nothing fires yet, for alerts without a cluster."""
    with server(tmp_path, program) as running:
        yield running


def silenced(manager: AlertmanagerServer, *alerts: Alert) -> list[bool]:
    """Let alerts fire together, and return for each whether another one silences it.

    Sources are read in the order in which they came: once the last pair is silenced,
    all before it were read. The states are asked for anew then, for an answer is put
    together while sources are still read.
    """
    _post_and_wait(manager, *alerts)
    states = _states(manager)
    return [states[_labels(fired)] for fired in alerts]


def _post_and_wait(manager: AlertmanagerServer, *alerts: Alert) -> None:
    """Let alerts begin or end, and wait until their inhibitions are read."""
    last = f"barrier-{time.monotonic_ns()}"
    barrier = [
        alert(rule(name, level="model"), model_name=last)
        for name in ("Collapsed", "AcceptanceLow")
    ]
    manager.post(*alerts, *barrier)
    eventually(lambda: _states(manager, f'model_name="{last}"')[_labels(barrier[1])])


def _states(
    manager: AlertmanagerServer, *matchers: str
) -> dict[frozenset[tuple[str, str]], bool]:
    return {
        _labels(fired): bool(fired["status"]["inhibitedBy"])
        for fired in manager.alerts(*matchers)
    }


def _labels(fired: Alert) -> frozenset[tuple[str, str]]:
    return frozenset(fired["labels"].items())


def one(name: str, severity: str = "warning", level: str = "", **where: str) -> Alert:
    """An alert of the bundle; `where` changes or takes away its target labels."""
    labels = {"severity": severity}
    if level:
        labels["level"] = level
    return alert(rule(name, **labels), **where)


def _lost(**where: str) -> Alert:
    """The page on lost monitoring."""
    return alert(rule("MonitoringLost", reason="down"), **where)


def _tap(reason: str, severity: str = "critical", **where: str) -> Alert:
    """A page on the taps of a model, or a ticket on one."""
    return alert(rule("TapFailing", reason=reason, severity=severity), **where)


def changed(fired: Alert, **labels: str) -> Alert:
    """An alert with other labels; one that is empty is taken away."""
    return {
        "labels": {
            name: value for name, value in (fired["labels"] | labels).items() if value
        }
    }


def silent(fired: Alert) -> Alert:
    """An alert that another one of its scenario silences."""
    return {**fired, "silent": True}


# --- every two alerts


def golden_pairs() -> list[tuple[str, str]]:
    """The pairs of the table."""
    pairs = []
    source = ""
    for line in GOLDEN.read_text().splitlines():
        if line.startswith(" "):
            pairs.append((source, line.strip()))
        else:
            source = line
    return pairs


def test_which_alert_of_the_bundle_silences_which(manager: AlertmanagerServer) -> None:
    """All pairs on one model, engine and exporter, as a table that a person has
    read.
    """
    pairs = list(itertools.combinations(RULES, 2))
    alerts = []
    for number, (a, b) in enumerate(pairs):
        cluster = f"pair-{number}"
        alerts += [alert(a, cluster=cluster), alert(b, cluster=cluster)]
    states = silenced(manager, *alerts)
    inhibited = []
    for (a, b), first, second in zip(pairs, states[::2], states[1::2], strict=True):
        assert not (first and second), f"{a.title} and {b.title} silence each other"
        if first:
            inhibited.append((b.title, a.title))
        elif second:
            inhibited.append((a.title, b.title))
    lines = []
    for source, group in itertools.groupby(sorted(inhibited), key=lambda pair: pair[0]):
        lines += [source, *(f"    {target}" for _, target in group)]
    text = "\n".join(lines) + "\n"
    assert text == golden_text(GOLDEN, text)


def test_nothing_is_silenced_from_elsewhere(manager: AlertmanagerServer) -> None:
    """Not from another cluster or namespace, nor from another model unless an exporter
    is lost for both.

    The page for a whole cluster is about all of its namespaces. Alerts of other bundles
    are not silenced.
    """
    by_title = {each.title: each for each in RULES}
    alerts = []
    expected = {}
    for elsewhere in ("cluster", "namespace", "model_name", "alertname"):
        for number, (source, target) in enumerate(golden_pairs()):
            labels = {"cluster": f"{elsewhere}-{number}"}
            quiet = alert(by_title[target], **labels)
            if elsewhere in quiet["labels"]:
                quiet["labels"][elsewhere] = f"other-{elsewhere}-{number}"
            alerts += [alert(by_title[source], **labels), quiet]
            named = by_title[source].target_labels & by_title[target].target_labels
            of_exporters = "model_name" not in named
            of_cluster = (
                source == "MonitoringLost critical cluster" and elsewhere == "namespace"
            )
            expected[elsewhere, source, target] = of_cluster or (
                elsewhere == "model_name" and of_exporters
            )
    states = silenced(manager, *alerts)
    assert dict(zip(expected, states[1::2], strict=True)) == expected


def test_the_watchdog_is_never_silenced(empty: AlertmanagerServer) -> None:
    """Not even if everything else fires, in one place and without any labels of a
    place.
    """
    alerts = list(map(alert, RULES))
    alerts += [alert(each, namespace="", cluster="") for each in RULES]
    states = silenced(empty, *alerts)
    names = [fired["labels"]["alertname"] for fired in alerts]
    quiet = set(itertools.compress(names, states))
    assert f"{PREFIX}Watchdog" in names
    assert f"{PREFIX}Watchdog" not in quiet
    assert sum(states) > 10


# --- of several sources, one ends


def test_the_end_of_one_source_sends_nothing_that_another_silences(
    manager: AlertmanagerServer,
) -> None:
    """For each two alerts of the bundle that silence a third: whichever came last ends,
    and the third stays silent.

    Alertmanager 0.33 remembers one source for each inhibition and set of equal labels.
    """
    by_title = {each.title: each for each in RULES}
    sources: dict[str, list[str]] = {}
    for source, target in golden_pairs():
        sources.setdefault(target, []).append(source)
    cases = [
        (ends, stays, target)
        for target, silencing in sources.items()
        for ends, stays in itertools.permutations(silencing, 2)
    ]
    quiet = []
    first = []
    last = []
    for number, (ends, stays, target) in enumerate(cases):
        cluster = f"ends-{number}"
        quiet.append(alert(by_title[target], cluster=cluster))
        first.append(alert(by_title[stays], cluster=cluster))
        last.append(alert(by_title[ends], cluster=cluster))
    assert all(silenced(manager, *quiet, *first, *last)[: len(quiet)])
    begun = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
    ended = datetime.now(UTC).isoformat()
    _post_and_wait(
        manager, *({**fired, "startsAt": begun, "endsAt": ended} for fired in last)
    )
    states = _states(manager)
    sent = [
        case
        for case, fired in zip(cases, quiet, strict=True)
        if not states[_labels(fired)]
    ]
    assert sent == []


# --- scenarios

_A = {"target": "http://a:8000"}
_B = {"target": "http://b:8000"}
_2, _3, _9 = ({"instance": f"10.0.0.{number}:9850"} for number in (2, 3, 9))
_FOREIGN = changed(
    one("Harmful", "critical"), alertname="SomethingElse", namespace="other"
)
_FOREIGN_QUIET = changed(_FOREIGN, severity="warning", level="engine", subject="payoff")


#: What pairs on one exporter do not tell, by what is said of it. Each has a cluster of
#: its own.
SCENARIOS: dict[str, Scenario] = {
    "the warning on one of several exporters does not silence the namespace": [
        one("ExporterDown"),
        one("Harmful", "critical"),
        silent(one("EngineOutlier", model_name="quiet")),
        one("EngineOutlier", model_name="quiet", **_2),
        one("ExporterDown", **_3),
    ],
    # Alerts carry the target where an exporter watches several, and none where it
    # watches one.
    "an unreachable vLLM does not silence others that the same exporter watches": [
        one("UpstreamUnreachable", **_A),
        silent(one("EngineOutlier", **_A)),
        one("EngineOutlier", **_B),
        one("ConfigReloadFailed"),
        one("UpstreamUnreachable", **_9),
        silent(one("EngineOutlier", **_9)),
    ],
    # It names an exporter and no model: neither harm to a model nor another exporter is
    # the same matter.
    "the ticket on a tap is silent only with its own exporter": [
        _tap("upstream", "warning"),
        one("Harmful", "critical"),
        one("ExporterDown", **_2),
        silent(_tap("upstream", "warning", **_2)),
        one("UpstreamUnreachable", **_B),
    ],
    # That monitoring is lost is not that clients are refused.
    "the page on dead taps gets through and takes the place of tickets": [
        _tap("down"),
        silent(one("ExporterDown")),
        silent(_tap("upstream", "warning", **_2)),
        one("ExporterDown", namespace="other"),
        _lost(namespace="alone"),
        _tap("down", namespace="alone"),
        one("UpstreamUnreachable", **_3),
    ],
    "two alerts that lack the model are not about the same one": [
        changed(alert(each), model_name="")
        for each in RULES
        if each.labels["subject"] not in ("monitoring", "errors")
    ],
    "two alerts that lack the instance are not about the same one": [
        one("ExporterDown", instance=""),
        one("UpstreamUnreachable", instance=""),
        one("EngineOutlier", instance=""),
        one("SidecarMissing", instance=""),
    ],
    "alerts of other bundles neither silence nor are silenced": [
        changed(_FOREIGN, namespace="chat"),
        one("SpeedupRegressed"),
        _lost(namespace="other"),
        _FOREIGN_QUIET,
        silent(changed(_FOREIGN_QUIET, alertname=f"{PREFIX}Own")),
    ],
}
#: Servers that are scraped by address: places without cluster and namespace are places
#: too.
_BARE = {"cluster": "", "namespace": ""}
BARE: dict[str, Scenario] = {
    "the same model is silenced, others and labelled ones are not": [
        one("Collapsed", **_BARE),
        silent(one("AcceptanceLow", **_BARE)),
        one("AcceptanceLow", model_name="other", **_BARE),
        one("AcceptanceLow"),
        one("ExporterDown", **_BARE),
        silent(one("EngineOutlier", **_BARE)),
        one("EngineOutlier", **_2, **_BARE),
        one("EngineOutlier"),
    ],
    # A namespace that is named is watched by other exporters.
    "lost monitoring without a namespace silences only what has none": [
        _lost(**_BARE),
        silent(one("Harmful", "critical", **_BARE)),
        one("Harmful", "critical"),
        one("Harmful", "critical", cluster=""),
    ],
}


def test_what_is_said_of_the_inhibitions_holds(manager: AlertmanagerServer) -> None:
    """Each scenario silences what it says, and nothing else."""
    alerts = []
    expected = []
    for number, (title, scenario) in enumerate(SCENARIOS.items()):
        marks = [(title, "silent" in fired) for fired in scenario]
        expected += marks
        for fired in scenario:
            cluster = f"scenario-{number}-{fired['labels'].get('cluster', '')}"
            alerts.append(changed(fired, cluster=cluster))
    titles = [title for title, _ in expected]
    # All at once: each barrier waits for a look of Alertmanager's.
    assert list(zip(titles, silenced(manager, *alerts), strict=True)) == expected


@pytest.mark.parametrize("said", BARE)
def test_places_without_cluster_and_namespace_are_places_too(
    empty: AlertmanagerServer, said: str
) -> None:
    """Servers that are scraped by address."""
    alerts = list(map(changed, BARE[said]))
    assert silenced(empty, *alerts) == ["silent" in fired for fired in BARE[said]]
