"""Applies the web configuration in force to every connection and every request."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from aiohttp import web

from ...observe.result import Reload
from ...publish.events import Event
from ...requests.push_schema import PATH as PUSH_PATH
from .. import logs
from ..connection_limits import HANDSHAKE_SECONDS, PROBES, peer_key
from .basic_auth import Authenticator, BackgroundThread, TooBusyError
from .fields import WebConfigError
from .tls import alternative_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.typedefs import Handler

    from ..connection_limits import ConnectionLimiter
    from ..sockets import Listener
    from .document import Contents, Loaded, WebConfigFile


class ConnectionPolicy:
    """Lets connections in, and knows by which web configuration each came in.

    Args:
        loaded: the one in force.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._entered: WeakKeyDictionary[asyncio.Transport, Loaded] = WeakKeyDictionary()
        self._retired: WeakSet[asyncio.Transport] = WeakSet()

    def open(self, loaded: Loaded, listener: Listener, admission: ConnectionLimiter) -> None:
        """Let in whom `loaded` lets in, and nobody else, from now on.

        Connections that came in by other rules end with what they are being answered. Where the rules on
        clients are others, those that are not being answered end now.

        Raises:
            OSError: it cannot be; what was in force stays.
        """
        before, self._loaded = self._loaded, loaded
        try:
            listener.serve(lambda: _Doorman(self, admission, loaded), loaded.context, HANDSHAKE_SECONDS)
        except BaseException:
            self._loaded = before
            raise
        finally:
            self._sift(admission)

    def is_retired(self, transport: asyncio.Transport) -> bool:
        """Tell whether a connection ends with its next answer."""
        return transport in self._retired

    def admits(self, transport: asyncio.Transport, loaded: Loaded) -> bool:
        """Tell whether a client may come in that has shown what `loaded` asks for."""
        if clients(loaded) != clients(self._loaded):
            return False  # it was asked by rules that are in force no more
        tls = loaded.config.tls
        allowed = tls.client_allowed_sans if tls else frozenset()
        if allowed and allowed.isdisjoint(alternative_names(transport.get_extra_info("peercert"))):
            return False
        self._entered[transport] = loaded
        if not same_tls(loaded, self._loaded):
            self._retired.add(transport)
        return True

    def _sift(self, admission: ConnectionLimiter) -> None:
        for connection in admission.server.connections:
            transport = connection.transport
            loaded = self._entered.get(transport) if transport is not None else None
            if transport is None or loaded is None or same_tls(loaded, self._loaded):
                continue
            self._retired.add(transport)
            if clients(loaded) != clients(self._loaded) and not admission.is_answering(transport):
                connection.force_close()


def same_tls(one: Loaded, other: Loaded) -> bool:
    """Tell whether two speak TLS alike, with the same files."""
    return (one.config.tls, one.contents.digests[1:]) == (other.config.tls, other.contents.digests[1:])


def clients(loaded: Loaded) -> tuple[object, ...]:
    """Return what decides on clients by their certificates."""
    tls = loaded.config.tls
    if tls is None:
        return ()
    return tls.client_auth, tls.client_allowed_sans, dict(loaded.contents.digests).get(tls.client_ca_file)


class _Doorman(asyncio.Protocol):
    """Looks at a connection before anything else does, and shows those the door that may not come in."""

    def __init__(self, doors: ConnectionPolicy, admission: ConnectionLimiter, loaded: Loaded) -> None:
        self._doors = doors
        self._admission = admission
        self._loaded = loaded

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if not self._doors.admits(transport, self._loaded):
            transport.abort()
            return
        protocol = self._admission()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)


#: Seconds from one look at the files to the next.
LOOK_SECONDS = 1.0

#: What needs no password: probes of Kubernetes cannot carry one, and pushes have a token of their own,
#: because an Authorization header has room for one thing.
OPEN_PATHS = PROBES | {PUSH_PATH}

#: How long a hash that is being computed may hold up the end of the process, in seconds.
_STOP_SECONDS = 0.2


class WebConfigMiddleware:
    """Lets in whom the web configuration lets in.

    Args:
        source: the files.
        loaded: what was read from them.
        tell: called after each look at the files with how their last reading ended.
    """

    def __init__(self, source: WebConfigFile, loaded: Loaded, tell: Callable[[Reload], None]) -> None:
        self._source = source
        self._loaded = loaded
        self._tell = tell
        self._read_at = time.time()
        self._reader = BackgroundThread("web configuration")
        self._hasher = BackgroundThread("bcrypt")
        self._authenticator = Authenticator(self._hasher)
        self._authenticator.use(loaded.config.users)
        self._watch: asyncio.Task[None] | None = None
        self._doors = ConnectionPolicy(loaded)
        self._refused: Contents | None = None
        self._suspect: Contents | None = None
        self._said = ""

    def attach(self, app: web.Application) -> None:
        """Put it before every answer of `app`."""
        app.middlewares.append(self._authenticate)
        app.on_response_prepare.append(self._add_headers)

    async def start(self, listener: Listener, admission: ConnectionLimiter) -> None:
        """Serve on `listener`, and follow what is in the files from now on."""
        self._doors.open(self._loaded, listener, admission)
        logs.write([Event(logging.INFO, "web configuration", self._summary())])
        self._watch = asyncio.create_task(self._follow(listener, admission), name="web configuration")

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

    # --- files

    async def _follow(self, listener: Listener, admission: ConnectionLimiter) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look(listener, admission)
            except Exception as error:  # noqa: BLE001 - no descriptor or no memory left now: the next round may have
                self._refuse(error)

    async def _look(self, listener: Listener, admission: ConnectionLimiter) -> None:
        contents = await self._reader.run(self._source.look)
        if contents == self._loaded.contents:
            self._refused = self._suspect = None
            self._succeed()
            return
        if contents == self._refused:
            return
        if contents != self._suspect:
            # Files may be half written, or not fit together yet: they count once they stand still.
            self._suspect = contents
            return
        try:
            loaded = await self._reader.run(self._load)
        except WebConfigError as error:
            self._refused = contents
            self._said = ""  # each version that is refused has a line
            self._refuse(error)
        else:
            await self._take(loaded, listener, admission)

    def _load(self) -> Loaded:
        """Runs in the reader."""
        loaded = self._source.load()
        if loaded.empty and not self._loaded.empty:
            # A full disk must not open the doors.
            msg = "it has become empty; what was in force stays until the next start, or until it says {}"
            raise WebConfigError(msg)
        return loaded

    async def _take(self, loaded: Loaded, listener: Listener, admission: ConnectionLimiter) -> None:
        if not same_tls(loaded, self._loaded):
            self._doors.open(loaded, listener, admission)
        self._loaded = loaded
        self._authenticator.use(loaded.config.users)
        self._read_at = time.time()
        self._succeed()
        logs.write([Event(logging.INFO, "web configuration reloaded", self._summary())])

    def _succeed(self) -> None:
        self._said = ""
        self._tell(Reload(successful=True, success_timestamp_seconds=self._read_at))

    def _refuse(self, error: Exception) -> None:
        self._tell(Reload(successful=False, success_timestamp_seconds=self._read_at))
        why = str(error) or type(error).__name__
        if why == self._said:
            return
        self._said = why
        fields: dict[str, object] = {"file": self._source.path, "error": why}
        logs.write([Event(logging.ERROR, "web configuration not reloaded", fields)])

    # --- requests

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        is_open = resource is not None and resource.canonical in OPEN_PATHS
        if is_open or not self._authenticator.needed:
            return await handler(request)
        try:
            header, peer = request.headers.get("Authorization"), peer_key(request.remote or "")
            if await self._authenticator.allows(header, peer, lambda: request.transport is None):
                return await handler(request)
        except TooBusyError:
            headers = {"Retry-After": "5"}
            return web.Response(status=503, text="too many passwords to check\n", headers=headers)
        challenge = {"WWW-Authenticate": 'Basic realm="vllm-specdec-exporter", charset="UTF-8"'}
        return web.Response(status=401, text="user name and password are needed\n", headers=challenge)

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        if request.transport is not None and self._doors.is_retired(request.transport):
            response.force_close()
            response.headers["Connection"] = "close"  # aiohttp wrote it before it asked for more
        for name, value in self._loaded.config.headers:
            if name == "Content-Security-Policy":
                response.headers.add(name, value)  # beside the status page's own: a browser keeps to both
            else:
                response.headers.setdefault(name, value)
