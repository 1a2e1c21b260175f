"""The metric table: every metric that the exporter has, declared once.

The collector publishes from it, `docs/metrics.md` is generated from it, the snapshot's ``metric`` filter
knows its names from it, and the tests hold all of them to it. To add a metric is to add a row.
"""

from __future__ import annotations

from .counted import COUNTED
from .derived import DERIVED
from .engines import ENGINES, SCHEDULED_BATCHES
from .requests import REQUESTS
from .serving import SERVING

__all__ = ["METRICS", "SCHEDULED_BATCHES"]

#: Every metric, in the order in which it is exposed and documented.
METRICS = (*COUNTED, *DERIVED, *ENGINES, *REQUESTS, *SERVING)
