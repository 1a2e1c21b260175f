"""Applies the current web configuration to connections and requests, and reloads it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from aiohttp import web

from ...observe.result import Reload
from ...per_request.observation import PUSH_PATH
from .. import logs
from ..connection_limits import PROBES, ConnectionLimiter, peer_key
from ..daemon_threads import in_daemon_thread
from ..sockets import Listener
from .basic_auth import Authenticator, TooBusyError
from .document import Contents, Loaded, WebConfigFile
from .fields import WebConfigError
from .server_tls import alternative_names

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler


class ConnectionPolicy:
    """Accepts connections by the current web configuration, and closes those accepted by an older one."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._accepted: WeakKeyDictionary[asyncio.Transport, Loaded] = WeakKeyDictionary()
        self._retired: WeakSet[asyncio.Transport] = WeakSet()

    def open(self, loaded: Loaded, listener: Listener, limiter: ConnectionLimiter) -> None:
        """Accept new connections by `loaded`, or raise OSError and change nothing.

        Connections with older TLS settings are closed after their current response, or at once if they are
        idle and the rules for client certificates have changed.
        """
        before, self._loaded = self._loaded, loaded
        try:
            admits = partial(self.admits, loaded=loaded)
            listener.serve(partial(limiter.accept, admits=admits), loaded.context)
        except BaseException:
            self._loaded = before
            raise
        finally:
            self._retire_old(limiter)

    def is_retired(self, transport: asyncio.Transport) -> bool:
        """Return whether a connection is closed after its next response."""
        return transport in self._retired

    def admits(self, transport: asyncio.Transport, loaded: Loaded) -> bool:
        """Return whether a client is accepted whose handshake used `loaded`."""
        if client_rules(loaded) != client_rules(self._loaded):
            return False  # the handshake used old rules
        tls = loaded.config.tls
        allowed = tls.client_allowed_sans if tls else frozenset()
        if allowed and allowed.isdisjoint(alternative_names(transport.get_extra_info("peercert"))):
            return False
        self._accepted[transport] = loaded
        if not same_tls(loaded, self._loaded):
            self._retired.add(transport)
        return True

    def _retire_old(self, limiter: ConnectionLimiter) -> None:
        for connection in tuple(limiter.connections):
            transport = connection.transport
            loaded = self._accepted.get(transport) if transport is not None else None
            if transport is None or loaded is None or same_tls(loaded, self._loaded):
                continue
            self._retired.add(transport)
            if client_rules(loaded) != client_rules(self._loaded) and not connection.is_asked:
                connection.abort()


def same_tls(one: Loaded, other: Loaded) -> bool:
    """Return whether two configurations have the same TLS settings and files."""
    return (one.config.tls, one.contents[1:]) == (other.config.tls, other.contents[1:])


def client_rules(loaded: Loaded) -> tuple[object, ...]:
    """Return the rules for client certificates."""
    tls = loaded.config.tls
    if tls is None:
        return ()
    return tls.client_auth, tls.client_allowed_sans, dict(loaded.contents).get(tls.client_ca_file)


LOOK_SECONDS = 1.0  # time between two checks of the files, in seconds
#: Paths without authentication: Kubernetes' probes cannot send a password, and pushes need their bearer token
#: in the same header.
OPEN_PATHS = PROBES | {PUSH_PATH}


class WebConfigMiddleware:
    """Authenticates requests, adds response headers, and reloads the files; `report` gets each result."""

    def __init__(self, source: WebConfigFile, loaded: Loaded, report: Callable[[Reload], None]) -> None:
        self._source = source
        self._loaded = loaded
        self._report = report
        self._read_at = time.time()
        self._authenticator = Authenticator()
        self._authenticator.use(loaded.config.users)
        self._watch: asyncio.Task[None] | None = None
        self._policy = ConnectionPolicy(loaded)
        self._rejected: Contents | None = None
        self._pending: Contents | None = None
        self._logged = ""

    def attach(self, app: web.Application) -> None:
        """Add it to `app`."""
        app.middlewares.append(self._authenticate)
        app.on_response_prepare.append(self._add_headers)

    async def start(self, listener: Listener, limiter: ConnectionLimiter) -> None:
        """Serve on `listener`, and reload the files when they change."""
        self._policy.open(self._loaded, listener, limiter)
        logs.log(logging.INFO, "web configuration", **self._summary())
        self._watch = asyncio.create_task(self._follow(listener, limiter), name="web configuration")

    async def stop(self) -> None:
        """Stop checking files."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    def _summary(self) -> dict[str, object]:
        config = self._loaded.config
        return {
            "tls": str(config.tls is not None).lower(),
            "client_auth_type": config.tls.client_auth if config.tls else "",
            "users": len(config.users),
        }

    # --- files

    async def _follow(self, listener: Listener, limiter: ConnectionLimiter) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._check_files(listener, limiter)
            except Exception as error:  # noqa: BLE001 - such as no descriptors: the next check may succeed
                self._fail(error)

    async def _check_files(self, listener: Listener, limiter: ConnectionLimiter) -> None:
        contents = await in_daemon_thread(self._source.look)
        if contents == self._loaded.contents:
            self._rejected = self._pending = None
            self._succeed()
            return
        if contents == self._rejected:
            return
        if contents != self._pending:
            # Files may be half written, or not match yet: loaded if the next check finds the same.
            self._pending = contents
            return
        try:
            loaded = await in_daemon_thread(self._load)
        except WebConfigError as error:
            self._rejected = contents
            self._logged = ""  # each rejected version is logged
            self._fail(error)
        else:
            await self._apply(loaded, listener, limiter)

    def _load(self) -> Loaded:
        """Run in a thread."""
        loaded = self._source.load()
        # A full disk or a file cut off must not turn off TLS and authentication.
        loaded.require_protections_of(self._loaded)
        return loaded

    async def _apply(self, loaded: Loaded, listener: Listener, limiter: ConnectionLimiter) -> None:
        if not same_tls(loaded, self._loaded):
            self._policy.open(loaded, listener, limiter)
        self._loaded = loaded
        self._authenticator.use(loaded.config.users)
        self._read_at = time.time()
        self._succeed()
        logs.log(logging.INFO, "web configuration reloaded", **self._summary())

    def _succeed(self) -> None:
        self._logged = ""
        self._report(Reload(successful=True, success_timestamp_seconds=self._read_at))

    def _fail(self, error: Exception) -> None:
        self._report(Reload(successful=False, success_timestamp_seconds=self._read_at))
        why = str(error) or type(error).__name__
        if why == self._logged:
            return
        self._logged = why
        logs.log(logging.ERROR, "web configuration not reloaded", file=self._source.path, error=why)

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
        return web.Response(status=401, text="user name and password are required\n", headers=challenge)

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        if request.transport is not None and self._policy.is_retired(request.transport):
            response.force_close()
            response.headers["Connection"] = "close"  # aiohttp has already set it
        for name, value in self._loaded.config.headers:
            if name == "Content-Security-Policy":
                response.headers.add(name, value)  # in addition to the status page's: browsers apply both
            else:
                response.headers.setdefault(name, value)
