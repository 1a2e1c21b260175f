"""The tap: a relay in front of vLLM's API that passes every byte on unchanged and
observes the traffic.

One client connection maps to one server connection, so keep-alive, WebSockets,
trailers, half-closed and broken connections behave as without the tap. Bytes are passed
on first and parsed after. If parsing fails, observation ends and the connection
continues.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ...runtime import logs

if TYPE_CHECKING:
    from ...settings.request_options import TapConfig
    from ...upstream.connection import UpstreamConfig
    from .tap import Tap


def make_tap(config: TapConfig | None, upstream: UpstreamConfig) -> Tap | None:
    """Return the tap of a configuration, ``None`` without one; ConfigError for bad
    certificates.
    """
    if config is None:
        return None
    from .tap import Tap  # here: most sidecars have none

    return Tap(config, upstream)


async def end_tap(tap: Tap | None, hurry: asyncio.Event) -> None:
    """Stop a tap after the requests under way, or at once when `hurry` is set."""
    if tap is None:
        return
    connections = tap.result().connections
    if connections:
        logs.log(
            logging.INFO,
            "tap waits for requests under way",
            connections=connections,
            at_most=f"{tap.config.drain_seconds:g}s",
        )
    await tap.stop(hurry.is_set)
