"""Listening sockets, whose connections are counted and limited from `accept` on.

`asyncio.Server` tells a protocol its client only after the TLS handshake, so one
address could take all connections and all processor time with handshakes.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable

from ..config.listen_address import format_address
from ..runtime import logs
from .peers import peer_key

#: Takes a connection that was just accepted, and the `peer_key` of its client.
Accept = Callable[[socket.socket, str], None]
_BACKLOG = 1024  # a quarter of what Linux allows by default
#: Delay before the next `accept` after a lack of descriptors or memory, as in asyncio.
_PAUSE_SECONDS = 1.0
#: Errors of `accept` for a client that has disconnected, or that a firewall rejects.
_OF_THE_CLIENT = (errno.ECONNABORTED, errno.EPERM)
#: Limit of connections that are accepted without a pause for other tasks: with what the
#: tap does for each, 10 ms.
_AT_ONCE = 8


class Listener:
    """Listening sockets. Use `open`."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets = sockets
        self._accept: Accept
        self._is_paused = True

    @classmethod
    async def open(cls, host: str, port: int) -> Listener:
        """Bind to every address of `host`, of this machine if it is empty or ``::``, or
        raise OSError.
        """
        loop = asyncio.get_running_loop()
        # asyncio would bind :: to IPv6 alone, but binds None to every address.
        address = None if host in ("", "::") else host
        # asyncio binds the sockets as for any server; duplicates of them outlive it.
        try:
            server = await loop.create_server(
                asyncio.Protocol, address, port, start_serving=False
            )
        except UnicodeError as error:
            raise OSError("not a host name") from error
        try:
            return cls([bound.dup() for bound in server.sockets])
        finally:
            server.close()

    @property
    def addresses(self) -> list[str]:
        """The bound addresses."""
        return [format_address(*bound.getsockname()[:2]) for bound in self._sockets]

    def serve(self, accept: Accept, backlog: int = _BACKLOG) -> None:
        """Pass connections to `accept`; close, and raise OSError, if a socket cannot
        listen.

        `backlog` limits those that are not accepted yet.
        """
        self._accept = accept
        try:
            for bound in self._sockets:
                bound.setblocking(False)
                bound.listen(backlog)
        except OSError:
            self.close()
            raise
        self.resume()

    def pause(self) -> None:
        """Accept nothing until `resume`: new connections wait in the backlog."""
        self._is_paused = True
        for bound in self._sockets:
            asyncio.get_running_loop().remove_reader(bound)

    def resume(self) -> None:
        """Accept again, unless it is closed."""
        if self._is_paused:
            self._is_paused = False
            for bound in self._sockets:
                asyncio.get_running_loop().add_reader(bound, self._accept_from, bound)

    def close(self) -> None:
        """Stop accepting."""
        self.pause()
        for bound in self._sockets:
            bound.close()
        self._sockets = []

    def _accept_from(self, bound: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            if self._is_paused:
                return
            try:
                connection, address = bound.accept()
            except BlockingIOError:  # no more
                return
            except (OSError, MemoryError) as error:
                if getattr(error, "errno", None) in _OF_THE_CLIENT:
                    continue
                why = error_text(error) if isinstance(error, OSError) else "no memory"
                logs.log_seldom(logging.ERROR, "cannot accept connections", error=why)
                self.pause()
                asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self.resume)
                return
            self._begin(connection, peer_key(address[0]))

    def _begin(self, connection: socket.socket, peer: str) -> None:
        connection.setblocking(False)
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            connection.close()  # the client has reset it
            return
        try:
            self._accept(connection, peer)
        except Exception as error:  # noqa: BLE001 - a bug that one connection meets must not end the listener
            connection.close()
            logs.log_seldom(
                logging.ERROR,
                "cannot serve a connection",
                error=f"{type(error).__name__}: {error}",
            )


def error_text(error: OSError) -> str:
    """Return the text of an error of `bind`, `listen` or `accept`."""
    # The numbers of gaierror are not those of the system.
    if error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error)
