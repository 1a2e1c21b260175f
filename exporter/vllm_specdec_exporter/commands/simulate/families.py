"""The metric families and dialects of servers, and the values that one simulated engine publishes.

A data file of the package contains names, HELP and TYPE, labels and bucket bounds of the families. The key of
a sample's value in the simulation is the family's `source`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import msgspec
from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: The data files.
SERVERS = ("vllm", "vllm-rust", "vllm-v0", "sglang", "lmdeploy", "llamacpp")


class Variant(msgspec.Struct, frozen=True):
    """The label of several samples with the same owner."""

    label: str  # its name
    values: tuple[str, ...] | Literal["positions"]  # its values; ``positions`` for one per draft position


class FamilySpec(msgspec.Struct, frozen=True):
    """One metric family."""

    name: str  # family name; for a counter without `_total`
    type: str  # counter, gauge, histogram or summary
    help: str
    scope: str  # `engine` (a sample per engine), `model` (one per model) or `server` (one)
    source: str = ""  # key of the values in the simulation; empty for the name without its prefix
    variant: Variant | None = None  # label of several samples with the same owner, if any
    labels: dict[str, str] = {}
    #: Finite bucket bounds; ``1-2-5`` for 1, 2, 5, 10, 20, 50, ... up to the maximum model length.
    buckets: tuple[float, ...] | Literal["1-2-5"] = ()
    created: bool = False  # whether there is a creation time
    #: What samples need to exist: `speculation`, `drafts`, `traffic`, `v0_sample`, or nothing.
    requires: str = ""
    omit_model_name: bool = False  # whether samples lack the label `model_name`
    constant: tuple[float, ...] = ()  # values that never change, one per variant
    combine: str = "sum"  # how several engines are combined into one sample: sum, mean or max
    real: bool = False  # whether the value is a real number, not a count
    bare: bool = False  # whether a counter's sample lacks the suffix `_total`

    @property
    def key(self) -> str:
        """Key of the values in the simulation."""
        return self.source or self.name.rpartition(":")[2]

    @property
    def per_position(self) -> bool:
        """Whether there is a sample for every draft position."""
        return self.variant is not None and self.variant.values == "positions"

    def bounds(self, max_model_len: int) -> tuple[float, ...]:
        """Return the finite bucket bounds for a model of this maximum length in tokens."""
        return one_two_five(max_model_len) if self.buckets == "1-2-5" else self.buckets


class _DataFile(msgspec.Struct):
    families: tuple[FamilySpec, ...]


@lru_cache(maxsize=32)
def one_two_five(limit: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20, 50, ... up to the limit."""
    steps: list[float] = []
    scale = 1
    while scale <= limit:
        steps.extend(float(step * scale) for step in (1, 2, 5) if step * scale <= limit)
        scale *= 10
    return tuple(steps)


@lru_cache(maxsize=8)
def load_families(server: str) -> tuple[FamilySpec, ...]:
    """Return the families of a server, one of `SERVERS`, in the order in which it publishes them."""
    resource = files(__package__) / "data" / f"{server}.json"
    return msgspec.json.decode(resource.read_bytes(), type=_DataFile).families


@lru_cache(maxsize=32)
def histogram_bounds(max_model_len: int) -> dict[str, tuple[float, ...]]:
    """Return the union of the bucket bounds of all servers, for each histogram by source."""
    bounds: dict[str, set[float]] = {}
    for server in SERVERS:
        for family in load_families(server):
            if family.type == "histogram":
                bounds.setdefault(family.key, set()).update(family.bounds(max_model_len))
    return {source: tuple(sorted(limits)) for source, limits in bounds.items()}


class HistogramCounts:
    """A histogram with finite, inclusive and ascending upper bounds; the last bucket is +Inf."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.count = 0
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Add a number of observations of a value."""
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
        """Add a number of observations of a value to a histogram."""
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


_CLASSIC = "text/plain; version=1.0.0; charset=utf-8"
_CLASSIC_OLD = "text/plain; version=0.0.4; charset=utf-8"
_PLAIN = "text/plain; version=0.0.4"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# The parts of a histogram, in the order in which a server writes them.
_BUCKETS_FIRST = ("bucket", "count", "sum")
_SUM_FIRST = ("sum", "bucket", "count")

_MULTIPROC_TYPES = ("histogram", "summary", "counter", "gauge")


def format_python(value: float, _family: FamilySpec | None = None) -> str:
    """Format a number like the Python client library: always a float, exponents as in Go."""
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


def format_rust(value: float, family: FamilySpec) -> str:
    """Format a number like the Rust client library: counts are integers."""
    return repr(float(value)) if family.real else str(int(value))


def format_cpp(value: float, family: FamilySpec) -> str:
    """Format a number like a C++ stream: six significant digits, positions in full."""
    return str(int(value)) if family.per_position else format(float(value), ".6g")


@dataclass(frozen=True)
class SimulatedDialect:
    """The format of one server's metrics."""

    name: str
    server: str  # data file with the families
    content_type: str = _CLASSIC  # HTTP content type of the answer
    number: Callable[[float, FamilySpec], str] = format_python  # formats a value
    openmetrics: bool = False  # whether the format is OpenMetrics, not the classic text
    underscores: bool = False  # whether sample names have `_` in place of `:`
    created: bool = False  # whether creation times are published
    #: Whether several processes write the values: without `process_*` and `python_*` families, histograms
    #: first and gauges last.
    multiprocess: bool = False
    empty_families: bool = True  # whether families without samples have HELP and TYPE lines
    #: Whether labels begin with `model_name`, `engine`; otherwise they are sorted by name.
    identity_first: bool = False
    histogram: tuple[str, ...] = _BUCKETS_FIRST  # the parts of a histogram in order
    version: str = "0.32.0"  # the version in GET /version; empty if there is no such path

    def families(self) -> tuple[FamilySpec, ...]:
        """Return the families of the dialect in their order."""
        families = load_families(self.server)
        if not self.multiprocess:
            return families
        found = (f for f in families if not f.name.startswith(("python_", "process_")))
        return tuple(sorted(found, key=lambda f: _MULTIPROC_TYPES.index(f.type)))


_DIALECTS = (
    SimulatedDialect("vllm", "vllm", created=True),
    SimulatedDialect("vllm-multiproc", "vllm", multiprocess=True, empty_families=False, histogram=_SUM_FIRST),
    SimulatedDialect(
        "vllm-rust",
        "vllm-rust",
        _OPENMETRICS,
        format_rust,
        openmetrics=True,
        identity_first=True,
        histogram=("sum", "count", "bucket"),
    ),
    SimulatedDialect(
        "vllm-underscore", "vllm", _OPENMETRICS, openmetrics=True, underscores=True, created=True
    ),
    SimulatedDialect("vllm-v0", "vllm-v0", _CLASSIC_OLD, histogram=_SUM_FIRST, version="0.9.2"),
    SimulatedDialect("sglang", "sglang", empty_families=False, histogram=_SUM_FIRST, version=""),
    SimulatedDialect("lmdeploy", "lmdeploy", version=""),
    SimulatedDialect("llamacpp", "llamacpp", _PLAIN, format_cpp, empty_families=False, version=""),
)

#: Every dialect by name.
DIALECTS: Mapping[str, SimulatedDialect] = MappingProxyType({d.name: d for d in _DIALECTS})
