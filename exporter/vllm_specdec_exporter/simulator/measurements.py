"""The values behind a server's samples, by name."""

from collections.abc import Sequence

from .families import histogram_bounds
from .histogram import Histogram


class Measurements:
    """Counters, gauges and histograms of one engine, of one model or of the whole server.

    A value is addressed by the family's name in vLLM 0.32 without its prefix, for example
    `generation_tokens`, and by a variant such as a finish reason where the family has any.
    """

    def __init__(self, max_model_len: int) -> None:
        self._values: dict[tuple[str, str], float] = {}
        self.histograms = {
            source: Histogram(bounds) for source, bounds in histogram_bounds(max_model_len).items()
        }

    def add(self, name: str, amount: float, variant: str = "") -> None:
        """Raise a counter."""
        key = (name, variant)
        self._values[key] = self._values.get(key, 0) + amount

    def set(self, name: str, value: float, variant: str = "") -> None:
        """Set a gauge."""
        self._values[(name, variant)] = value

    def get(self, name: str, variant: str = "") -> float:
        """Return a counter or gauge; 0 if it has never moved."""
        return self._values.get((name, variant), 0)

    def has(self, name: str, variant: str = "") -> bool:
        """Whether a counter or gauge has ever been touched."""
        return (name, variant) in self._values

    def observe(self, name: str, value: float, times: int = 1) -> None:
        """Record the same observation a number of times in a histogram."""
        self.histograms[name].observe(value, times)

    def histogram(self, name: str) -> Histogram:
        """Return a histogram."""
        return self.histograms[name]


def combined(parts: Sequence[Measurements], name: str, variant: str, how: str) -> float:
    """Return the sum, the mean or the maximum of a value over several engines."""
    values = [part.get(name, variant) for part in parts]
    if not values:
        return 0.0
    if how == "max":
        return max(values)
    return sum(values) / len(values) if how == "mean" else sum(values)


def combined_histogram(parts: Sequence[Measurements], name: str) -> Histogram:
    """Return the histogram of several engines taken together."""
    if len(parts) == 1:
        return parts[0].histogram(name)
    result = Histogram(parts[0].histogram(name).bounds)
    for part in parts:
        result.merge(part.histogram(name))
    return result
