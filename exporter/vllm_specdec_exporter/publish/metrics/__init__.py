"""The metric table: declares every metric of the exporter once.

The collector, `docs/reference/metrics.md` and the snapshot's ``metric`` filter are derived from it. To add a
metric, add a row to the module of its kind.
"""

from __future__ import annotations

from .requests import REQUESTS
from .server import COUNTED, ENGINES, SCHEDULED_BATCHES, SERVING
from .window import DERIVED

__all__ = ["METRICS", "SCHEDULED_BATCHES"]

#: Every metric, in the order of the exposition and of the reference.
METRICS = (*COUNTED, *DERIVED, *ENGINES, *REQUESTS, *SERVING)
