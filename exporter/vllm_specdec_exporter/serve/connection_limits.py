"""Limits of connections and concurrent requests, and deadlines for clients.

Without them, any client that reaches the port could exhaust connections, descriptors and memory, and block
Kubernetes' probes and other scrapes. The limits apply to all clients, authenticated or not.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

from aiohttp import web

from . import logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.streams import StreamReader
    from aiohttp.typedefs import Handler

#: Part of the connections and concurrent requests that one client address (in IPv6: one /64 network) may
#: use, and at least how many.
SHARE_OF_ONE_PEER = 0.25
LEAST_OF_ONE_PEER = 2
#: Limit of connections. A new one closes the longest idle one (at the limit of its address: of that address);
#: if none is idle, the new one is refused.
MOST_CONNECTIONS = 512
MOST_HANDSHAKES = 128  # limit of concurrent TLS handshakes; a new one ends the oldest
HANDSHAKE_SECONDS = 10.0  # deadline of a TLS handshake, in seconds
#: Deadline for the head of a request, from its first byte or that of the connection, in seconds.
REQUEST_SECONDS = 10.0
#: Limit of the head of a request, in bytes. Beyond it nothing is read, until the deadline.
MAX_HEAD = 32 * 1024
_END_OF_HEAD = b"\r\n\r\n"
_READ = memoryview(bytearray(16 * 1024))  # receives bytes, of any connection, before they are copied
_BODY_PIECE = 4096  # bytes of a body that are passed on at once; the last ones may begin the next request
#: Longest idle time between two requests, in seconds: longer than Prometheus keeps a connection.
IDLE_SECONDS = 330.0
RESPONSE_SECONDS = 30.0  # deadline for a client to receive a response, in seconds
SHUTDOWN_SECONDS = 0.5  # longest wait for open connections at the end of the process, in seconds
#: Paths of Kubernetes' probes, which are exempt from the limit of requests.
PROBES = frozenset({"/-/healthy", "/-/ready"})
#: How often, and after how many seconds, a request tries again before the limit of requests rejects it.
_TRIES = 10
_RETRY_SECONDS = 0.1
_LOG_SECONDS = 60.0  # least time between two log lines about rejected requests, in seconds


@dataclass(slots=True)
class _State:
    """The state of a connection."""

    peer: str  # the key of the client
    since: float  # when it was opened or became idle
    head_since: float | None = None  # when the head that is being received began; ``None`` between heads
    head_bytes: int = 0  # how much of it was received
    head_end: bytes = b""  # its last bytes
    body: StreamReader | None = None  # the body that follows the last head, once its request is processed
    is_busy: bool = False  # whether a complete head has been received and its request is not answered
    waits: bool = False  # whether that request waits for its turn
    aborted: bool = False  # whether it is closed for a new one


class _Turns:
    """Starts one probe and one other request in each iteration of the event loop, round robin by client.

    Otherwise requests that arrive together would block the loop, and so the tap, for the time of all of them.
    """

    def __init__(self) -> None:
        self._probes: dict[str, deque[asyncio.Future[None]]] = {}
        self._others: dict[str, deque[asyncio.Future[None]]] = {}

    async def wait(self, peer: str, *, probe: bool) -> None:
        """Wait for the turn of a request."""
        loop = asyncio.get_running_loop()
        if not self._probes and not self._others:
            loop.call_soon(self._start_next)
        turn = loop.create_future()
        (self._probes if probe else self._others).setdefault(peer, deque()).append(turn)
        await turn

    def _start_next(self) -> None:
        for waiting in (self._probes, self._others):
            if waiting:
                peer = next(iter(waiting))
                turns = waiting.pop(peer)
                if not (turn := turns.popleft()).done():  # it is done if it was cancelled
                    turn.set_result(None)
                if turns:
                    waiting[peer] = turns
        if self._probes or self._others:
            asyncio.get_running_loop().call_soon(self._start_next)


class ConnectionLimiter:
    """Limits connections as their protocol factory, and requests (0: without a limit) as a middleware."""

    def __init__(self, most_requests: int) -> None:
        self._most_requests = most_requests
        self._turns = _Turns()
        self._active = 0
        self._active_by_peer: Counter[str] = Counter()
        self._server: web.Server | None = None
        self._states: WeakKeyDictionary[asyncio.Transport, _State] = WeakKeyDictionary()
        self._logged_at: float | None = None

    async def set_up(self, app: web.Application) -> web.AppRunner:
        """Return a runner of `app` with these limits, set up."""
        app.middlewares.insert(0, self._limit)
        runner = web.AppRunner(
            app,
            access_log=None,
            auto_decompress=False,  # a push is decompressed after its token, within limits
            shutdown_timeout=SHUTDOWN_SECONDS,
            handle_signals=False,
            keepalive_timeout=IDLE_SECONDS,
        )
        await runner.setup()
        self._server = runner.server
        return runner

    @property
    def server(self) -> web.Server:
        """The server that `set_up` has created."""
        assert self._server is not None, "`set_up` comes first"
        return self._server

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return AdmissionProtocol(self.admit, lambda: _OneByOne(self))

    # --- connections

    def admit(self, transport: asyncio.Transport) -> bool:
        """Return whether a new connection is accepted; the longest idle one may be closed for it."""
        state = self._state(transport)
        # Aborted connections remain in the list for a moment, in which many new ones may arrive.
        connections = [
            each.transport
            for each in self.server.connections
            if each.transport is not None and not self._state(each.transport).aborted
        ]
        of_peer = [each for each in connections if self._state(each).peer == state.peer]
        share = max(LEAST_OF_ONE_PEER, int(MOST_CONNECTIONS * SHARE_OF_ONE_PEER))
        if len(of_peer) >= share or len(connections) >= MOST_CONNECTIONS:
            full = of_peer if len(of_peer) >= share else connections
            idle = [each for each in full if not self.is_busy(each) or self._state(each).waits]
            if not idle:
                return False
            oldest = min(idle, key=lambda each: self._state(each).since)
            self._state(oldest).aborted = True
            oldest.abort()
        self._begin_head(transport, state)
        return True

    def readable(self, transport: asyncio.Transport, data: bytes) -> int:
        """Return how many of these bytes may be read before the current request is answered, 0 for none."""
        state = self._state(transport)
        if state.body is not None and not state.body.is_eof():
            return min(len(data), _BODY_PIECE)
        if state.is_busy or not data:
            return 0
        if not state.head_bytes and data[0] in b"\r\n":
            return len(data) - len(data.lstrip(b"\r\n"))  # empty lines may precede a request
        if state.head_since is None:
            self._begin_head(transport, state)
        end = (state.head_end + data).find(_END_OF_HEAD)
        size = len(data) if end < 0 else end + len(_END_OF_HEAD) - len(state.head_end)
        if state.head_bytes + size > MAX_HEAD:
            return 0
        if end < 0:
            state.head_bytes += size
            state.head_end = (state.head_end + data)[1 - len(_END_OF_HEAD) :]
        else:  # the deadline is kept until the request is processed
            state.head_bytes, state.head_end, state.body, state.is_busy = 0, b"", None, True
        return size

    def _begin_head(self, transport: asyncio.Transport, state: _State) -> None:
        since = state.head_since = time.monotonic()
        loop = asyncio.get_running_loop()
        loop.call_later(REQUEST_SECONDS, self._abort_slow, ref(transport), since)

    def _pass_on(self, transport: asyncio.Transport) -> None:
        protocol = transport.get_protocol()
        if isinstance(protocol, _OneByOne) and not transport.is_closing():
            protocol.pass_on()

    def is_busy(self, transport: asyncio.Transport) -> bool:
        """Return whether a request on a connection is being processed."""
        return self._state(transport).is_busy

    def _state(self, transport: asyncio.Transport) -> _State:
        if (state := self._states.get(transport)) is None:
            name = transport.get_extra_info("peername") or ("",)
            state = self._states[transport] = _State(peer_key(str(name[0])), time.monotonic())
        return state

    def _abort_slow(self, weak: ref[asyncio.Transport], head_since: float) -> None:
        transport = weak()
        if transport is not None and self._state(transport).head_since == head_since:
            transport.abort()

    # --- requests

    @web.middleware
    async def _limit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.transport is None:
            return web.Response()  # the client has disconnected
        transport, state = request.transport, self._state(request.transport)
        state.head_since, state.is_busy, state.body = None, True, request.content
        self._pass_on(transport)
        peer, probe = state.peer, request.path in PROBES
        state.waits = True
        await self._turns.wait(peer, probe=probe)
        for _ in range(_TRIES):
            if probe or not self._is_full(peer):
                break
            await asyncio.sleep(_RETRY_SECONDS)
            await self._turns.wait(peer, probe=probe)
        state.waits = False
        is_rejected = self._is_full(peer) and not probe
        self._active += 1
        self._active_by_peer[peer] += 1
        try:
            response = self._reject() if is_rejected else await handler(request)
            await _send(request, response)
            return response
        except web.HTTPException as raised:
            await _send(request, raised)
            raise
        finally:
            self._active -= 1
            self._active_by_peer[peer] -= 1
            if not self._active_by_peer[peer]:
                del self._active_by_peer[peer]
            state.is_busy = False
            state.since = time.monotonic()
            self._pass_on(transport)

    def _is_full(self, peer: str) -> bool:
        """Return whether one more request exceeds the limit of all clients or of its own."""
        if not self._most_requests:
            return False
        share = max(LEAST_OF_ONE_PEER, int(self._most_requests * SHARE_OF_ONE_PEER))
        return self._active >= self._most_requests or self._active_by_peer[peer] >= share

    def _reject(self) -> web.Response:
        now = time.monotonic()
        if self._logged_at is None or now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            logs.log(logging.WARNING, "too many requests at a time", web_max_requests=self._most_requests)
        text = f"too many requests at a time, {self._most_requests} in all (--web.max-requests)\n"
        return web.Response(status=503, text=text, headers={"Retry-After": "1"})


def peer_key(address: str) -> str:
    """Return the key of a client for limits: its IPv4 address, or its /64 network in IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), 64), strict=False))


async def _send(request: web.Request, response: web.StreamResponse) -> None:
    """Send a response, and abort the connection if the client does not receive it in time."""
    try:
        async with asyncio.timeout(RESPONSE_SECONDS):
            await response.prepare(request)
            await response.write_eof()
    except ConnectionError:
        pass  # aiohttp handles it too
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()


class _OneByOne(asyncio.BufferedProtocol):
    """A connection to aiohttp's server that reads the next request after the answer to the one before."""

    def __init__(self, limiter: ConnectionLimiter) -> None:
        self._limiter = limiter
        self._inner = limiter.server()
        self._ahead = b""  # received, and not passed on yet
        self._waits = False  # whether nothing is received until that is passed on
        self.connection_lost = self._inner.connection_lost  # type: ignore[method-assign]
        self.eof_received = self._inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = self._inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = self._inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass it on."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._inner.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return `_READ`."""
        return _READ

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what may be read."""
        self._ahead += _READ[:nbytes]
        self.pass_on()

    def pass_on(self) -> None:
        """Pass on what may be read now, and receive nothing more while something waits."""
        while size := self._limiter.readable(self._transport, self._ahead):
            part, self._ahead = self._ahead[:size], self._ahead[size:]
            self._inner.data_received(part)
        waited, self._waits = self._waits, bool(self._ahead)
        if self._waits:
            self._transport.pause_reading()
        elif waited:
            self._transport.resume_reading()


class AdmissionProtocol(asyncio.Protocol):
    """Aborts a new connection unless `admit` returns true; otherwise passes it to a protocol of `factory`."""

    def __init__(
        self, admit: Callable[[asyncio.Transport], bool], factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._admit = admit
        self._factory = factory

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Abort the connection, or pass it on."""
        assert isinstance(transport, asyncio.Transport)
        if not self._admit(transport):
            transport.abort()
            return
        protocol = self._factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        # With an empty write buffer, a response has been received by the operating system. Not before the
        # protocol is set: with TLS, asyncio would pause one protocol and resume the other.
        transport.set_write_buffer_limits(high=1, low=0)
