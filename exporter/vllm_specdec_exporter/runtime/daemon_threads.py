"""Blocking functions in daemon threads.

Python waits at exit for the threads of `asyncio.to_thread`. A name server or a file
server that does not answer, or a bcrypt hash of 20 s, would delay the end of the
process. No file is read in the event loop.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
#: Deadline to read a file, in seconds: half of the default timeout of a poll.
FILE_SECONDS = 2.0


async def in_daemon_thread(function: Callable[..., T], *args: Any) -> T:
    """Return the result of `function`, called in a new daemon thread, or raise its
    exception.

    RuntimeError stands for an exception that is no `Exception`, such as a panic in
    Rust, and for no thread.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if future.done():  # cancelled
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result = None
        error = None
        try:
            result = function(*args)
        except Exception as raised:  # noqa: BLE001 - raised in the caller
            error = raised
        except BaseException as raised:  # noqa: BLE001 - the same
            error = RuntimeError(f"{type(raised).__name__}: {raised}")
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(
        target=work, name=getattr(function, "__name__", None), daemon=True
    ).start()
    return await future


class SharedThreads:
    """Daemon threads of which concurrent identical calls share one, so that those that
    hang stay few.
    """

    def __init__(self) -> None:
        self._pending: dict[Hashable, asyncio.Task[Any]] = {}

    @property
    def are_busy(self) -> bool:
        """Whether a call has not returned."""
        return bool(self._pending)

    async def call(self, function: Callable[..., T], *args: Hashable) -> T:
        """Return the result of `function`, or raise its exception."""
        call = function, args
        task = self._pending.get(call)
        if task is None:
            task = self._pending[call] = asyncio.create_task(
                in_daemon_thread(function, *args)
            )
            task.add_done_callback(lambda ended: self._end(call, ended))
        # a cancelled caller must not cancel the others
        result: T = await asyncio.shield(task)
        return result

    async def read(
        self, function: Callable[..., T], *args: Hashable, seconds: float = FILE_SECONDS
    ) -> T:
        """Return the result of a function that reads files, as `call`; TimeoutError
        after `seconds`.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self.call(function, *args)
        except TimeoutError:
            raise TimeoutError(f"was not read within {seconds:g} s") from None

    def _end(self, call: Hashable, task: asyncio.Task[Any]) -> None:
        del self._pending[call]
        if not task.cancelled():
            # marks it as retrieved: all callers may have been cancelled
            task.exception()
