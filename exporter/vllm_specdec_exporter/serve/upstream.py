"""The HTTP client: one answer of one server, or a `PollError` that says why there is none.

Every failure is translated here; nothing above needs to know aiohttp's exceptions. Limits hold whatever the
server does: the whole exchange has one deadline, the body a cap, also after decompression.

Each poll opens a connection of its own. vLLM closes idle ones after five seconds, which is about a poll
interval: a kept connection would be found dead now and then, and counted as an error that is none. When the
poll ends, so has its connection, whatever the server does.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import json
import socket
import ssl
import zlib
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from .. import __version__
from .resolver import Resolver
from .tls import UpstreamTLS

if TYPE_CHECKING:
    from ..config.values import Target
    from .settings import UpstreamConfig

MAX_BODY = 16 * 1024 * 1024
_CHUNK = 64 * 1024
_MAX_VERSION_BODY = 64 * 1024
_LONGEST_MESSAGE = 300
#: Turns of the event loop within which asyncio closes a connection whose socket has ended.
_TURNS = 10

#: The sockets of the exchange that runs.
_opened: ContextVar[list[socket.socket]] = ContextVar("_opened")


class PollError(Exception):
    """A poll failed: `reason` is one of `result.REASONS`, the message a sentence for people."""

    def __init__(self, reason: str, message: str) -> None:
        # The message may quote the server: it must not fill the log, nor steer a terminal.
        clean = "".join(c if c.isprintable() else " " for c in message)
        super().__init__(clean if len(clean) <= _LONGEST_MESSAGE else f"{clean[:_LONGEST_MESSAGE]}…")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class UpstreamResponse:
    """A server's answer."""

    body: bytes
    content_type: str


class Upstream:
    """One server. Call `close` when it is no longer needed."""

    def __init__(self, target: Target, config: UpstreamConfig) -> None:
        """Prepare to talk to `target`.

        Raises:
            ValueError: certificate files that cannot be used.
        """
        self._target = target
        self._config = config
        self.timeout = config.timeout
        self._tls = UpstreamTLS(config) if target.url.startswith("https:") else None
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self) -> UpstreamResponse:
        """Return the server's metrics.

        Raises:
            PollError: no whole, acceptable answer within the deadline.
        """
        return await self._get(self._target.url, "text/plain; version=0.0.4", self._config.timeout, MAX_BODY)

    async def version(self, timeout: float | None = None) -> str:  # noqa: ASYNC109 - what is left of a poll's
        """Return the version that the server tells within `timeout` seconds, empty where it tells none."""
        if not self._target.version_url:
            return ""
        if timeout is None:
            timeout = self._config.timeout
        try:
            answer = await self._get(self._target.version_url, "application/json", timeout, _MAX_VERSION_BODY)
            document = json.loads(answer.body)
        except (PollError, ValueError, RecursionError):
            return ""
        version = document.get("version") if isinstance(document, dict) else None
        return version[:64] if isinstance(version, str) and version.isprintable() else ""

    @property
    def identity(self) -> tuple[object, ...]:
        """Whom it talks to, and how; that of two clients which do the same is equal."""
        return self._target, replace(self._config, targets=())

    async def close(self) -> None:
        """Close whatever is open."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _get(self, url: str, accept: str, seconds: float, limit: int) -> UpstreamResponse:
        sockets: list[socket.socket] = []
        _opened.set(sockets)
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(url, accept, limit)
        except TimeoutError as error:
            raise PollError("timeout", f"no whole answer within {seconds:g} s") from error
        except aiohttp.ClientError as error:
            raise _translate(error) from error
        except ssl.SSLError as error:
            raise PollError("tls", f"no trusted TLS connection: {error}") from error
        except UnicodeError as error:
            raise PollError("unreachable", "the host is no name that can be resolved") from error
        except ConnectionError as error:
            raise PollError("reset", "the connection was closed before an answer came") from error
        finally:
            await _hang_up(sockets)

    async def _exchange(self, url: str, accept: str, limit: int) -> UpstreamResponse:
        if self._session is None:
            self._session = self._open()
        async with self._session.get(
            url,
            headers=self._config.request_headers({"Accept": accept, **self._authorization()}),
            allow_redirects=False,
            server_hostname=self._config.server_name or None,
            ssl=self._tls.context() if self._tls else True,
        ) as response:
            if 300 <= response.status < 400:
                where = response.headers.get("Location", "nowhere")[:200]
                raise PollError("redirect", f"redirected to {where!r}; redirects are not followed")
            if response.status != 200:
                raise PollError("http_status", f"HTTP {response.status} {response.reason or ''}".rstrip())
            body = await _read_body(response, limit)
            return UpstreamResponse(body, response.headers.get("Content-Type", ""))

    def _open(self) -> aiohttp.ClientSession:
        connector: aiohttp.BaseConnector
        if self._target.socket:
            connector = aiohttp.UnixConnector(self._target.socket, force_close=True)
        else:
            connector = aiohttp.TCPConnector(
                force_close=True,
                use_dns_cache=False,
                limit=2,
                resolver=Resolver(),
                socket_factory=_new_socket,
            )
        return aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,  # done here, under the cap
            timeout=aiohttp.ClientTimeout(total=None),  # asyncio.timeout spans the whole poll
            headers={
                "User-Agent": f"vllm-specdec-exporter/{__version__}",
                "Accept-Encoding": "identity",
            },
            skip_auto_headers=("Accept-Encoding",),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    def _authorization(self) -> dict[str, str]:
        if self._config.bearer_token_file:
            return {"Authorization": f"Bearer {_read_token(self._config.bearer_token_file)}"}
        if self._target.user:
            pair = f"{self._target.user}:{self._target.password}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}


def _new_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    created = socket.socket(family, kind, protocol)
    _opened.get().append(created)
    return created


async def _hang_up(sockets: list[socket.socket]) -> None:
    """End what the exchange has left of its connections.

    A TLS connection that is closed waits for the other side's farewell, by asyncio's default for half a
    minute: a server that hangs would so hold those of several polls.
    """
    for one in sockets:
        with contextlib.suppress(OSError):  # it is closed, or never was connected
            one.shutdown(socket.SHUT_RDWR)
    for _ in range(_TURNS):
        if all(one.fileno() < 0 for one in sockets):
            break
        await asyncio.sleep(0)


def _read_token(path: str) -> str:
    try:
        token = Path(path).read_text("ascii").strip()
    except OSError as error:
        raise PollError(
            "credentials", f"the bearer token file {path} cannot be read: {error.strerror}"
        ) from error
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isprintable():
        raise PollError("credentials", f"the bearer token file {path} does not hold one line of ASCII")
    return token


async def _read_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("identity", "gzip", "deflate"):
        raise PollError("malformed", f"the answer is encoded as {encoding!r}, which was not asked for")
    inflate = None if encoding == "identity" else _Inflater(encoding)
    if (response.content_length or 0) > limit:
        raise _too_large(limit)
    # Pieces, not one buffer that grows: of a few large ones the process would never get rid again.
    pieces: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_chunked(_CHUNK):
        piece = inflate.feed(chunk, limit + 1 - size) if inflate else chunk
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
    if inflate and not inflate.ended:
        raise PollError("malformed", f"the {encoding} answer was cut off")
    return b"".join(pieces)


def _too_large(limit: int) -> PollError:
    return PollError("too_large", f"the answer is larger than {limit // 1024} KiB")


class _Inflater:
    """Decompresses gzip or deflate, never more than asked for at a time."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._begin()

    def _begin(self) -> None:
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib, by its header

    @property
    def ended(self) -> bool:
        """Whether the data so far are whole."""
        return self._stream.eof

    def feed(self, chunk: bytes, limit: int) -> bytes:
        """Return at most `limit` bytes of what `chunk` holds; a gzip may have several members."""
        found = bytearray()
        try:
            while chunk and len(found) < limit:
                if self._stream.eof:
                    self._begin()
                found += self._stream.decompress(chunk, limit - len(found))
                chunk = self._stream.unused_data
        except zlib.error as error:
            raise PollError("malformed", f"the answer is not {self._encoding}: {error}") from error
        return bytes(found)


def _translate(error: aiohttp.ClientError) -> PollError:
    if isinstance(error, aiohttp.ClientSSLError) or isinstance(error.__cause__, ssl.SSLError):
        return PollError("tls", f"no trusted TLS connection: {error}")
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, ConnectionError) and not isinstance(
            error.os_error, ConnectionRefusedError
        ):
            return PollError("reset", "the connection was closed before an answer came")
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return PollError("unreachable", f"the address cannot be resolved: {error}")
        if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
            return PollError("refused", "nothing listens at the address")
        return PollError("unreachable", f"the address cannot be reached: {error}")
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
        return PollError("reset", "the connection was closed before an answer came")
    if isinstance(error, aiohttp.ClientPayloadError):
        return PollError("malformed", f"the answer was cut off: {error}")
    return PollError("malformed", f"not an HTTP answer: {error}")
