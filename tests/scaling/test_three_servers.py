"""Every record and every alert is the same in Prometheus 2 and 3 and in
VictoriaMetrics: while faults are injected, and while pods come and go.

Samples stand 7 s off the times of the rules: every minute of the faults, every 15 s of
the pods, of which some live for minutes.
"""

import time
from functools import cache

import numpy as np
import pytest

from alerts.histories import replica
from alerts.promtool import series_names
from alerts.world import World
from dashboards.worlds_pods import Storage
from dashboards.worlds_traffic import Key, Samples
from replay import faults, stories
from scaling.samples import every_quarter
from scaling.servers import all_rules, recorded, server_of

pytestmark = pytest.mark.full

#: Long enough for all but the slowest faults to be told.
MINUTES = 150
#: Longer ago than all that lasts: VictoriaMetrics takes no samples of the future.
START = time.time() // 3600 * 3600 - 4 * 3600
#: The first finds one scrape, of which Prometheus knows no increase.
EVALUATIONS = START + 60.0 * np.arange(2, MINUTES)

#: How many evaluations a value may come earlier or later: a window's edges lie between
#: scrapes, and what is alerted on another alert's firing follows that.
EARLIER = 2
#: Part of a value that may differ. Prometheus 2 counts both ends of a window, so one
#: evaluation of thirty more, and VictoriaMetrics nothing before a pod's first sample.
SLACK = 0.05
SLACKS = {
    # Of windows of five minutes, of pods that live for four.
    "model:vllm_specdec_judged_drafts:sum1h": 0.08,
    # While acceptance falls: the shares of two windows whose ends are scrapes.
    "model:vllm_specdec_disable_rule:ratio": 0.12,
}
#: Differences of nearly equal logarithms, so of no digit that two servers share while
#: acceptance falls.
NOT_COMPARED = "model:vllm_specdec_speedup_change:cause"
#: Before 1.108 (VictoriaMetrics#7759), `or on` gave what the right side says under the
#: labels of the left. Debian 12 has 1.79.
WRONG_BEFORE_1_108 = {
    "model:vllm_specdec_before:median",
    "model:vllm_specdec_speedup_interval:ratio",
    "model:vllm_specdec_state:code",
    "model:vllm_specdec_verdict:info",
}


def _autoscaled(lives: int, every: int) -> stories.Story:
    """Return a pod that stays, and others that live for some minutes each."""

    def add(world: World, namespace: str) -> None:
        stays = stories.for_(MINUTES, stories.BF16)
        replica(world, 1, stays, namespace=namespace)
        for start in range(20, MINUTES - 20, every):
            short = stories.for_(lives, stories.INT4)
            replica(world, 9 + start, short, start=start, namespace=namespace)

    return add


PODS: dict[str, stories.Story] = {
    "rollout": stories.rollout,
    "autoscaled": _autoscaled(10, every=20),
    "of-four-minutes": _autoscaled(4, every=5),
}


@cache
def _of_faults() -> Storage:
    storage = Storage(START + 7 + 60.0 * np.arange(MINUTES))
    read = series_names(" ".join(rule.body["expr"] for rule in all_rules()))
    for (name, labels), samples in faults.play("short").series.items():
        if name not in read:
            continue
        rows = storage.rows(name, dict(labels))
        rows[: len(samples)] = samples[:MINUTES]
        if name.endswith("_timestamp_seconds"):
            rows += START
    return storage


@cache
def _of_pods() -> Storage:
    world = World()
    for namespace, story in PODS.items():
        story(world, namespace)
    storage = Storage(START + 7 + 15.0 * np.arange(4 * MINUTES))
    storage.series = every_quarter(world, MINUTES)
    for name, labels in storage.series:
        if name.endswith("_timestamp_seconds"):
            storage.series[name, labels] += START
    return storage


@cache
def _found(program: str, suite: str) -> Storage:
    with server_of(program, suite) as server:
        return recorded(server, EVALUATIONS, _of_faults(), _of_pods())


def _outside(rows: Samples, others: Samples, slack: float) -> Samples:
    """Return where samples are not near what others have about then, or have none."""
    near = np.lib.stride_tricks.sliding_window_view(
        np.pad(others, EARLIER, constant_values=np.nan), 2 * EARLIER + 1
    )
    low, high = np.fmin.reduce(near, axis=1), np.fmax.reduce(near, axis=1)
    slacks = slack * np.fmax(np.abs(low), np.abs(high)) + 1e-6
    return ~np.isnan(rows) & ~((low - slacks <= rows) & (rows <= high + slacks))


def _absent(rows: Samples, others: Samples) -> Samples:
    """Return where there are samples, and others have none about then."""
    near = np.pad(~np.isnan(others), EARLIER)
    windows = np.lib.stride_tricks.sliding_window_view(near, 2 * EARLIER + 1)
    return ~np.isnan(rows) & ~windows.any(axis=1)


def _title(key: Key) -> str:
    name, labels = key
    if name == "ALERTS":
        return dict(labels)["alertname"]
    return name


def _is_compared(key: Key) -> bool:
    """Of alerts it is what fires: how long something is pending is not told."""
    name, labels = key
    if name in (NOT_COMPARED, "ALERTS_FOR_STATE"):
        return False
    return ("alertstate", "pending") not in labels


def _differences(found: Storage, base: Storage) -> dict[str, set[str]]:
    """Return where a record or an alert differs, by its name and namespaces."""
    nothing = np.full(len(EVALUATIONS), np.nan)
    different: dict[str, set[str]] = {}
    for key in filter(_is_compared, found.series.keys() | base.series.keys()):
        here = found.series.get(key, nothing)
        there = base.series.get(key, nothing)
        slack = SLACKS.get(key[0], SLACK)
        lacks = _absent(there, here)
        differs = _outside(here, there, slack) & _outside(there, here, slack)
        extra = _absent(here, there)
        if key[0].startswith("engine:"):
            extra &= here != 0
        if (lacks | differs | extra).any():
            namespace = dict(key[1]).get("namespace", "")
            different.setdefault(_title(key), set()).add(namespace)
    return different


@pytest.mark.parametrize(
    ("program", "suite", "wrong"),
    [
        ("prometheus", "newest", set()),
        ("victoria-metrics", "newest", set()),
        ("victoria-metrics", "installed", WRONG_BEFORE_1_108),
    ],
)
def test_every_record_and_every_alert_is_as_in_prometheus_2(
    program: str, suite: str, wrong: set[str]
) -> None:
    base = _found("prometheus", "installed")
    fired = {_title(key) for key in base.series if key[0] == "ALERTS"}
    assert len(fired) > 15
    different = _differences(_found(program, suite), base)
    unlike = {name: where for name, where in different.items() if name not in wrong}
    assert not unlike, f"{len(unlike)} names: {sorted(unlike)}"
    assert wrong <= different.keys()
