"""The metric families and dialects of vLLM, and the values that one simulated engine
publishes.

A data file of the package contains names, HELP and TYPE, labels and bucket bounds of
the families.
"""

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from itertools import chain
from typing import Literal

import msgspec

from ...exposition.histogram import Histogram, HistogramAccumulator

#: The dialects, which are the front ends of vLLM, with the HTTP content type of their
#: answers.
DIALECTS: Mapping[str, str] = {
    "vllm": "text/plain; version=1.0.0; charset=utf-8",
    "vllm-rust": "application/openmetrics-text; version=1.0.0; charset=utf-8",
}


class Variant(msgspec.Struct, frozen=True):
    """The label of several samples with the same owner."""

    label: str  # its name
    #: Its values; ``positions`` for one per draft position.
    values: tuple[str, ...] | Literal["positions"]


class FamilySpec(msgspec.Struct, frozen=True):
    """One metric family."""

    name: str  # family name; for a counter without `_total`
    type: Literal["counter", "gauge", "histogram", "summary"]
    help: str
    #: Whether there is a sample per engine, per model, or one.
    scope: Literal["engine", "model", "server"]
    #: Label of several samples with the same owner, if any.
    variant: Variant | None = None
    labels: dict[str, str] = {}
    #: Finite bucket bounds; ``1-2-5`` for 1, 2, 5, 10, 20, 50, ... up to the maximum
    #: model length.
    buckets: tuple[float, ...] | Literal["1-2-5"] = ()
    created: bool = False  # whether there is a creation time
    #: What samples need to exist: a server that speculates, a first draft, a first
    #: request, or nothing.
    requires: Literal["speculation", "drafts", "traffic", ""] = ""
    omit_model_name: bool = False  # whether samples lack the label `model_name`
    constant: tuple[float, ...] = ()  # values that never change, one per variant
    real: bool = False  # whether the value is a real number, not a count

    @property
    def key(self) -> str:
        """Key of the values in the simulation."""
        return self.name.rpartition(":")[2]

    @property
    def per_position(self) -> bool:
        """Whether there is a sample for every draft position."""
        return self.variant is not None and self.variant.values == "positions"

    def bounds(self, max_model_len: int) -> tuple[float, ...]:
        """Return the finite bucket bounds; the maximum length is in tokens."""
        if self.buckets == "1-2-5":
            return one_two_five(max_model_len)
        return self.buckets


class _DataFile(msgspec.Struct):
    families: tuple[FamilySpec, ...]


@lru_cache(maxsize=2)
def load_families(dialect: str) -> tuple[FamilySpec, ...]:
    """Return the families of a dialect in the order in which the front end publishes
    them.
    """
    resource = files(__package__) / "data" / f"{dialect}.json"
    return msgspec.json.decode(resource.read_bytes(), type=_DataFile).families


def one_two_five(limit: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20, 50, ... up to the limit."""
    steps: list[float] = []
    for power in range(len(str(limit))):
        steps += [1.0 * 10**power, 2.0 * 10**power, 5.0 * 10**power]
    return tuple(step for step in steps if step <= limit)


@lru_cache(maxsize=32)
def histogram_bounds(max_model_len: int) -> dict[str, tuple[float, ...]]:
    """Return for each histogram by key the bucket bounds of all dialects."""
    bounds: dict[str, set[float]] = {}
    for family in chain.from_iterable(map(load_families, DIALECTS)):
        if family.type == "histogram":
            limits = bounds.setdefault(family.key, set())
            limits.update(family.bounds(max_model_len))
    return {key: tuple(sorted(limits)) for key, limits in bounds.items()}


class Measurements:
    """Counters, gauges and histograms of one engine.

    The key of a value is the family's name in vLLM 0.32 without its prefix, such as
    `generation_tokens`, and a variant such as a finish reason, empty if the family has
    none.
    """

    def __init__(self, max_model_len: int) -> None:
        self._values: dict[tuple[str, str], float] = {}
        self._histograms = {
            key: HistogramAccumulator(bounds)
            for key, bounds in histogram_bounds(max_model_len).items()
        }

    def add(self, name: str, amount: float, variant: str = "") -> None:
        """Raise a counter."""
        self._values[(name, variant)] = self.get(name, variant) + amount

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
        """Add a number of observations of a value to a histogram."""
        self._histograms[name].add(value, times)

    def histogram(self, name: str) -> Histogram:
        """Return a histogram; its bounds are those of all dialects."""
        return self._histograms[name].histogram()
