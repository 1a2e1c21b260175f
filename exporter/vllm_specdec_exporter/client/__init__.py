"""The library for other programs: the snapshot of an exporter, and a reporter of requests.

::

    api              `get_metrics`: the snapshot of a running exporter
    reporter         queues observations, and pushes them from its own thread
    httpx_transport  observes a client of httpx, or wraps one of its transports
    openai           observes a client of openai
    asgi             observes a server: a gateway, or vLLM itself

Of the exporter's dependencies it needs only `msgspec`. It sends counts, times and names. No prompt and no
answer enters an observation.
"""

from __future__ import annotations

from .reporter import Reporter

__all__ = ["Reporter"]
