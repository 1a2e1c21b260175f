"""A server that plays recorded answers, on 127.0.0.1, in a thread of its own.

Every `GET /metrics` gets the next answer, so that what a client has seen depends on how often it asked, and
not on time; after the last answer that one stays::

    with ReplayServer(bodies) as server:
        ...  # poll server.url
        server.pause()   # nothing listens any more
        server.resume()  # on the same port again
"""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Self

from aiohttp import web

from support.closing import clean_up
from support.faulty_server import series

__all__ = ["ReplayServer", "Reply", "series"]

_SECONDS = 30.0


@dataclass(frozen=True)
class Reply:
    """One answer of the server."""

    body: bytes
    status: int = 200
    content_type: str = "text/plain; version=0.0.4; charset=utf-8"
    location: str = ""


class ReplayServer:
    """Plays `replies` to whoever asks for `/metrics`, and tells `version` where it is asked for it.

    Args:
        replies: what to answer, in this order; the last one for ever.
        version: the answer to `/version`; empty for 404.
    """

    def __init__(self, replies: Sequence[Reply | bytes], *, version: str = "0.32.0") -> None:
        self._replies = [reply if isinstance(reply, Reply) else Reply(reply) for reply in replies]
        self._version = version
        self._next = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def replies_given(self) -> int:
        """How many requests for the metrics were answered."""
        return self._next

    @property
    def finished(self) -> bool:
        """Whether the last reply was given at least once."""
        return self._next >= len(self._replies)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_SECONDS)
        self._loop.close()

    def pause(self) -> None:
        """Stop listening."""
        self._run(self._close())

    def resume(self) -> None:
        """Listen again, on the same port."""
        self._run(self._open())

    def _run(self, work: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_SECONDS)

    async def _open(self) -> None:
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/version", self._tell_version)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await clean_up(runner)

    async def _metrics(self, _request: web.Request) -> web.Response:
        reply = self._replies[min(self._next, len(self._replies) - 1)]
        self._next += 1
        headers = {"Content-Type": reply.content_type}
        if reply.location:
            headers["Location"] = reply.location
        return web.Response(body=reply.body, status=reply.status, headers=headers)

    async def _tell_version(self, _request: web.Request) -> web.Response:
        if not self._version:
            return web.Response(status=404)
        return web.json_response({"version": self._version})
