"""Recording a baseline: requests that finish between two samples are counted at the
load between them.

Only time without drafts counts. A server with a K schedule has such times, too (K=0);
requests that finish soon after the last draft are left out, because they were partly
decoded with drafts.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from ...economics.baseline import (
    RECORDED_BLOCKS,
    BaselineError,
    LoadBucket,
    bucket_of,
)
from ...economics.equal_load import Block, joined
from ...economics.latency_sums import latencies_between, latencies_together
from ...economics.step_totals import steps_between
from ...engines.reading import Latencies
from ...measures.history import Sample, counters_reset, running_between


class _Sums(Struct):
    """What was recorded in a load bucket."""

    weighted_load: float = 0.0  # requests at a time, times seconds
    seconds: float = 0.0
    generation_tokens: float = 0.0
    latencies: Latencies = Latencies()
    prefix_cache_queries: float = 0.0
    prefix_cache_hits: float = 0.0
    #: One for each interval.
    blocks: list[Block] = []

    @property
    def requests(self) -> float:
        """Requests that finished."""
        if self.latencies.time_per_output_token:
            return self.latencies.time_per_output_token.count
        return 0.0

    def add(self, bucket: LoadBucket) -> None:
        """Add a time at one load, or raise ValueError if the histograms do not fit."""
        self.latencies = latencies_together(self.latencies, bucket.latencies)
        self.weighted_load += bucket.requests_running * bucket.seconds
        self.seconds += bucket.seconds
        self.generation_tokens += bucket.generation_tokens
        self.prefix_cache_queries += bucket.prefix_cache_queries
        self.prefix_cache_hits += bucket.prefix_cache_hits
        self.blocks += bucket.blocks

    def bucket(self) -> LoadBucket:
        """Return the bucket; some request must have finished."""
        # Of about as many requests each: a block with most of them would hide how much
        # they vary.
        blocks = tuple(joined(self.blocks, RECORDED_BLOCKS))
        return LoadBucket(
            requests_running=self.weighted_load / self.seconds,
            seconds=self.seconds,
            generation_tokens=self.generation_tokens,
            requests=self.requests,
            latencies=self.latencies,
            blocks=blocks,
            prefix_cache_queries=self.prefix_cache_queries,
            prefix_cache_hits=self.prefix_cache_hits,
        )


class Recorder:
    """Sorts the increases between samples of an engine by load, without `settle`
    seconds after a draft.
    """

    def __init__(self, settle: float = 30.0) -> None:
        self._settle = settle
        self._sums: dict[int, _Sums] = {}  # by the place of the load bucket
        self._previous: Sample | None = None
        self._drafted_at: float | None = None
        self.speculating_seconds = 0.0  # time that was left out because of drafts
        self.idle_seconds = 0.0  # time without generated tokens

    def observe(self, sample: Sample) -> None:
        """Add the next sample."""
        previous = self._previous
        self._previous = sample
        if previous is None or sample.time <= previous.time:
            return
        if counters_reset(previous.counters, sample.counters):
            return
        seconds = sample.time - previous.time
        # Of 0, where a server prints them from the first draft on.
        if (sample.counters.drafts or 0.0) > (previous.counters.drafts or 0.0):
            self._drafted_at = sample.time
        drafted_at = self._drafted_at
        if drafted_at is not None and previous.time < drafted_at + self._settle:
            self.speculating_seconds += seconds
            return
        increase = steps_between(
            (previous.counters, previous.steps), (sample.counters, sample.steps)
        )
        tokens = increase.generation_tokens or 0.0
        load = running_between(previous, sample)
        if tokens <= 0 or load is None:
            self.idle_seconds += seconds
            return
        latencies = latencies_between(previous.latencies, sample.latencies)
        # A histogram fell: another process of the server, although no counter shows it.
        if latencies is None:
            return
        self._add(
            replace(
                LoadBucket.of_interval(load, seconds, tokens, latencies),
                prefix_cache_queries=increase.steps.prefix_cache_queries or 0.0,
                prefix_cache_hits=increase.steps.prefix_cache_hits or 0.0,
            )
        )

    def interrupt(self) -> None:
        """Note a missed sample: the server may have restarted."""
        self._previous = None

    def include(self, buckets: Iterable[LoadBucket]) -> None:
        """Add buckets of another engine or recording; BaselineError if their histograms
        have others.
        """
        for bucket in buckets:
            try:
                self._add(bucket)
            except ValueError as error:
                raise BaselineError(
                    "recorded with other histogram buckets, so it cannot be added "
                    f"to ({error})"
                ) from error

    def _add(self, bucket: LoadBucket) -> None:
        index = bucket_of(bucket.requests_running)
        self._sums.setdefault(index, _Sums()).add(bucket)

    @property
    def requests(self) -> float:
        """Number of recorded requests."""
        return sum(sums.requests for sums in self._sums.values())

    def buckets(self) -> tuple[LoadBucket, ...]:
        """Return the buckets with finished requests by rising load; BaselineError if
        there are none.
        """
        buckets = tuple(
            sums.bucket() for _, sums in sorted(self._sums.items()) if sums.requests
        )
        if not buckets:
            raise BaselineError(self._why_empty())
        return buckets

    def _why_empty(self) -> str:
        if self.speculating_seconds > self.idle_seconds:
            return (
                "the server speculated nearly all the time: record a server without "
                "--speculative-config, or longer phases with K=0"
            )
        if self._sums:
            return "no request finished: record for longer"
        return "nothing was generated: send it the usual traffic meanwhile"
