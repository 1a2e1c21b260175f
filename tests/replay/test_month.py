"""Eight days of healthy service, through the real rules: no page, and at most a
notification a week.
"""

import pytest

from alerts.case import promises
from replay import evaluate, month

pytestmark = [pytest.mark.full, pytest.mark.timeout(3600)]

_FIRED = 'ALERTS{alertstate="firing",alertname!="VLLMSpecDecodeWatchdog"}'
#: The days in parts, each small enough for promtool's limit of samples a query.
_PARTS = ["[4d:6m]", *(f"[4d:6m] offset {day}d" for day in range(4, month.DAYS, 4))]
#: Alerts that were silent at one evaluation and fire at the next: notifications, before
#: any grouping.
_STARTS = [
    f"count_over_time(({_FIRED} unless {_FIRED} offset 6m){part})" for part in _PARTS
]
_WATCHDOG = [
    f'count_over_time(ALERTS{{alertname="VLLMSpecDecodeWatchdog"}}{part})'
    for part in _PARTS
]
_SLOWEST = [
    f"min_over_time(model:vllm_specdec_speedup:ratio_rate5m{part})" for part in _PARTS
]


def test_eight_healthy_days_page_nobody() -> None:
    """Two replicas: noise, idle nights, weekends, bursts, deployments, crashes and lost
    scrapes.
    """
    yielded = evaluate.run(
        month.play(seed=1), month.MINUTES, [*_STARTS, *_WATCHDOG, *_SLOWEST], 6
    )

    # The rules ran all the time, and knew the speedup.
    evaluations = 0.0
    for query in _WATCHDOG:
        evaluations += sum(value for _, value in yielded[query])
    assert evaluations == pytest.approx(month.MINUTES / 6, rel=0.01)
    for query in _SLOWEST:
        assert 1.2 < yielded[query][0][1] < 2, query

    promised = promises()
    too_often = []
    for query in _STARTS:
        for labels, value in yielded[query]:
            if value > promised[labels["alertname"]][2]:
                too_often.append(labels)
    assert too_often == []
