"""The listener: sockets that stay open while who answers on them, and how, is exchanged.

It accepts by itself rather than by `asyncio.Server`, which is bound to one TLS context for life and holds any
number of clients that never finish their handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..config.values import format_address
from ..publish.events import Event
from . import logs

if TYPE_CHECKING:
    import ssl

#: Makes the protocol of a new connection.
Factory = Callable[[], asyncio.Protocol]

_BACKLOG = 1024

#: Seconds until the next attempt where no connection can be accepted for want of descriptors or memory.
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Way:
    """How a connection is answered that is accepted now."""

    factory: Factory
    context: ssl.SSLContext | None
    handshake_seconds: float | None


class Listener:
    """Listening sockets. Use `open`."""

    def __init__(self, sockets: list[socket.socket], backlog: int, most_handshakes: int | None) -> None:
        self._sockets = sockets
        self._backlog = backlog
        self._most_handshakes = most_handshakes
        self._way: _Way | None = None
        self._accepting: list[asyncio.Task[None]] = []
        #: Accepted, and within their handshakes, from the oldest to the newest.
        self._beginning: dict[asyncio.Task[None], socket.socket] = {}

    @classmethod
    async def open(
        cls, host: str, port: int, backlog: int = _BACKLOG, most_handshakes: int | None = None
    ) -> Listener:
        """Bind to every address of `host`, all of the machine's when it is empty.

        Args:
            host: the address.
            port: the port.
            backlog: connections that may wait to be accepted.
            most_handshakes: TLS handshakes at a time; one more ends the oldest of them.

        Raises:
            OSError: it cannot be.
        """
        loop = asyncio.get_running_loop()
        # Whoever binds is asyncio, as for any server; the sockets are kept beyond that server.
        server = await loop.create_server(asyncio.Protocol, host or None, port, start_serving=False)
        try:
            return cls([bound.dup() for bound in server.sockets], backlog, most_handshakes)
        finally:
            server.close()

    @property
    def addresses(self) -> list[str]:
        """Where it listens."""
        return [format_address(*bound.getsockname()[:2]) for bound in self._sockets]

    def serve(
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
        fresh = [] if self._accepting else self._sockets
        for bound in fresh:
            bound.setblocking(False)
            bound.listen(self._backlog)
        self._way = _Way(factory, context, handshake_seconds if context else None)
        for bound in fresh:
            task = asyncio.create_task(self._accept(bound), name="accept")
            task.add_done_callback(partial(_close, bound))
            self._accepting.append(task)

    def close(self) -> None:
        """Accept no more connections; handshakes that are not finished end."""
        for task in (*self._accepting, *self._beginning):
            task.cancel()
        for bound in self._sockets:
            # asyncio may still know the descriptor's number: it is given back when the task has ended.
            if self._accepting:
                with contextlib.suppress(OSError):
                    bound.shutdown(socket.SHUT_RDWR)
            else:
                bound.close()

    async def _accept(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        said = ""
        while True:
            try:
                connection, _ = await loop.sock_accept(bound)
            except (OSError, MemoryError) as error:
                if isinstance(error, MemoryError):
                    why = "no memory"
                elif error.errno in (errno.ECONNABORTED, errno.EPERM):
                    continue  # the client has gone, or a firewall would not have it
                else:
                    why = why_not(error)
                if why != said:
                    said = why
                    logs.write([Event(logging.ERROR, "cannot accept connections", {"error": why})])
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            said = ""
            assert self._way is not None  # there is one before it accepts
            task = asyncio.create_task(_begin(loop, connection, self._way))
            self._beginning[task] = connection
            task.add_done_callback(self._begun)
            if self._way.context is not None and self._most_handshakes is not None:
                for oldest in [*self._beginning][: -self._most_handshakes]:
                    oldest.cancel()
            await asyncio.sleep(0)  # a flood of connections must not hold up everything else

    def _begun(self, task: asyncio.Task[None]) -> None:
        connection = self._beginning.pop(task)
        if task.cancelled():
            connection.close()


def why_not(error: OSError | UnicodeError) -> str:
    """Return in words why an address cannot be listened on."""
    if isinstance(error, UnicodeError):
        return "not a host name"
    name_error = isinstance(error, socket.gaierror)  # its numbers are not those of the system
    return os.strerror(error.errno) if error.errno and not name_error else error.strerror or str(error)


def _close(bound: socket.socket, _task: asyncio.Task[None]) -> None:
    bound.close()


async def _begin(loop: asyncio.AbstractEventLoop, connection: socket.socket, way: _Way) -> None:
    """Hand an accepted connection over, after its TLS handshake."""
    with contextlib.suppress(OSError):  # a handshake that failed or took too long is the client's affair
        await loop.connect_accepted_socket(
            way.factory, connection, ssl=way.context, ssl_handshake_timeout=way.handshake_seconds
        )
