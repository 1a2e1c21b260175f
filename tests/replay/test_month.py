"""A month of healthy service, through the real rules: nobody is paged, and hardly anybody is bothered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from alerts.promtool import RULES
from replay import evaluate, month

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(900)

_FIRED = 'ALERTS{alertstate="firing",severity=~"critical|warning"}'
#: Alerts that were silent at one evaluation and fire at the next: notifications, before any grouping.
_STARTS = f"count_over_time(({_FIRED} unless {_FIRED} offset 4m)[{month.DAYS}d:4m])"
_WEEKS = month.DAYS / 7


def test_a_healthy_month_pages_nobody(tmp_path: Path) -> None:
    """Two replicas: noise, idle nights, weekends, bursts, deployments, crashes and lost scrapes."""
    storage = month.play(seed=1)
    beyond_doubt = "min_over_time(model:vllm_specdec_speedup:ratio_rate5m[30d])"
    spoken = 'count_over_time(ALERTS{alertname="VLLMSpecDecodeWatchdog"}[30d])'
    found = evaluate.run(
        tmp_path,
        sorted(RULES.glob("*.yml")),
        storage,
        month.MINUTES - 1,
        [_STARTS, spoken, beyond_doubt],
        "4m",
    )

    # The rules ran all the time, and knew the speedup.
    assert found[spoken][0][1] == pytest.approx(month.MINUTES / 4, rel=0.01)
    assert 1.2 < found[beyond_doubt][0][1] < 2

    pages = [labels for labels, _ in found[_STARTS] if labels["severity"] == "critical"]
    tickets = sum(value for labels, value in found[_STARTS] if labels["severity"] == "warning")
    assert pages == []
    assert tickets <= _WEEKS, found[_STARTS]
