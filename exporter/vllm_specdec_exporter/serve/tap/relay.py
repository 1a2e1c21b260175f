"""The two ends of a relayed connection: one to the client, one to the server."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

from ...upstream.connection import tls_cause
from .observer import ObservationContext, Observer, call_safely

Connect = Callable[["ServerSide"], "asyncio.Future[None] | Any"]


#: Receives bytes, of any connection, before they are copied.
_READ = memoryview(bytearray(64 * 1024))


#: Ends that read in an iteration of the event loop without a rest: 2 ms.
_READERS = 16


class ReadingTurns:
    """Lets the ends of a tap read in turn, so that probes and scrapes are served
    between the chunks of many streams.

    Attributes:
        at_once: bytes that an end reads at a time.
    """

    def __init__(self) -> None:
        self.at_once = len(_READ)
        self._readers = 0  # in this iteration
        self._resting = deque[RelayEnd]()

    def note(self, end: RelayEnd) -> None:
        """Count a read of `end`, which rests if many have read."""
        if self._readers == 0 and not self._resting:
            asyncio.get_running_loop().call_soon(self._next)
        self._readers += 1
        if self._readers > _READERS:
            end.rests = True
            self._resting.append(end)
            end.update_reading()

    def _next(self) -> None:
        self._readers = 0
        for _ in range(min(_READERS, len(self._resting))):
            end = self._resting.popleft()
            end.rests = False
            end.update_reading()
        if self._resting:
            asyncio.get_running_loop().call_soon(self._next)


class RelayEnd(asyncio.BufferedProtocol):
    """Base class of both ends.

    It reads as much at a time as its turns say, and nothing while the other end
    cannot send it on: a connection holds no more of it.
    """

    def __init__(self, turns: ReadingTurns) -> None:
        self._turns = turns
        self.rests = False
        self.transport: asyncio.Transport | None = None
        self.peer: RelayEnd | None = None
        self.ended = False  # the remote side has sent its last byte
        self.full = False  # its write buffer is full

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self.transport = cast("asyncio.Transport", transport)
        # 0 would stop asyncio's TLS for good
        self.transport.set_write_buffer_limits(high=1, low=0)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return a part of `_READ`."""
        return _READ[: self._turns.at_once]

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what was received."""
        self.data_received(bytes(_READ[:nbytes]))
        if self.peer is not None:
            self._turns.note(self)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on to the other end."""
        raise NotImplementedError

    def pause_writing(self) -> None:
        """Stop reading from the other end, because the write buffer of this one is
        full.
        """
        self.full = True
        if self.peer is not None:
            self.peer.update_reading()

    def resume_writing(self) -> None:
        """Resume reading from the other end."""
        self.full = False
        if self.peer is not None:
            self.peer.update_reading()

    def update_reading(self) -> None:
        """Read, unless the other end is full or this one rests."""
        if self.transport is None:
            return
        if self.rests or (self.peer is not None and self.peer.full):
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def half_close(self) -> bool:
        """End the bytes to this end, which may still send; return whether that is
        possible, which it is not over TLS to the server.
        """
        transport = self.transport
        if transport is None or transport.is_closing() or self.ended:
            return False
        if not transport.can_write_eof():
            return False
        transport.write_eof()
        return True

    def end(self, error: BaseException | None) -> None:
        """Close this connection like the other one: flushed and closed, or reset after
        an error.
        """
        if self.transport is None:
            return
        if error is None:
            self.transport.close()
        else:
            _reset(self.transport)


def _reset(transport: asyncio.Transport) -> None:
    """Close a connection with a TCP reset, so that a broken response does not look
    complete.
    """
    connection = transport.get_extra_info("socket")
    # over TLS there is none once the connection below is lost
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
    transport.abort()


#: Why connecting to the server failed: values of the label `reason`.
ERRORS = {
    "refused": "nothing listens on the address; usual while a model loads",
    "unreachable": "the address cannot be resolved or reached",
    "reset": "the connection was closed while it was established",
    "tls": "the TLS handshake failed",
    "timeout": "no connection within 10 seconds",
    "internal": "a defect of the tap; its log has the traceback",
}

#: Time between the end of the responses and closing, for a client that is still
#: sending, in seconds.
LINGER_SECONDS = 5.0
_REFUSED = f"[Errno {errno.ECONNREFUSED}]"


class UpstreamError(Exception):
    """Connecting to the server failed.

    Its text is for the client; `cause` is for the log, because it may name addresses
    and certificates of the operator.

    Attributes:
        reason: a key of `ERRORS`.
        cause: what failed, in the words of the library.
    """

    def __init__(self, reason: str, cause: str) -> None:
        super().__init__(ERRORS[reason])
        self.reason = reason
        self.cause = cause


class ClientSide(RelayEnd):
    """The end towards the client.

    Args:
        connect: connects a `ServerSide` to the server; raises `UpstreamError`.
        context: shared state of the observers.
        turns: those of all ends of the tap.
        count_error: receives the error of a failed connection to the server.
        closed: called when it has ended.
    """

    def __init__(
        self,
        connect: Connect,
        context: ObservationContext,
        turns: ReadingTurns,
        count_error: Callable[[UpstreamError], None],
        closed: Callable[[ClientSide], None],
    ) -> None:
        super().__init__(turns)
        self._connect = connect
        self._count_error = count_error
        self._closed = closed
        #: Begins the connection.
        self.beginning: asyncio.Task[object] | None = None
        self._pending: list[bytes] = []
        self._refused = False
        self._connecting: asyncio.Task[None] | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self.observer = Observer(context)

    @property
    def idle(self) -> bool:
        """Whether it is certain that no request is in progress."""
        return (
            not self.observer.busy
            and not self.observer.blind
            and self._connecting is None
        )

    @property
    def gone(self) -> bool:
        """Whether the client reset the connection after its last byte, when asyncio
        does not read it.
        """
        if not self.ended or self.transport is None:
            return False
        connection = self.transport.get_extra_info("socket")
        return bool(connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def data_received(self, data: bytes) -> None:
        """Pass bytes of the client on to the server; the first ones open the connection
        to it.
        """
        if self._refused:
            return
        if self.peer is None:
            # Not opened earlier: a probe that only connects costs the server nothing.
            self._pending.append(data)
            if self._connecting is None and self.transport is not None:
                self.transport.pause_reading()
                self._connecting = asyncio.create_task(
                    self._open(), name="tap connects"
                )
            return
        self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if self.peer is not None and self.peer.transport is not None:
            # Bytes first: whatever the observer does, they are on their way.
            self.peer.transport.write(data)
            call_safely(self.observer, self.observer.from_client, data)

    def response(self, data: bytes) -> None:
        """Pass bytes of the server on to the client."""
        if self.transport is not None:
            self.transport.write(data)
        call_safely(self.observer, self.observer.from_server, data)

    async def _open(self) -> None:
        server = ServerSide(self, self._turns)
        try:
            await self._connect(server)
            self._connecting = None
            self._begin(server)
        except UpstreamError as error:
            self.refuse(error)
        except Exception as error:  # noqa: BLE001 - a bug, but the client gets a response
            failure = UpstreamError("internal", f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            if self.peer is None:
                self.refuse(failure)
            else:
                self._count_error(failure)
                server.end(error)
                self.end(error)
        finally:
            self._connecting = None

    def _begin(self, server: ServerSide) -> None:
        """Relay to the server that was connected."""
        if self.transport is None or self.transport.is_closing():
            server.end(None)  # the client disconnected meanwhile
            return
        self.peer = server
        pending = self._pending
        self._pending = []
        for data in pending:
            self._pass_on(data)
        if self.ended and not server.half_close():
            self.end(None)
        else:
            self.update_reading()

    def refuse(self, error: UpstreamError) -> None:
        """Count an error of the server's connection, and respond with it."""
        self._count_error(error)
        if self.transport is None:
            return
        begun = b"".join(self._pending).lstrip(b"\r\n")
        self._refused = True
        self._pending.clear()
        self.transport.write(_refusal(error, begun))
        if self._linger():
            self.transport.resume_reading()
        else:
            self.transport.close()

    def _linger(self) -> bool:
        """Half-close the connection and close it after `LINGER_SECONDS`; return whether
        that is possible.

        Closing a socket with unread bytes resets the connection, and a client that is
        still sending could not read its response.
        """
        if not self.half_close():
            return False
        if self._lingering is None:
            loop = asyncio.get_running_loop()
            self._lingering = loop.call_later(LINGER_SECONDS, self.end, None)
        return True

    def eof_received(self) -> bool:
        """Half-close the server's connection too; the client may still read."""
        if self.transport is None:
            return False
        if self.peer is None and self._connecting is None:
            return False
        self.ended = True
        return self.peer is None or self.peer.half_close()

    def end_of_responses(self) -> bool:
        """Half-close this connection; return whether the server's stays open."""
        call_safely(self.observer, self.observer.server_ended)
        return not self.idle and self._linger()

    def connection_lost(self, error: Exception | None) -> None:
        """Close the server's connection in the same way."""
        self.transport = None
        if self._connecting is not None:
            self._connecting.cancel()
        if self._lingering is not None:
            self._lingering.cancel()
        if self.peer is not None:
            self.peer.end(error)
        call_safely(self.observer, self.observer.closed)
        self._closed(self)


class ServerSide(RelayEnd):
    """The end towards the server."""

    def __init__(self, client: ClientSide, turns: ReadingTurns) -> None:
        super().__init__(turns)
        self._client = client
        self._has_responded = False
        self.peer = client

    def data_received(self, data: bytes) -> None:
        """Pass bytes of the server on to the client."""
        self._has_responded = True
        self._client.response(data)

    def eof_received(self) -> bool:
        """Half-close the client's connection too; the server may still read."""
        self.ended = True
        if not self._client.end_of_responses() or self.transport is None:
            return False
        return self.transport.can_write_eof()

    def connection_lost(self, error: Exception | None) -> None:
        """Close the client's connection in the same way."""
        self.transport = None
        call_safely(self._client.observer, self._client.observer.closed)
        if isinstance(error, ssl.SSLError) and not self._has_responded:
            # TLS 1.3: the server rejects our certificate after our own handshake.
            self._client.refuse(connection_error(error))
        else:
            self._client.end(error)


def connection_error(error: OSError | UnicodeError) -> UpstreamError:
    """Return why a connection to the server failed."""
    if isinstance(error, ssl.SSLError):
        return UpstreamError("tls", tls_cause(error))
    cause = str(error)
    if isinstance(error, TimeoutError):
        return UpstreamError("timeout", cause)
    # For a host with several addresses, asyncio has the errors only as text.
    is_refused = isinstance(error, ConnectionRefusedError | FileNotFoundError)
    if is_refused or _REFUSED in cause:
        return UpstreamError("refused", cause)
    if isinstance(error, ConnectionError):
        return UpstreamError("reset", cause)
    return UpstreamError("unreachable", cause)


def _refusal(error: UpstreamError, request: bytes) -> bytes:
    """Return the response with the error, in the format of the API."""
    status = HTTPStatus.BAD_GATEWAY
    message = f"the server cannot be reached: {error}"
    if error.reason == "internal":
        # The server may be healthy, so it is not what failed.
        status = HTTPStatus.INTERNAL_SERVER_ERROR
        message = f"the request was not relayed: {error}"
    reason = {"message": message, "type": status.name.lower(), "code": status.value}
    body = json.dumps({"error": reason}).encode() + b"\n"
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    # Of a request, perhaps only a few bytes have arrived.
    is_head = request != b"" and b"HEAD ".startswith(request[:5])
    return head if is_head else head + body
