"""Listening sockets.

`asyncio.Server` calls nothing of ours between `accept` and the end of a handshake, so
one address could take all connections and all processor time with handshakes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator

from ..config.listen_address import format_address
from ..runtime import logs
from .connection_limits import peer_key

#: Returns the protocol of a connection that was just accepted, from the socket and the
#: `peer_key`; ``None`` to refuse it.
Accept = Callable[[socket.socket, str], asyncio.BaseProtocol | None]
#: The TLS context, or what returns that of the next connection; ``None`` for plain
#: connections.
Context = ssl.SSLContext | Callable[[], Awaitable[ssl.SSLContext]] | None
#: Deadline of a TLS handshake, in seconds: as long as for the head of a request.
HANDSHAKE_SECONDS = 10.0
_BACKLOG = 1024  # a quarter of what Linux allows by default
#: Limits of connections that are accepted and not served yet, of one peer and of all;
#: peers take turns. Otherwise a flood from one address delays all others: a connection
#: takes 0.7 ms of processor time, one that is closed 0.03. All of them fit into the
#: usual limit of 1,024 descriptors.
MAX_WAITING_OF_ONE_PEER = 128
MAX_WAITING = 512
_RESERVED = 64  # connections above `MAX_WAITING`, each the first one of its peer
#: Delay before the next `accept` after a lack of descriptors or memory, as in asyncio.
_PAUSE_SECONDS = 1.0
#: Errors of `accept` for a client that has disconnected, or that a firewall rejects.
_OF_THE_CLIENT = (errno.ECONNABORTED, errno.EPERM)
#: Limit of connections that are accepted without a pause for other tasks: 2 ms.
_AT_ONCE = 64
_FULL_SECONDS = 0.1  # the same while the listener is full


class Listener:
    """Listening sockets. Use `open`.

    Attributes:
        context: the TLS context of connections that are accepted from now on.
    """

    def __init__(
        self,
        sockets: list[socket.socket],
        backlog: int,
        is_full: Callable[[], bool] | None,
    ) -> None:
        self._sockets = sockets
        self._backlog = backlog
        self._is_full = is_full
        self.context: Context = None
        self._accept: Accept
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        backlog: int = _BACKLOG,
        is_full: Callable[[], bool] | None = None,
    ) -> Listener:
        """Bind to every address of `host`, of this machine if it is empty or ``::``, or
        raise OSError.

        `backlog` limits the connections that are not accepted yet. With `is_full`, they
        are accepted one by one while it returns false; without, all of them at once, up
        to the limits of this module.
        """
        loop = asyncio.get_running_loop()
        # asyncio would bind :: to IPv6 alone, but binds None to every address.
        address = None if host in ("", "::") else host
        # asyncio binds the sockets as for any server; duplicates of them outlive it.
        server = await loop.create_server(
            asyncio.Protocol, address, port, start_serving=False
        )
        try:
            return cls([bound.dup() for bound in server.sockets], backlog, is_full)
        finally:
            server.close()

    @property
    def addresses(self) -> list[str]:
        """The bound addresses."""
        return [format_address(*bound.getsockname()[:2]) for bound in self._sockets]

    def serve(self, accept: Accept, context: Context = None) -> None:
        """Serve connections with the protocols of `accept`, over TLS with a `context`.

        Raises OSError if a socket cannot listen.
        """
        self._accept = accept
        self.context = context
        for bound in self._sockets:
            bound.setblocking(False)
            bound.listen(self._backlog)
        self._accepting = [
            asyncio.create_task(self._accept_from(bound), name="accept")
            for bound in self._sockets
        ]

    def close(self) -> None:
        """Stop accepting, and cancel unfinished handshakes."""
        for task in (*self._accepting, *self._handshakes):
            task.cancel()
        for bound in self._sockets:
            # once asyncio watches it no more
            asyncio.get_running_loop().call_soon(bound.close)

    async def _accept_from(self, bound: socket.socket) -> None:
        waiting = _Waiting()
        while True:
            while self._is_full is not None and self._is_full():  # noqa: ASYNC110 - descriptors are freed by connections that end
                await asyncio.sleep(_FULL_SECONDS)
            try:
                await self._fill(waiting, bound)
            except (OSError, MemoryError) as error:
                if getattr(error, "errno", None) in _OF_THE_CLIENT:
                    continue
                why = error_text(error) if isinstance(error, OSError) else "no memory"
                logs.log_seldom(logging.ERROR, "cannot accept connections", error=why)
                # Those that wait hold descriptors, and free them once they are served.
                if not waiting:
                    await asyncio.sleep(_PAUSE_SECONDS)
            for connection, peer in waiting.take_turns():
                if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    connection.close()  # the client has reset it
                    continue
                try:
                    self._begin(connection, peer)
                except Exception as error:  # noqa: BLE001 - a bug that one connection meets must not end the listener
                    connection.close()
                    logs.log_seldom(
                        logging.ERROR,
                        "cannot serve a connection",
                        error=f"{type(error).__name__}: {error}",
                    )
                # Many new connections must not block other tasks.
                await asyncio.sleep(0)

    async def _fill(self, waiting: _Waiting, bound: socket.socket) -> None:
        """Accept connections: one if none waits, and what else has arrived."""
        if not waiting:
            loop = asyncio.get_running_loop()
            waiting.add(*await loop.sock_accept(bound))
        if self._is_full is not None:
            return  # the next one may be one too many
        with contextlib.suppress(BlockingIOError):  # no more
            for _ in range(_AT_ONCE):
                waiting.add(*bound.accept())

    def _begin(self, connection: socket.socket, peer: str) -> None:
        protocol = self._accept(connection, peer)
        if protocol is None:
            connection.close()
            return
        handshake = _connect(connection, protocol, self.context)
        try:
            task = asyncio.create_task(handshake)
        except BaseException:
            handshake.close()
            protocol.connection_lost(None)  # it holds a place among the connections
            raise
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)


class _Waiting(dict[str, list[socket.socket]]):
    """Accepted connections that are not served yet, by peer."""

    def add(self, connection: socket.socket, address: tuple[str, int]) -> None:
        """Add a connection, or close it if too many wait."""
        peer = peer_key(address[0])
        of_peer = self.get(peer, [])
        limit = MAX_WAITING
        if not of_peer:
            limit += _RESERVED
        total = sum(map(len, self.values()))
        if len(of_peer) >= MAX_WAITING_OF_ONE_PEER or total >= limit:
            connection.close()
            return
        connection.setblocking(False)
        self[peer] = [*of_peer, connection]

    def take_turns(self) -> Iterator[tuple[socket.socket, str]]:
        """Remove and yield the longest waiting connection of each peer."""
        for peer in tuple(self):
            connection, *later = self.pop(peer)
            if later:
                self[peer] = later
            yield connection, peer


async def _connect(
    connection: socket.socket, protocol: asyncio.BaseProtocol, context: Context
) -> None:
    try:
        if callable(context):
            context = await context()
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if context else None,
        )
    except OSError:  # a failed handshake is the client's problem
        protocol.connection_lost(None)  # asyncio calls it only after `connection_made`
    except asyncio.CancelledError:
        connection.close()
        raise


def error_text(error: OSError | UnicodeError) -> str:
    """Return the text of an error of `bind`, `listen` or `accept`."""
    if isinstance(error, UnicodeError):
        return "not a host name"
    # The numbers of gaierror are not those of the system.
    if error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error)
