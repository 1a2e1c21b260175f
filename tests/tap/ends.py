"""Clients and servers at both ends of a tap; tests determine every byte.

Helpers wait for bytes or for the end of a connection, never for time to pass, and fail
after `PATIENCE`.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from support.closing import stop_accepting
from vllm_specdec_exporter.config.values import parse_target
from vllm_specdec_exporter.listener.sockets import Listener
from vllm_specdec_exporter.per_request.grouping import Classification
from vllm_specdec_exporter.per_request.observation import Observation
from vllm_specdec_exporter.per_request.summary import TapResult
from vllm_specdec_exporter.serve.tap import tap as tap_module
from vllm_specdec_exporter.serve.tap.tap import Tap
from vllm_specdec_exporter.settings.request_options import TapConfig

#: Longer than anything here takes on a busy machine.
PATIENCE = 100.0

HOST = "127.0.0.1"


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - anything may be the condition
            await asyncio.sleep(0.005)


class End:
    """One end of a connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send."""
        self.writer.write(data)
        async with asyncio.timeout(PATIENCE):
            await self.writer.drain()

    async def read(self, count: int) -> bytes:
        """Read so many bytes; fewer if the connection ends."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.readexactly(count)
            except asyncio.IncompleteReadError as error:
                return error.partial

    async def read_head(self) -> bytes:
        """Read up to an empty line."""
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def rest(self) -> tuple[bytes, str]:
        """Read to the end; return the bytes and how the connection ended, ``end`` or
        ``reset``.
        """
        data_read = b""
        async with asyncio.timeout(PATIENCE):
            try:
                while data := await self.reader.read(1 << 16):
                    data_read += data
            except OSError:
                return data_read, "reset"
        return data_read, "end"

    def end(self) -> None:
        """Half-close the connection."""
        self.writer.write_eof()

    async def close(self) -> None:
        """Close."""
        self.writer.close()
        with contextlib.suppress(OSError):
            async with asyncio.timeout(PATIENCE):
                await self.writer.wait_closed()

    def reset(self) -> None:
        """Close with a TCP reset."""
        connection = self.writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        self.writer.transport.abort()


class Server:
    """A server without behaviour: tests take its connections."""

    def __init__(self) -> None:
        self.accepted: asyncio.Queue[End] = asyncio.Queue()
        self.ends: list[End] = []
        self.url = ""

    async def connection(self) -> End:
        """Return the next connection."""
        async with asyncio.timeout(PATIENCE):
            return await self.accepted.get()

    def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection."""
        end = End(reader, writer)
        self.ends.append(end)
        self.accepted.put_nowait(end)


@asynccontextmanager
async def serving(
    *, port: int = 0, unix: str = "", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """Run a `Server`."""
    server = Server()
    if unix:
        listening = await asyncio.start_unix_server(server.take, unix)
        server.url = f"unix:{unix}"
    else:
        listening = await asyncio.start_server(server.take, HOST, port, ssl=tls)
        address = listening.sockets[0].getsockname()
        server.url = f"http{'s' if tls else ''}://{HOST}:{address[1]}"
    try:
        yield server
    finally:
        await stop_accepting(listening.sockets)
        listening.close()
        for end in server.ends:
            # Python 3.11.2 cannot abort what is closed, with TLS
            if not end.writer.transport.is_closing():
                end.writer.transport.abort()
            await end.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(listening.wait_closed(), PATIENCE)


@dataclass
class Relay:
    """A tap that runs here."""

    tap: Tap
    listener: Listener
    observed: list[Observation] = field(default_factory=list)  # what it observed

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.listener.addresses[0].rpartition(":")[2])

    @property
    def result(self) -> TapResult:
        """What it counted."""
        return self.tap.result()

    @property
    def unobserved(self) -> dict[str, int]:
        """What it did not observe, by reason."""
        return {
            reason: count
            for reason, count in self.result.unobserved_total.items()
            if count
        }

    @property
    def errors(self) -> dict[str, int]:
        """Failed connections to the server, by reason."""
        return {
            reason: count
            for reason, count in self.result.upstream_errors_total.items()
            if count
        }

    @property
    def held(self) -> int:
        """Bytes that it buffers."""
        return self.tap._context.held

    async def becomes_quiet(self) -> None:
        """Wait until there are no connections."""
        await eventually(lambda: self.result.connections == 0)
        assert self.held == 0


@asynccontextmanager
async def tapping(
    url: str, *, drain: float = 0.0, trust: ssl.SSLContext | None = None
) -> AsyncIterator[Relay]:
    """Run a tap before the server at `url`, with TLS towards the server; nothing of it
    is left.
    """
    listener = await Listener.open(HOST, 0)
    port = int(listener.addresses[0].rpartition(":")[2])
    config = TapConfig((HOST, port), parse_target(url), "", drain)

    async def trusted() -> ssl.SSLContext:
        return trust

    tap = Tap(config)
    # The process would read its trust from a file.
    tap._tls = trusted if trust is not None else None
    relay = Relay(tap, listener)
    tap.use(Classification(), relay.observed.append)
    listener.serve(tap.accept)
    # Only tasks of the tap count at the end: tests have others.
    tasks = asyncio.all_tasks()
    try:
        yield relay
    finally:
        listener.close()
        await tap.stop()
        assert not tap.result().connections
        assert relay.held == 0
        left = [
            task
            for task in asyncio.all_tasks() - tasks
            if task.get_name() == "tap connects"
        ]
        assert not left


async def connect(port: int, tls: ssl.SSLContext | None = None) -> End:
    """Connect as a client."""
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection(HOST, port, ssl=tls)
    return End(reader, writer)


async def reaches(client: End, upstream: Server, data: bytes) -> End:
    """Send the first bytes of a connection; return its other end, which read them."""
    await client.send(data)
    server = await upstream.connection()
    assert await server.read(len(data)) == data
    return server


async def passes(sender: End, receiver: End, data: bytes) -> None:
    """Send bytes, which arrive as they are."""
    sending = asyncio.create_task(sender.send(data))
    assert await receiver.read(len(data)) == data
    await sending


async def leaves(client: End, server: End) -> None:
    """Close the client's connection; the server's is closed too."""
    await client.close()
    assert await server.rest() == (b"", "end")
    await server.close()


@dataclass
class Road:
    """A tap and the server behind it."""

    server: Server
    relay: Relay

    @property
    def port(self) -> int:
        """Where clients connect."""
        return self.relay.port

    async def both(self, first: bytes) -> tuple[End, End]:
        """Return both ends of a new connection, after the client sent `first` and the
        server read it.
        """
        client = await connect(self.port)
        return client, await reaches(client, self.server, first)


@asynccontextmanager
async def road(**more: Any) -> AsyncIterator[Road]:
    """Run a server and a tap, with `PATIENCE` for connections; at the end there are no
    connections.
    """
    with pytest.MonkeyPatch.context() as patch:
        # Its own limit is one for production: a busy machine may take longer.
        patch.setattr(tap_module, "CONNECT_SECONDS", PATIENCE)
        async with serving() as server, tapping(server.url, **more) as relay:
            yield Road(server, relay)
        await relay.becomes_quiet()


@dataclass
class Late:
    """Connections to servers that are made later."""

    #: Set once one is being made.
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)  # lets them be made


def late(monkeypatch: pytest.MonkeyPatch) -> Late:
    """Let new connections of this loop be made only once `go` is set."""
    connections = Late()
    loop = asyncio.get_running_loop()
    made = loop.create_connection

    async def create(*args: Any, **more: Any) -> object:
        connections.begun.set()
        try:
            await connections.go.wait()
        except asyncio.CancelledError:
            more["sock"].close()  # as the loop does with a connection that is given up
            raise
        return await made(*args, **more)

    monkeypatch.setattr(loop, "create_connection", create)
    return connections
