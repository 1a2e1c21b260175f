"""The tap: it listens, knows who is connected, and ends without cutting anybody off."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

from aiohappyeyeballs import start_connection

from .. import logs
from ..events import Event
from ..listen_address import format_address
from ..per_request.classification import Classification
from ..per_request.result import TapResult
from ..resolver import Resolver
from .asking import Asking
from .observer import Watch
from .relay import ERRORS, ClientSide, ServerSide, translate

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from ..listener import Listener
    from ..per_request.observation import Observation
    from .config import TapConfig

#: Time to connect to the server in, in seconds.
CONNECT_SECONDS = 10.0
#: Time for one of several addresses before the next one is tried too, in seconds.
_NEXT_ADDRESS_SECONDS = 0.25

#: How often the end of connections is looked for while the tap ends, in seconds.
_LOOK_SECONDS = 0.05


class Tap:
    """Relays connections to one server.

    Args:
        config: where to listen, and whom to relay to.
        tls: gives the TLS settings towards the server before each connection; ``None`` for plain HTTP.
        before: called before each connection of a client is begun with.

    Attributes:
        listening: whether clients can connect.
    """

    def __init__(
        self,
        config: TapConfig,
        tls: Callable[[], ssl.SSLContext] | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.config = config
        self._tls = tls
        self._before = before
        self._resolver = Resolver()
        self._watch = Watch(_nobody, Classification(), time.monotonic, time.time)
        self._clients: set[ClientSide] = set()
        self._connections_total = 0
        self._errors: Counter[str] = Counter(dict.fromkeys(ERRORS, 0))
        self._said = ""
        self._cut = False
        self.listening = False

    @property
    def upstream_name(self) -> str:
        """The server's address, without secrets."""
        return self.config.upstream.name

    def use(self, classification: Classification, tell: Callable[[Observation], None]) -> None:
        """Classify requests like this from now on, and tell of them there; until then nobody is told."""
        self._watch.classification = classification
        self._watch.tell = tell

    def serve(self, listener: Listener, context: ssl.SSLContext | None = None) -> None:
        """Relay what comes in at `listener`, over TLS with a `context`.

        Raises:
            OSError: it cannot be.
        """
        listener.serve(self._accept, context)

    def result(self) -> TapResult:
        """Return what is known now."""
        return TapResult(
            address=format_address(*self.config.listen),
            upstream=self.upstream_name,
            listening=self.listening,
            connections=len(self._clients),
            connections_total=self._connections_total,
            requests_total=self._watch.requests,
            upstream_errors_total=dict(self._errors),
            unobserved_total=dict(self._watch.unobserved),
        )

    async def drain(self) -> None:
        """End all connections: idle ones at once, the others with their request, or when time is up."""
        deadline = time.monotonic() + self.config.drain_seconds
        while self._clients:
            late = self._cut or time.monotonic() >= deadline
            for client in tuple(self._clients):
                if client.idle:
                    client.leave()
                elif late:
                    client.end(ConnectionAbortedError())  # in order, a cut answer might look whole
            if late:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        # Closed connections still send what is in their buffers, and tell that they are closed.
        for _ in range(20):
            if not self._clients:
                return
            await asyncio.sleep(_LOOK_SECONDS / 2)
        for client in tuple(self._clients):
            client.end(ConnectionAbortedError())

    def cut(self) -> None:
        """Wait no longer for requests under way."""
        self._cut = True

    def _accept(self) -> ClientSide:
        if self._before is not None:
            self._before()
        return ClientSide(
            self._connect,
            self._watch,
            Asking() if self.config.ask_for_usage else None,
            self._count_error,
            self._enter,
            self._clients.discard,
        )

    def _enter(self, client: ClientSide) -> None:
        self._clients.add(client)
        self._connections_total += 1

    async def _connect(self, server: ServerSide) -> None:
        target = self.config.upstream
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if target.socket:
                    await loop.create_unix_connection(lambda: server, target.socket)
                else:
                    host, port, tls = target.address
                    context = self._tls() if tls and self._tls is not None else None
                    name = (self.config.server_name or host) if context is not None else None
                    connected = await start_connection(
                        await self._resolver.addresses(host, port),
                        happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS,
                    )
                    await loop.create_connection(
                        lambda: server, sock=connected, ssl=context, server_hostname=name
                    )
        except Exception as error:  # whatever it is, the client is to get an answer
            raise translate(error) from error
        self._said = ""

    def _count_error(self, reason: str) -> None:
        self._errors[reason] += 1
        if reason != self._said:
            self._said = reason
            fields: dict[str, object] = {
                "server": self.upstream_name,
                "reason": reason,
                "error": ERRORS[reason],
            }
            logs.write([Event(logging.WARNING, "tap cannot reach the server", fields)])


def _nobody(_observation: Observation) -> None:
    """Take an observation that nobody waits for."""
