"""Applies the current web configuration to connections and requests, and reloads it.

Hashes of basic authentication are computed in the background, one after the other.
"""

import asyncio
import base64
import binascii
import hashlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakKeyDictionary, WeakSet

import bcrypt
from aiohttp import web
from aiohttp.typedefs import Handler

from ...observe.result import Reload
from ...per_request.observation import PUSH_PATH
from ...runtime import logs
from ...runtime.daemon_threads import in_daemon_thread
from ..connection_limits import PROBES, ConnectionLimiter, peer_key
from ..sockets import Listener
from .document import Contents, Loaded, WebConfigFile, bcrypt_cost
from .fields import WebConfigError
from .server_tls import alternative_names

#: Limit of checks that wait, of all clients: four seconds at the usual cost of 12.
MAX_WAITING = 16
MAX_OF_ONE_PEER = 2  # the same of one client: a scrape and a person
#: Limit of cached valid credentials: more users than a port for scrapes has.
MAX_CACHED = 100
#: bcrypt ignores the rest of a password, and Python's bcrypt raises an error for longer
#: ones.
_BCRYPT_BYTES = 72


class TooBusyError(Exception):
    """Too many checks wait."""


@dataclass(slots=True)
class _Check:
    """A check of credentials for requests of which the first is of `peer`."""

    peer: str
    #: Whether each client has disconnected.
    gone: list[Callable[[], bool]] = field(default_factory=list)
    task: asyncio.Task[bool] | None = None


class Authenticator:
    """Checks credentials.

    One hash is computed at a time, in the order of the requests, of which one client
    has few. Valid credentials are cached, so that most scrapes need no hash; invalid
    ones are not. If all hashes have the same cost, the check of an unknown user takes
    as long as that of a wrong password.
    """

    def __init__(self) -> None:
        self._users: dict[bytes, bytes] = {}
        self._decoy = b""
        # The cache holds digests with a random key, no passwords.
        self._key = secrets.token_bytes(32)
        self._valid: OrderedDict[bytes, None] = OrderedDict()
        self._hashing = asyncio.Lock()
        # those that wait or are computed, by digest
        self._checks: dict[bytes, _Check] = {}

    def use(self, users: Iterable[tuple[str, str]]) -> None:
        """Replace the users and hashes.

        Cached credentials that are still valid remain.
        """
        self._users = {name.encode(): hashed.encode() for name, hashed in users}
        cost = max(
            (bcrypt_cost(hashed.decode()) for hashed in self._users.values()),
            default=10,
        )
        self._decoy = f"$2b${cost:02d}${'.' * 53}".encode()

    @property
    def needed(self) -> bool:
        """Whether there are users."""
        return bool(self._users)

    async def allows(
        self,
        header: str | None,
        peer: str = "",
        gone: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Return whether an ``Authorization`` header is valid; TooBusyError if too many
        checks wait.

        `peer` is the key of the client; `gone` returns whether it has disconnected.
        """
        credentials = parse_header(header)
        if credentials is None:
            return False
        user, password = credentials
        hashed = self._users.get(user)
        digest = self._digest(user, hashed or self._decoy, password)
        if digest in self._valid:
            self._valid.move_to_end(digest)
            return True
        check = self._checks.get(digest)  # shared by requests with the same credentials
        if check is None:
            of_peer = sum(each.peer == peer for each in self._checks.values())
            if len(self._checks) >= MAX_WAITING or of_peer >= MAX_OF_ONE_PEER:
                raise TooBusyError
            check = self._checks[digest] = _Check(peer)
            check.task = asyncio.create_task(
                self._check(digest, user, password, hashed), name="password"
            )
        check.gone.append(gone)
        assert check.task is not None
        return await asyncio.shield(check.task)

    async def _check(
        self, digest: bytes, user: bytes, password: bytes, hashed: bytes | None
    ) -> bool:
        try:
            async with self._hashing:
                if all(gone() for gone in self._checks[digest].gone):
                    raise TooBusyError
                hashed_or_decoy = hashed or self._decoy
                matches = await in_daemon_thread(
                    bcrypt.checkpw, password[:_BCRYPT_BYTES], hashed_or_decoy
                )
        finally:
            del self._checks[digest]
        # changed meanwhile
        if not matches or hashed is None or self._users.get(user) != hashed:
            return False
        self._valid[digest] = None
        while len(self._valid) > MAX_CACHED:
            self._valid.popitem(last=False)
        return True

    def _digest(self, user: bytes, hashed: bytes, password: bytes) -> bytes:
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (user, hashed, password):
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()


def parse_header(header: str | None) -> tuple[bytes, bytes] | None:
    """Return user and password of an ``Authorization`` header, `None` for another
    scheme than Basic.
    """
    kind, _, coded = (header or "").strip().partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(
            coded.strip(), validate=True
        ).partition(b":")
    except (binascii.Error, ValueError):
        return None
    if colon:
        return (user, password)
    return None


class ConnectionPolicy:
    """Accepts connections by the current web configuration, and closes those accepted
    by an older one.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._accepted: WeakKeyDictionary[asyncio.Transport, Loaded] = (
            WeakKeyDictionary()
        )
        # closed after their next response
        self.retired: WeakSet[asyncio.Transport] = WeakSet()

    def open(
        self, loaded: Loaded, listener: Listener, limiter: ConnectionLimiter
    ) -> None:
        """Accept new connections by `loaded`, or raise OSError and change nothing.

        Connections with older TLS settings are closed after their current response, or
        at once if they are idle and the rules for client certificates have changed.
        """
        before = self._loaded
        self._loaded = loaded
        try:
            admits = partial(self.admits, loaded=loaded)
            listener.serve(partial(limiter.accept, admits=admits), loaded.context)
        except BaseException:
            self._loaded = before
            raise
        finally:
            self._retire_old(limiter)

    def admits(self, transport: asyncio.Transport, loaded: Loaded) -> bool:
        """Return whether a client is accepted whose handshake used `loaded`."""
        if client_rules(loaded) != client_rules(self._loaded):
            return False  # the handshake used old rules
        tls = loaded.config.tls
        allowed = tls.client_allowed_sans if tls else frozenset()
        if allowed and allowed.isdisjoint(
            alternative_names(transport.get_extra_info("peercert"))
        ):
            return False
        self._accepted[transport] = loaded
        if not same_tls(loaded, self._loaded):
            self.retired.add(transport)
        return True

    def _retire_old(self, limiter: ConnectionLimiter) -> None:
        for connection in tuple(limiter.connections):
            transport = connection.transport
            if transport is not None:
                loaded = self._accepted.get(transport)
            else:
                loaded = None
            if transport is None or loaded is None or same_tls(loaded, self._loaded):
                continue
            self.retired.add(transport)
            if (
                client_rules(loaded) != client_rules(self._loaded)
                and not connection.is_asked
            ):
                connection.abort()


def same_tls(one: Loaded, other: Loaded) -> bool:
    """Return whether two configurations have the same TLS settings and files."""
    return (one.config.tls, one.contents[1:]) == (other.config.tls, other.contents[1:])


def client_rules(loaded: Loaded) -> tuple[object, ...]:
    """Return the rules for client certificates."""
    tls = loaded.config.tls
    if tls is None:
        return ()
    return (
        tls.client_auth,
        tls.client_allowed_sans,
        dict(loaded.contents).get(tls.client_ca_file),
    )


LOOK_SECONDS = 1.0  # time between two checks of the files, in seconds
#: Paths without authentication: Kubernetes' probes cannot send a password, and pushes
#: need their bearer token in the same header.
OPEN_PATHS = PROBES | {PUSH_PATH}


class WebConfigMiddleware:
    """Authenticates requests, adds response headers, and reloads the files; `report`
    gets each result.
    """

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
        self._watch = asyncio.create_task(
            self._follow(listener, limiter), name="web configuration"
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

    async def _follow(self, listener: Listener, limiter: ConnectionLimiter) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._check_files(listener, limiter)
            except Exception as error:  # noqa: BLE001 - such as no descriptors: the next check may succeed
                self._fail(error)

    async def _check_files(
        self, listener: Listener, limiter: ConnectionLimiter
    ) -> None:
        contents = await in_daemon_thread(self._source.look)
        if contents == self._loaded.contents:
            self._rejected = self._pending = None
            self._succeed()
            return
        if contents == self._rejected:
            return
        if contents != self._pending:
            # Files may be half written, or not match yet: loaded if the next check
            # finds the same.
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

    async def _apply(
        self, loaded: Loaded, listener: Listener, limiter: ConnectionLimiter
    ) -> None:
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
            header = request.headers.get("Authorization")
            peer = peer_key(request.remote or "")
            if await self._authenticator.allows(
                header, peer, lambda: request.transport is None
            ):
                return await handler(request)
        except TooBusyError:
            headers = {"Retry-After": "5"}
            return web.Response(
                status=503, text="too many passwords to check\n", headers=headers
            )
        challenge = {
            "WWW-Authenticate": 'Basic realm="vllm-specdec-exporter", charset="UTF-8"'
        }
        return web.Response(
            status=401, text="user name and password are required\n", headers=challenge
        )

    async def _add_headers(
        self, request: web.Request, response: web.StreamResponse
    ) -> None:
        if request.transport is not None and request.transport in self._policy.retired:
            response.force_close()
            response.headers["Connection"] = "close"  # aiohttp has already set it
        for name, value in self._loaded.config.headers:
            if name == "Content-Security-Policy":
                # in addition to the status page's: browsers apply both
                response.headers.add(name, value)
            else:
                response.headers.setdefault(name, value)
