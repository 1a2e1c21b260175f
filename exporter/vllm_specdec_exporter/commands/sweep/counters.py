"""The server's counters around a cell.

All engines of the server are summed, because a request may be sent to any of them, and because tokens of
another model are other traffic, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

from ...engines.reading import Counters, Reading, sum_known
from ...measures.history import Delta, Sample, counters_reset, delta
from ...serve.upstream import Upstream

#: Interval of reading the counters while waiting, in seconds: longer than a step of most servers.
BEAT = 0.25
#: Seconds without a change after which the counters count as at rest: two intervals.
QUIET = 0.5
#: Longest wait for that, in seconds. The cell's requests have ended, so whatever still runs is of others.
MAX_REST = 15.0
#: The same if other traffic is allowed: it may never end.
MAX_BUSY_REST = 3.0


@dataclass(frozen=True, slots=True)
class CounterSample:
    """The server's parsed metrics at one time, in seconds of a monotonic clock."""

    time: float
    reading: Reading

    @property
    def total(self) -> Counters:
        """The sum of the counters of all engines."""
        counters = [engine.counters for engine in self.reading.engines]
        positions = zip_longest(*(each.accepted_tokens_per_position for each in counters), fillvalue=0.0)
        return Counters(
            drafts=sum_known(each.drafts for each in counters),
            draft_tokens=sum_known(each.draft_tokens for each in counters),
            accepted_tokens=sum_known(each.accepted_tokens for each in counters),
            accepted_tokens_per_position=tuple(map(sum, positions)),
            generation_tokens=sum_known(each.generation_tokens for each in counters),
        )

    @property
    def requests(self) -> float:
        """Running and queued requests of all engines; 0 if not known."""
        loads = [engine.load for engine in self.reading.engines]
        return sum((load.requests_running or 0.0) + (load.requests_waiting or 0.0) for load in loads)


@dataclass(frozen=True, slots=True)
class CounterReader:
    """Reads the counters of one server; `clock` is monotonic, in seconds."""

    upstream: Upstream
    clock: Callable[[], float] = time.monotonic

    async def read(self) -> CounterSample:
        """Read the metrics; PollError if they cannot be read."""
        reading = await self.upstream.read()
        return CounterSample(self.clock(), reading)

    async def rest(
        self, since: CounterSample | None = None, tokens: float = 0.0, *, quiet: float, limit: float
    ) -> tuple[CounterSample, str]:
        """Wait until the counters are at rest; return the last sample, and what kept them busy, if not.

        They are at rest if for `quiet` seconds no request ran or waited and nothing changed, and if since the
        sample `since` they rose by `tokens`. A restart since then ends the wait, and so do `limit` seconds.

        Raises:
            PollError: they cannot be read.
        """
        first = before = await self.read()
        changed = first.time
        at_least = tokens if since is None else _generated(since) + tokens
        while True:
            await asyncio.sleep(BEAT)
            now = await self.read()
            if since is not None and restarted(since, now):
                return now, ""
            busy = now.requests > 0 or _generated(now) < at_least
            changed = now.time if busy or now.total != before.total else changed
            if now.time - changed >= quiet:
                return now, ""
            if now.time - first.time >= limit:
                return now, _traffic(first, now)
            before = now


def _generated(sample: CounterSample) -> float:
    return sample.total.generation_tokens or 0.0


def _traffic(first: CounterSample, last: CounterSample) -> str:
    return (
        f"{last.requests:g} requests running or waiting, "
        f"{_generated(last) - _generated(first):g} tokens generated within {last.time - first.time:.1f} s"
    )


def restarted(first: CounterSample, last: CounterSample) -> bool:
    """Return whether an engine restarted, appeared or disappeared between two samples."""
    before = {engine.key: engine.counters for engine in first.reading.engines}
    after = {engine.key: engine.counters for engine in last.reading.engines}
    return before.keys() != after.keys() or any(
        counters_reset(counters, after[key]) for key, counters in before.items()
    )


def between(first: CounterSample, last: CounterSample) -> Delta:
    """Return the increase over all engines between two samples without a restart."""
    return delta(Sample(first.time, first.total), Sample(last.time, last.total))
