"""A worker: a thread for what would hold up the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class StoppedError(Exception):
    """The worker does nothing more."""


class Worker:
    """Runs functions one after the other in a thread that does not hold up the end of the process.

    The threads of `asyncio.to_thread` do: Python waits for them at exit, also for one that hangs in a read
    from a dead file server or computes a bcrypt hash of twenty seconds.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending: set[asyncio.Future[Any]] = set()
        self._stopped = False

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Return what `function` returns, or raise what it raises.

        Raises:
            StoppedError: `stop` was called, before or meanwhile.
            RuntimeError: `function` raised what is no `Exception`.
        """
        if self._stopped:
            raise StoppedError
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                if not future.cancelled():
                    found = function(*args)
                    _tell(loop, future, found, None)
            except BaseException as error:  # noqa: BLE001 - whoever asked is told: a panic in Rust is one too
                _tell(loop, future, None, _exception(error))

        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._pending.add(future)
        try:
            self._jobs.put(job)
            return await future
        finally:
            self._pending.discard(future)

    def stop(self) -> None:
        """Begin nothing more, and let nobody wait any longer."""
        self._stopped = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._jobs.get_nowait()
        self._jobs.put(None)
        for future in self._pending:
            if not future.done():
                future.set_exception(StoppedError())

    def join(self, seconds: float) -> bool:
        """Wait so long for what was under way when it was stopped; return whether it has ended."""
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _exception(error: BaseException) -> Exception:
    """Return what whoever asked can bear: the others would end the event loop, or go past every handler."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    found = RuntimeError(f"{type(error).__name__}: {error}")
    found.__cause__ = error
    return found


def _tell(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], found: object, error: Exception | None
) -> None:
    def settle() -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(found)

    with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
        loop.call_soon_threadsafe(settle)
