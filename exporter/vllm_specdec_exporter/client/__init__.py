"""Without the tap: Python programs that see requests report them to the exporter themselves.

::

    reporter         queues observations, and pushes them from a thread of its own
    httpx_transport  observes a client of httpx, or wraps one of its transports
    openai           observes a client of openai
    asgi             observes a server: a gateway, or vLLM itself

They need `msgspec` of the exporter's dependencies, and none of the others. What they send are counts, times
and names; no prompt and no answer enters an observation, so none can leave with one.
"""

from __future__ import annotations

from .reporter import Reporter

__all__ = ["Reporter"]
