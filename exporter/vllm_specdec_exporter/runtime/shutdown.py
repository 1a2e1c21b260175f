"""Signals that end the process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Self, TypeVar

from msgspec import Struct, field

T = TypeVar("T")
#: Deadline for what follows the tap at the end of the process, in seconds.
END_SECONDS = 1.0

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: All signals with a handler here that end a process without one.
_ALL_SIGNALS = (*_STOP_SIGNALS, signal.SIGHUP)


@contextlib.contextmanager
def on_each_signal(callback: Callable[[], None]) -> Iterator[None]:
    """Call `callback` for each SIGTERM and SIGINT within the block.

    After the first one, the process ends with the block, and further signals are
    ignored: the loop removes its handlers, and another signal would kill the process
    before its exit code.
    """
    loop = asyncio.get_running_loop()
    received = False

    def handle() -> None:
        nonlocal received
        received = True
        callback()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, handle)
    try:
        yield
    finally:
        if received:
            # Blocked while there is no handler; a signal that arrives meanwhile is
            # ignored.
            signal.pthread_sigmask(signal.SIG_BLOCK, _ALL_SIGNALS)
            for number in _ALL_SIGNALS:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ALL_SIGNALS)


class Interruption:
    """Raises KeyboardInterrupt for SIGINT, SIGTERM and SIGHUP in a process without an
    event loop.

    While it is `held`, it is delayed: otherwise a child process that is being started
    would keep running.
    """

    def __init__(self) -> None:
        self._is_held = False
        self._pending = False

    def listen(self) -> None:
        """Install the handlers. A SIGINT that the shell ignores stays ignored."""
        for number in _ALL_SIGNALS:
            if (
                number != signal.SIGINT
                or signal.getsignal(number) is not signal.SIG_IGN
            ):
                signal.signal(number, self._handle)

    def _handle(self, _number: int, _frame: object) -> None:
        if not self._is_held:
            raise KeyboardInterrupt
        self._pending = True

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Delay signals within the block; raise KeyboardInterrupt at its end if one
        arrived.
        """
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt


class Shutdown(Struct, frozen=True):
    """The state of the shutdown."""

    #: Set by the first SIGTERM or SIGINT.
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)  # set by the second

    @classmethod
    @contextlib.contextmanager
    def on_signals(cls) -> Iterator[Self]:
        """Yield the state that signals set.

        After the first one, the process ends with the block.
        """
        shutdown = cls()

        def handle() -> None:
            if shutdown.stop.is_set():
                shutdown.hurry.set()
            shutdown.stop.set()

        with on_each_signal(handle):
            yield shutdown

    async def unless_stopped(self, awaitable: Awaitable[T]) -> T | None:
        """Return the result of `awaitable`, or raise its exception; ``None`` if a
        signal arrives before.
        """
        task = asyncio.ensure_future(awaitable)
        stop = asyncio.ensure_future(self.stop.wait())
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if task.done():
            return task.result()
        return None
