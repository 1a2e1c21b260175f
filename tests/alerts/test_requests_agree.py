"""That requests lose is said by the alert where the exporter itself says so, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from alerts.cases_requests import EAGLE, HOUR, NGRAM, OWN, built
from alerts.per_request import RequestPhase
from alerts.promtool import Query, verify
from per_request.exact import request
from vllm_specdec_exporter.per_request.book import Book
from vllm_specdec_exporter.per_request.observation import Source
from vllm_specdec_exporter.per_request.settings import RequestSettings
from vllm_specdec_exporter.thresholds import Thresholds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ALERT = "VLLMSpecDecodeRequestsLose"
FIRING = f'count by (alertname) (ALERTS{{alertname="{ALERT}", alertstate="firing"}})'
YES = {f'{{alertname="{ALERT}"}}': 1.0}
#: Tokens that are drafted for each request: acceptance ratios to the thousandth.
DRAFTED = 1000


def exporter_says_so(requests: Mapping[float, float], thresholds: Thresholds) -> bool:
    """Return whether the exporter finds that requests lose, if so many of a hundred have each ratio."""
    book = Book(RequestSettings(), thresholds, (Source.TAP,))
    for ratio, percent in requests.items():
        for _ in range(round(percent)):
            book.add(request(round(ratio * DRAFTED), drafted=DRAFTED), Source.TAP, 0.0)
    (model,) = book.result(0.0, {}).models
    assert model.window_requests == 100
    return any(finding.text.startswith("a tenth of the requests") for finding in model.findings)


@pytest.mark.full
@pytest.mark.parametrize(
    ("thresholds", "requests", "lose"),
    [
        pytest.param(Thresholds(), {0.8: 88, 0.499: 12}, True, id="published, just below"),
        pytest.param(Thresholds(), {0.8: 60, 0.5: 40}, False, id="published, at the limit"),
        pytest.param(Thresholds(), {0.8: 92, 0.1: 8}, False, id="published, fewer than a tenth"),
        pytest.param(NGRAM, {0.0: 100}, True, id="n-gram, nothing accepted"),
        pytest.param(NGRAM, {0.005: 100}, False, id="n-gram, just above"),
        pytest.param(EAGLE, {0.5: 60, 0.19: 40}, False, id="eagle3, above in the limit's bucket"),
        pytest.param(EAGLE, {0.5: 88, 0.11: 12}, True, id="eagle3, below in the limit's bucket"),
        pytest.param(OWN, {0.45: 100}, False, id="lower zone, all gain"),
        pytest.param(OWN, {0.8: 80, 0.45: 15, 0.35: 5}, False, id="lower zone, P10 is of one that gains"),
        pytest.param(OWN, {0.8: 80, 0.35: 20}, True, id="lower zone, a fifth loses"),
        pytest.param(
            Thresholds(disable_acceptance_ratio=0.6),
            {0.8: 80, 0.55: 20},
            False,
            id="higher zone, P10 is not poor",
        ),
        pytest.param(
            Thresholds(disable_acceptance_ratio=0.6), {0.8: 80, 0.45: 20}, True, id="higher zone, P10 is poor"
        ),
        pytest.param(
            Thresholds(poor_request_acceptance_ratio=0.3),
            {0.8: 80, 0.35: 20},
            False,
            id="lower P10, not so poor",
        ),
        pytest.param(
            Thresholds(poor_request_acceptance_ratio=0.3),
            {0.8: 80, 0.25: 20},
            True,
            id="lower P10, that poor",
        ),
        pytest.param(
            Thresholds(poor_request_acceptance_ratio=0.6),
            {0.8: 80, 0.55: 20},
            False,
            id="higher P10, none loses",
        ),
    ],
)
def test_the_alert_agrees_with_the_exporter(
    thresholds: Thresholds, requests: Mapping[float, float], lose: bool, tmp_path: Path
) -> None:
    """The same requests, a hundred to the exporter and as many every 10 minutes to the rules."""
    assert exporter_says_so(requests, thresholds) is lose
    phase = RequestPhase(HOUR, {"chat": {ratio: percent / 10 for ratio, percent in requests.items()}})
    world = built(phase, replicas=1, thresholds=thresholds)()
    complaint = verify(tmp_path, world, [Query(55, FIRING, YES if lose else {})], only=ALERT)
    assert complaint == "", complaint
