"""One kept HTTP/1.1 connection for GET requests, one after another.

A poll is a small request at every interval, and a general client spends more processor
time on it than the reader of the metrics: 510 µs with aiohttp, 60 µs here. So this
knows only what a poll needs: no cookies, no proxies, no compression, no redirects, no
pipelining, no uploads. The parser is that of Node.js and of aiohttp, by `httptools`.

The bytes of all connections are received in one buffer of their thread, from which the
parser copies the pieces of a body. So an idle connection holds no memory.
"""

import asyncio
import socket
import ssl
import threading
from typing import Any, cast

import httptools

#: Limit of what is received beside a body, in bytes: heads, framing, interim answers.
#: An answer of vLLM has 200.
MAX_OVERHEAD = 64 * 1024
#: Bytes that are received for each of a body, at most: in chunks of 30 bytes and more.
_FRAMING = 1.25
#: Bytes of a body that are held here; with more of them nothing is received until they
#: are taken.
_MAX_HELD = 64 * 1024
_TLS_ALERT = b"\x15\x03"
SPEAKS_TLS = "the server speaks TLS at this port: give https:// in place of http://"


class MalformedResponse(Exception):  # noqa: N818 - it names what was received
    """The response is no HTTP, or not complete.

    The message has the reason.
    """


class _Buffer(threading.local):
    """Where all connections of a thread receive: what is in it is parsed at once."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(MAX_OVERHEAD))


_BUFFER = _Buffer()


class HttpConnection(asyncio.BufferedProtocol):
    """A connection over a connected socket.

    Attributes:
        context: the TLS context, None without TLS.
        status: of the last response, with `reason` and `headers`, which are known once
            `send` has returned. Names of headers are in lower case; the first of a name
            counts.
        is_reusable: whether another request can be sent.
    """

    def __init__(
        self, connected: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        self.context = context
        self.is_reusable = False
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        # As aiohttp reads it: servers of small programs write a plain line feed.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )
        self._forget()

    def _forget(self) -> None:
        """Forget the last response."""
        self.status = 0
        self.reason = ""
        self.headers: dict[str, str] = {}
        self._received = 0
        self._size = 0  # of the body
        self._pieces: list[bytes] = []
        self._held = 0
        self._has_head = False
        self._is_complete = False

    async def open(self, server_hostname: str) -> None:
        """Begin, with the TLS handshake if there is one.

        Raises:
            OSError: the handshake failed, also as an SSLError.
        """
        name = server_hostname if self.context else None
        await self._loop.create_connection(
            lambda: self, sock=self._socket, ssl=self.context, server_hostname=name
        )

    async def send(self, request: bytes) -> None:
        """Send a request, and wait for the head of the response.

        Raises:
            ConnectionError: the connection ended before.
            MalformedResponse: something else than HTTP came, or too much of it.
        """
        self._forget()
        self.is_reusable = False
        if self._transport is not None and self._failure is None:
            self._transport.write(request)
        while not self._has_head:
            await self._more()

    async def read(self) -> bytes:
        """Return the next piece of the body, at most 128 KiB, and none at its end.

        Raises:
            MalformedResponse: the connection ended before, or too much came beside the
                body.
        """
        while not (self._is_complete or self._held >= _MAX_HELD):
            await self._more()
        piece = b"".join(self._pieces)
        self._pieces.clear()
        self._held = 0
        if self._transport is not None:
            self._transport.resume_reading()
        return piece

    def end(self) -> None:
        """End the connection at once."""
        self.is_reusable = False
        if self._transport is None:
            self._socket.close()
        else:
            self._transport.abort()

    async def _more(self) -> None:
        """Wait until there is something new."""
        if self._failure is not None:
            raise self._failure
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: Exception) -> None:
        if self._failure is None:
            self._failure = failure
        self._wake()

    # --- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to receive, whatever the hint."""
        del sizehint
        return _BUFFER.view

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what was received."""
        if self.is_reusable or self._failure is not None:
            # Nothing was requested: what came would be taken for the next response.
            self.end()
            return
        data = _BUFFER.view[:nbytes]
        self._received += nbytes
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.is_reusable = False
        except httptools.HttpParserCallbackError as error:
            self._fail(cast("Exception", error.__context__ or error))
        except httptools.HttpParserError as error:
            self._reject(error, bytes(data[: len(_TLS_ALERT)]))
        if self._received - _FRAMING * self._size > MAX_OVERHEAD:
            limit = MAX_OVERHEAD // 1024
            self._fail(
                MalformedResponse(
                    f"the response has more than {limit} KiB beside its body"
                )
            )
        if self._failure is not None and self._transport is not None:
            self._transport.pause_reading()

    def _reject(self, error: Exception, begin: bytes) -> None:
        self.is_reusable = False
        if self._is_complete:
            return  # What is behind a response is not part of it.
        reason = f"not an HTTP response: {error}"
        if self._has_head:
            reason = f"the response was cut off: {error}"
        elif begin == _TLS_ALERT:
            reason = SPEAKS_TLS
        self._fail(MalformedResponse(reason))

    def connection_lost(self, exc: Exception | None) -> None:
        """Decide what the end means for the response that is being read."""
        self.is_reusable = False
        self._parser = None  # which refers to this object
        is_of_network = isinstance(exc, OSError) and not isinstance(exc, ssl.SSLError)
        if exc is not None and not is_of_network:
            self._fail(exc)
        elif not self._has_head:
            self._fail(ConnectionResetError(str(exc or "closed before a response")))
        elif exc is None and self._ends_with_connection():
            self._is_complete = True
            self._wake()
        else:
            why = exc or "the connection was closed"
            self._fail(MalformedResponse(f"the response was cut off: {why}"))

    def _ends_with_connection(self) -> bool:
        """Return whether the end of the connection is that of the body."""
        encodings = self.headers.get("transfer-encoding", "").lower()
        return "content-length" not in self.headers and "chunked" not in encodings

    # --- what the parser calls

    def on_message_begin(self) -> None:
        """See that it is the first response, or follows an interim one."""
        if self._is_complete:
            self.is_reusable = False

    def on_status(self, reason: bytes) -> None:
        """Add to the reason, which may come in pieces."""
        if not self._has_head:
            self.reason += reason.decode("utf-8", "surrogateescape")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; those behind the body are not."""
        if not self._has_head:
            self.headers.setdefault(
                name.decode("latin-1").lower(),
                value.decode("utf-8", "surrogateescape").strip(),
            )

    def on_headers_complete(self) -> None:
        """End the head, unless it is that of an interim response."""
        if self._has_head:
            return
        self.status = self._parser.get_status_code()
        if 100 <= self.status < 200 and self.status != 101:
            self.reason = ""
            self.headers.clear()
            return
        self._has_head = True
        self._wake()

    def on_body(self, piece: bytes) -> None:
        """Keep a piece, and receive no more if there are enough."""
        if self._is_complete:
            return
        self._pieces.append(piece)
        self._held += len(piece)
        self._size += len(piece)
        if self._held >= _MAX_HELD:
            if self._transport is not None:
                self._transport.pause_reading()
            self._wake()

    def on_message_complete(self) -> None:
        """End the response."""
        if self._has_head and not self._is_complete:
            self._is_complete = True
            self.is_reusable = self._parser.should_keep_alive()
            self._wake()
