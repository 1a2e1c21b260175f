"""The end of the process: when somebody asks for it, and when they ask again."""

from __future__ import annotations

import asyncio
import logging
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from . import logs
from .events import Event

if TYPE_CHECKING:
    from .tap.service import TapService


@dataclass(frozen=True, slots=True)
class Ending:
    """Whether to end.

    Attributes:
        stop: set by the first SIGTERM or SIGINT.
        hurry: set by the second.
    """

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def on_signals(cls) -> Self:
        """Return what the signals of this process set from now on."""
        ending = cls()

        def end() -> None:
            if ending.stop.is_set():
                ending.hurry.set()
            ending.stop.set()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        return ending

    async def end_tap(self, tap: TapService | None) -> None:
        """End a tap: after the requests under way, or as soon as somebody is in a hurry."""
        if tap is None:
            return
        under_way = tap.tap.result().connections
        if under_way:
            fields: dict[str, object] = {
                "connections": under_way,
                "at_most": f"{tap.config.drain_seconds:g}s",
            }
            logs.write([Event(logging.INFO, "tap waits for requests under way", fields)])
        ending = asyncio.create_task(tap.stop(), name="tap ends")
        hurried = asyncio.create_task(self.hurry.wait(), name="hurry")
        await asyncio.wait((ending, hurried), return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not ending.done():
            tap.cut()
        await ending
