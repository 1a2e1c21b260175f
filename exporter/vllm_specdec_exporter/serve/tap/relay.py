"""One end of a connection: what that towards the client and that towards the server have in common."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import socket
import ssl
import struct
from typing import TYPE_CHECKING, Any, cast

from .observer import MAX_HELD, Observer, look

if TYPE_CHECKING:
    from collections.abc import Callable

    from .observer import ObservationContext
    from .usage_request import UsageRequests

    Connect = Callable[["ServerSide"], "asyncio.Future[None] | Any"]


class RelayEnd(asyncio.Protocol):
    """What both ends have in common."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: RelayEnd | None = None
        self.ended = False  # it sends no more
        self.full = False  # it takes no more for now

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self.transport = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        """Read no more from the other end: this one does not take it."""
        self.full = True
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the other end again."""
        self.full = False
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def end(self, error: BaseException | None) -> None:
        """End this connection as the other one ended: in order, after what is still to be sent, or broken."""
        if self.transport is None:
            return
        if error is None:
            self.transport.close()
        else:
            break_off(self.transport)


def break_off(transport: asyncio.Transport) -> None:
    """End a connection with a reset, where there is such a thing: in order, it might look complete."""
    with contextlib.suppress(OSError):
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


#: Why the server could not be connected to: values of the label `reason`.
ERRORS = {
    "refused": "nothing listens at the address: usual while a model loads",
    "unreachable": "the address cannot be resolved or reached",
    "reset": "the connection was closed before it was made",
    "tls": "no trusted TLS connection",
    "timeout": "no connection within the time for one",
}

#: Time that a client has to send what it is at, after it was told that nothing more comes, in seconds.
LINGER_SECONDS = 5.0

_REFUSED = f"[Errno {errno.ECONNREFUSED}]"


class UpstreamError(Exception):
    """The server could not be connected to, for `reason` of `ERRORS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(ERRORS[reason])
        self.reason = reason


class ClientSide(RelayEnd):
    """The end towards the client.

    Args:
        connect: connects a `ServerSide` to the server; raises `UpstreamError`.
        watch: what observers share.
        asking: asks streams for usage; ``None`` to leave every byte as it is.
        count_error: takes the reason of a connection to the server that failed.
        enter: called when the connection has begun, with TLS after its handshake.
        leave: called when it has ended.
    """

    def __init__(
        self,
        connect: Connect,
        watch: ObservationContext,
        asking: UsageRequests | None,
        count_error: Callable[[str], None],
        enter: Callable[[ClientSide], None],
        leave: Callable[[ClientSide], None],
    ) -> None:
        super().__init__()
        self._connect = connect
        self._watch = watch
        self._count_error = count_error
        self._enter = enter
        self._leave = leave
        self._waiting: list[bytes] = []
        self._refused = False
        self._connecting: asyncio.Task[None] | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._asking = asking
        self._held = 0
        self.observer = Observer(watch)

    @property
    def idle(self) -> bool:
        """Whether no request is under way, as far as can be told."""
        waits = self._connecting is not None or (self._asking is not None and self._asking.waits)
        return not self.observer.busy and not self.observer.blind and not waits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        super().connection_made(transport)
        self._enter(self)

    def leave(self) -> None:
        """End the connection after what is still to be sent."""
        self.end(None)

    def data_received(self, data: bytes) -> None:
        """Pass on what the client sends."""
        if self._refused:
            return
        if self.peer is None:
            # The first bytes make the connection: a probe that only knocks costs the server nothing.
            self._waiting.append(data)
            if self._connecting is None and self.transport is not None:
                self.transport.pause_reading()
                self._connecting = asyncio.create_task(self._open(), name="tap connects")
            return
        self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        if self._asking is not None:
            alone = not self.observer.busy and not self.observer.blind
            data = self._asking.request(data, alone=alone)
            if self._weigh() > MAX_HELD and self._asking.waits:
                data += self._asking.release()
                self._weigh()
        self._send(data)

    def _send(self, data: bytes) -> None:
        if data and self.peer is not None and self.peer.transport is not None:
            self.peer.transport.write(data)
            look(self.observer, self.observer.from_client, data)

    def _weigh(self) -> int:
        """Count what is held back of a request; return what all connections hold."""
        held = self._asking.held if self._asking is not None else 0
        self._watch.held += held - self._held
        self._held = held
        return self._watch.held

    def answer(self, data: bytes) -> None:
        """Pass on what the server sends."""
        out = data if self._asking is None else self._asking.answer(data)
        if out and self.transport is not None:
            self.transport.write(out)
        look(self.observer, self.observer.from_server, data)

    async def _open(self) -> None:
        server = ServerSide(self)
        try:
            await self._connect(server)
        except UpstreamError as error:
            self._count_error(error.reason)
            self._refuse(error)
            return
        finally:
            self._connecting = None
        if self.transport is None or self.transport.is_closing():
            server.end(None)  # the client left meanwhile
            return
        self.peer = server
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            self._pass_on(data)
        if self.ended and not self._end_of_requests():
            self.end(None)
        elif not server.full:
            self.transport.resume_reading()

    def _refuse(self, error: UpstreamError) -> None:
        """Say in HTTP that there is no server."""
        if self.transport is None:
            return
        begun = b"".join(self._waiting).lstrip(b"\r\n")
        self._refused = True
        self._waiting.clear()
        self.transport.write(_refusal(error, begun))
        if self._linger():
            self.transport.resume_reading()
        else:
            self.transport.close()

    def _linger(self) -> bool:
        """Tell the client that nothing more comes, and give it time; return whether that can be.

        Whoever closes with bytes unread resets the connection, and a client that is still sending would not
        get to read what it was answered.
        """
        transport = self.transport
        if transport is None or transport.is_closing() or self.ended or not transport.can_write_eof():
            return False
        transport.write_eof()
        if self._lingering is None:
            loop = asyncio.get_running_loop()
            self._lingering = loop.call_later(LINGER_SECONDS, self.end, None)
        return True

    def eof_received(self) -> bool:
        """Pass on that the client sends no more; it may still read."""
        if self.transport is None or self.transport.get_extra_info("sslcontext") is not None:
            return False  # TLS knows no half-closed connection
        if self.peer is None and self._connecting is None:
            return False
        self.ended = True
        return self.peer is None or self._end_of_requests()

    def _end_of_requests(self) -> bool:
        """Pass on that the client sends no more; tell whether the connection goes on."""
        if self._asking is not None:
            self._send(self._asking.release())
            self._weigh()
        server = self.peer
        if server is None or server.ended or server.transport is None or server.transport.is_closing():
            return False
        if not server.transport.can_write_eof():
            return False
        server.transport.write_eof()
        return True

    def end_of_answers(self) -> bool:
        """Pass on that the server sends no more; tell whether its connection goes on."""
        out = self._asking.end_of_answers() if self._asking is not None else b""
        if out and self.transport is not None:
            self.transport.write(out)
        look(self.observer, self.observer.server_ended)
        return not self.idle and self._linger()

    def connection_lost(self, error: Exception | None) -> None:
        """End the server's connection as this one ended."""
        self.transport = None
        if self._connecting is not None:
            self._connecting.cancel()
        if self._lingering is not None:
            self._lingering.cancel()
        if self.peer is not None:
            self.peer.end(error)
        look(self.observer, self.observer.closed)
        self._asking = None
        self._weigh()
        self._leave(self)


class ServerSide(RelayEnd):
    """The end towards the server."""

    def __init__(self, client: ClientSide) -> None:
        super().__init__()
        self._client = client
        self.peer = client

    def data_received(self, data: bytes) -> None:
        """Pass on what the server sends."""
        self._client.answer(data)

    def eof_received(self) -> bool:
        """Pass on that the server sends no more; it may still take what the client is sending."""
        self.ended = True
        goes_on = self._client.end_of_answers()
        return goes_on and self.transport is not None and self.transport.can_write_eof()

    def connection_lost(self, error: Exception | None) -> None:
        """End the client's connection as this one ended."""
        self.transport = None
        look(self._client.observer, self._client.observer.closed)
        self._client.end(error)


def translate(error: BaseException) -> UpstreamError:
    """Return why the server could not be connected to."""
    if isinstance(error, ssl.SSLError):
        return UpstreamError("tls")
    if isinstance(error, TimeoutError):
        return UpstreamError("timeout")
    # Of several addresses of a host, asyncio has the errors as text only.
    if isinstance(error, ConnectionRefusedError | FileNotFoundError) or _REFUSED in str(error):
        return UpstreamError("refused")
    if isinstance(error, ConnectionError):
        return UpstreamError("reset")
    return UpstreamError("unreachable")


def _refusal(error: UpstreamError, request: bytes) -> bytes:
    """Return the answer to a request, as far as it came, in the form in which the API has errors."""
    what = {"message": f"the server cannot be reached: {error}", "type": "bad_gateway", "code": 502}
    body = json.dumps({"error": what}).encode() + b"\n"
    head = (
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    heads_only = request != b"" and b"HEAD ".startswith(request[:5])
    return head.encode() if heads_only else head.encode() + body
