"""Recording a baseline: requests that finish between two samples are counted at the
load between them.

Only time without drafts counts. A server with a K schedule has such times, too (K=0);
requests that finish soon after the last draft are left out, because they were partly
decoded with drafts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...economics.baseline import BaselineError, LoadBucket, bucket_of
from ...economics.baseline_match import increase
from ...economics.statistics import MAX_BLOCKS, at_most
from ...engines.reading import Latencies
from ...exposition.histogram import Histogram
from ...measures.history import Sample, counters_reset, running_between


@dataclass(frozen=True, slots=True)
class _Sums:
    load: float = 0.0
    seconds: float = 0.0
    generation_tokens: float = 0.0
    latencies: Latencies = Latencies()
    #: Of each interval, as in the file.
    blocks: list[tuple[float, float]] = field(default_factory=list)


class Recorder:
    """Sorts the increases between samples of an engine by load, without `settle`
    seconds after a draft.
    """

    def __init__(self, settle: float = 30.0) -> None:
        self._settle = settle
        self._buckets: dict[int, _Sums] = {}
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
        if (sample.counters.drafts or 0.0) > (previous.counters.drafts or 0.0):
            self._drafted_at = sample.time
        if (
            self._drafted_at is not None
            and previous.time < self._drafted_at + self._settle
        ):
            self.speculating_seconds += seconds
            return
        tokens = (sample.counters.generation_tokens or 0.0) - (
            previous.counters.generation_tokens or 0.0
        )
        load = running_between(previous, sample)
        if tokens <= 0 or load is None:
            self.idle_seconds += seconds
            return
        finished = increase(previous.latencies, sample.latencies)
        if finished is not None:
            per_token = finished.time_per_output_token
            block = (per_token.count, per_token.sum) if per_token else (0.0, 0.0)
            self._add(LoadBucket(load, seconds, tokens, block[0], finished, (block,)))

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

    def _add(self, more: LoadBucket) -> None:
        """Add a time at one load, or raise ValueError if the histograms do not fit."""
        place = bucket_of(more.requests_running)
        sums = self._buckets.get(place, _Sums())
        latencies = _plus(sums.latencies, more.latencies)
        sums.blocks.extend(more.blocks)
        self._buckets[place] = _Sums(
            load=sums.load + more.requests_running * more.seconds,
            seconds=sums.seconds + more.seconds,
            generation_tokens=sums.generation_tokens + more.generation_tokens,
            latencies=latencies,
            blocks=sums.blocks,
        )

    @property
    def requests(self) -> float:
        """Number of recorded requests."""
        return sum(_finished(sums.latencies) for sums in self._buckets.values())

    def buckets(self) -> tuple[LoadBucket, ...]:
        """Return the buckets with finished requests by rising load; BaselineError if
        there are none.
        """
        buckets = tuple(
            LoadBucket(
                requests_running=sums.load / sums.seconds,
                seconds=sums.seconds,
                generation_tokens=sums.generation_tokens,
                requests=requests,
                latencies=sums.latencies,
                blocks=at_most(2 * MAX_BLOCKS, sums.blocks),
            )
            for _, sums in sorted(self._buckets.items())
            if (requests := _finished(sums.latencies))
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
        if self._buckets:
            return "no request finished: record for longer"
        return "nothing was generated: send it the usual traffic meanwhile"


def _finished(latencies: Latencies) -> float:
    per_token = latencies.time_per_output_token
    if per_token:
        return per_token.count
    return 0.0


def _plus(sums: Latencies, more: Latencies) -> Latencies:
    together: dict[str, Histogram | None] = {}
    for name in Latencies.__struct_fields__:
        before = getattr(sums, name)
        added = getattr(more, name)
        together[name] = before.plus(added) if before and added else (added or before)
    return Latencies(**together)
