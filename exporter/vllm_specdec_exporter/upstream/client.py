"""The HTTP client of a server. Every failure is raised as a `PollError`.

The exchange has one deadline, and the body a size limit. The connection is kept: vLLM
closes idle ones after five seconds, and then the request is sent once more.
"""

import asyncio
import base64
import contextlib
import errno
import socket
import ssl
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from aiohappyeyeballs import start_connection
from msgspec import Struct
from msgspec.structs import replace

from .. import __version__
from ..config.files import TokenError, read_token
from ..config.listen_address import format_address
from ..config.values import Target, secret_parameters
from ..engines import Unrecognized, read, read_version
from ..engines.reading import Reading
from ..exposition.text import MalformedExposition
from ..runtime.daemon_threads import SharedThreads
from .connection import NEXT_ADDRESS_SECONDS, UpstreamConfig, UpstreamTLS, tls_cause
from .discovery import Resolver
from .http_connection import SPEAKS_TLS, HttpConnection, MalformedResponse
from .read_budget import ReadBudget

#: Limit of a response, in bytes: 256 engines, the most that are read, have some 10 MB
#: in vLLM 0.32.
MAX_BODY = 16 * 1024 * 1024
_TEXT = "text/plain; version=0.0.4"
#: Limit of the response of `/version`, in bytes, of which vLLM needs 20.
_MAX_VERSION_BODY = 64 * 1024
#: Limit of the message of an error, in characters: three lines of a terminal.
_MAX_MESSAGE = 300
CLOSED = (
    "the connection was closed before a response came; a server with TLS does so to "
    "http://"
)
#: Parts of a deadline at whose ends the loop sees how late it is itself.
_PARTS = 10
#: Share of a wait for which the loop was late, from which nothing is known of the
#: server: on a busy machine a loop is late for a tenth.
_LATE_SHARE = 1 / 3
#: The least of such delays, in seconds: of a deadline of a tenth of a second, the
#: scheduler of a busy machine alone takes a third. So a deadline below that is never
#: called late.
_LEAST_LATE = 0.1
#: Longest wait for the body of a refusal, in seconds, which may name the cause.
_REFUSAL_SECONDS = 0.5
#: Turns of the loop between a deadline and the end of an exchange. What has arrived by
#: then is read in ten; without work for others they take no time.
_LAST_TURNS = 20
_ROUTES_BY_MODEL = (
    "a router of several models, as llama.cpp's, says that the model name is missing: "
    "name one in the address, /metrics?model=NAME"
)
#: Age from which a connection is replaced, in seconds: the name may mean another server
#: now.
_KEPT_SECONDS = 60.0
#: Characters of a path and a query that are sent as they are.
_UNQUOTED = "/?%:@!$&'()*+,;=-._~[]"


class PollError(Exception):
    """A poll failed.

    `reason` is one of `result.REASONS`, the message is for the log.
    """

    def __init__(self, reason: str, message: str) -> None:
        # The message may quote the server: limit its length, and drop control
        # characters.
        clean = "".join(c if c.isprintable() else " " for c in message)
        if len(clean) > _MAX_MESSAGE:
            clean = f"{clean[:_MAX_MESSAGE]}…"
        super().__init__(clean)
        self.reason = reason

    @property
    def was_closed(self) -> bool:
        """Whether the server, or something before it, closed the connection."""
        cause = self.__cause__
        while isinstance(cause, PollError):
            cause = cause.__cause__
        return isinstance(cause, ConnectionError)


class _Deadline:
    """Raises TimeoutError after some seconds, but first reads what has arrived by then.

    A process without enough processor time must not call its server slow: it does not
    know whether the server answered in time, or got the request in time.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._part = seconds / _PARTS
        self._begin = self._loop.time()
        self._end = self._begin + seconds
        self._late = 0.0
        self._timer: asyncio.Handle
        self._await(self._begin + self._part)

    def _await(self, due: float) -> None:
        self._timer = self._loop.call_at(due, self._notice, due)

    def _notice(self, due: float) -> None:
        time_now = self._loop.time()
        self._late += time_now - due
        if time_now < self._end:
            self._await(min(time_now + self._part, self._end))
        else:
            self._expire(_LAST_TURNS)

    def _expire(self, turns: int) -> None:
        if turns:
            self._timer = self._loop.call_soon(self._expire, turns - 1)
        else:
            self._timeout.reschedule(self._loop.time())

    @property
    def is_blind(self) -> bool:
        """Whether the loop was late for much of the time until now."""
        waited = self._loop.time() - self._begin
        return self._late > max(_LEAST_LATE, _LATE_SHARE * waited)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(*error)


@contextlib.asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError after so many seconds; PollError instead of what may be due to
    a loop that was late itself.
    """
    deadline = _Deadline(seconds)
    try:
        async with deadline:
            yield
    except (TimeoutError, ConnectionError, PollError) as error:
        # The server closed a connection on which nothing came, or the exporter had no
        # time to read its token. All else that a poll fails with is taken as certain.
        is_of_time = not isinstance(error, PollError)
        if deadline.is_blind and (
            is_of_time or isinstance(error.__cause__, TimeoutError)
        ):
            raise PollError(
                "stale", "the exporter was blocked while it waited for a response"
            ) from error
        raise


class UpstreamResponse(Struct, frozen=True):
    """A server's response."""

    body: bytes
    content_type: str
    life: str = ""
    status: int = 200


#: llama.cpp's, with a number that is constant for a process; it is no time of any clock
#: that others have.
_LIFE_HEADER = "process-start-time-unix"
#: Least length of a value that is masked: shorter ones are words such as `Basic` or
#: `true`.
_MIN_SECRET = 6
#: The header that names this program.
AGENT = {"User-Agent": f"vllm-specdec-exporter/{__version__}"}


class Upstream:
    """One server. Call `close` when it is no longer needed.

    What is received counts against `budget`, and the body of `fetch` does so until
    `release` is called.
    """

    def __init__(
        self,
        target: Target,
        config: UpstreamConfig,
        budget: ReadBudget | None = None,
    ) -> None:
        """Raise ConfigError for certificate files that cannot be used.

        Nothing is sent yet.
        """
        self._budget = budget or ReadBudget()
        self._target = target
        self._config = config
        self.timeout = config.timeout
        self._tls: UpstreamTLS | None = None
        if target.url.startswith("https:"):
            self._tls = UpstreamTLS(config)
        # Opened with the first request, in the loop that sends it.
        self._connection: HttpConnection | None = None
        self._opened_at = 0.0
        #: Whether the rest of a response is not received because there is no memory.
        self._waits_for_memory = False
        self._authorized: tuple[str, ...] = ()
        #: The last request, and what it was written from.
        self._written: tuple[tuple[object, ...], bytes] | None = None
        self._resolver = Resolver()
        self._threads = SharedThreads()

    def mask(self, text: str) -> str:
        """Return a text without the credentials that were sent, which may be quoted in
        it, also cut off.
        """
        values = [*self._authorized, self._target.password]
        values += [value for _, value in self._config.headers]
        secrets = set(secret_parameters(self._target.url))
        for value in values:
            # A server may quote the token without its scheme.
            parts = (value, *value.split())
            secrets.update(part for part in parts if len(part) >= _MIN_SECRET)
        # The longest first: one may be a part of another.
        for secret in sorted(secrets, key=len, reverse=True):
            shortest = min(len(secret), _MIN_SECRET)
            for length in range(len(secret), shortest - 1, -1):
                text = text.replace(secret[:length], "<secret>")
        return text

    async def fetch(self) -> UpstreamResponse:
        """Return the server's metrics, or raise PollError, with credentials masked."""
        try:
            return await self._get(
                self._target.polled_url, _TEXT, self._config.timeout, MAX_BODY
            )
        except PollError as error:
            raise PollError(error.reason, self.mask(str(error))) from error

    def release(self) -> None:
        """Give back the memory of the last response."""
        self._budget.release(self)

    async def read(self, *, latencies: bool = False) -> Reading:
        """Return the parsed metrics, or raise PollError, with credentials masked."""
        try:
            response = await self.fetch()
            return read(response.body, response.content_type, latencies=latencies)
        except MalformedExposition as error:
            raise PollError("malformed", self.mask(str(error))) from error
        except Unrecognized as error:
            raise PollError("unrecognized", self.mask(str(error))) from error
        finally:
            self.release()

    async def document(self, name: str, seconds: float, limit: int) -> bytes:
        """Return the JSON document `name` beside the metrics, or raise PollError;
        `seconds` is the limit.
        """
        url = self._target.sibling_url(name)
        if not url:
            return b""
        try:
            response = await self._get(url, "application/json", seconds, limit)
        finally:
            self.release()
        return response.body

    async def ask(self, url: str, seconds: float) -> UpstreamResponse:
        """Return the response of any status of 200 or more but a redirect, or raise
        PollError.
        """
        try:
            return await self._get(
                url, "application/json", seconds, MAX_BODY, any_status=True
            )
        finally:
            self.release()

    async def version(self, timeout: float | None = None) -> str:  # noqa: ASYNC109 - what is left of a poll's
        """Return the server's version, empty if it returns none within `timeout`
        seconds.
        """
        seconds = self._config.timeout if timeout is None else timeout
        try:
            body = await self.document("version", seconds, _MAX_VERSION_BODY)
        except PollError:
            return ""
        return self.mask(read_version(body))[:64]

    @property
    def identity(self) -> tuple[object, ...]:
        """Target and connection settings: equal for two clients that send the same
        requests.
        """
        return self._target, replace(self._config, targets=())

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.end()
            self._connection = None

    async def _get(
        self,
        url: str,
        accept: str,
        seconds: float,
        limit: int,
        *,
        any_status: bool = False,
    ) -> UpstreamResponse:
        keeps_connection = False
        self._waits_for_memory = False
        try:
            async with _within(seconds):
                response = await self._exchange(
                    url, accept, limit, any_status=any_status
                )
            keeps_connection = self._keeps_connection()
            return response
        except TimeoutError as error:
            if self._waits_for_memory:
                raise PollError(
                    "stale", "the exporter waited for memory to read the response"
                ) from error
            raise PollError(
                "timeout", f"no complete response within {seconds:g} s"
            ) from error
        except MalformedResponse as error:
            raise PollError("malformed", str(error)) from error
        except ssl.SSLError as error:
            raise untrusted(error) from error
        except UnicodeError as error:
            raise PollError("unreachable", "the host is not a valid name") from error
        except ConnectionError as error:
            raise PollError("reset", CLOSED) from error
        finally:
            if not keeps_connection:
                await self.close()

    def _keeps_connection(self) -> bool:
        is_young = time.monotonic() - self._opened_at < _KEPT_SECONDS
        return self._connection is not None and (
            self._connection.is_reusable and is_young
        )

    async def _exchange(
        self, url: str, accept: str, limit: int, *, any_status: bool
    ) -> UpstreamResponse:
        request = await self._request(url, accept)
        connection = await self._begin(request)
        if 300 <= connection.status < 400:
            moved = self._moved(url, connection.headers.get("location", "nowhere"))
            return await self._exchange(moved, accept, limit, any_status=any_status)
        if connection.status != 200 and not any_status:
            raise await _refusal(url, connection)
        headers = connection.headers
        return UpstreamResponse(
            body=await self._read_body(connection, limit),
            content_type=headers.get("content-type", ""),
            life=headers.get(_LIFE_HEADER, "")[:64],
            status=connection.status,
        )

    async def _request(self, url: str, accept: str) -> bytes:
        """Return the head of a request, which is all of it.

        That of the last poll is kept: to write it takes longer than to send it.
        """
        authorization = await self._authorization()
        self._authorized = tuple(authorization.values())
        contents = (url, accept, self._authorized)
        if self._written is None or self._written[0] != contents:
            self._written = (contents, self._write(url, accept, authorization))
        return self._written[1]

    def _write(self, url: str, accept: str, authorization: dict[str, str]) -> bytes:
        parts = urlsplit(url)
        defaults = {"Host": self._host(), "Accept": accept, **AGENT}
        headers = self._config.request_headers(
            # Nothing compressed: a small answer could become a large one.
            {**defaults, "Accept-Encoding": "identity", **authorization}
        )
        path = quote(parts._replace(scheme="", netloc="").geturl(), safe=_UNQUOTED)
        lines = [f"GET {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers]
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")

    def _host(self) -> str:
        """Return the header `Host`: without the default port of the scheme."""
        host, port, is_tls = self._target.address
        if not host.isascii():
            host = host.encode("idna").decode("ascii")
        default_port = ":443" if is_tls else ":80"
        return format_address(host.rstrip("."), port).removesuffix(default_port)

    async def _begin(self, request: bytes) -> HttpConnection:
        """Send a request, and return the connection with the head of the response.

        A kept connection may just have been closed, which says nothing of the server:
        then the request is sent once more.
        """
        context = None
        if self._tls is not None:
            context = await self._tls.context()
        kept = self._connection
        if kept is not None and kept.is_reusable and kept.context is context:
            with contextlib.suppress(ConnectionError):
                await kept.send(request)
                return kept
        await self.close()
        self._opened_at = time.monotonic()
        self._connection = HttpConnection(await self._connect(), context)
        name = self._config.server_name or self._target.address[0].rstrip(".")
        try:
            await self._connection.open(name)
        except OSError as error:
            raise not_connected(error) from error
        await self._connection.send(request)
        return self._connection

    async def _connect(self) -> socket.socket:
        """Return a connected socket."""
        try:
            if self._target.socket:
                return await _connect_unix(self._target.socket)
            host, port, _ = self._target.address
            return await start_connection(
                await self._resolver.addresses(host, port),
                happy_eyeballs_delay=NEXT_ADDRESS_SECONDS,
            )
        except OSError as error:
            raise not_connected(error) from error

    async def _read_body(self, connection: HttpConnection, limit: int) -> bytes:
        encoding = connection.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise PollError(
                "malformed",
                f"the response is encoded as {encoding!r}, which was not requested",
            )
        if int(connection.headers.get("content-length", 0)) > limit:
            raise _too_large(limit)
        # A list of small pieces: a growing buffer fragments the heap, and the memory is
        # never returned.
        pieces: list[bytes] = []
        size = 0
        while piece := await connection.read():
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            self._waits_for_memory = True
            await self._budget.take(self, len(piece))
            self._waits_for_memory = False
        return b"".join(pieces)

    def _moved(self, url: str, location: str) -> str:
        """Return the same address with a slash, as of an application that is mounted
        there, or raise PollError for any other redirect.
        """
        here = urlsplit(url)
        with_slash = here._replace(path=f"{here.path}/")
        # The error quotes the address, which may quote a credential.
        with contextlib.suppress(ValueError):
            there = urlsplit(urljoin(url, location))
            # One slash, or redirects might never end.
            if not here.path.endswith("/") and there[:3] == with_slash[:3]:
                return with_slash.geturl()
        raise PollError(
            "redirect",
            f"redirected to {self.mask(location)[:200]!r}, which is not followed: "
            "give that address",
        )

    async def _authorization(self) -> dict[str, str]:
        path = self._config.bearer_token_file
        if path:
            try:
                token = await self._threads.read(read_token, path)
            except (TokenError, TimeoutError) as error:
                raise PollError(
                    "credentials", f"the bearer token file {path} {error}"
                ) from error
            return {"Authorization": f"Bearer {token}"}
        if self._target.user:
            pair = f"{self._target.user}:{self._target.password}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}


async def _connect_unix(path: str) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connected, path)
    except BaseException:
        connected.close()
        raise
    return connected


async def _refusal(url: str, connection: HttpConnection) -> PollError:
    """Return the error for a status that is no success, with a likely cause."""
    text = f"HTTP {connection.status} {connection.reason}".rstrip()
    path = urlsplit(url).path
    if connection.status == 404 and not path.rstrip("/").endswith("/metrics"):
        text += (
            f" at {path}: the metrics of most servers are at /metrics, the default "
            "without a path"
        )
    elif connection.status == 400:
        said = b""
        # Whether it is complete does not matter: the status is known.
        with contextlib.suppress(MalformedResponse, OSError):
            async with asyncio.timeout(_REFUSAL_SECONDS):
                said = await connection.read()
        if b"HTTPS" in said:
            text += f": {SPEAKS_TLS}"
        elif b"model name is missing" in said:
            text += f": {_ROUTES_BY_MODEL}"
    return PollError("http_status", text)


def _too_large(limit: int) -> PollError:
    return PollError("too_large", f"the response is larger than {limit // 1024} KiB")


def untrusted(error: BaseException) -> PollError:
    """Return the error for a TLS connection that cannot be trusted."""
    return PollError("tls", f"no trusted TLS connection: {tls_cause(error)}")


def not_connected(error: OSError) -> PollError:
    """Return the error for an address that cannot be connected to."""
    if isinstance(error, ssl.SSLError):
        return untrusted(error)
    if isinstance(error, socket.gaierror):
        return PollError("unreachable", f"the address cannot be resolved: {error}")
    if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
        return PollError("refused", "nothing listens at the address")
    if isinstance(error, ConnectionError):
        return PollError("reset", CLOSED)
    return PollError("unreachable", f"the address cannot be reached: {error}")
