"""Listening sockets whose TLS context can be replaced, and the resolver of host names."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import threading
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING

from aiohttp.abc import AbstractResolver, ResolveResult

from ..config.values import format_address
from . import logs

if TYPE_CHECKING:
    import ssl

    from aiohappyeyeballs import AddrInfoType

#: asyncio allocates 256 KiB for each TLS connection, sixteen times what a TLS record has.
SSLProtocol.max_size = 32 * 1024
#: Returns the protocol of a new connection.
Factory = Callable[[], asyncio.Protocol]
_BACKLOG = 1024
_PAUSE_SECONDS = 1.0  # delay before the next `accept` after a lack of descriptors or memory, in seconds
_FULL_SECONDS = 0.1  # the same while the listener is full


@dataclass(frozen=True, slots=True)
class _Serving:
    """How new connections are served."""

    factory: Factory
    context: ssl.SSLContext | None
    handshake_seconds: float | None


class Listener:
    """Listening sockets. Use `open`.

    This accepts connections without `asyncio.Server`, whose TLS context is fixed and which sets no limit on
    clients that never finish their handshake.
    """

    def __init__(
        self,
        sockets: list[socket.socket],
        backlog: int,
        most_handshakes: int | None,
        is_full: Callable[[], bool],
    ) -> None:
        self._sockets = sockets
        self._is_full = is_full
        self._backlog = backlog
        self._most_handshakes = most_handshakes
        self._serving: _Serving | None = None
        self._accepting: list[asyncio.Task[None]] = []
        #: Accepted connections within their handshake, oldest first.
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        backlog: int = _BACKLOG,
        most_handshakes: int | None = None,
        is_full: Callable[[], bool] = lambda: False,
    ) -> Listener:
        """Bind to every address of `host`.

        Args:
            host: the address; empty for all of the machine's.
            port: the port.
            backlog: limit of connections that are not accepted yet.
            most_handshakes: limit of concurrent TLS handshakes; one more ends the oldest.
            is_full: whether the next connection waits before it is accepted.

        Raises:
            OSError: an address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        # asyncio binds the sockets as for any server; duplicates of them outlive that server.
        server = await loop.create_server(asyncio.Protocol, host or None, port, start_serving=False)
        try:
            return cls([bound.dup() for bound in server.sockets], backlog, most_handshakes, is_full)
        finally:
            server.close()

    @property
    def addresses(self) -> list[str]:
        """The bound addresses."""
        return [format_address(*bound.getsockname()[:2]) for bound in self._sockets]

    def serve(
        self, factory: Factory, context: ssl.SSLContext | None = None, handshake_seconds: float | None = None
    ) -> None:
        """Serve new connections with `factory`, over TLS with a `context`.

        Connections that exist, and those within their handshake, do not change. None is refused meanwhile.
        Raises OSError if a socket cannot listen; then `factory` is not in use.
        """
        new = [] if self._accepting else self._sockets
        for bound in new:
            bound.setblocking(False)
            bound.listen(self._backlog)
        self._serving = _Serving(factory, context, handshake_seconds if context else None)
        for bound in new:
            task = asyncio.create_task(self._accept(bound), name="accept")
            task.add_done_callback(partial(_close, bound))
            self._accepting.append(task)

    def close(self) -> None:
        """Stop accepting, and cancel unfinished handshakes."""
        for task in (*self._accepting, *self._handshakes):
            task.cancel()
        for bound in self._sockets:
            # asyncio still uses the descriptor: it is closed when the task has ended.
            if self._accepting:
                with contextlib.suppress(OSError):
                    bound.shutdown(socket.SHUT_RDWR)
            else:
                bound.close()

    async def _accept(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        logged = ""
        while True:
            while self._is_full():  # noqa: ASYNC110 - descriptors are freed by connections that end
                await asyncio.sleep(_FULL_SECONDS)
            try:
                connection, _ = await loop.sock_accept(bound)
            except (OSError, MemoryError) as error:
                if isinstance(error, MemoryError):
                    why = "no memory"
                elif error.errno in (errno.ECONNABORTED, errno.EPERM):
                    continue  # the client has disconnected, or a firewall has rejected it
                else:
                    why = error_text(error)
                if why != logged:
                    logged = why
                    logs.log(logging.ERROR, "cannot accept connections", error=why)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            logged = ""
            assert self._serving is not None  # set before the task starts
            task = asyncio.create_task(_handshake(loop, connection, self._serving))
            self._handshakes[task] = connection
            task.add_done_callback(self._finish)
            if self._serving.context is not None and self._most_handshakes is not None:
                for oldest in [*self._handshakes][: -self._most_handshakes]:
                    oldest.cancel()
            await asyncio.sleep(0)  # many new connections must not block other tasks

    def _finish(self, task: asyncio.Task[None]) -> None:
        connection = self._handshakes.pop(task)
        if task.cancelled():
            connection.close()


def error_text(error: OSError | UnicodeError) -> str:
    """Return the text of an error of `bind`, `listen` or `accept`."""
    if isinstance(error, UnicodeError):
        return "not a host name"
    name_error = isinstance(error, socket.gaierror)  # its numbers are not those of the system
    return os.strerror(error.errno) if error.errno and not name_error else error.strerror or str(error)


def _close(bound: socket.socket, _task: asyncio.Task[None]) -> None:
    bound.close()


async def _handshake(loop: asyncio.AbstractEventLoop, connection: socket.socket, serving: _Serving) -> None:
    with contextlib.suppress(OSError):  # a failed handshake is the client's problem
        await loop.connect_accepted_socket(
            serving.factory, connection, ssl=serving.context, ssl_handshake_timeout=serving.handshake_seconds
        )


_Query = tuple[str, int, socket.AddressFamily]
_Addresses = list[ResolveResult]


class Resolver(AbstractResolver):
    """Resolves host names, each in a new daemon thread; concurrent identical queries share one thread.

    aiohttp's own resolver uses the few threads of `asyncio.to_thread`, for which Python waits at exit: a name
    server that does not respond would delay the end of the process by half a minute.
    """

    def __init__(self) -> None:
        self._pending: dict[_Query, asyncio.Future[_Addresses]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> _Addresses:
        """Return the addresses of a host; raise OSError if the name cannot be resolved."""
        query = host, port, family
        future = self._pending.get(query)
        if future is None:
            future = self._pending[query] = self._start(query)
        # Shielded: one caller that is cancelled must not cancel the others.
        return list(await asyncio.shield(future))

    async def addresses(self, host: str, port: int) -> list[AddrInfoType]:
        """Return the addresses of a host name or literal address for `aiohappyeyeballs`, or raise OSError."""
        with contextlib.suppress(ValueError):
            ip_address(host)
            return [_address(host, port)]
        return [_address(found["host"], port) for found in await self.resolve(host, port)]

    async def close(self) -> None:
        """Nothing is open."""

    def _start(self, query: _Query) -> asyncio.Future[_Addresses]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Addresses] = loop.create_future()

        def settle(found: _Addresses, error: Exception | None) -> None:
            self._pending.pop(query, None)
            if error is None:
                future.set_result(found)
            else:
                future.set_exception(error)
                future.exception()  # marks it as retrieved: all callers may have been cancelled

        def resolve() -> None:
            found: _Addresses = []
            error: Exception | None = None
            try:
                found = _get_addresses(*query)
            except Exception as raised:  # noqa: BLE001 - raised in the caller
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, found, error)

        threading.Thread(target=resolve, name="resolver", daemon=True).start()
        return future


def _get_addresses(host: str, port: int, family: socket.AddressFamily) -> _Addresses:
    infos = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    return [
        ResolveResult(
            hostname=host,
            host=socket.getnameinfo(address, numeric)[0],  # with the zone of a link-local address
            port=port,
            family=found,
            proto=protocol,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for found, _, protocol, _, address in infos
    ]


def _address(host: str, port: int) -> AddrInfoType:
    if ":" in host:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port)
