"""The distribution of accepted tokens per draft, recovered exactly from the position counters.

Position i is accepted in a draft exactly when the draft had more than i tokens accepted. So the drafts with
at most j accepted tokens are those in which position j was not accepted::

    bucket(le=j) = drafts - accepted at position j      for j = 0 .. K-1
    bucket(le=K) = drafts                               count = drafts, sum = accepted tokens

These are the cumulative buckets of a Prometheus histogram, with nothing estimated.

Prometheus takes any fall of a bucket for a restart and adds the whole bucket to its rate. An answer that
was torn between two counters can make `drafts - accepted` fall by a few, so each bucket is held at its
highest value within a life. What a torn answer overstates, one engine step at most, stays until the true
value has caught up; nothing ever falls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from ..economics.baseline_match import Measured
from ..economics.speedup import Estimate, Return
from .window import Latency

if TYPE_CHECKING:
    from ..engines.reading import Counters
    from .window import Delta


@dataclass(frozen=True, slots=True)
class Distribution:
    """Cumulative counts of drafts by accepted tokens.

    Attributes:
        buckets: at index j, the drafts with at most j accepted tokens; j runs from 0 to K.
        count: all drafts.
        sum: all accepted tokens.
    """

    buckets: tuple[float, ...]
    count: float
    sum: float


def recover(counters: Counters, earlier: Distribution | None = None) -> Distribution | None:
    """Return the distribution at `counters`, or ``None`` where there are no position counters.

    Args:
        counters: cumulative counters.
        earlier: the distribution at the sample before, in the same life: buckets never fall below it.
    """
    positions = counters.accepted_tokens_per_position
    if not positions or counters.drafts is None or counters.accepted_tokens is None:
        return None
    drafts = counters.drafts
    floor = earlier.buckets if earlier else ()
    raw = (
        max(drafts - accepted, floor[j] if j < len(floor) else 0.0) for j, accepted in enumerate(positions)
    )
    # Cumulative buckets rise with j by their meaning; a torn answer may say otherwise.
    rising = tuple(min(bucket, drafts) for bucket in accumulate(raw, max))
    return Distribution(buckets=(*rising, drafts), count=drafts, sum=counters.accepted_tokens)


@dataclass(frozen=True, slots=True)
class DraftShape:
    """How long drafts are, from detailed records.

    Attributes:
        drafts: drafts that it rests on.
        mean_lengths: at index i, the tokens that a draft would hold with K = i + 1.
    """

    drafts: int
    mean_lengths: tuple[float, ...]

    @property
    def mean_length(self) -> float:
        """Tokens that a draft holds now; 0 where nothing is known."""
        return self.mean_lengths[-1] if self.mean_lengths else 0.0

    def of(self, k: int) -> DraftShape:
        """Return the same for the present K, which no draft may have reached."""
        missing = k - len(self.mean_lengths)
        return DraftShape(self.drafts, self.mean_lengths + (self.mean_length,) * missing)

    def length(self, k: int) -> float:
        """Return the tokens that a draft would hold with this K.

        Beyond the present one: as if every draft that was cut off by K went on.
        """
        if k <= 0 or not self.mean_lengths:
            return 0.0
        if k <= len(self.mean_lengths):
            return self.mean_lengths[k - 1]
        before = self.mean_lengths[-2] if len(self.mean_lengths) > 1 else 0.0
        return self.mean_length + (k - len(self.mean_lengths)) * (self.mean_length - before)


# These stand in annotations that are read at run time, to decode and to describe the JSON.


#: Where drafts hold fewer than this share of K tokens on average, deep positions are understated.
FULL_DRAFT_SHARE = 0.95

#: The name of the window of values that a server itself averages over its whole life (vLLM V0).
LIFETIME = "lifetime"


@dataclass(frozen=True, slots=True)
class Measures:
    """Everything derived from one window of one engine. ``None`` or an empty tuple: cannot be known.

    Attributes:
        window: the window's name, such as ``5m``; ``lifetime`` for means over a server's whole life (V0).
        span_seconds: the real distance of the samples behind the values; at first shorter than the window.
        drafts: drafts in the window: the sample size of every ratio here.
        acceptance_ratio: accepted over draft tokens, 0 to 1.
        mean_acceptance_length: tokens emitted per draft, 1 to 1 + K: 1 + accepted / drafts.
        position_acceptance_ratio: at index i, the share of drafts in which position i was accepted.
        position_conditional_acceptance_ratio: at index i, the share of the drafts accepted at i - 1 that
            were accepted at i; at 0, of all drafts. ``None`` where no draft got that far.
        expected_tokens_per_step: 1 + the sum of the position ratios.
        mean_acceptance_length_at: at index i, the mean acceptance length that K = i + 1 would have given.
        mean_draft_length: draft tokens per draft, 0 to K.
        position_decay_ratio: geometric mean of the conditional ratios behind position 0, 0 to 1.
        coverage_ratio: share of the generated tokens that came out of drafts, 0 to 1.
        drafts_per_second: rate over the real span; the next three likewise, in tokens per second.
        batch_size: requests in the batch, averaged over the drafts.
        estimate: what speculation gains by the cost profile.
        measured: what it gains against the baseline at the same load.
        returns: the published return on speculation.
        latencies: how long the requests that finished in the window took, where that is read.
    """

    window: str
    span_seconds: float | None = None
    drafts: float | None = None
    acceptance_ratio: float | None = None
    mean_acceptance_length: float | None = None
    position_acceptance_ratio: tuple[float, ...] = ()
    position_conditional_acceptance_ratio: tuple[float | None, ...] = ()
    expected_tokens_per_step: float | None = None
    mean_acceptance_length_at: tuple[float, ...] = ()
    mean_draft_length: float | None = None
    position_decay_ratio: float | None = None
    coverage_ratio: float | None = None
    drafts_per_second: float | None = None
    draft_tokens_per_second: float | None = None
    accepted_tokens_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    batch_size: float | None = None
    estimate: Estimate = Estimate()
    measured: Measured = Measured()
    returns: Return = Return()
    latencies: tuple[Latency, ...] = ()

    @property
    def drafts_vary(self) -> bool:
        """Whether drafts are shorter than K often enough to understate the deep positions.

        Position ratios divide by all drafts, also by those too short to reach the position. n-gram and
        suffix drafting, a K schedule and drafts cut short at the end of a request all do this.
        """
        k = len(self.position_acceptance_ratio)
        return self.mean_draft_length is not None and self.mean_draft_length < FULL_DRAFT_SHARE * k


def derive(window: str, delta: Delta) -> Measures:
    """Return the measures of `delta`, the increases within the window called `window`."""
    drafts, draft_tokens, accepted = delta.drafts, delta.draft_tokens, delta.accepted_tokens
    k = len(delta.accepted_tokens_per_position)
    positions = survival(delta.accepted_tokens_per_position, drafts or 0.0)
    conditional = _conditional(positions)
    lengths = _lengths(positions)
    per_draft = _mean(accepted, drafts, k)
    emitted = None if drafts is None or accepted is None else drafts + accepted
    return Measures(
        window=window,
        span_seconds=delta.span,
        drafts=drafts or 0.0,
        acceptance_ratio=_ratio(accepted, draft_tokens),
        mean_acceptance_length=None if per_draft is None else 1 + per_draft,
        position_acceptance_ratio=positions,
        position_conditional_acceptance_ratio=conditional,
        expected_tokens_per_step=lengths[-1] if lengths else None,
        mean_acceptance_length_at=lengths,
        mean_draft_length=_mean(draft_tokens, drafts, k),
        position_decay_ratio=_decay(conditional),
        coverage_ratio=_ratio(emitted, delta.generation_tokens),
        drafts_per_second=_rate(delta.drafts, delta.span),
        draft_tokens_per_second=_rate(delta.draft_tokens, delta.span),
        accepted_tokens_per_second=_rate(delta.accepted_tokens, delta.span),
        generation_tokens_per_second=_rate(delta.generation_tokens, delta.span),
        batch_size=delta.batch_size,
        latencies=delta.latencies,
    )


def derive_lifetime(acceptance_ratio: float | None, efficiency: float | None, k: int | None) -> Measures:
    """Return what vLLM V0's two gauges tell: means over the server's whole life.

    Args:
        acceptance_ratio: accepted over draft tokens since the start.
        efficiency: emitted tokens over the most possible, which is K + 1 a draft.
        k: drafted tokens per draft, where known; without it there is no mean acceptance length.
    """
    return Measures(
        window=LIFETIME,
        acceptance_ratio=None if acceptance_ratio is None else min(acceptance_ratio, 1.0),
        mean_acceptance_length=None
        if efficiency is None or k is None
        else min(max(1.0, efficiency * (k + 1)), k + 1.0),
    )


def _ratio(part: float | None, whole: float | None) -> float | None:
    return min(part / whole, 1.0) if part is not None and whole else None


def _rate(increase: float | None, span: float) -> float | None:
    return None if increase is None or span <= 0 else increase / span


def _mean(tokens: float | None, drafts: float | None, k: int) -> float | None:
    """Return tokens per draft, of which there are at most K where K is known."""
    if tokens is None or not drafts:
        return None
    return min(tokens / drafts, k) if k else tokens / drafts


def survival(accepted: tuple[float, ...], drafts: float) -> tuple[float, ...]:
    """Return the share of drafts accepted at each position; none may exceed the one before it."""
    if drafts <= 0:
        return ()
    ratios, bound = [], 1.0
    for count in accepted:
        bound = min(count / drafts, bound)
        ratios.append(bound)
    return tuple(ratios)


def _conditional(survival: tuple[float, ...]) -> tuple[float | None, ...]:
    before = (1.0, *survival[:-1])
    return tuple(
        here / earlier if earlier > 0 else None
        for here, earlier in zip(survival, before, strict=False)  # without drafts there is only the 1
    )


def _lengths(survival: tuple[float, ...]) -> tuple[float, ...]:
    lengths, total = [], 1.0
    for ratio in survival:
        total += ratio
        lengths.append(total)
    return tuple(lengths)


def _decay(conditional: tuple[float | None, ...]) -> float | None:
    behind_first = [ratio for ratio in conditional[1:] if ratio is not None]
    if not behind_first:
        return None
    return math.prod(behind_first) ** (1 / len(behind_first))
