"""The end of the process: when somebody asks for it, and when they ask again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from ..publish.events import Event
from . import logs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .tap.tap import TapService

#: What asks a process to end, and what would end one that no longer listens to it.
_ASKS = (signal.SIGTERM, signal.SIGINT)
_ENDS = (*_ASKS, signal.SIGHUP)


@contextlib.contextmanager
def on_each_signal(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` for each SIGTERM and SIGINT within the block, which ends with the process once one came.

    From then on they change nothing: the loop gives its handlers back, and one more signal would turn an
    orderly end into a death by signal.
    """
    loop = asyncio.get_running_loop()
    asked = False

    def note() -> None:
        nonlocal asked
        asked = True
        tell()

    for number in _ASKS:
        loop.add_signal_handler(number, note)
    try:
        yield
    finally:
        if asked:
            # What comes between two handlers waits, and is dropped.
            signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
            for number in _ENDS:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)


class Interruption:
    """Raises KeyboardInterrupt for SIGINT, SIGTERM and SIGHUP, in a process without a loop.

    Not while it is `held`: whoever is interrupted while a child is being started does not know of the child,
    and leaves it behind.
    """

    def __init__(self) -> None:
        self._holds = False
        self._came = False

    def listen(self) -> None:
        """Take the signals from here on; a SIGINT that the shell has told to ignore stays ignored."""
        for number in _ENDS:
            if number != signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def _note(self, _number: int, _frame: object) -> None:
        if not self._holds:
            raise KeyboardInterrupt
        self._came = True

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Wait with what comes within the block until its end.

        Raises:
            KeyboardInterrupt: something came.
        """
        self._holds = True
        try:
            yield
        finally:
            self._holds = False
        if self._came:
            self._came = False
            raise KeyboardInterrupt


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Whether to end.

    Attributes:
        stop: set by the first SIGTERM or SIGINT.
        hurry: set by the second.
    """

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    @contextlib.contextmanager
    def on_signals(cls) -> Iterator[Self]:
        """Yield what the signals of this process set; the process ends with the block once one came."""
        ending = cls()

        def end() -> None:
            if ending.stop.is_set():
                ending.hurry.set()
            ending.stop.set()

        with on_each_signal(end):
            yield ending

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
