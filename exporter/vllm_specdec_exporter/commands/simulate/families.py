"""The metric families a server publishes, read from the package's data files.

A data file describes names, HELP and TYPE, labels and bucket bounds; what a sample's value is
comes from the simulation, looked up by the family's `source`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: The data files.
SERVERS = ("vllm", "vllm-rust", "vllm-v0", "lmdeploy", "llamacpp")

#: Values of the `position` label: one for each position that can be drafted.
POSITIONS = "positions"

#: Bucket bounds that depend on the model: 1, 2, 5, 10, 20, 50, ... up to its maximum length.
ONE_TWO_FIVE = "1-2-5"


@dataclass(frozen=True)
class Family:
    """One metric family.

    Attributes:
        name: Family name, for a counter without the `_total` that its samples carry.
        type: counter, gauge, histogram or summary.
        help: The HELP text.
        scope: `engine` (a sample per engine), `model` (one per model) or `server` (one).
        source: Key under which the simulation keeps the values.
        variant_label: Label that tells apart several samples of the same owner, if any.
        variant_values: Its values; empty with `position`, whose values depend on K.
        labels: Constant labels.
        buckets: Finite bucket bounds; empty if they depend on the model, or without buckets.
        model_sized: Whether the bounds are 1-2-5 steps up to the maximum model length.
        created: Whether the server tells when a sample's counting began.
        requires: What must be there before the samples are: `speculation`, `drafts`, `traffic`
            or `v0_sample`; empty if nothing.
        names_model: Whether samples carry `model_name`.
        constant: Values that never change, one per variant.
        combine: How several engines become one sample: sum, mean or max.
        real: Whether the value is a real number rather than a count.
        bare: Whether a counter's sample lacks the suffix `_total`.
    """

    name: str
    type: str
    help: str
    scope: str
    source: str
    variant_label: str = ""
    variant_values: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()
    model_sized: bool = False
    created: bool = False
    requires: str = ""
    names_model: bool = True
    constant: tuple[float, ...] = ()
    combine: str = "sum"
    real: bool = False
    bare: bool = False

    @property
    def per_position(self) -> bool:
        """Whether there is a sample for every position that can be drafted."""
        return self.variant_label == "position"

    def bounds(self, max_model_len: int) -> tuple[float, ...]:
        """Return the finite bucket bounds for a model of this maximum length in tokens."""
        return one_two_five(max_model_len) if self.model_sized else self.buckets


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
def load_families(server: str) -> tuple[Family, ...]:
    """Read the families of a server, in the order in which it publishes them.

    Args:
        server: Name of a data file, one of `SERVERS`.
    """
    resource = files(__package__) / "data" / f"{server}.json"
    document = json.loads(resource.read_text(encoding="utf-8"))
    return tuple(_family(entry) for entry in document["families"])


def _family(entry: dict[str, Any]) -> Family:
    variant = entry.get("variant", {})
    values = variant.get("values", ())
    buckets = entry.get("buckets", ())
    return Family(
        name=entry["name"],
        type=entry["type"],
        help=entry["help"],
        scope=entry["scope"],
        source=entry.get("source", entry["name"].rpartition(":")[2]),
        variant_label=variant.get("label", ""),
        variant_values=() if values == POSITIONS else tuple(values),
        labels=entry.get("labels", {}),
        buckets=() if buckets == ONE_TWO_FIVE else tuple(float(bound) for bound in buckets),
        model_sized=buckets == ONE_TWO_FIVE,
        created=entry.get("created", False),
        requires=entry.get("requires", ""),
        names_model=not entry.get("omit_model_name", False),
        constant=tuple(entry.get("constant", ())),
        combine=entry.get("combine", "sum"),
        real=entry.get("real", False),
        bare=entry.get("bare", False),
    )


@lru_cache(maxsize=32)
def histogram_bounds(max_model_len: int) -> dict[str, tuple[float, ...]]:
    """Return for each histogram, by source, the bucket bounds of all servers taken together."""
    bounds: dict[str, set[float]] = {}
    for server in SERVERS:
        for family in load_families(server):
            if family.type == "histogram":
                bounds.setdefault(family.source, set()).update(family.bounds(max_model_len))
    return {source: tuple(sorted(limits)) for source, limits in bounds.items()}


_CLASSIC = "text/plain; version=1.0.0; charset=utf-8"
_CLASSIC_OLD = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# The parts of a histogram, in the order in which a server writes them.
_PYTHON_HISTOGRAM = ("bucket", "count", "sum")
_MULTIPROC_HISTOGRAM = ("sum", "bucket", "count")
_RUST_HISTOGRAM = ("sum", "count", "bucket")

_MULTIPROC_TYPES = ("histogram", "summary", "counter", "gauge")


def format_python(value: float, family: Family | None = None) -> str:
    """Write a number as the Python client library does: always a float, exponents as in Go."""
    del family
    text = repr(float(value))
    point = text.find(".")
    if value > 0 and point > 6:
        mantissa = f"{text[0]}.{text[1:point]}{text[point + 1 :]}".rstrip("0.")
        return f"{mantissa}e+0{point - 1}"
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(text, text)


def format_rust(value: float, family: Family) -> str:
    """Write a number as the Rust client library does: counts are integers."""
    return repr(float(value)) if family.real else str(int(value))


def format_cpp(value: float, family: Family) -> str:
    """Write a number as a C++ stream does: six significant digits, positions in full."""
    return str(int(value)) if family.per_position else format(float(value), ".6g")


@dataclass(frozen=True)
class Dialect:
    """One way to write the metrics.

    Attributes:
        name: Name of the dialect.
        server: Data file with the families.
        content_type: HTTP content type of the answer.
        number: How a value is written.
        openmetrics: Whether the format is OpenMetrics rather than the classic text.
        underscores: Whether sample names have `_` where family names have `:`.
        created: Whether the start of counting is published.
        process: Whether there are `process_*` and `python_*` families.
        grouped_by_type: Whether histograms come first and gauges last.
        empty_families: Whether families without samples have HELP and TYPE lines.
        identity_first: Whether labels begin with `model_name`, `engine`; otherwise they are
            sorted by name.
        histogram: The parts of a histogram in order.
        version: The version that GET /version tells; empty if there is no such path.
    """

    name: str
    server: str
    content_type: str
    number: Callable[[float, Family], str]
    openmetrics: bool = False
    underscores: bool = False
    created: bool = False
    process: bool = True
    grouped_by_type: bool = False
    empty_families: bool = True
    identity_first: bool = False
    histogram: tuple[str, ...] = _PYTHON_HISTOGRAM
    version: str = "0.32.0"

    def families(self) -> tuple[Family, ...]:
        """Return the families of the dialect in their order."""
        families = load_families(self.server)
        if not self.process:
            families = tuple(f for f in families if not f.name.startswith(("python_", "process_")))
        if self.grouped_by_type:
            families = tuple(sorted(families, key=lambda f: _MULTIPROC_TYPES.index(f.type)))
        return families


_DIALECTS = (
    Dialect("vllm", "vllm", _CLASSIC, format_python, created=True),
    Dialect(
        "vllm-multiproc",
        "vllm",
        _CLASSIC,
        format_python,
        process=False,
        grouped_by_type=True,
        empty_families=False,
        histogram=_MULTIPROC_HISTOGRAM,
    ),
    Dialect(
        "vllm-rust",
        "vllm-rust",
        _OPENMETRICS,
        format_rust,
        openmetrics=True,
        identity_first=True,
        histogram=_RUST_HISTOGRAM,
    ),
    Dialect(
        "vllm-underscore",
        "vllm",
        _OPENMETRICS,
        format_python,
        openmetrics=True,
        underscores=True,
        created=True,
    ),
    Dialect(
        "vllm-v0",
        "vllm-v0",
        _CLASSIC_OLD,
        format_python,
        histogram=_MULTIPROC_HISTOGRAM,
        version="0.9.2",
    ),
    Dialect("lmdeploy", "lmdeploy", _CLASSIC, format_python, version=""),
    Dialect(
        "llamacpp",
        "llamacpp",
        "text/plain; version=0.0.4",
        format_cpp,
        empty_families=False,
        version="",
    ),
)

#: Every dialect by name.
DIALECTS: Mapping[str, Dialect] = MappingProxyType({d.name: d for d in _DIALECTS})
