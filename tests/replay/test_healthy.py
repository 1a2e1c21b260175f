"""A week of healthy service, through the real rules: nobody is paged, and hardly anybody is bothered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replay import evaluate, healthy

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.full, pytest.mark.timeout(3600)]

_FIRED = 'ALERTS{alertstate="firing",severity=~"critical|warning"}'
_WEEK = f"[{healthy.DAYS}d:4m]"
#: Alerts that were silent at one evaluation and fire at the next: notifications, before any grouping.
_STARTS = f"count_over_time(({_FIRED} unless {_FIRED} offset 4m){_WEEK})"
_WATCHDOG = f'count_over_time(ALERTS{{alertname="VLLMSpecDecodeWatchdog"}}{_WEEK})'
_SLOWEST = f"min_over_time(model:vllm_specdec_speedup:ratio_rate5m{_WEEK})"


def test_a_healthy_week_pages_nobody(tmp_path: Path) -> None:
    """Two replicas: noise, idle nights, a weekend, bursts, deployments, crashes and lost scrapes."""
    queries = [_STARTS, _WATCHDOG, _SLOWEST]
    found = evaluate.run(tmp_path, healthy.play(seed=1), healthy.MINUTES, queries, "4m")

    # The rules ran all the time, and knew the speedup.
    ((_, evaluations),) = found[_WATCHDOG]
    assert evaluations == pytest.approx(healthy.MINUTES / 4, rel=0.01)
    ((_, slowest),) = found[_SLOWEST]
    assert 1.2 < slowest < 2

    started = found[_STARTS]
    assert [labels for labels, _ in started if labels["severity"] == "critical"] == []
    assert sum(value for _, value in started) <= 1, started
