"""What is counted while pods come and go is the same in Prometheus 2 and 3 and in
VictoriaMetrics: rollouts, autoscaled pods, and pods that live for minutes.

Samples stand every 15 s, 7 s off the times of the rules, as in production, where no
scrape and no evaluation wait for each other.
"""

import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from alerts.lint import Rule
from alerts.promtool import RULES
from dashboards import worlds_write
from dashboards.worlds_pods import Storage
from dashboards.worlds_rules import _Evaluation, _levels
from dashboards.worlds_traffic import Key, Samples, pairs_of
from scaling.servers import server_of
from support.repository import data_of

pytestmark = pytest.mark.full

STEP = 15
MINUTES = 150
#: Longer ago than the history lasts: VictoriaMetrics takes no samples of the future.
START = time.time() // 3600 * 3600 - 4 * 3600
#: Scrapes, and evaluations.
SCRAPES = START + 7 + STEP * np.arange(MINUTES * 60 // STEP)
EVALUATIONS = START + 60.0 * np.arange(MINUTES)
#: What a pod makes in a second.
DRAFTS = 10.0
K = 3


class Life(NamedTuple):
    """Of a pod."""

    begin: float  # minute
    end: float
    share: float  # of its draft tokens that are accepted
    before: float = 0.0  # drafts that it made before anybody scraped it


LIVES: dict[str, tuple[Life, ...]] = {
    "rollout": (*[Life(0, 80.3, 0.6)] * 3, *[Life(80.3, MINUTES, 0.4)] * 3),
    "autoscaled": (
        Life(0, MINUTES, 0.42),
        *(Life(start, start + 10, 0.8) for start in range(20, 140, 20)),
    ),
    "watched late": (Life(0, MINUTES, 0.5), Life(70.2, MINUTES, 0.3, before=1e6)),
    "of four minutes": tuple(
        Life(start, start + 4, 0.5) for start in range(10, 140, 5)
    ),
    "once two minutes": (Life(0, 20, 0.5), Life(90.1, 92.1, 0.5)),
}
#: Windows, in seconds.
SECONDS = {"5m": 300, "30m": 1800, "1h": 3600}


def _counted(life: Life) -> dict[str, Samples]:
    """Return the samples of a pod's counters."""
    seconds = SCRAPES - START - 60 * life.begin
    alive = (seconds >= 0) & (60 * life.end > SCRAPES - START)
    drafts = np.where(alive, life.before + DRAFTS * seconds, np.nan)
    accepted = K * drafts * life.share
    return {
        "drafts": drafts,
        "draft_tokens": K * drafts,
        "accepted_tokens": accepted,
        "generation_tokens": drafts + accepted,
        "accepted_tokens_per_position": drafts * life.share,
    }


def _scraped() -> dict[Key, Samples]:
    series: dict[Key, Samples] = {}
    for model, lives in LIVES.items():
        for number, life in enumerate(lives):
            target = {
                "job": "vllm-specdec-exporter",
                "namespace": "chat",
                "instance": f"{model}-{number}",
                "model_name": model,
                "engine": "0",
            }
            for counter, rows in _counted(life).items():
                labels = dict(target)
                if counter.endswith("per_position"):
                    labels["position"] = "0"
                series[f"vllm_specdec_{counter}_total", pairs_of(labels)] = rows
    return series


def _rules() -> list[Rule]:
    rules: list[Rule] = []
    for group in data_of(RULES / "recording.yml")["groups"]:
        if group["name"].startswith("vllm-specdec.rates."):
            rules += map(Rule, group["rules"])
    return rules


@functools.cache
def _recorded(server: str, suite: str) -> Storage:
    with server_of(server, suite) as running:
        worlds_write.push(running.url, SCRAPES, _scraped())
        evaluation = _Evaluation(running, EVALUATIONS)
        for level in _levels(_rules()):
            evaluation.run(level)
        return evaluation.found


@pytest.fixture(
    params=[
        (server, suite)
        for server in ("prometheus", "victoria-metrics")
        for suite in ("installed", "newest")
    ],
    ids="-".join,
)
def found(request: pytest.FixtureRequest) -> Storage:
    """What the rules record in one of the servers."""
    return _recorded(*request.param)


def _after_an_hour(found: Storage, record: str, model: str) -> Samples:
    """Return what is recorded of a model once the longest window is full."""
    ((_, rows),) = found.select(f"model:vllm_specdec_{record}", model_name=model)
    return rows[60:]


def _counts(found: Storage, model: str, window: str) -> Samples:
    rate = _after_an_hour(found, f"drafts:rate{window}", model)
    return np.nan_to_num(SECONDS[window] * rate)


def _windows(window: str) -> tuple[Samples, Samples]:
    """Return begin and end of the windows, in seconds since the first."""
    ends = (EVALUATIONS - START)[60:]
    return ends - SECONDS[window], ends


def _drafted(
    model: str, window: str, weight: Callable[[float], float] = lambda _share: 1.0
) -> Samples:
    """Return how many drafts there really were, each pod's by a weight of the share
    that it accepts.
    """
    begins, ends = _windows(window)
    total = np.zeros(len(ends))
    for life in LIVES[model]:
        last = np.minimum(ends, 60 * life.end)
        made = np.maximum(last - np.maximum(begins, 60 * life.begin), 0)
        total += weight(life.share) * DRAFTS * made
    return total


def _edges(model: str, window: str) -> Samples:
    """Return how many pods began or ended within the windows."""
    begins, ends = _windows(window)
    total = np.zeros(len(ends))
    for life in LIVES[model]:
        for minute in (life.begin, life.end):
            total += (begins - STEP < 60 * minute) & (60 * minute < ends + STEP)
    return total


@pytest.mark.parametrize("model", ["rollout", "autoscaled", "watched late"])
@pytest.mark.parametrize("window", ["30m", "1h"])
def test_counts_are_those_of_the_window(
    found: Storage, model: str, window: str
) -> None:
    np.testing.assert_allclose(
        _counts(found, model, window), _drafted(model, window), rtol=0.02
    )


@pytest.mark.parametrize("model", LIVES)
def test_counts_are_never_too_high_and_lack_two_scrapes_of_a_pod_at_most(
    found: Storage, model: str
) -> None:
    """Of what is made before a pod's first sample and after its last, a server knows
    nothing: Prometheus adds a part, VictoriaMetrics none.
    """
    for window in SECONDS:
        true = _drafted(model, window)
        got = _counts(found, model, window)
        assert (got <= 1.01 * true).all(), window
        lost = 2 * STEP * DRAFTS * _edges(model, window)
        assert (got >= true - lost - 0.01).all(), window


@pytest.mark.parametrize("model", LIVES)
@pytest.mark.parametrize("window", ["30m", "1h"])
def test_ratios_weigh_pods_by_what_they_made_in_the_window(
    found: Storage, model: str, window: str
) -> None:
    ratio = _after_an_hour(found, f"acceptance:ratio_rate{window}", model)
    known = ~np.isnan(ratio)
    true = _drafted(model, window, float)[known] / _drafted(model, window)[known]
    np.testing.assert_allclose(ratio[known], true, rtol=0.02)
