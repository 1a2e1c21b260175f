"""The listener: sockets that stay open while who answers on them, and how, is exchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    import ssl

#: Makes the protocol of a new connection.
Factory = Callable[[], asyncio.Protocol]

_BACKLOG = 128


class Listener:
    """Listening sockets. Use `open`."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets = sockets
        self._servers: list[asyncio.Server] = []

    @classmethod
    async def open(cls, host: str, port: int) -> Listener:
        """Bind to every address of `host`, all of the machine's when it is empty.

        Raises:
            OSError: it cannot be.
        """
        loop = asyncio.get_running_loop()
        # Whoever binds and listens is asyncio, as for any server; the sockets are kept beyond that server.
        server = await loop.create_server(asyncio.Protocol, host or None, port, start_serving=False)
        try:
            return cls([bound.dup() for bound in server.sockets])
        finally:
            server.close()

    @property
    def addresses(self) -> list[str]:
        """Where it listens."""
        found = (bound.getsockname() for bound in self._sockets)
        return [f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}" for name in found]

    async def serve(
        self,
        factory: Factory,
        context: ssl.SSLContext | None = None,
        handshake_seconds: float | None = None,
    ) -> None:
        """Give new connections to `factory` from now on, over TLS with a `context`.

        Connections that exist, and those within their handshake, go on as they began. None is refused in
        between.

        Raises:
            OSError: it cannot be; everything stays as it was.
        """
        loop = asyncio.get_running_loop()
        after: list[asyncio.Server] = []
        try:
            for bound in self._sockets:
                server = await _server(loop, bound, factory, context, handshake_seconds)
                after.append(server)
            for server in after:
                await server.start_serving()
        except BaseException:
            for server in after:
                server.close()
            raise
        before, self._servers = self._servers, after
        # asyncio drops a connection that it has accepted, but not begun with, when it closes the server. So
        # these accept no more first, and are closed when what they accepted has begun.
        for server in before:
            for accepting in server.sockets:
                loop.remove_reader(accepting.fileno())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for server in before:
            server.close()

    def close(self) -> None:
        """Accept no more connections."""
        for server in self._servers:
            server.close()
        for bound in self._sockets:
            bound.close()


async def _server(
    loop: asyncio.AbstractEventLoop,
    bound: socket.socket,
    factory: Factory,
    context: ssl.SSLContext | None,
    handshake_seconds: float | None,
) -> asyncio.Server:
    """Return what accepts on a socket of its own once it is started."""
    accepting = bound.dup()
    try:
        return await loop.create_server(
            factory,
            sock=accepting,
            ssl=context,
            backlog=_BACKLOG,
            ssl_handshake_timeout=handshake_seconds if context else None,
            start_serving=False,
        )
    except BaseException:
        accepting.close()
        raise
