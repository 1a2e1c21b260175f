"""Applies the current web configuration to connections and requests, and reloads it."""

import asyncio
import logging
import time
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler

from ...observe.result import Reload
from ...per_request.routes import PUSH_PATH
from ...runtime import logs
from ...runtime.daemon_threads import in_daemon_thread
from ..connection_limits import PROBES, ConnectionLimiter
from ..peers import peer_key
from ..sockets import Listener
from .document import Contents, Loaded, WebConfigFile
from .fields import WebConfigError
from .passwords import Authenticator, TooBusyError

LOOK_SECONDS = 1.0  # time between two checks of the files, in seconds
#: Paths without authentication: Kubernetes' probes cannot send a password, and pushes
#: need their bearer token in the same header.
OPEN_PATHS = PROBES | {PUSH_PATH}


class WebConfigMiddleware:
    """Authenticates requests, and reloads the files; `report` gets each result."""

    def __init__(
        self, source: WebConfigFile, loaded: Loaded, report: Callable[[Reload], None]
    ) -> None:
        self._source = source
        self._loaded = loaded
        self._report = report
        self._read_at = time.time()
        self._authenticator = Authenticator()
        self._authenticator.use(loaded.config.users)
        self._watch: asyncio.Task[None] | None = None
        self._rejected: Contents | None = None
        self._pending: Contents | None = None
        self._logged = ""

    def attach(self, app: web.Application) -> None:
        """Add it to `app`."""
        app.middlewares.append(self._authenticate)

    async def start(self, listener: Listener, limiter: ConnectionLimiter) -> None:
        """Serve on `listener`, and reload the files when they change."""
        limiter.context = self._loaded.context
        listener.serve(limiter.accept)
        logs.log(logging.INFO, "web configuration", **self._summary())
        self._watch = asyncio.create_task(
            self._follow(limiter), name="web configuration"
        )

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

    async def _follow(self, limiter: ConnectionLimiter) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                loaded = await self._changed()
                if loaded is not None:
                    self._apply(loaded, limiter)
            except Exception as error:  # noqa: BLE001 - such as no descriptors: the next check may succeed
                self._fail(error)

    async def _changed(self) -> Loaded | None:
        """Return a new configuration once its files have been the same for a second."""
        contents = await in_daemon_thread(self._source.look)
        if contents == self._loaded.contents:
            self._rejected = None
            self._pending = None
            self._succeed()
            return None
        if contents == self._rejected:
            return None
        if contents != self._pending:
            # Files may be half written, or not match yet.
            self._pending = contents
            return None
        try:
            return await in_daemon_thread(self._load)
        except WebConfigError:
            self._rejected = contents
            self._logged = ""  # each rejected version is logged
            raise

    def _load(self) -> Loaded:
        loaded = self._source.load()
        # A full disk or a file cut off must not turn off TLS and authentication.
        loaded.require_protections_of(self._loaded)
        return loaded

    def _apply(self, loaded: Loaded, limiter: ConnectionLimiter) -> None:
        previous = self._loaded
        self._loaded = loaded
        if loaded.tls_and_files != previous.tls_and_files:
            limiter.context = loaded.context
            # Clients must not go on by rules that hold no longer. A new certificate
            # alone interrupts nobody.
            limiter.retire(at_once=loaded.client_rules != previous.client_rules)
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
        logs.log(
            logging.ERROR,
            "web configuration not reloaded",
            file=self._source.path,
            error=why,
        )

    # --- requests

    @web.middleware
    async def _authenticate(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        resource = request.match_info.route.resource
        is_open = resource is not None and resource.canonical in OPEN_PATHS
        if is_open or not self._authenticator.needed:
            return await handler(request)
        try:
            is_allowed = await self._authenticator.allows(
                request.headers.get("Authorization"),
                peer_key(request.remote or ""),
                lambda: request.transport is None,
            )
        except TooBusyError:
            return web.Response(
                status=503,
                text="too many passwords to check\n",
                headers={"Retry-After": "5"},
            )
        if is_allowed:
            return await handler(request)
        challenge = 'Basic realm="vllm-specdec-exporter", charset="UTF-8"'
        return web.Response(
            status=401,
            text="user name and password are required\n",
            headers={"WWW-Authenticate": challenge},
        )
