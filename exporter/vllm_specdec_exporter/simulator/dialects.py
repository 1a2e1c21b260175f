"""How the simulated servers write their metrics down."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from .families import Family, load_families

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
