"""Limits of connections, and deadlines for clients.

Without them, any client that reaches the port could exhaust connections, descriptors
and memory, and block Kubernetes' probes and other scrapes. The limits apply to all
clients, authenticated or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterable
from typing import TypeGuard

from aiohttp import web, web_response
from aiohttp.streams import StreamReader
from aiohttp.typedefs import Handler

from ..runtime import logs
from .peers import Turns

#: Limit of connections, from `accept` on, and so of requests: each is processed alone
#: on its connection. With 0.3 MiB that asyncio takes for TLS, all of them fit into the
#: memory limit of the chart. A new one closes the longest idle one (at the limit of its
#: address: of that address); if a request is processed on each, the new one is refused.
MAX_CONNECTIONS = 64
#: Part of them that one client address (in IPv6: one /64 network) may use: beside four
#: others, one is served.
SHARE_OF_ONE_PEER = 0.2
#: Deadline of a TLS handshake, in seconds: as long as for the head of a request.
HANDSHAKE_SECONDS = 10.0
#: Deadline for the head of a request, from its first byte or that of the connection, in
#: seconds: the default timeout of a scrape.
REQUEST_SECONDS = 10.0
#: Limit of the bytes that are received before a request is processed, which are its
#: head and perhaps three times `_READ` of its body: nginx accepts 32 KiB of head.
MAX_HEAD = 64 * 1024
#: Receives bytes, of any connection, before they are copied.
_READ = memoryview(bytearray(8 * 1024))
#: Longest time between two requests, in seconds: Prometheus keeps a connection for 300.
IDLE_SECONDS = 330.0
#: Deadline for a client to receive a response, in seconds: three scrape timeouts.
RESPONSE_SECONDS = 30.0
#: Bytes that the operating system buffers of a response; Linux takes twice as many. By
#: default it would be 4 MiB, which count as memory of the container.
_SEND_BUFFER = 128 * 1024
#: Paths of Kubernetes' probes, which are answered before all other requests.
PROBES = frozenset({"/-/healthy", "/-/ready"})
#: Longest wait for open connections at the end of the process, in seconds.
SHUTDOWN_SECONDS = 0.5


class Connection(asyncio.BufferedProtocol):
    """A connection to aiohttp's server, with deadlines, which is not read while a
    request is processed.

    Otherwise a client could send requests without reading the answers.
    """

    def __init__(self, limiter: ConnectionLimiter, peer: str) -> None:
        self.peer = peer
        self.transport: asyncio.Transport | None = None
        #: Begins the connection.
        self.beginning: asyncio.Task[object] | None = None
        # whether a response is made, also if the client has disconnected
        self.is_processing = False
        self.is_asked = False  # whether a request is processed, or its response is sent
        self.is_retired = False  # whether it ends with its next response
        self._limiter = limiter
        self._inner: web.RequestHandler
        self._deadline: asyncio.TimerHandle | None = None
        self._ahead = b""  # received, and not passed on yet
        self._received = 0  # bytes since the last request was answered
        self._body: StreamReader | None = None  # that of the last request

    def abort(self) -> None:
        """End the connection at once, also within its handshake."""
        if self.transport is not None:
            self.transport.abort()
        elif self.beginning is not None:
            self.beginning.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve the connection."""
        assert isinstance(transport, asyncio.Transport)
        assert self._limiter.server is not None
        self.transport = transport
        self._inner = self._limiter.server()
        self.pause_writing = self._inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = self._inner.resume_writing  # type: ignore[method-assign]
        self._inner.connection_made(transport)
        # With an empty write buffer, a response has been received by the operating
        # system.
        transport.set_write_buffer_limits(high=1, low=0)
        self._set_deadline(REQUEST_SECONDS)

    def connection_lost(self, error: Exception | None) -> None:
        """Give its place free, or when its response is made."""
        self._set_deadline(None)
        if not self.is_processing:
            self._limiter.forget(self)
        self._inner.connection_lost(error)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return `_READ`."""
        return _READ

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what was received, but nothing of a next request while one is
        processed.
        """
        self._ahead += _READ[:nbytes]
        self._pass_on()

    def _pass_on(self) -> None:
        assert self.transport is not None
        if self._body is None or self._body.is_eof():
            if self.is_asked:
                self.transport.pause_reading()
                return
            if self._deadline is None:  # kept until the request is processed
                self._set_deadline(REQUEST_SECONDS)
            self._received += len(self._ahead)
            if self._received > MAX_HEAD:
                self.abort()
                return
        received = self._ahead
        self._ahead = b""
        self._inner.data_received(received)

    async def process(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        """Return the response of `handler` once it was sent; abort the connection if
        that takes too long.
        """
        self._set_deadline(None)
        self.is_processing = True
        self.is_asked = True
        self._body = request.content
        try:
            return await self._respond(request, handler)
        finally:
            self._set_deadline(None)
            self.is_asked = False
            self._received = 0
            if self._ahead and is_open(self.transport):
                self.transport.resume_reading()
                self._pass_on()

    async def _respond(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        try:
            response = await handler(request)
        except web.HTTPException as raised:
            response = raised
        finally:
            self.is_processing = False
            self._limiter.set_idle(self)
        self._set_deadline(RESPONSE_SECONDS)
        if self.is_retired:
            response.force_close()
        with contextlib.suppress(ConnectionError):  # aiohttp handles it too
            await response.prepare(request)
            await response.write_eof()
        if isinstance(response, web.HTTPException):
            raise response
        return response

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        loop = asyncio.get_running_loop()
        if seconds is None:
            self._deadline = None
        else:
            self._deadline = loop.call_later(seconds, self.abort)


class ConnectionLimiter:
    """Limits connections. `accept` is for a `Listener`, after `set_up`.

    Attributes:
        context: the TLS context of connections from now on; ``None`` for plain ones.
    """

    def __init__(self) -> None:
        self.connections: dict[Connection, None] = {}  # the longest idle one first
        self.context: ssl.SSLContext | None = None
        self.server: web.Server | None = None
        # A connection takes 0.7 ms of processor time, a request perhaps more. Those
        # that arrive together would block the loop, and so the tap, for all of it.
        self._beginning = Turns()
        self._turn = Turns()

    async def set_up(self, app: web.Application) -> web.AppRunner:
        """Return a runner of `app` with these limits, set up."""
        # Not the versions of Python and aiohttp.
        vars(web_response)["SERVER_SOFTWARE"] = "vllm-specdec-exporter"
        app.middlewares.insert(0, self._process)
        app.on_shutdown.append(self._end)
        runner = web.AppRunner(
            app,
            access_log=None,
            auto_decompress=False,  # compressed bodies are not accepted
            shutdown_timeout=SHUTDOWN_SECONDS,
            handle_signals=False,
            keepalive_timeout=IDLE_SECONDS,
        )
        await runner.setup()
        self.server = runner.server
        return runner

    def accept(self, accepted: socket.socket, peer: str) -> None:
        """Serve a connection that was just accepted, or refuse it."""
        of_peer = [each for each in self.connections if each.peer == peer]
        candidates: Iterable[Connection] = ()
        if len(of_peer) >= MAX_CONNECTIONS * SHARE_OF_ONE_PEER:
            candidates = of_peer
        elif len(self.connections) >= MAX_CONNECTIONS:
            candidates = self.connections
        if candidates:
            idle = (each for each in candidates if not each.is_processing)
            longest_idle = next(idle, None)
            if longest_idle is None:
                accepted.close()
                return
            self.drop(longest_idle)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        connection = Connection(self, peer)
        task = asyncio.create_task(self._begin(connection, accepted), name="connection")
        connection.beginning = task
        self.connections[connection] = None

        def end(task: asyncio.Task[None]) -> None:
            if connection.transport is None:  # it has not begun, and never will
                accepted.close()
                self.forget(connection)
            error = None if task.cancelled() else task.exception()
            # A failed handshake is the client's problem.
            if error is not None and not isinstance(error, OSError):
                logs.log_seldom(
                    logging.ERROR,
                    "cannot serve a connection",
                    error=f"{type(error).__name__}: {error}",
                )

        task.add_done_callback(end)

    async def _begin(self, connection: Connection, accepted: socket.socket) -> None:
        async with self._beginning.take(connection.peer):
            await asyncio.sleep(0)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection,
            accepted,
            ssl=self.context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if self.context else None,
        )

    def drop(self, connection: Connection) -> None:
        """End a connection, also within its handshake, and give its place free."""
        self.forget(connection)
        connection.abort()

    def retire(self, *, at_once: bool) -> None:
        """End all connections with their next response; `at_once`: those without a
        request now.
        """
        for connection in tuple(self.connections):
            connection.is_retired = True
            if at_once and not connection.is_asked:
                self.drop(connection)

    async def _end(self, _app: web.Application) -> None:
        self.retire(at_once=True)

    def forget(self, connection: Connection) -> None:
        """Give the place of a connection free."""
        self.connections.pop(connection, None)

    def set_idle(self, connection: Connection) -> None:
        """Make a connection the last of the idle ones, or give its place free if it is
        closed.
        """
        if connection in self.connections:
            self.forget(connection)
            if is_open(connection.transport):
                self.connections[connection] = None

    @web.middleware
    async def _process(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        if request.transport is None:
            return web.Response()  # the client has disconnected
        connection = request.transport.get_protocol()
        assert isinstance(connection, Connection)

        async def in_turn(request: web.Request) -> web.StreamResponse:
            if request.path not in PROBES:
                async with self._turn.take(connection.peer):
                    await asyncio.sleep(0)
            return await handler(request)

        return await connection.process(request, in_turn)


def is_open(transport: asyncio.Transport | None) -> TypeGuard[asyncio.Transport]:
    """Return whether a connection is established and not being closed."""
    return transport is not None and not transport.is_closing()
