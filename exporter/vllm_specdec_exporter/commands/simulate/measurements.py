"""The measurements of a simulated engine: counters, gauges and histograms."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from .families import histogram_bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .speculation import Totals


class HistogramCounts:
    """A histogram.

    Args:
        bounds: The finite upper limits, inclusive and rising; that of the last bucket is infinite.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.count = 0
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Observe a value a number of times."""
        if times <= 0:
            return
        self._counts[bisect_left(self.bounds, value)] += times
        self.count += times
        self.sum += value * times

    def cumulative(self, bounds: Sequence[float]) -> list[int]:
        """Return the number of observations up to each bound, which must be a bound of the histogram."""
        totals = dict(zip(self.bounds, accumulate(self._counts), strict=False))
        return [totals[bound] for bound in bounds]

    def merge(self, other: HistogramCounts) -> None:
        """Add the observations of a histogram with the same bounds."""
        self._counts = [a + b for a, b in zip(self._counts, other._counts, strict=True)]
        self.count += other.count
        self.sum += other.sum


class Measurements:
    """Counters, gauges and histograms of one engine.

    The key of a value is the family's name in vLLM 0.32 without its prefix, such as `generation_tokens`, and
    a variant such as a finish reason, empty if the family has none.
    """

    def __init__(self, max_model_len: int) -> None:
        self._values: dict[tuple[str, str], float] = {}
        self.histograms = {
            source: HistogramCounts(bounds) for source, bounds in histogram_bounds(max_model_len).items()
        }

    def add(self, name: str, amount: float, variant: str = "") -> None:
        """Raise a counter."""
        key = (name, variant)
        self._values[key] = self._values.get(key, 0) + amount

    def set(self, name: str, value: float, variant: str = "") -> None:
        """Set a gauge."""
        self._values[(name, variant)] = value

    def get(self, name: str, variant: str = "") -> float:
        """Return a counter or gauge; 0 if it was never set."""
        return self._values.get((name, variant), 0)

    def has(self, name: str, variant: str = "") -> bool:
        """Whether a counter or gauge was ever set."""
        return (name, variant) in self._values

    def observe(self, name: str, value: float, times: int = 1) -> None:
        """Observe a value a number of times in a histogram."""
        self.histograms[name].observe(value, times)


def combined(parts: Sequence[Measurements], name: str, variant: str, how: str) -> float:
    """Return the sum, the mean or the maximum of a value over several engines."""
    values = [part.get(name, variant) for part in parts]
    if not values:
        return 0.0
    if how == "max":
        return max(values)
    return sum(values) / len(values) if how == "mean" else sum(values)


def combined_histogram(parts: Sequence[Measurements], name: str) -> HistogramCounts:
    """Return the sum of a histogram over several engines."""
    if len(parts) == 1:
        return parts[0].histograms[name]
    result = HistogramCounts(parts[0].histograms[name].bounds)
    for part in parts:
        result.merge(part.histograms[name])
    return result


_INTERVAL_SECONDS = 5.0


class V0Sampler:
    """Samples the totals every 5 s, as vLLM's V0 engine did.

    Each sample added the totals since the start to the counters, so their rate is meaningless; the two gauges
    are means since the start.
    """

    def __init__(self, num_speculative_tokens: int) -> None:
        self._num_speculative_tokens = num_speculative_tokens
        self._samples = 0

    def observe(self, now: float, totals: Totals, measurements: Measurements) -> None:
        """Take the samples that are due by now."""
        due = math.floor(now / _INTERVAL_SECONDS)
        times, self._samples = due - self._samples, due
        if times <= 0 or totals.draft_tokens == 0:
            return
        emitted = totals.accepted_tokens + totals.drafts
        possible = totals.drafts * (self._num_speculative_tokens + 1)
        measurements.set("v0_draft_acceptance_rate", totals.accepted_anywhere / totals.draft_tokens)
        measurements.set("v0_efficiency", emitted / possible)
        measurements.add("v0_num_accepted_tokens", totals.accepted_anywhere * times)
        measurements.add("v0_num_draft_tokens", totals.draft_tokens * times)
        measurements.add("v0_num_emitted_tokens", emitted * times)
        measurements.add("v0_samples", times)


def show_lmdeploy(counts: Measurements, totals: Totals) -> None:
    """Set LMDeploy's own values: means and totals since the start."""
    if totals.draft_tokens:
        counts.set("spec_decode_mean_accept_rate", totals.accepted_tokens / totals.draft_tokens)
        counts.set("spec_decode_mean_accept_length", 1 + totals.accepted_tokens / totals.drafts)
    if totals.drafts:
        for position, accepted in enumerate(totals.accepted_per_position):
            counts.set("spec_decode_per_position_accept_rate", accepted / totals.drafts, str(position))
    queries = counts.get("prefix_cache_queries")
    if queries:
        counts.set("prefix_cache_hit_rate", counts.get("prefix_cache_hits") / queries)
    counts.set("lmdeploy_request_success", counts.get("http_requests"), "ResponseType.FINISH")


def show_llamacpp(counts: Measurements, totals: Totals) -> None:
    """Set llama.cpp's values, which change only when a request is complete."""

    def show(name: str, value: float, variant: str = "") -> None:
        counts.set(f"llamacpp_{name}", value, variant)

    computed = counts.get("prompt_tokens_by_source", "local_compute")
    generated = counts.get("generation_tokens")
    prefill, decode = counts.get("prefill_seconds"), counts.get("decode_seconds")
    steps = counts.histograms["iteration_tokens_total"].count
    show("prompt_tokens", computed)
    show("prompt_tokens_cached", counts.get("prompt_tokens_cached"))
    show("prompt_seconds", prefill)
    show("tokens_predicted", generated)
    show("tokens_predicted_seconds", decode)
    show("n_decode", steps)
    show("n_tokens_max", counts.get("longest"))
    show("prompt_tokens_seconds", computed / prefill if prefill else 0.0)
    show("predicted_tokens_seconds", generated / decode if decode else 0.0)
    show("n_busy_slots_per_decode", counts.get("busy_slots") / steps if steps else 0.0)
    show("spec_decode_num_drafts", totals.drafts)
    show("spec_decode_num_draft_tokens", totals.draft_tokens)
    show("spec_decode_num_accepted_tokens", totals.accepted_tokens)
    if totals.drafts:
        for position, accepted in enumerate(totals.accepted_per_position):
            show("spec_decode_num_accepted_tokens_per_pos", accepted, str(position))
