"""ConnectionLimiter: how many clients are served at a time, and how long each may take.

Whoever reaches the port could otherwise hold connections, descriptors and memory for nothing, and keep out
the probes of Kubernetes and the scrapes of others. Limits are for everybody alike; nobody needs to be known.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from aiohttp import web

from ..publish.events import Event
from . import logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.typedefs import Handler

#: Of the requests at a time, the part that one client address may have (in IPv6: one /64 network), and the
#: least that it may have.
SHARE_OF_ONE_PEER = 0.25
LEAST_OF_ONE_PEER = 2

#: Connections at a time. One more ends the one that has been idle for longest; where none is, it is refused.
MOST_CONNECTIONS = 512

#: TLS handshakes at a time. One more ends the oldest.
MOST_HANDSHAKES = 128

#: Seconds that a client may take for its part of a TLS handshake.
HANDSHAKE_SECONDS = 10.0

#: Seconds that a client may take from the connection to the end of its first request's headers.
REQUEST_SECONDS = 10.0

#: Seconds that a connection may be idle between two requests: longer than Prometheus keeps one.
IDLE_SECONDS = 330.0

#: Seconds that a client may take to receive an answer.
ANSWER_SECONDS = 30.0

#: How long open connections may hold up the end of the process, in seconds.
SHUTDOWN_SECONDS = 0.5

#: What probes of Kubernetes ask: answered however many others ask.
PROBES = frozenset({"/-/healthy", "/-/ready"})

#: Seconds between two log lines about requests that are turned away.
_QUIET_SECONDS = 60.0


@dataclass(slots=True)
class _Visit:
    """A connection: since when it is as it is, whether it was asked, is being answered, or was ended."""

    since: float
    asked: bool = False
    answering: bool = False
    aborted: bool = False


class ConnectionLimiter:
    """Makes the protocols of connections, and stands before every request.

    Args:
        most_requests: requests that are answered at a time, 0 for any number.
        clock: a clock that never goes back, in seconds.
    """

    def __init__(self, most_requests: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_requests = most_requests
        self._clock = clock
        self._under_way = 0
        self._of_peers: Counter[str] = Counter()
        self._server: web.Server | None = None
        self._visits: WeakKeyDictionary[asyncio.Transport, _Visit] = WeakKeyDictionary()
        self._told: float | None = None

    async def set_up(self, app: web.Application, **more: Any) -> web.AppRunner:
        """Return what runs `app`, set up, behind this.

        Args:
            app: what answers.
            more: further settings of aiohttp's server.
        """
        app.middlewares.insert(0, self._admit)
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=SHUTDOWN_SECONDS,
            handle_signals=False,
            keepalive_timeout=IDLE_SECONDS,
            **more,
        )
        await runner.setup()
        self._server = runner.server
        return runner

    @property
    def server(self) -> web.Server:
        """What serves."""
        assert self._server is not None, "`set_up` comes first"
        return self._server

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return _Entrance(self)

    # --- connections

    def enters(self, transport: asyncio.Transport) -> bool:
        """Tell whether a new connection may stay; another may have to go for it."""
        # What is being ended is still among them for a moment, and many may come in that moment.
        connections = [
            one.transport
            for one in self.server.connections
            if one.transport is not None and not self._visit(one.transport).aborted
        ]
        if len(connections) >= MOST_CONNECTIONS:
            idle = [one for one in connections if not self.is_answering(one)]
            if not idle:
                return False
            oldest = min(idle, key=lambda one: self._visit(one).since)
            self._visit(oldest).aborted = True
            oldest.abort()
        self._visit(transport)
        asyncio.get_running_loop().call_later(REQUEST_SECONDS, self._hurry, ref(transport))
        return True

    def is_answering(self, transport: asyncio.Transport) -> bool:
        """Tell whether a request is being answered on a connection."""
        return self._visit(transport).answering

    def _visit(self, transport: asyncio.Transport) -> _Visit:
        return self._visits.setdefault(transport, _Visit(self._clock()))

    def _hurry(self, weak: ref[asyncio.Transport]) -> None:
        transport = weak()
        if transport is not None and not self._visit(transport).asked:
            transport.abort()

    # --- requests

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.transport is None:
            return web.Response()  # it has gone
        visit = self._visit(request.transport)
        visit.asked = visit.answering = True
        peer = peer_key(request.remote or "")
        self._under_way += 1
        self._of_peers[peer] += 1
        try:
            if self._is_full(peer) and request.path not in PROBES:
                response: web.StreamResponse = self._turn_away()
            else:
                response = await handler(request)
            await _deliver(request, response)
            return response
        except web.HTTPException as raised:
            await _deliver(request, raised)
            raise
        finally:
            self._under_way -= 1
            self._of_peers[peer] -= 1
            if not self._of_peers[peer]:
                del self._of_peers[peer]
            visit.answering = False
            visit.since = self._clock()

    def _is_full(self, peer: str) -> bool:
        """Tell whether with this one there are more requests than may be, of all clients or of this one."""
        if not self._most_requests:
            return False
        share = max(LEAST_OF_ONE_PEER, int(self._most_requests * SHARE_OF_ONE_PEER))
        return self._under_way > self._most_requests or self._of_peers[peer] > share

    def _turn_away(self) -> web.Response:
        now = self._clock()
        if self._told is None or now - self._told >= _QUIET_SECONDS:
            self._told = now
            fields: dict[str, object] = {"web_max_requests": self._most_requests}
            logs.write([Event(logging.WARNING, "too many requests at a time", fields)])
        text = f"too many requests at a time, {self._most_requests} in all (--web.max-requests)\n"
        return web.Response(status=503, text=text, headers={"Retry-After": "1"})


def peer_key(address: str) -> str:
    """Return what counts as one peer: an IPv4 address, or the network of one that has 2^64 in IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), 64), strict=False))


async def _deliver(request: web.Request, response: web.StreamResponse) -> None:
    """Send an answer, and end the connection of a client that does not take it."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await response.prepare(request)
            await response.write_eof()
    except ConnectionError:
        pass  # it has gone, as aiohttp will find too
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()


class _Entrance(asyncio.Protocol):
    """Looks at a connection before anything else does, and shows those the door that are too many."""

    def __init__(self, admission: ConnectionLimiter) -> None:
        self._admission = admission

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if not self._admission.enters(transport):
            transport.abort()
            return
        protocol = self._admission.server()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        # An answer counts as received when the system has taken all of it.
        transport.set_write_buffer_limits(high=1, low=0)
