"""The library for other programs: reads the snapshot of an exporter, and pushes observed requests to it.

::

    api    `get_metrics`: the snapshot of a running exporter
    push   `push_request`: one request that the caller observed

It needs only `msgspec`, and sends counts, times and names, never prompts or texts.
"""

from __future__ import annotations

from ..per_request.push_schema import PushedRequest
from .push import PushFailedError, push_request

__all__ = ["PushFailedError", "PushedRequest", "push_request"]
