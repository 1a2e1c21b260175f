"""Memory for the samples of all servers, so that no number of engines ends the process.

What an engine takes is estimated: exact sizes would cost more than a poll. Measured
with 61 samples and Python 3.11: 55 kB, and 201 kB with three latency histograms.
"""

from ..engines.reading import EngineReading, Latencies, Reading
from ..exposition.histogram import Histogram

MIB = 1024 * 1024
#: What the process takes without samples: 46 MiB at rest, and while it reads a large
#: response 16 MiB of it twice and 10 MiB of its lines.
BASE = 92 * MIB
#: The least that is kept, for an exporter that is given less than the chart does.
LEAST = 16 * MIB

#: Bytes of an engine without samples, its results and what is remembered to read it;
#: of a sample, packed; and of each number by bucket in it. One by position takes less.
_ENGINE = 30_720
_SAMPLE = 300
_NUMBER = 40


class KeptMemory:
    """Bytes that are kept for each server, within a limit of all."""

    def __init__(self, memory_limit: int) -> None:
        """Take the memory of the whole process, in bytes."""
        self._limit = max(LEAST, memory_limit - BASE)
        self._kept: dict[object, int] = {}
        self._total = 0

    def keep(self, server: object, size: int) -> bool:
        """Return whether a server may keep so much, instead of what it kept before."""
        grows = size - self._kept.get(server, 0)
        if grows > 0 and self._total + grows > self._limit:
            return False
        self._kept[server] = size
        self._total += grows
        return True

    def forget(self, server: object) -> None:
        """Keep nothing of a server any more."""
        self._total -= self._kept.pop(server, 0)


def kept_bytes(reading: Reading, samples: float) -> int:
    """Return what so many samples of the engines in `reading` take, estimated."""
    return sum(
        _ENGINE + round(samples * (_SAMPLE + _NUMBER * _numbers(engine)))
        for engine in reading.engines
    )


def _numbers(engine: EngineReading) -> int:
    counters = engine.counters
    numbers = len(counters.accepted_tokens_per_position)
    numbers += len(counters.drafted_tokens_per_position)
    if engine.latencies is None:
        return numbers
    for name in Latencies.__struct_fields__:
        histogram: Histogram | None = getattr(engine.latencies, name)
        if histogram is not None:
            numbers += len(histogram.counts)
    return numbers
