"""The HTTP client of a server. Every failure, also of aiohttp, is raised as a
`PollError`.

The exchange has one deadline, and the body a size limit. The connection is kept: vLLM
closes idle ones after five seconds, and aiohttp sends a request once more if it was
closed.
"""

import asyncio
import base64
import contextlib
import errno
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from msgspec import Struct
from msgspec.structs import replace

from .. import __version__
from ..config.files import TokenError, read_token
from ..config.values import Target, secret_parameters
from ..engines import Unrecognized, read, read_version
from ..engines.reading import Reading
from ..exposition.text import MalformedExposition
from ..runtime.daemon_threads import SharedThreads
from .connection import (
    MAX_OVERHEAD,
    CountedSocket,
    NoResolver,
    UpstreamConfig,
    UpstreamTLS,
    tls_cause,
)
from .discovery import Resolver
from .read_budget import ReadBudget

#: Limit of a response, in bytes: 256 engines, the most that are read, have some 10 MB
#: in vLLM 0.32.
MAX_BODY = 16 * 1024 * 1024
_TEXT = "text/plain; version=0.0.4"
_CHUNK = 64 * 1024
#: Limit of the response of `/version`, in bytes, of which vLLM needs 20.
_MAX_VERSION_BODY = 64 * 1024
#: Limit of the message of an error, in characters: three lines of a terminal.
_MAX_MESSAGE = 300
_CLOSED = (
    "the connection was closed before a response came; a server with TLS does so to "
    "http://"
)
#: Seconds after its end at which a deadline is noticed by a process that was blocked:
#: it does not know whether the server answered in time.
_LATE_SECONDS = 1.0
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


class _Deadline:
    """Raises TimeoutError after some seconds, but first reads what has arrived by then.

    A process without enough processor time must not call its server slow.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.Handle = self._loop.call_later(
            seconds, self._expire, _LAST_TURNS
        )

    def _expire(self, turns: int) -> None:
        if turns:
            self._timer = self._loop.call_soon(self._expire, turns - 1)
        else:
            self._timeout.reschedule(self._loop.time())

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(*error)


class UpstreamResponse(Struct, frozen=True):
    """A server's response."""

    body: bytes
    content_type: str
    life: str = ""
    status: int = 200


#: llama.cpp's, with a number that is constant for a process; it is no time of any clock
#: that others have.
_LIFE_HEADER = "Process-Start-Time-Unix"
#: Least length of a value that is masked: shorter ones are words such as `Basic` or
#: `true`.
_MIN_SECRET = 6
#: The header that names this program.
AGENT = {"User-Agent": f"vllm-specdec-exporter/{__version__}"}


def new_session(
    connector: aiohttp.BaseConnector,
    headers: Mapping[str, str] | list[tuple[str, str]],
    **options: Any,
) -> aiohttp.ClientSession:
    """Return a session without cookies and timeouts, because `asyncio.timeout` spans
    each exchange.
    """
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        **options,
    )


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
        self._session: aiohttp.ClientSession | None = None
        self._authorized: tuple[str, ...] = ()
        self._resolver = NoResolver() if target.socket else Resolver()
        self._threads = SharedThreads()
        self._sockets: list[CountedSocket] = []  # those of the session
        self._opened_at = 0.0

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
        """Close the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None
            self._sockets.clear()

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
        began = time.monotonic()
        try:
            async with _Deadline(seconds):
                response = await self._exchange(
                    url, accept, limit, any_status=any_status
                )
            keeps_connection = time.monotonic() - self._opened_at < _KEPT_SECONDS
            return response
        except TimeoutError as error:
            if time.monotonic() - began > seconds + _LATE_SECONDS:
                raise PollError(
                    "stale", "the exporter was blocked while it waited for a response"
                ) from error
            raise PollError(
                "timeout", f"no complete response within {seconds:g} s"
            ) from error
        except aiohttp.ClientError as error:
            if getattr(error.__cause__ or error, "errno", None) == errno.EMSGSIZE:
                why = (
                    f"the response has more than {MAX_OVERHEAD // 1024} KiB beside its "
                    "body"
                )
                raise PollError("malformed", why) from error
            raise translate(error) from error
        except ssl.SSLError as error:
            raise _untrusted(error) from error
        except UnicodeError as error:
            raise PollError("unreachable", "the host is not a valid name") from error
        except ConnectionError as error:
            raise PollError("reset", _CLOSED) from error
        finally:
            if not keeps_connection:
                self._shut_down()
                await self.close()

    def _shut_down(self) -> None:
        """Shut the sockets down: asyncio waits up to 30 s for the close_notify of a TLS
        server that hangs.
        """
        for each in self._sockets:
            with contextlib.suppress(OSError):  # closed already, or never connected
                each.shutdown(socket.SHUT_RDWR)

    async def _exchange(
        self, url: str, accept: str, limit: int, *, any_status: bool
    ) -> UpstreamResponse:
        if self._session is None:
            self._session = self._open()
            self._opened_at = time.monotonic()
        for each in self._sockets:
            each.overhead = 0
            each.body = None
        authorization = await self._authorization()
        self._authorized = tuple(authorization.values())
        async with self._session.get(
            url,
            headers=self._config.request_headers({"Accept": accept, **authorization}),
            allow_redirects=False,
            server_hostname=self._config.server_name or None,
            ssl=await self._tls.context() if self._tls else True,
        ) as response:
            if 300 <= response.status < 400:
                return await self._exchange(
                    self._moved(url, response), accept, limit, any_status=any_status
                )
            if response.status != 200 and not any_status:
                raise await _refusal(response)
            for each in self._sockets:
                each.body = lambda: response.content.total_bytes
            headers = response.headers
            return UpstreamResponse(
                body=await self._read_body(response, limit),
                content_type=headers.get("Content-Type", ""),
                life=headers.get(_LIFE_HEADER, "")[:64],
                status=response.status,
            )

    async def _read_body(self, response: aiohttp.ClientResponse, limit: int) -> bytes:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            raise PollError(
                "malformed",
                f"the response is encoded as {encoding!r}, which was not requested",
            )
        if (response.content_length or 0) > limit:
            raise _too_large(limit)
        # A list of small pieces: a growing buffer fragments the heap, and the memory is
        # never returned.
        pieces: list[bytes] = []
        size = 0
        async for piece in response.content.iter_chunked(_CHUNK):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            await self._budget.take(self, len(piece))
        return b"".join(pieces)

    def _moved(self, url: str, response: aiohttp.ClientResponse) -> str:
        """Return the same address with a slash, as of an application that is mounted
        there, or raise PollError for any other redirect.
        """
        location = response.headers.get("Location", "nowhere")
        here = urlsplit(url)
        there = urlsplit(urljoin(url, location))
        with_slash = here._replace(path=f"{here.path}/")
        # One slash, or redirects might never end.
        if not here.path.endswith("/") and there[:3] == with_slash[:3]:
            return with_slash.geturl()
        raise PollError(
            "redirect",
            f"redirected to {self.mask(location)[:200]!r}, which is not followed: "
            "give that address",
        )

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            keepalive_timeout=_KEPT_SECONDS,
            use_dns_cache=False,
            limit=2,
            resolver=self._resolver,
            socket_factory=self._new_socket,
        )
        return new_session(
            connector,
            {**AGENT, "Accept-Encoding": "identity"},
            auto_decompress=False,  # nothing compressed is requested
            skip_auto_headers=("Accept-Encoding",),
        )

    def _new_socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        if self._target.socket:
            created = CountedSocket(socket.AF_UNIX)
            created.path = self._target.socket
        else:
            created = CountedSocket(*address[:3])
        self._sockets.append(created)
        return created

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
            # aiohttp's BasicAuth refuses users with a colon.
            pair = f"{self._target.user}:{self._target.password}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}


async def _refusal(response: aiohttp.ClientResponse) -> PollError:
    """Return the error for a status that is no success, with a likely cause."""
    text = f"HTTP {response.status} {response.reason or ''}".rstrip()
    path = response.url.path
    if response.status == 404 and not path.rstrip("/").endswith("/metrics"):
        text += (
            f" at {path}: the metrics of most servers are at /metrics, the default "
            "without a path"
        )
    elif response.status == 400:
        said = await response.content.read(_MAX_VERSION_BODY)
        if b"HTTPS" in said:
            text += f": {_SPEAKS_TLS}"
        elif b"model name is missing" in said:
            text += f": {_ROUTES_BY_MODEL}"
    return PollError("http_status", text)


def _too_large(limit: int) -> PollError:
    return PollError("too_large", f"the response is larger than {limit // 1024} KiB")


_SPEAKS_TLS = "the server speaks TLS at this port: give https:// in place of http://"


def _untrusted(error: BaseException) -> PollError:
    return PollError("tls", f"no trusted TLS connection: {tls_cause(error)}")


def translate(error: aiohttp.ClientError) -> PollError:
    """Return the reason of a failed exchange."""
    cause = error.__cause__
    if isinstance(error, aiohttp.ClientSSLError) or isinstance(cause, ssl.SSLError):
        return _untrusted(cause or error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _not_connected(error)
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
        return PollError("reset", _CLOSED)
    if isinstance(error, aiohttp.ClientPayloadError):
        return PollError("malformed", f"the response was cut off: {error}")
    if "\\x15\\x03" in str(error):  # a TLS alert
        return PollError("malformed", _SPEAKS_TLS)
    return PollError("malformed", f"not an HTTP response: {error}")


def _not_connected(error: aiohttp.ClientConnectorError) -> PollError:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return PollError("unreachable", f"the address cannot be resolved: {error}")
    if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
        return PollError("refused", "nothing listens at the address")
    if isinstance(error.os_error, ConnectionError):
        return PollError("reset", _CLOSED)
    return PollError("unreachable", f"the address cannot be reached: {error.os_error}")
