"""Per-request series of an exporter that has them, as the dashboard of requests expects them.

No exporter publishes these so far; names and labels are those of dashboards/grafana_panels/per_request.py.
Two types of request share a server: code, whose drafts are good, and stories, whose drafts are bad when hot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dashboards.worlds_pods import JOB

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from dashboards.worlds_pods import Pod, Storage

ACCEPTANCE_BOUNDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SECONDS_BOUNDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class Kind:
    """Requests that are alike.

    Attributes:
        request_type: what they ask for.
        temperature: bucket of their temperature.
        outcome: what speculation does to them.
        per_minute: how many.
        acceptance: mean acceptance ratio.
        tokens: generated for each.
        per_token: seconds per output token.
        first_token: seconds to the first token.
    """

    request_type: str
    temperature: str
    outcome: str
    per_minute: float
    acceptance: float
    tokens: int
    per_token: float
    first_token: float


KINDS = (
    Kind("code", "0.0-0.3", "gains", 60, 0.82, 300, 0.008, 0.08),
    Kind("code", "0.7-1.0", "break_even", 12, 0.55, 300, 0.012, 0.08),
    Kind("story", "0.7-1.0", "loses", 30, 0.22, 600, 0.03, 0.15),
)


def add(storage: Storage, pods: Sequence[Pod]) -> None:
    """Add the series of all pods, whose servers have one model each."""
    for pod in pods:
        model = next(iter(pod.servers[0].stories))[0]
        target = {**pod.labels, "job": JOB, "instance": pod.address, "model_name": model}
        for number, kind in enumerate(KINDS):
            _add(storage, target, kind, np.random.default_rng(number))


def _add(storage: Storage, target: Mapping[str, str], kind: Kind, random: np.random.Generator) -> None:
    minutes = float(storage.times[1] - storage.times[0]) / 60
    counts = random.poisson(kind.per_minute * minutes, len(storage.times))
    own = {**target, "temperature": kind.temperature, "request_type": kind.request_type}
    outcome = {**own, "outcome": kind.outcome}
    totals = np.cumsum(counts).astype(float)
    _put(storage, "vllm_specdec_request_outcomes_total", outcome, totals)
    _put(storage, "vllm_specdec_request_generation_tokens_total", outcome, totals * kind.tokens)
    spread = kind.acceptance * 20
    acceptance = [random.beta(spread, 20 - spread, count) for count in counts]
    per_token = [random.lognormal(np.log(kind.per_token), 0.3, count) for count in counts]
    first_token = [random.lognormal(np.log(kind.first_token), 0.3, count) for count in counts]
    histogram(storage, "vllm_specdec_request_acceptance_ratio", own, acceptance, ACCEPTANCE_BOUNDS)
    histogram(storage, "vllm_specdec_request_time_per_output_token_seconds", own, per_token, SECONDS_BOUNDS)
    histogram(storage, "vllm_specdec_request_time_to_first_token_seconds", own, first_token, SECONDS_BOUNDS)


def histogram(
    storage: Storage,
    name: str,
    labels: Mapping[str, str],
    observed: Sequence[NDArray[np.float64]],
    bounds: Sequence[float],
) -> None:
    """Add a histogram of what was observed before each scrape."""
    for bound in bounds:
        below = np.array([(values <= bound).sum() for values in observed])
        _put(storage, f"{name}_bucket", {**labels, "le": f"{bound:g}"}, np.cumsum(below).astype(float))
    count = np.cumsum([len(values) for values in observed]).astype(float)
    _put(storage, f"{name}_bucket", {**labels, "le": "+Inf"}, count)
    _put(storage, f"{name}_count", labels, count)
    _put(storage, f"{name}_sum", labels, np.cumsum([values.sum() for values in observed]))


def _put(storage: Storage, name: str, labels: Mapping[str, str], rows: NDArray[np.float64]) -> None:
    key = (name, tuple(sorted((label, value) for label, value in labels.items() if value)))
    known = storage.series.get(key)
    storage.series[key] = rows if known is None else known + rows
