"""A Prometheus exporter for vLLM's speculative decoding, and its Python API.

It polls the counters of vLLM and publishes acceptance, speedup, verdicts and advice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import SnapshotError, get_metrics
    from .observe.result import EngineResult, ExporterResult, TargetResult

__version__ = "0.1.0"

__all__ = [
    "EngineResult",
    "ExporterResult",
    "SnapshotError",
    "TargetResult",
    "__version__",
    "get_metrics",
]


def __getattr__(name: str) -> object:
    """Import public names on first use, so that the `health` command, run every few
    seconds, starts fast.
    """
    if name in __all__:
        from . import client as api
        from .observe import result

        return getattr(api if hasattr(api, name) else result, name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
