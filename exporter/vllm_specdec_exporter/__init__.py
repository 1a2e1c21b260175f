"""Is speculative decoding paying off right now, and if not, what should I change?

A Prometheus exporter that stands beside vLLM, reads its counters and publishes what they mean.
"""

__version__ = "0.1.0"

from .api import SnapshotError, get_metrics
from .result import EngineResult, ExporterResult, TargetResult

__all__ = ["EngineResult", "ExporterResult", "SnapshotError", "TargetResult", "__version__", "get_metrics"]
