"""The guard: the web configuration in force, on every connection and every request."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING
from weakref import WeakSet

from aiohttp import web

from .. import logs
from ..events import Event
from ..result import Reload
from .authentication import Authenticator, TooBusyError
from .context import alternative_names
from .fields import WebConfigError
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiohttp.typedefs import Handler

    from ..listener import Factory, Listener
    from .source import Contents, Loaded, Source

#: Seconds from one look at the files to the next.
LOOK_SECONDS = 1.0

#: Seconds that a client may take for its part of a TLS handshake.
HANDSHAKE_SECONDS = 10.0

#: What probes of Kubernetes ask, which cannot carry a password.
OPEN_PATHS = frozenset({"/-/healthy", "/-/ready"})

#: How long a hash that is being computed may hold up the end of the process, in seconds.
_STOP_SECONDS = 0.2


class Guard:
    """Lets in whom the web configuration lets in.

    Args:
        source: the files.
        loaded: what was read from them.
        tell: called after each look at the files with how their last reading ended.
    """

    def __init__(self, source: Source, loaded: Loaded, tell: Callable[[Reload], None]) -> None:
        self._source = source
        self._loaded = loaded
        self._tell = tell
        self._read_at = time.time()
        self._reader = Worker("web configuration")
        self._hasher = Worker("bcrypt")
        self._authenticator = Authenticator(self._hasher)
        self._authenticator.use(loaded.config.users)
        self._watch: asyncio.Task[None] | None = None
        self._asked: WeakSet[asyncio.Transport] = WeakSet()
        self._retired: WeakSet[asyncio.Transport] = WeakSet()

    def attach(self, app: web.Application) -> None:
        """Put it before every answer of `app`."""
        app.middlewares.append(self._authenticate)
        app.on_response_prepare.append(self._add_headers)

    async def start(self, listener: Listener, server: web.Server) -> None:
        """Serve on `listener`, and follow what is in the files from now on."""
        await self._serve(listener, server)
        logs.write([Event(logging.INFO, "web configuration", self._summary())])
        self._watch = asyncio.create_task(self._follow(listener, server), name="web configuration")

    async def stop(self) -> None:
        """Follow the files no more, and check no password any more: whoever waits for that is turned away."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        self._hasher.stop()

    def has_ended(self) -> bool:
        """Tell, after a short while, whether no password is being checked any more."""
        return self._hasher.join(_STOP_SECONDS)

    def _summary(self) -> dict[str, object]:
        config = self._loaded.config
        return {
            "tls": str(config.tls is not None).lower(),
            "client_auth_type": config.tls.client_auth if config.tls else "",
            "users": len(config.users),
        }

    # --- connections

    async def _serve(self, listener: Listener, server: web.Server) -> None:
        tls = self._loaded.config.tls
        factory: Factory = server
        if tls is not None and tls.client_allowed_sans:
            allowed = tls.client_allowed_sans
            factory = lambda: _Doorman(server, allowed)  # noqa: E731
        await listener.serve(factory, self._loaded.context, HANDSHAKE_SECONDS)

    async def _follow(self, listener: Listener, server: web.Server) -> None:
        refused: Contents | None = None
        suspect: Contents | None = None
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            contents = await self._reader.run(self._source.look)
            if contents == self._loaded.contents:
                refused = suspect = None
                self._tell(Reload(successful=True, success_timestamp_seconds=self._read_at))
                continue
            if contents == refused:
                continue
            if contents != suspect:
                # Files may be half written, or not fit together yet: they count once they stand still.
                suspect = contents
                continue
            try:
                loaded = await self._reader.run(self._load)
            except WebConfigError as error:
                refused = contents
                self._refuse(error)
            else:
                await self._take(loaded, listener, server)

    def _load(self) -> Loaded:
        """Runs in the reader."""
        loaded = self._source.load()
        if loaded.empty and not self._loaded.empty:
            # A full disk must not open the doors.
            msg = "it has become empty; what was in force stays until the next start, or until it says {}"
            raise WebConfigError(msg)
        return loaded

    async def _take(self, loaded: Loaded, listener: Listener, server: web.Server) -> None:
        before, self._loaded = self._loaded, loaded
        self._authenticator.use(loaded.config.users)
        if (loaded.config.tls, loaded.contents.digests[1:]) != (
            before.config.tls,
            before.contents.digests[1:],
        ):
            await self._serve(listener, server)
            # Connections that were let in by the settings before end with what they are being answered.
            self._retire(server.connections, at_once=_clients(loaded) != _clients(before))
        self._read_at = time.time()
        self._tell(Reload(successful=True, success_timestamp_seconds=self._read_at))
        logs.write([Event(logging.INFO, "web configuration reloaded", self._summary())])

    def _retire(self, connections: Iterable[web.RequestHandler], *, at_once: bool) -> None:
        """Let connections that the settings before let in end with their next answer.

        Args:
            connections: which.
            at_once: whether those that wait for another request end now: their clients may be let in no more.
        """
        for connection in connections:
            if connection.transport is None:
                continue
            self._retired.add(connection.transport)
            # Whoever has just connected is about to ask. What is under way, aiohttp tells nobody.
            waits = connection.transport in self._asked and not getattr(
                connection, "_request_in_progress", False
            )
            if at_once and waits:
                connection.force_close()

    def _refuse(self, error: WebConfigError) -> None:
        self._tell(Reload(successful=False, success_timestamp_seconds=self._read_at))
        fields: dict[str, object] = {"file": self._source.path, "error": str(error)}
        logs.write([Event(logging.ERROR, "web configuration not reloaded", fields)])

    # --- requests

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.transport is not None:
            self._asked.add(request.transport)
        resource = request.match_info.route.resource
        is_open = resource is not None and resource.canonical in OPEN_PATHS
        if is_open or not self._authenticator.needed:
            return await handler(request)
        try:
            if await self._authenticator.allows(request.headers.get("Authorization")):
                return await handler(request)
        except TooBusyError:
            headers = {"Retry-After": "5"}
            return web.Response(status=503, text="too many passwords to check\n", headers=headers)
        challenge = {"WWW-Authenticate": 'Basic realm="vllm-specdec-exporter", charset="UTF-8"'}
        return web.Response(status=401, text="user name and password are needed\n", headers=challenge)

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        if request.transport in self._retired:
            response.force_close()
            response.headers["Connection"] = "close"  # aiohttp wrote it before it asked for more
        for name, value in self._loaded.config.headers:
            if name == "Content-Security-Policy":
                response.headers.add(name, value)  # beside the status page's own: a browser keeps to both
            else:
                response.headers.setdefault(name, value)


def _clients(loaded: Loaded) -> tuple[object, ...]:
    """What decides on clients by their certificates."""
    tls = loaded.config.tls
    if tls is None:
        return ()
    return tls.client_auth, tls.client_allowed_sans, dict(loaded.contents.digests).get(tls.client_ca_file)


class _Doorman(asyncio.Protocol):
    """Looks at the certificate of a client before anything else does, and shows others the door."""

    def __init__(self, inner: Factory, allowed: frozenset[str]) -> None:
        self._inner = inner
        self._allowed = allowed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._allowed.isdisjoint(alternative_names(transport.get_extra_info("peercert"))):
            transport.abort()
            return
        protocol = self._inner()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
