"""The measures of a window of one engine, and the distribution of accepted tokens per
draft.

The distribution follows exactly from the position counters: a draft has at most j
accepted tokens if and only if position j was not accepted::

    bucket(le=j) = drafts - accepted at position j      for j = 0 .. K-1
    bucket(le=K) = drafts
    count = drafts, sum = accepted tokens

These are the cumulative buckets of a Prometheus histogram.

Prometheus treats a bucket that falls as a reset and adds the whole bucket to its rate.
A response whose counters were read at slightly different times can lower `drafts -
accepted` by a few drafts. So each bucket keeps its highest value until a reset, and
exceeds the true value by one engine step at most.
"""

from __future__ import annotations

import math
from itertools import accumulate, chain, repeat

from msgspec import Struct
from msgspec.structs import replace

from ..economics.baseline_match import Measured, measured_speedup
from ..economics.cost import CostProfile
from ..economics.observed_step import ObservedStep
from ..economics.speedup import (
    Estimate,
    Return,
    return_on_speculation,
    speedup_of_drafts,
)
from ..economics.statistics import AcceptanceSample
from ..engines.reading import Counters
from .delivered import (
    Delivered,
    batch_size_high,
    decoded_tokens,
    delivered,
    within_length,
)
from .estimation import DraftSample, DraftTree, estimate_window
from .history import Delta, Latency


class Distribution(Struct, frozen=True):
    """Cumulative counts of drafts by accepted tokens.

    Attributes:
        buckets: at index j, the drafts with at most j accepted tokens; j runs from 0 to
            K.
        count: all drafts.
        sum: all accepted tokens.
    """

    buckets: tuple[float, ...]
    count: float
    sum: float


def recover(
    counters: Counters, earlier: Distribution | None = None
) -> Distribution | None:
    """Return the distribution, at least `earlier` (without a reset); ``None`` without
    position counters.
    """
    positions = counters.accepted_tokens_per_position
    if not positions or counters.drafts is None or counters.accepted_tokens is None:
        return None
    drafts = counters.drafts
    floors = chain(earlier.buckets if earlier else (), repeat(0.0))
    raw = (
        max(drafts - accepted, floor)
        for accepted, floor in zip(positions, floors, strict=False)
    )
    # Counters that were read at slightly different times may give buckets that fall
    # with j.
    rising = tuple(min(bucket, drafts) for bucket in accumulate(raw, max))
    return Distribution(
        buckets=(*rising, drafts), count=drafts, sum=counters.accepted_tokens
    )


class DraftShape(Struct, frozen=True):
    """The length of drafts, from request records."""

    drafts: int  # number of drafts in the records
    #: At index i, the mean tokens per draft with K = i + 1.
    mean_lengths: tuple[float, ...]
    #: At index i, the share of the drafts in which position i was accepted.
    survival: tuple[float, ...] = ()
    #: Whether requests of the records ran above temperature 0; ``None`` where it is
    #: not known.
    sampled: bool | None = None

    @property
    def mean_length(self) -> float:
        """Mean tokens per draft with the present K; 0 without data."""
        if self.mean_lengths:
            return self.mean_lengths[-1]
        return 0.0

    def of(self, k: int) -> DraftShape:
        """Return the shape extended to K positions, of which the records may have
        reached fewer.
        """
        missing = k - len(self.mean_lengths)
        return replace(
            self, mean_lengths=self.mean_lengths + (self.mean_length,) * missing
        )

    def length(self, k: int) -> float:
        """Return the mean tokens per draft with this K.

        Above the present K, drafts of K tokens are one token longer for each further
        position.
        """
        if k <= 0 or not self.mean_lengths:
            return 0.0
        present = len(self.mean_lengths)
        if k <= present:
            return self.mean_lengths[k - 1]
        shorter = self.mean_lengths[-2] if present > 1 else 0.0
        return self.mean_length + (k - present) * (self.mean_length - shorter)


def counted_shape(delta: Delta | None) -> DraftShape | None:
    """Return the draft lengths by K, if drafted tokens are counted by position."""
    drafted = delta.drafted_tokens_per_position if delta else ()
    if not drafted or not drafted[0]:
        return None
    return DraftShape(
        int(drafted[0]), tuple(total / drafted[0] for total in accumulate(drafted))
    )


#: If the mean draft is shorter than this share of K, the ratios of deep positions are
#: understated.
FULL_DRAFT_SHARE = 0.95
#: Share of the counted tokens that reached no answer from which positions, which count
#: them, say little: an answer of 100 tokens loses 2 or 3 at its end.
_CUT_SHORT = 0.1
LIFETIME = "lifetime"  # window name of the means over a server's whole life (vLLM V0)


class Measures(Struct, frozen=True):
    """Everything derived from one window of one engine. ``None`` or an empty tuple:
    unknown.

    Attributes:
        window: the window's name, such as ``5m``; ``lifetime`` for means over a
            server's whole life (V0).
        span_seconds: time between the first and the last sample; at first shorter than
            the window.
        drafts: drafts in the window, the sample size of the ratios.
        acceptance_ratio: accepted over draft tokens, 0 to 1.
        mean_acceptance_length: tokens delivered per draft, 1 to 1 + K: 1 + accepted /
            drafts, without what cannot have reached an answer (see `delivered`).
        mean_acceptance_length_error: its standard error by the sample; where positions
            are not counted, the largest that drafts of equal length can have.
        position_acceptance_ratio: at index i, the share of drafts in which position i
            was accepted.
        position_conditional_acceptance_ratio: at index i, the share of the drafts
            accepted at i - 1 that were accepted at i; at 0, of all drafts. If the
            engine counts the drafts that had a token at i, shorter ones are left out.
            ``None`` if no draft got to i.
        expected_tokens_per_step: 1 + the sum of the position ratios.
        mean_acceptance_length_at: at index i, the mean acceptance length with K = i +
            1; a lower bound below the present K, unless the ends of answers cut off
            tokens.
        mean_draft_length: draft tokens per draft, 0 to K.
        position_decay_ratio: geometric mean of the conditional ratios after position 0,
            0 to 1.
        coverage_ratio: share of the generated tokens that drafts emitted, 0 to 1: the
            most that it can have been.
        undelivered_ratio: the least share of the tokens counted for drafts (accepted
            tokens + drafts) that reached no answer, 0 to 1: cut off behind its end, or
            of drafts that vLLM pads prefill with.
        drafts_per_second: drafts over `span_seconds`.
        draft_tokens_per_second: tokens over `span_seconds`, as are the next two.
        accepted_tokens_per_second: accepted draft tokens.
        generation_tokens_per_second: generated tokens.
        prefix_cache_queries_per_second: prompt tokens looked up in the prefix cache.
        prefix_cache_hit_ratio: share of them that was found there, 0 to 1.
        batch_size: requests in the batch, averaged over the drafts.
        batch_size_high: the most that it can have been: the gauge that it comes from
            leaves out requests that just had their last step.
        step_seconds: mean time of an engine step, as every request in the batch sees
            it.
        estimate: the gain of speculation according to the cost profile.
        measured: the gain compared with the baseline at the same load.
        returns: the published return on speculation.
        latencies: latencies of the requests that finished in the window, if they are
            read.
    """

    window: str
    span_seconds: float | None = None
    drafts: float | None = None
    acceptance_ratio: float | None = None
    mean_acceptance_length: float | None = None
    mean_acceptance_length_error: float = 0.0
    position_acceptance_ratio: tuple[float, ...] = ()
    position_conditional_acceptance_ratio: tuple[float | None, ...] = ()
    expected_tokens_per_step: float | None = None
    mean_acceptance_length_at: tuple[float, ...] = ()
    mean_draft_length: float | None = None
    position_decay_ratio: float | None = None
    coverage_ratio: float | None = None
    undelivered_ratio: float | None = None
    drafts_per_second: float | None = None
    draft_tokens_per_second: float | None = None
    accepted_tokens_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    prefix_cache_queries_per_second: float | None = None
    prefix_cache_hit_ratio: float | None = None
    batch_size: float | None = None
    batch_size_high: float | None = None
    step_seconds: float | None = None
    estimate: Estimate = Estimate()
    measured: Measured = Measured()
    returns: Return = Return()
    latencies: tuple[Latency, ...] = ()

    @property
    def delivered_share(self) -> float:
        """The share of the accepted tokens that reached an answer, 0 to 1."""
        length = self.mean_acceptance_length
        counted = self.expected_tokens_per_step
        if not self.undelivered_ratio or length is None or counted is None:
            return 1.0
        if counted <= length:
            return 1.0
        return (length - 1) / (counted - 1)

    @property
    def cut_short(self) -> bool:
        """Whether so much of the drafts reached no answer that the positions as counted
        say little.
        """
        return (self.undelivered_ratio or 0.0) >= _CUT_SHORT

    @property
    def drafts_vary(self) -> bool:
        """Whether so many drafts are shorter than K that the ratios of deep positions
        are understated.

        Position ratios are shares of all drafts, also of those too short to reach the
        position. Such drafts come from n-gram and suffix drafting, a K schedule, and
        the ends of requests.
        """
        return _vary(self.mean_draft_length, len(self.position_acceptance_ratio))


def _vary(draft_length: float | None, k: int) -> bool:
    return draft_length is not None and draft_length < FULL_DRAFT_SHARE * k


class _MeanDraft(Struct, frozen=True):
    """The drafts of a window on average."""

    survival: tuple[float, ...]  # at index i, the share accepted in position i
    drafted: float | None  # its tokens
    length: float | None  # the tokens that it delivered, with its bonus token
    lengths: tuple[float, ...]  # at index i, the same with K = i + 1
    counted_length: float | None  # 1 + the sum of the ratios of positions
    length_error: float  # standard error of `length`, by the sample

    @property
    def costed(self) -> float | None:
        """The tokens that a step is charged for: K, unless drafts vary."""
        k = len(self.survival)
        if k and not _vary(self.drafted, k):
            return k
        return self.drafted


def _mean_draft(delta: Delta, gained: Delivered | None) -> _MeanDraft:
    """Return the mean draft of a window, whose drafts delivered `gained`."""
    drafts = delta.drafts or 0.0
    k = len(delta.accepted_tokens_per_position)
    positions = survival(delta.accepted_tokens_per_position, drafts)
    drafted = _mean(delta.draft_tokens, drafts, k)
    accepted = _mean(delta.accepted_tokens, drafts, k)
    counted_lengths = acceptance_lengths(positions)
    lengths = counted_lengths
    length = None
    sampled = drafts
    if gained is not None:
        length = gained.length
        # Part of a draft, as rates may show, is no sample.
        sampled = min(drafts, max(1.0, gained.drafts))
    if length is not None and k:
        length = min(length, 1.0 + k)
    if length is not None and gained is not None and gained.undelivered_ratio:
        # Positions count what was accepted; at most `length` of it was delivered.
        lengths = tuple(min(each, length) for each in lengths)
        if accepted is not None:
            accepted = min(accepted, length - 1)
    error = _error_of_length(
        within_length(positions, lengths[-1]) if lengths else (),
        drafted,
        accepted,
        sampled,
    )
    return _MeanDraft(
        survival=positions,
        drafted=drafted,
        length=length,
        lengths=lengths,
        counted_length=counted_lengths[-1] if counted_lengths else None,
        length_error=error,
    )


def derive(
    window: str,
    delta: Delta,
    profile: CostProfile | None = None,
    minimum_requests: float = math.inf,
    memory_ratio: float | None = None,
    *,
    tree: DraftTree | None = None,
) -> Measures:
    """Return the measures of `delta`, the increases within the window of this name.

    The gain is estimated if there is a cost profile, and measured from at least
    `minimum_requests` requests. The return is that of a draft model with this share of
    the memory of the GPUs. Drafts that are trees have no mean draft length.
    """
    gained = delivered(delta)
    draft = _mean_draft(delta, gained)
    conditional = _conditional(delta, draft.survival)
    emitted = None
    undelivered = None
    if gained is not None:
        emitted = gained.tokens
        if delta.drafts:
            undelivered = gained.undelivered_ratio
    estimated = Estimate()
    if profile is not None:
        estimated = estimate_window(
            delta,
            profile,
            DraftSample(draft.length, draft.length_error, draft.costed),
            gained=gained,
            tree=tree,
        )
    span = delta.span
    measures = Measures(
        window=window,
        span_seconds=span,
        drafts=delta.drafts or 0.0,
        acceptance_ratio=_ratio(delta.accepted_tokens, delta.draft_tokens),
        mean_acceptance_length=draft.length,
        mean_acceptance_length_error=draft.length_error,
        position_acceptance_ratio=draft.survival,
        position_conditional_acceptance_ratio=conditional,
        expected_tokens_per_step=draft.counted_length,
        mean_acceptance_length_at=draft.lengths,
        mean_draft_length=draft.drafted,
        position_decay_ratio=_decay(conditional),
        coverage_ratio=_ratio(emitted, delta.generation_tokens),
        undelivered_ratio=undelivered,
        drafts_per_second=_rate(delta.drafts, span),
        draft_tokens_per_second=_rate(delta.draft_tokens, span),
        accepted_tokens_per_second=_rate(delta.accepted_tokens, span),
        generation_tokens_per_second=_rate(delta.generation_tokens, span),
        prefix_cache_queries_per_second=_rate(delta.prefix_cache_queries, span),
        prefix_cache_hit_ratio=delta.prefix_cache_hit_ratio,
        batch_size=delta.batch_size,
        batch_size_high=batch_size_high(delta, gained) or delta.batch_size,
        step_seconds=delta.step_seconds,
        estimate=estimated,
        measured=measured_speedup(delta.matches, minimum_requests),
        latencies=delta.latencies,
    )
    if memory_ratio is None:
        return measures
    return replace(measures, returns=returns_of(measures, memory_ratio))


def _conditional(
    delta: Delta, positions: tuple[float, ...]
) -> tuple[float | None, ...]:
    """Return the share of the drafts that got to each position which were accepted."""
    if positions and delta.drafted_tokens_per_position:
        return tuple(map(_ratio, delta.accepted_tokens_per_position, reaching(delta)))
    return tuple(map(_ratio, positions, (1.0, *positions)))


def _error_of_length(
    positions: tuple[float, ...],
    draft_length: float | None,
    accepted_per_draft: float | None,
    drafts: float,
) -> float:
    """Return the standard error of the mean acceptance length, by the sample.

    Without positions: as if all of a draft were accepted, or none, which varies most
    (Bhatia, Davis 2000).
    """
    if not drafts:
        return 0.0
    if not positions:
        k = math.ceil(draft_length or 0.0)
        positions = (min(1.0, (accepted_per_draft or 0.0) / max(1, k)),) * k
    return AcceptanceSample(positions, drafts).error_of_length(len(positions))


def returns_of(measures: Measures, memory_ratio: float) -> Return:
    """Return the return on speculation; a measured speedup takes precedence over the
    estimate.
    """
    speedup = measures.estimate.speedup
    measured = measures.measured
    if measured.speedup:
        undrafted = measures.estimate.undrafted_cost
        from_drafts = speedup_of_drafts(
            measured.speedup, measures.coverage_ratio, undrafted
        )
        speedup = from_drafts or speedup
    length = measures.mean_acceptance_length
    generated = measures.generation_tokens_per_second
    if not speedup or length is None or generated is None:
        return Return()
    rate = measured.baseline_tokens_per_second or generated / speedup
    return return_on_speculation(length, length / speedup, memory_ratio, rate)


def draft_and_batch(delta: Delta | None) -> tuple[float | None, float | None]:
    """Return the tokens per draft and the batch size of the judged window."""
    if delta is None or not delta.drafts or delta.draft_tokens is None:
        return None, None
    return delta.draft_tokens / delta.drafts, delta.batch_size


def observed_step(delta: Delta | None) -> ObservedStep | None:
    """Return the mean step of the judged window, ``None`` where the engine does not
    show it.
    """
    drafted, batch = draft_and_batch(delta)
    if delta is None or not delta.step_seconds or not delta.drafts:
        return None
    if not drafted or batch is None:
        return None
    drafts = delta.drafts
    accepted = 0.0
    gained = delivered(delta)
    if gained is not None:
        drafts = gained.drafts
        accepted = gained.accepted_tokens
    decoded = decoded_tokens(delta) or 0.0
    # A request gets a token from each of its steps without a draft. The step of its
    # first token is not among those observed.
    steps = max(drafts, decoded - accepted)
    if not steps:
        return None
    return ObservedStep(
        seconds=delta.step_seconds,
        batch=max(1.0, batch),
        drafted=drafted,
        share=drafts / steps,
        emitted=1 + accepted / steps,
    )


def derive_lifetime(
    acceptance_ratio: float | None, efficiency: float | None, k: int | None
) -> Measures:
    """Return the measures of vLLM V0's two gauges: means over the server's whole life.

    `efficiency` is emitted tokens over the maximum, K + 1 per draft. Without `k` there
    is no mean acceptance length.
    """
    if acceptance_ratio is not None:
        acceptance_ratio = min(acceptance_ratio, 1.0)
    length = None
    if efficiency is not None and k is not None:
        length = min(max(1.0, efficiency * (k + 1)), k + 1.0)
    return Measures(
        window=LIFETIME,
        acceptance_ratio=acceptance_ratio,
        mean_acceptance_length=length,
    )


def _ratio(part: float | None, whole: float | None) -> float | None:
    if part is not None and whole:
        return min(part / whole, 1.0)
    return None


def _rate(increase: float | None, span: float) -> float | None:
    if increase is None or span <= 0:
        return None
    return increase / span


def _mean(tokens: float | None, drafts: float | None, k: int) -> float | None:
    """Return tokens per draft, at most K; a K of 0 is unknown."""
    if tokens is None or not drafts:
        return None
    if k:
        return min(tokens / drafts, k)
    return tokens / drafts


def survival(accepted: tuple[float, ...], drafts: float) -> tuple[float, ...]:
    """Return the share of drafts accepted at each position, bounded by that of the
    position before it.
    """
    if drafts <= 0:
        return ()
    ratios = (count / drafts for count in accepted)
    return tuple(accumulate(ratios, min, initial=1.0))[1:]


def reaching(delta: Delta) -> tuple[float, ...]:
    """Return the drafts that got to each position: accepted up to it, and with a token
    there.

    Needs drafted tokens by position. How many of the drafts that were accepted up to a
    position have a token there is not counted: the same share as of all drafts is
    taken, within what the counts allow.
    """
    accepted = delta.accepted_tokens_per_position
    accepted_before = (delta.drafts or 0.0, *accepted)
    undrafted = len(accepted) - len(delta.drafted_tokens_per_position)
    drafted = (*delta.drafted_tokens_per_position, *(0.0,) * undrafted)
    drafts = []
    for kept, had_before, had, accepted_here in zip(
        accepted_before,
        (accepted_before[0], *drafted),
        drafted,
        accepted,
        strict=False,
    ):
        likely = kept * had / had_before if had_before > 0 else 0.0
        fewest = max(likely, accepted_here, kept + had - had_before)
        drafts.append(max(0.0, min(fewest, kept, had)))
    return tuple(drafts)


def acceptance_lengths(survival: tuple[float, ...]) -> tuple[float, ...]:
    """Return the mean acceptance length for every K from 1 up, a lower bound for all
    but the last.
    """
    return tuple(accumulate(survival, initial=1.0))[1:]


def _decay(conditional: tuple[float | None, ...]) -> float | None:
    later = [ratio for ratio in conditional[1:] if ratio is not None]
    if later:
        return math.prod(later) ** (1 / len(later))
    return None
