"""Servers to point the exporter at, that answer or misbehave as a test says."""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

from support import builders
from support.builders import DATA, OPENMETRICS
from support.builders import final_answer as capture
from support.closing import turns

T = TypeVar("T")

CLASSIC = "text/plain; version=0.0.4; charset=utf-8"


__all__ = ["DATA", "OPENMETRICS", "capture"]


@cache
def series(scenario: str) -> tuple[bytes, ...]:
    """The answers of a recorded scenario, one a second."""
    return tuple(body for _, body in builders.series(scenario))


# --- servers


@dataclass(frozen=True)
class Request:
    """What a server was asked; values of a header that came more than once are joined
    as HTTP has it.
    """

    method: str
    path: str
    headers: Mapping[str, str]


class Peer:
    """The other end of one connection, as a behaviour sees it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader = reader
        self._writer = writer

    async def read_request(self) -> Request:
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").splitlines()
        method, path, _ = first.split(" ", 2)
        values: defaultdict[str, list[str]] = defaultdict(list)
        for line in filter(None, lines):
            name, _, value = line.partition(":")
            values[name.lower()].append(value.strip())
        headers = {name: ", ".join(parts) for name, parts in values.items()}
        return Request(method, path, headers)

    async def read(self, count: int) -> bytes:
        return await self._reader.readexactly(count)

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        """End the connection in good order."""
        self._writer.close()

    async def wait_closed(self) -> None:
        await self._writer.wait_closed()

    def reset(self) -> None:
        """End the connection with a reset instead of a farewell."""
        connection = self._writer.get_extra_info("socket")
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        self._writer.transport.abort()


@dataclass(frozen=True)
class Behaviour:
    """What a server does with a connection, once it has read the request or at once."""

    run: Callable[[Peer], Awaitable[None]]
    reads_request: bool = True


def head(
    status: str = "200 OK", version: str = "1.1", **headers: str | int | None
) -> bytes:
    """The head of an answer; underscores in header names mean dashes, `None` leaves a
    header out.
    """
    lines = [f"HTTP/{version} {status}"]
    lines += [
        f"{name.replace('_', '-')}: {value}"
        for name, value in headers.items()
        if value is not None
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def raw(
    *parts: bytes | float, reads_request: bool = True, reset: bool = False
) -> Behaviour:
    """Send bytes, pause for seconds where a number stands, then close or reset."""

    async def run(peer: Peer) -> None:
        for part in parts:
            if isinstance(part, bytes):
                await peer.send(part)
            else:
                await asyncio.sleep(part)
        if reset:
            peer.reset()
        else:
            peer.close()

    return Behaviour(run, reads_request)


def answer(
    body: bytes,
    status: str = "200 OK",
    content_type: str = CLASSIC,
    **headers: str | int | None,
) -> Behaviour:
    """Answer with `body`, properly."""
    fields = {"Content_Type": content_type, "Content_Length": len(body), **headers}
    return raw(head(status, **fields) + body)


def status(text: str, **headers: str | int | None) -> Behaviour:
    """Answer with a status and a short body."""
    return answer(b"no metrics here\n", text, **headers)


def hang(*before: bytes, reads_request: bool = True) -> Behaviour:
    """Send these bytes and then nothing more, without ever closing."""
    return raw(*before, 3600.0, reads_request=reads_request)


def drip(before: bytes, drop: bytes, pause: float) -> Behaviour:
    """Send `drop` after each pause, without end."""

    async def run(peer: Peer) -> None:
        await peer.send(before)
        while True:
            await peer.send(drop)
            await asyncio.sleep(pause)

    return Behaviour(run)


def flood(before: bytes, block: bytes) -> Behaviour:
    """Send `block` over and over as fast as it is taken."""
    return drip(before, block, 0)


def chunked(
    *chunks: bytes, end: bytes = b"0\r\n\r\n", **headers: str | int | None
) -> Behaviour:
    """Answer in chunks."""
    blocks = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks]
    fields = {"Content_Type": CLASSIC, "Transfer_Encoding": "chunked", **headers}
    return raw(head(**fields), *blocks, end)


def sequence(bodies: Iterable[bytes]) -> Behaviour:
    """Answer one request after the other with these bodies, and from then on with the
    last.
    """
    left = list(bodies)

    async def run(peer: Peer) -> None:
        body = left.pop(0) if len(left) > 1 else left[0]
        await answer(body).run(peer)

    return Behaviour(run)


def replay(start: int = 5) -> Behaviour:
    """Answer with what a real vLLM answered, second by second."""
    return sequence(series("ngram-phases")[start:])


class FaultyServer:
    """A server in a thread of its own that does with each connection what its behaviour
    says.
    """

    def __init__(
        self,
        behaviour: Behaviour,
        *,
        host: str = "127.0.0.1",
        unix: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.behaviour = behaviour  # may be assigned anew at any time
        self.version = status("404 Not Found")  # of /version and /server_info
        # in order, without those that a behaviour did not read
        self.requests: list[Request] = []
        self.connections = 0  # accepted so far
        self.port = 0
        self._host = host
        self._unix = unix
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        if self._unix:
            return f"unix:{self._unix}"
        scheme = "https" if self._tls else "http"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{scheme}://{host}:{self.port}"

    def polls(self) -> list[Request]:
        """The requests so far, without those for the version."""
        return [
            request
            for request in list(self.requests)
            if not request.path.endswith("/version")
        ]

    def __enter__(self) -> Self:
        self._thread.start()
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        self._run(self._hang_up())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    def listen(self) -> None:
        """Accept connections, after `refuse` at the same address as before."""
        self._run(self._listen())

    def refuse(self) -> None:
        """Accept no more connections."""
        if self._listener is not None:
            self._run(self._close_listener())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    async def _listen(self) -> None:
        if self._unix:
            self._unix.unlink(missing_ok=True)
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(self._unix))
            self._listener.listen()
        else:
            family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
            self._listener = socket.create_server(
                (self._host, self.port), family=family
            )
            self.port = self._listener.getsockname()[1]
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener, self._accept, self._listener)

    async def _close_listener(self) -> None:
        self._loop.remove_reader(self._listener)
        self._listener.close()
        self._listener = None

    async def _hang_up(self) -> None:
        # A task that never began would not close its connection.
        await turns(2)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Transports close one turn of the loop after they were told to, TLS ones a few
        # turns.
        await turns(10)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # it went away again
        connection.setblocking(False)
        self.connections += 1
        task = self._loop.create_task(self._serve(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        # The other side may go away at any time, also within the handshake: that is its
        # right.
        gone = contextlib.suppress(OSError, asyncio.IncompleteReadError)
        with contextlib.closing(connection), gone:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            try:
                await self._behave(Peer(reader, writer))
            finally:
                transport.abort()
                await asyncio.sleep(0)

    async def _behave(self, peer: Peer) -> None:
        behaviour = self.behaviour
        if behaviour.reads_request:
            asked = await peer.read_request()
            self.requests.append(asked)
            if asked.path.endswith(("/version", "/server_info")):
                behaviour = self.version
        await behaviour.run(peer)
        await peer.wait_closed()
