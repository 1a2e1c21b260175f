"""Is speculative decoding paying off right now, and if not, what should I change?

A Prometheus exporter that stands beside vLLM, reads its counters and publishes what they mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client.api import SnapshotError, get_metrics
    from .observe.result import EngineResult, ExporterResult, TargetResult

__version__ = "0.1.0"

__all__ = ["EngineResult", "ExporterResult", "SnapshotError", "TargetResult", "__version__", "get_metrics"]


def __getattr__(name: str) -> object:
    """Import what is asked for: a health check every few seconds needs none of it."""
    if name in __all__:
        from .client import api
        from .observe import result

        return getattr(api if hasattr(api, name) else result, name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
