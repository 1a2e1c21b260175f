"""That requests lose is said by the alert where the exporter itself says so, and
nowhere else.
"""

from collections.abc import Mapping
from pathlib import Path

from alerts.cases_requests import HOUR, built
from alerts.per_request import RequestPhase
from alerts.promtool import History, Query, verify
from alerts.world import World
from per_request.exact import request
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.cost import thresholds_for
from vllm_specdec_exporter.economics.profiles import BUILTIN
from vllm_specdec_exporter.per_request.aggregation import RequestAggregator
from vllm_specdec_exporter.per_request.grouping import RequestSettings
from vllm_specdec_exporter.per_request.observation import Source

ALERT = "VLLMSpecDecodeRequestsLose"
FIRING = f'group by (cluster) (ALERTS{{alertname="{ALERT}", alertstate="firing"}})'
#: Tokens that are drafted for each request: acceptance ratios to the thousandth.
DRAFTED = 1000

PUBLISHED = Thresholds()
#: The zones of cheap drafters, which are no bounds of buckets.
NGRAM = thresholds_for(BUILTIN["ngram"], 5, "ngram")
EAGLE = thresholds_for(BUILTIN["eagle3"], 5, "eagle3")
#: An operator's own zones: 0.45 gains.
LOW_ZONE = PUBLISHED.with_values(
    {"disable_acceptance_ratio": 0.4, "break_even_acceptance_ratio": 0.42}
)
HIGH_ZONE = Thresholds(disable_acceptance_ratio=0.6)
#: An operator's own idea of the poorest tenth.
LOW_TENTH = Thresholds(poor_request_acceptance_ratio=0.3)

#: Thresholds, how many of a hundred requests have which acceptance ratio, and whether
#: they lose.
ROWS: tuple[tuple[str, Thresholds, Mapping[float, float], bool], ...] = (
    ("just below the limit", PUBLISHED, {0.8: 88, 0.499: 12}, True),
    ("at the limit", PUBLISHED, {0.8: 60, 0.5: 40}, False),
    ("fewer than a tenth", PUBLISHED, {0.8: 92, 0.1: 8}, False),
    ("n-gram, nothing accepted", NGRAM, {0.0: 100}, True),
    ("n-gram, just above", NGRAM, {0.005: 100}, False),
    ("eagle3, above in the limit's bucket", EAGLE, {0.5: 60, 0.19: 40}, False),
    ("eagle3, below in the limit's bucket", EAGLE, {0.5: 88, 0.11: 12}, True),
    (
        "lower zone, the poorest tenth gains",
        LOW_ZONE,
        {0.8: 80, 0.45: 15, 0.35: 5},
        False,
    ),
    ("lower zone, a fifth loses", LOW_ZONE, {0.8: 80, 0.35: 20}, True),
    ("higher zone, the tenth is not poor", HIGH_ZONE, {0.8: 80, 0.55: 20}, False),
    ("higher zone, the tenth is poor", HIGH_ZONE, {0.8: 80, 0.45: 20}, True),
    ("lower tenth, not so poor", LOW_TENTH, {0.8: 80, 0.35: 20}, False),
    ("lower tenth, that poor", LOW_TENTH, {0.8: 80, 0.25: 20}, True),
)


def exporter_says_so(requests: Mapping[float, float], thresholds: Thresholds) -> bool:
    """Return whether the exporter finds that requests lose, if so many of a hundred
    have each ratio.
    """
    book = RequestAggregator(RequestSettings(), thresholds, (Source.TAP,))
    for ratio, percent in requests.items():
        for _ in range(round(percent)):
            book.add(request(round(ratio * DRAFTED), drafted=DRAFTED), Source.TAP, 0.0)
    (model,) = book.result(0.0, {}).models
    assert model.window_requests == 100
    return any(
        finding.text.startswith("a tenth of the requests") for finding in model.findings
    )


def test_the_exporter_says_so_where_the_table_does() -> None:
    found = {
        name: exporter_says_so(requests, thresholds)
        for name, thresholds, requests, _ in ROWS
    }
    assert found == {name: lose for name, _, _, lose in ROWS}


def test_the_alert_says_so_where_the_table_does(tmp_path: Path) -> None:
    """As many requests as the exporter has, every ten minutes."""
    world = World()
    for name, thresholds, requests, _ in ROWS:
        phase = RequestPhase(
            HOUR, {"chat": {ratio: percent / 10 for ratio, percent in requests.items()}}
        )
        world.add(name, built((phase,), thresholds=thresholds)())
    losing = {f'{{cluster="{name}"}}': 1.0 for name, _, _, lose in ROWS if lose}
    history = History("requests", world, [Query(55, FIRING, losing)])
    complaint = verify(tmp_path, history, rules={ALERT}, texts=False)
    assert complaint == "", complaint
