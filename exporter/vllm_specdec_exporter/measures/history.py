"""History: the counter samples of one engine, and the increases between two of them.
Pure.

Two things end the samples that a window may span:

- a *reset*: the counters started anew, because a counter fell or the creation time that
  the server prints changed (`counters_reset`). What was learned of the engine starts
  anew with them;
- an *interruption*: a failed poll, a clock that was set back, or a response without a
  series that had counted before, so that its increase is unknown. After it, a bucket
  that fell shows a reset too: a restarted process may exceed its old totals by then.

With many engines, samples take most of the exporter's memory: a window of five minutes
has 61 of an engine, each of twenty numbers, which take 1 kB as Python objects. But a
window reads most of them in its first and its last sample alone. So samples are kept as
`PackedSample`, in a third of that. Unpacked are the one where a window begins, and the
second newest.

Times are seconds of a monotonic clock and come with the samples.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, repeat
from operator import attrgetter, sub
from statistics import mean
from typing import Any

from msgspec import Struct, msgpack
from msgspec.structs import astuple, replace

from ..config.values import format_duration
from ..economics.baseline_match import BaselineComparison
from ..economics.equal_load import (
    MAX_BLOCKS,
    Block,
    FinishedRequests,
    prefix_cache_share,
    uncertainty_of_mean,
)
from ..economics.statistics import Uncertainty
from ..economics.step_totals import steps_between
from ..engines.reading import Counters, Latencies, Steps
from ..exposition.histogram import Histogram

_totals = attrgetter("drafts", "draft_tokens", "accepted_tokens", "generation_tokens")


class Sample(Struct, frozen=True):
    """The values of one engine at one time."""

    time: float  # in seconds
    counters: Counters  # cumulative counters
    #: Requests in the batch; ``None`` without that series.
    requests_running: float | None = None
    #: Sum over the drafts since the last reset of the requests that ran with each. The
    #: increase divided by the increase of `drafts` is the mean batch size of these
    #: drafts.
    draft_load: float = 0.0
    latencies: Latencies | None = None  # of finished requests, if they are read
    #: Comparison with the baseline at the same load, if there is a baseline.
    match: BaselineComparison | None = None
    steps: Steps = Steps()  # totals of engine steps
    kv_cache: float | None = None  # share of the KV cache in use

    def after(self, previous: Sample) -> Sample:
        """Return this sample with `draft_load`, as the next one after `previous`."""
        running = running_between(previous, self)
        if running is None:
            return self
        drafts = (self.counters.drafts or 0.0) - (previous.counters.drafts or 0.0)
        return replace(self, draft_load=previous.draft_load + drafts * running)


def running_between(first: Sample, last: Sample) -> float | None:
    """Return the mean number of running requests between two samples, at least 1;
    ``None`` if unknown.

    Samples with no running request do not count: every draft between them belongs to a
    request.
    """
    counts = (first.requests_running, last.requests_running)
    if counts == (None, None):
        return None
    busy = [count for count in counts if count]
    if not busy:
        return 1.0
    return max(1.0, sum(busy) / len(busy))


_ENCODER = msgpack.Encoder()
#: Of what is packed: counters and steps as tuples, `draft_load` and `kv_cache`.
_DECODER = msgpack.Decoder[Any](
    tuple[
        tuple[float | tuple[float, ...] | None, ...],
        tuple[float | None, ...],
        float,
        float | None,
    ]
)


# It is in no cycle, so the garbage collector can leave it alone.
class PackedSample(Struct, frozen=True, gc=False):
    """A sample with most of its numbers as MessagePack, which has 9 bytes for each.

    What windows read of each of their samples is not packed.
    """

    time: float
    requests_running: float | None
    latencies: Latencies | None
    match: BaselineComparison | None
    packed: bytes  # the other fields

    @classmethod
    def of(cls, sample: Sample) -> PackedSample:
        """Return a sample in less memory."""
        numbers = (
            astuple(sample.counters),
            astuple(sample.steps),
            sample.draft_load,
            sample.kv_cache,
        )
        # `encode` would return bytes with room for a third more.
        packed = bytearray()
        _ENCODER.encode_into(numbers, packed)
        return cls(
            time=sample.time,
            requests_running=sample.requests_running,
            latencies=sample.latencies,
            match=sample.match,
            packed=bytes(packed),
        )

    def unpack(self) -> Sample:
        """Return the sample, equal to that which was packed."""
        counters, steps, draft_load, kv_cache = _DECODER.decode(self.packed)
        return Sample(
            time=self.time,
            counters=Counters(*counters),
            requests_running=self.requests_running,
            draft_load=draft_load,
            latencies=self.latencies,
            match=self.match,
            steps=Steps(*steps),
            kv_cache=kv_cache,
        )


class SampleHistory(Struct, frozen=True):
    """The samples since the last counter reset, oldest first."""

    #: As far back as the longest window needs; empty after a response that lacked a
    #: series.
    samples: tuple[PackedSample, ...] = ()
    newest: Sample | None = None  # the last of them
    resets: int = 0  # number of counter resets seen
    interrupted: bool = False  # whether a poll failed since the newest sample

    @property
    def newest_interval(self) -> tuple[Sample, Sample] | None:
        """The two newest samples; ``None`` with fewer."""
        if self.newest is None or len(self.samples) < 2:
            return None
        return self.samples[-2].unpack(), self.newest

    def since(self, time: float) -> tuple[PackedSample, ...]:
        """Return the samples that are not older than `time`."""
        return self.samples[bisect_left(self.samples, time, key=attrgetter("time")) :]

    def batch_sizes(self, since: float) -> tuple[float, float] | None:
        """Return the minimum and maximum of running requests since a time, without
        samples that had none.
        """
        counts = [sample.requests_running for sample in self.since(since)]
        busy = [count for count in counts if count]
        if busy:
            return (min(busy), max(busy))
        return None

    def interrupt(self) -> SampleHistory:
        """Return the history with a gap after the newest sample, which no window may
        span.
        """
        if self.samples:
            return replace(self, interrupted=True)
        return self

    def add(self, sample: Sample, keep: float) -> SampleHistory:
        """Return the history with `sample` added and samples older than `keep` seconds
        dropped.

        A sample that is not later than the newest one (the clock was set back) drops
        the older samples, because no rate can be computed. It is not a reset: no
        counter fell.
        """
        previous = self.newest
        if previous is None:
            return _ending_at(sample, self.resets)
        if counters_reset(
            previous.counters, sample.counters, interrupted=self.interrupted
        ):
            return _ending_at(sample, self.resets + 1)
        if _lost_series(previous.counters, sample.counters):
            # Otherwise the next response would show the whole counter as an increase.
            return SampleHistory(resets=self.resets)
        if self.interrupted or sample.time <= previous.time:
            return _ending_at(sample, self.resets)
        kept = self.since(sample.time - keep)
        return _ending_at(sample.after(previous), self.resets, kept)


def _ending_at(
    newest: Sample, resets: int, earlier: tuple[PackedSample, ...] = ()
) -> SampleHistory:
    return SampleHistory(
        samples=(*earlier, PackedSample.of(newest)), newest=newest, resets=resets
    )


def counters_reset(
    previous: Counters, current: Counters, *, interrupted: bool = False
) -> bool:
    """Return whether the counters were reset between two samples of one engine.

    `interrupted` is whether a poll failed between them.
    """
    if (
        None not in (previous.created, current.created)
        and previous.created != current.created
    ):
        return True
    if any(last < first for first, last in _counter_pairs(previous, current)):
        return True
    return interrupted and _buckets_fell(previous, current)


def _counter_pairs(
    previous: Counters, current: Counters
) -> Iterator[tuple[float, float]]:
    """Yield old and new value of the counters that both samples have."""
    for first, last in zip(_totals(previous), _totals(current), strict=True):
        if first is not None and last is not None:
            yield first, last
    if current.accepted_tokens_per_position:
        # A removed deep position counts as 0: a restart with a smaller K.
        positions = chain(current.accepted_tokens_per_position, repeat(0.0))
        yield from zip(previous.accepted_tokens_per_position, positions, strict=False)


def _lost_series(previous: Counters, current: Counters) -> bool:
    if (
        previous.accepted_tokens_per_position
        and not current.accepted_tokens_per_position
    ):
        return True
    pairs = zip(_totals(previous), _totals(current), strict=True)
    return any(first and not last for first, last in pairs)


def _buckets_fell(previous: Counters, current: Counters) -> bool:
    """Return whether a bucket of drafts by accepted tokens fell below half of its
    value.

    This detects a new process even if every counter exceeds its old value. A response
    whose counters were read at slightly different times lowers a bucket by a few
    drafts, never by half.
    """
    if previous.drafts is None or current.drafts is None:
        return False
    pairs = zip(
        previous.accepted_tokens_per_position,
        current.accepted_tokens_per_position,
        strict=False,
    )
    return any(
        current.drafts - last < (previous.drafts - first) / 2 for first, last in pairs
    )


class Latency(Struct, frozen=True):
    """One kind of latency of the requests that finished in a window.

    Attributes:
        name: a field of `Latencies`.
        requests: number of finished requests.
        mean_seconds: exact mean.
        deviation_seconds: standard deviation, estimated from the buckets.
        error_seconds: standard error of the mean, from blocks of time; ``None`` in
            snapshots without it.
        error_freedom: degrees of freedom of that error, at least 1.
        p50_seconds: median, interpolated within its bucket; ``None`` in the first
            bucket.
        p95_seconds: 95th percentile, likewise.
        p99_seconds: 99th percentile, likewise.
    """

    name: str
    requests: float
    mean_seconds: float
    deviation_seconds: float | None = None
    p50_seconds: float | None = None
    p95_seconds: float | None = None
    p99_seconds: float | None = None
    error_seconds: float | None = None
    error_freedom: float | None = None


def latency_summaries(
    before: Latencies | None,
    after: Latencies | None,
    between: Sequence[PackedSample] = (),
) -> tuple[Latency, ...]:
    """Return the latencies of requests that finished between two samples; empty if
    unknown.

    The samples `between` them divide the time into blocks.
    """
    if before is None or after is None:
        return ()
    latencies = []
    running = [sample.requests_running for sample in between]
    busy = [count for count in running if count]
    load = max(1.0, mean(busy or [1.0]))
    for name in Latencies.__struct_fields__:
        earlier: Histogram | None = getattr(before, name)
        later: Histogram | None = getattr(after, name)
        if later is None or earlier is None:
            continue
        increase = later.since(earlier)
        if increase is None or increase.mean is None:
            continue
        totals = [getattr(sample.latencies, name, None) for sample in between]
        uncertainty = _uncertainty(increase, totals, load)
        latencies.append(
            Latency(
                name=name,
                requests=increase.count,
                mean_seconds=increase.mean,
                deviation_seconds=increase.deviation,
                p50_seconds=increase.quantile(0.5),
                p95_seconds=increase.quantile(0.95),
                p99_seconds=increase.quantile(0.99),
                error_seconds=increase.mean * math.sqrt(uncertainty.variance),
                error_freedom=uncertainty.freedom,
            )
        )
    return tuple(latencies)


def _uncertainty(
    increase: Histogram, totals: Sequence[Histogram | None], load: float
) -> Uncertainty:
    """Return how well the mean of an increase is known, from the totals between which
    blocks of time lie.
    """
    read = [total for total in totals if total is not None]
    blocks = [
        Block(last.count - first.count, last.sum - first.sum)
        for first, last in pairwise(read)
    ]
    requests = FinishedRequests(increase.count, load, increase.spread)
    return uncertainty_of_mean(blocks, requests)


class Window(Struct, frozen=True, order=True):
    """A time range that ends at the newest sample, in seconds; `name` is its label
    (``30s``, ``5m``).
    """

    seconds: float

    @property
    def name(self) -> str:
        """The length as a Prometheus duration."""
        return format_duration(self.seconds)


class Delta(Struct, frozen=True):
    """The increase of one engine's counters over `span` seconds without a reset.

    ``None`` means a series that the engine does not have. `batch_size` is the mean over
    the drafts of the requests in the batch, `context_tokens` the mean of a request,
    `prompts_per_token` the least and the most prompt tokens that were computed for each
    generated one; `matches` are the
    comparisons with the baseline at the ends of the blocks of time. `draft_share` is
    drafting time over verification time. `prefix_cache_queries` are the prompt tokens
    looked up in the prefix cache, and `prefix_cache_hits` those found there.
    `first_tokens` are those of requests, which come from prefill, and `decode_steps`
    the steps of each request behind it. `stopped_requests` ended with a stop string or
    an end-of-sequence token.
    """

    span: float
    drafts: float | None
    draft_tokens: float | None
    accepted_tokens: float | None
    accepted_tokens_per_position: tuple[float, ...]
    generation_tokens: float | None
    batch_size: float | None = None
    step_seconds: float | None = None
    context_tokens: float | None = None
    prompts_per_token: tuple[float, float] | None = None
    draft_share: float | None = None
    latencies: tuple[Latency, ...] = ()
    matches: tuple[BaselineComparison | None, ...] = ()
    drafted_tokens_per_position: tuple[float, ...] = ()
    prefix_cache_queries: float | None = None
    prefix_cache_hits: float | None = None
    first_tokens: float | None = None
    decode_steps: float | None = None
    stopped_requests: float | None = None

    @property
    def prefix_cache_hit_ratio(self) -> float | None:
        """Share of the looked-up prompt tokens that the prefix cache had, 0 to 1;
        ``None`` if not known.
        """
        return prefix_cache_share(self.prefix_cache_hits, self.prefix_cache_queries)


def window_delta(history: SampleHistory, window: Window, slack: float) -> Delta | None:
    """Return the increase within `window`, or ``None`` if it contains fewer than two
    samples.

    The oldest sample may precede the window by `slack` seconds: half a poll interval.
    """
    newest = history.newest
    if newest is None:
        return None
    samples = history.since(newest.time - window.seconds - slack)
    if len(samples) < 2:
        return None
    first = samples[0].unpack()
    if not newest.latencies and newest.match is None:
        return delta(first, newest)
    # Of latencies alone it matters how they varied within the window.
    last = len(samples) - 1
    blocks = min(MAX_BLOCKS, last)
    ends = [samples[round(i * last / blocks)] for i in range(blocks + 1)]
    return delta(first, newest, ends)


def delta(first: Sample, last: Sample, ends: Sequence[PackedSample] = ()) -> Delta:
    """Return the increase from `first` to `last`, two samples without a reset between
    them.

    `ends` are samples from the first to the last, between which blocks of time lie.
    """
    steps = steps_between((first.counters, first.steps), (last.counters, last.steps))
    return replace(
        counter_increase(first.counters, last.counters),
        span=last.time - first.time,
        batch_size=_batch_size(first, last),
        step_seconds=steps.mean_step_seconds,
        context_tokens=steps.mean_context,
        prompts_per_token=steps.prompts_per_token,
        draft_share=steps.draft_share,
        prefix_cache_queries=steps.steps.prefix_cache_queries,
        prefix_cache_hits=steps.steps.prefix_cache_hits,
        latencies=latency_summaries(first.latencies, last.latencies, ends),
        matches=tuple(sample.match for sample in ends),
        first_tokens=steps.steps.requests,
        decode_steps=steps.observed_steps,
        stopped_requests=steps.steps.stopped_requests,
    )


def counter_increase(first: Counters, last: Counters) -> Delta:
    """Return the increase of counters alone, without a time.

    A series that `first` lacks counts from 0 if the engine was still unused, because
    some servers create a series at its first increase. Otherwise `first` was
    incomplete, and the increase is unknown.
    """
    # Present and 0: a sibling series that is missing as well proves nothing.
    nothing_drafted = first.drafts == 0
    nothing_generated = first.generation_tokens == 0
    return Delta(
        span=0.0,
        drafts=_increase(first.drafts, last.drafts, from_zero=nothing_generated),
        draft_tokens=_increase(
            first.draft_tokens, last.draft_tokens, from_zero=nothing_drafted
        ),
        accepted_tokens=_increase(
            first.accepted_tokens, last.accepted_tokens, from_zero=nothing_drafted
        ),
        accepted_tokens_per_position=_position_increases(
            first.accepted_tokens_per_position,
            last.accepted_tokens_per_position,
            from_zero=nothing_drafted,
        ),
        generation_tokens=_increase(
            first.generation_tokens, last.generation_tokens, from_zero=nothing_drafted
        ),
        drafted_tokens_per_position=_position_increases(
            first.drafted_tokens_per_position,
            last.drafted_tokens_per_position,
            from_zero=nothing_drafted,
        ),
    )


def _batch_size(first: Sample, last: Sample) -> float | None:
    drafts = (last.counters.drafts or 0.0) - (first.counters.drafts or 0.0)
    if last.requests_running is None or drafts <= 0:
        return None
    return max(1.0, (last.draft_load - first.draft_load) / drafts)


def _increase(
    before: float | None, after: float | None, *, from_zero: bool
) -> float | None:
    if after is None or (before is None and not from_zero):
        return None
    return after - (before or 0.0)


def _position_increases(
    first: tuple[float, ...], last: tuple[float, ...], *, from_zero: bool
) -> tuple[float, ...]:
    """Return the increase per position; a deeper position that appears later starts at
    0.
    """
    if not first and not from_zero:
        return ()
    return tuple(map(sub, last, chain(first, repeat(0.0))))
