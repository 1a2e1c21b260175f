"""The metric table: every metric that the exporter has, declared once.

The collector publishes from it, `docs/reference/metrics.md` is generated from it, and the snapshot's
``metric`` filter knows its names from it. To add a metric is to add a row.
"""

from __future__ import annotations

from .engine import ENGINES, SCHEDULED_BATCHES
from .requests import REQUESTS
from .server import COUNTED, SERVING
from .window import DERIVED

__all__ = ["METRICS", "SCHEDULED_BATCHES"]

#: Every metric, in the order in which it is exposed and documented.
METRICS = (*COUNTED, *DERIVED, *ENGINES, *REQUESTS, *SERVING)
