"""How servers of tests end: with nothing left for the garbage collector to find in a
later test.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from aiohttp import web


@contextlib.contextmanager
def loop_in_a_thread() -> Iterator[Callable[[Coroutine[Any, Any, Any]], None]]:
    """Run an event loop in a thread of its own; yield what has it run a coroutine to
    its end.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def turns(count: int) -> None:
    """Let the event loop turn."""
    for _ in range(count):
        await asyncio.sleep(0)


async def stop_accepting(listening: Iterable[socket.socket]) -> None:
    """Accept no more connections, and let those that were accepted begin, or end where
    the client has gone.

    Closing alone is not enough: asyncio forgets a connection that it accepted in the
    very turn of the loop in which its server was closed, without closing it. One within
    a TLS handshake is nobody's yet.
    """
    loop = asyncio.get_running_loop()
    for listener in listening:
        loop.remove_reader(listener.fileno())
    await turns(10)


async def clean_up(runner: web.AppRunner) -> None:
    """End an application of aiohttp and its connections."""
    listening: list[socket.socket] = []
    for site in runner.sites:
        # aiohttp has no other way to them
        if server := getattr(site, "_server", None):
            listening += server.sockets
    await stop_accepting(listening)
    await runner.cleanup()
    await turns(10)
