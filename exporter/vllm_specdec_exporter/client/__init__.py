"""The library for other programs: reads the snapshot of an exporter, and pushes observed requests to it.

::

    api              `get_metrics`: the snapshot of a running exporter
    reporter         queues observations and pushes them from a background thread
    httpx_transport  observes the requests of an httpx client or transport
    openai           observes the requests of an openai client
    asgi             observes the requests of a server, such as a gateway or vLLM

It needs only `msgspec`, and sends counts, times and names, never prompts or texts.
"""

from __future__ import annotations

from .reporter import Reporter

__all__ = ["Reporter"]
