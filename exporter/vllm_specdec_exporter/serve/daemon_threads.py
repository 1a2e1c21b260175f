"""Blocking functions in daemon threads.

Python waits at exit for the threads of `asyncio.to_thread`. A name server or a file server that does not
answer, or a bcrypt hash of 20 s, would delay the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def in_daemon_thread(function: Callable[..., T], *args: Any) -> T:
    """Return the result of `function`, called in a new daemon thread, or raise its exception.

    RuntimeError stands for an exception that is no `Exception`, such as a panic in Rust, and for no thread.
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
        result, error = None, None
        try:
            result = function(*args)
        except Exception as raised:  # noqa: BLE001 - raised in the caller
            error = raised
        except BaseException as raised:  # noqa: BLE001 - the same
            error = RuntimeError(f"{type(raised).__name__}: {raised}")
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name=function.__name__, daemon=True).start()
    return await future
