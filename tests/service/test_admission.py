"""How many connections are served at a time, and how long each may take: nobody keeps
out the others.
"""

import asyncio
import contextlib
import errno
import re
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from aiohttp import web

from faults.rig import connect, get
from support.certificates import Authority, server_side
from support.closing import turns
from support.exporter import NO_SERVER, request, running_exporter
from support.ports import free_port
from support.programs import eventually
from tap import ends
from vllm_specdec_exporter.listener import connection_limits as module
from vllm_specdec_exporter.listener import sockets
from vllm_specdec_exporter.listener.connection_limits import (
    Connection,
    ConnectionLimiter,
)
from vllm_specdec_exporter.listener.peers import Turns, peer_key
from vllm_specdec_exporter.listener.sockets import Listener
from vllm_specdec_exporter.serve import request_intake

TOKEN = "a-token-for-tests"
#: A body that no socket buffer takes whole.
LARGE = bytes(32 * 1024 * 1024)
#: The beginning of a push, with which a request stays under way.
HALF_PUSH = (
    f"POST /api/v1/requests HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    "Content-Length: 100\r\n\r\n{"
).encode()


def test_one_client_leaves_room_for_others(tmp_path: Path) -> None:
    """However many requests one address has under way, it gets no more, and another
    address is answered.
    """
    (tmp_path / "token").write_text(TOKEN)
    flags = ("--push.bearer-token-file", str(tmp_path / "token"))
    with contextlib.ExitStack() as stack:
        exporter = stack.enter_context(
            # on all addresses, so that 127.0.0.2 is another client
            running_exporter(*NO_SERVER, *flags, "--web.listen-address", ":0")
        )
        port = int(re.search(r"0\.0\.0\.0:(\d+)", exporter.log())[1])
        exporter.url = f"http://127.0.0.1:{port}"

        def is_refused() -> bool:
            with contextlib.suppress(ConnectionError):
                stack.enter_context(connect(exporter.url)).sendall(HALF_PUSH)
            try:
                return exporter.get("/metrics").status != 200
            except OSError:
                return True

        eventually(is_refused)
        answer = request(f"http://127.0.0.2:{port}/metrics", source="127.0.0.2")
        assert answer.status == 200


# --- in this process, where limits can be made small


def port_of(listener: Listener) -> int:
    return int(listener.addresses[0].rpartition(":")[2])


@contextlib.asynccontextmanager
async def serving(
    app: web.Application, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[ConnectionLimiter, int]]:
    """Serve an application behind a limiter; yield that and the port."""
    limiter = ConnectionLimiter()
    runner = await limiter.set_up(app)
    listener = await Listener.open("127.0.0.1", 0)
    limiter.context = tls
    listener.serve(limiter.accept)
    yield limiter, port_of(listener)
    listener.close()
    await runner.cleanup()


@pytest.fixture
async def served(
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[tuple[ConnectionLimiter, int]]:
    """An application with a large answer, and one that never comes, behind short
    limits.
    """
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 3)
    # All clients of these tests have one address.
    monkeypatch.setattr(module, "SHARE_OF_ONE_PEER", 1.0)

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=LARGE)

    async def wait(_request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    app = web.Application()
    app.router.add_get("/answer", answer)
    app.router.add_get("/wait", wait)
    async with serving(app) as served:
        yield served


def asked(limiter: ConnectionLimiter) -> int:
    """How many connections wait for their answer."""
    return sum(connection.is_asked for connection in limiter.connections)


async def _ended(client: ends.End) -> bool:
    """Whether the connection ends without another byte."""
    return (await client.rest())[0] == b""


async def test_an_answer_that_nobody_takes(
    served: tuple[ConnectionLimiter, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection ends, and takes no place any more."""
    monkeypatch.setattr(module, "RESPONSE_SECONDS", 1.0)
    limiter, port = served
    client = await ends.connect(port)
    await client.send(get("/answer"))
    await ends.eventually(lambda: len(limiter.connections) == 1)
    await ends.eventually(lambda: not limiter.connections)
    await client.close()


async def test_an_answer_that_is_taken(served: tuple[ConnectionLimiter, int]) -> None:
    """All of it comes, and the connection stays for the next request; those sent ahead
    come in order.
    """
    _, port = served
    client = await ends.connect(port)
    for ahead in (1, 2):
        await client.send(get("/answer") * ahead)
        for number in range(ahead):
            head = await client.read_head()
            assert head.startswith(b"HTTP/1.1 200 OK\r\n"), (ahead, number)
            assert await client.read(len(LARGE)) == LARGE, (ahead, number)
        await asyncio.sleep(0.6)  # longer than an unused connection may be silent
    await client.close()


async def test_a_push_that_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client is told, and it counts as rejected."""
    monkeypatch.setattr(request_intake, "_BODY_SECONDS", 0.3)
    (tmp_path / "token").write_text(TOKEN)
    app = web.Application()
    intake = Mock()
    request_intake.add_push(app, intake, str(tmp_path / "token"))
    async with serving(app) as (_, port):
        client = await ends.connect(port)
        await client.send(HALF_PUSH)
        assert (await client.read_head()).startswith(b"HTTP/1.1 408 ")
        await client.close()
    intake.reject.assert_called_once_with(1)


async def test_an_idle_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """So long after its last answer."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.3)
    async with serving(web.Application()) as (_, port):
        client = await ends.connect(port)
        await client.send(get("/nothing"))
        assert (await client.read_head()).startswith(b"HTTP/1.1 404 ")
        rest, _ = await client.rest()
        assert rest.startswith(b"404")
        await client.close()


@pytest.mark.parametrize(
    ("begun", "further"),
    [
        (b"", b""),
        (b"GET /answer HT", b""),
        (get("/answer")[:-2], b"X"),
        (b"\r\n\r\n", b""),
    ],
)
async def test_an_incomplete_request(
    served: tuple[ConnectionLimiter, int], begun: bytes, further: bytes
) -> None:
    """A client that does not finish the head of a request is cut off, however slowly it
    goes on.
    """
    _, port = served
    client = await ends.connect(port)
    await client.send(begun)
    ended = asyncio.ensure_future(_ended(client))
    while not ended.done():
        client.writer.write(further)
        await asyncio.sleep(0.1)
    assert await ended
    await client.close()


async def test_all_are_busy(served: tuple[ConnectionLimiter, int]) -> None:
    """A new connection ends the one that is idle; where a request is processed on all,
    it is refused.
    """
    limiter, port = served
    idle, *busy = [await ends.connect(port) for _ in range(3)]
    for client in busy:
        await client.send(get("/wait"))
    await ends.eventually(lambda: asked(limiter) == 2)
    busy.append(await ends.connect(port))
    assert await _ended(idle)
    await busy[-1].send(get("/wait"))
    await ends.eventually(lambda: asked(limiter) == 3)
    refused = await ends.connect(port)
    assert await _ended(refused)
    assert len(limiter.connections) == 3
    for client in (idle, refused, *busy):
        await client.close()


async def test_handshakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They count as connections from the beginning, and have a deadline; a complete one
    is served.
    """
    monkeypatch.setattr(module, "HANDSHAKE_SECONDS", 1.0)
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(module, "SHARE_OF_ONE_PEER", 1.0)
    authority = Authority(tmp_path, "authority")
    context = server_side(authority.issue("127.0.0.1"))
    async with serving(web.Application(), context) as (limiter, port):
        silent = [await ends.connect(port) for _ in range(5)]
        assert await _ended(silent[0])

        trust = ssl.create_default_context(cafile=str(authority.file))
        client = await ends.connect(port, trust)
        await client.send(b"GET /nothing HTTP/1.0\r\n\r\n")
        assert (await client.rest())[0].startswith(b"HTTP/1.0 404 ")
        assert all([await _ended(waiting) for waiting in silent])
        await ends.eventually(lambda: not limiter.connections)
        for connected in (client, *silent):
            await connected.close()


@pytest.mark.parametrize(
    ("size", "is_asked"), [(100, False), (101, False), (101, True)]
)
async def test_reading_ahead_is_limited(
    monkeypatch: pytest.MonkeyPatch, size: int, is_asked: bool
) -> None:
    """A head over its limit in one read ends its connection; what is sent ahead of an
    answer waits.
    """
    monkeypatch.setattr(module, "MAX_HEAD", 100)
    limiter = ConnectionLimiter()
    runner = await limiter.set_up(web.Application())
    connection = Connection(limiter, "192.0.2.7")
    transport = Mock(spec=asyncio.Transport, **{"get_extra_info.return_value": None})
    connection.connection_made(transport)
    # An answer counts as received when the client has it, not when it is buffered.
    transport.set_write_buffer_limits.assert_called_once_with(high=1, low=0)
    connection.is_asked = is_asked
    connection.get_buffer(-1)[:size] = b"GET / HTTP/1.1\r\nX: ".ljust(size, b"x")
    connection.buffer_updated(size)
    assert transport.abort.called is (size > 100 and not is_asked)
    assert transport.pause_reading.called is is_asked
    await asyncio.sleep(0)
    connection.connection_lost(None)
    assert not limiter.connections
    await runner.cleanup()


async def test_many_that_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds from the moment when a connection is accepted."""
    # a fifth of them for one address
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 25)
    limiter = ConnectionLimiter()
    runner = await limiter.set_up(web.Application())
    accepted = [Mock(spec=socket.socket) for _ in range(40)]
    for each in accepted:
        limiter.accept(each, "192.0.2.7")
    assert len(limiter.connections) == 5
    await turns(2)
    assert [each.close.called for each in accepted] == [True] * 35 + [False] * 5
    limiter.retire(at_once=True)
    await runner.cleanup()


def test_a_network_of_addresses_is_one_peer() -> None:
    """Whoever has a network of addresses is one peer all the same."""
    peers = {
        "192.0.2.7": "192.0.2.7",
        "::ffff:192.0.2.7": "192.0.2.7",
        "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
        "fe80::1%eth0": "fe80::/64",
        "": "",
    }
    assert {address: peer_key(address) for address in peers} == peers


async def test_the_wildcard_of_ipv6_is_both_families() -> None:
    """As in Go programs: a Prometheus that scrapes the IPv4 address of a pod reaches
    it.
    """
    listener = await Listener.open("::", free_port())
    hosts = sorted(address.rpartition(":")[0] for address in listener.addresses)
    listener.close()
    assert hosts == ["0.0.0.0", "[::]"]


async def test_an_error_ends_one_connection_and_not_the_listener(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged, and the next client is served."""

    def accept(connection: socket.socket, _peer: str) -> None:
        if not caplog.records:
            raise RuntimeError("no connection")
        connection.sendall(b"hello")
        connection.close()

    async def answer() -> bytes:
        client = await ends.connect(port_of(listener))
        read, _ = await client.rest()
        await client.close()
        return read

    listener = await Listener.open("127.0.0.1", 0)
    listener.serve(accept)
    try:
        assert [await answer(), await answer()] == [b"", b"hello"]
    finally:
        listener.close()
    (record,) = caplog.records
    assert record.getMessage() == "cannot serve a connection"


async def test_a_connection_that_cannot_begin(caplog: pytest.LogCaptureFixture) -> None:
    """It takes no place any more, and is logged."""
    limiter = ConnectionLimiter()
    runner = await limiter.set_up(web.Application())
    accepted = Mock(spec=socket.socket, type=socket.SOCK_DGRAM)
    limiter.accept(accepted, "192.0.2.7")
    await ends.eventually(lambda: not limiter.connections)
    assert accepted.close.called
    (record,) = caplog.records
    assert record.getMessage() == "cannot serve a connection"
    await runner.cleanup()


class _OutOfDescriptors(socket.socket):
    """A listening socket that lacks a descriptor once."""

    accepted = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.accepted += 1
        if self.accepted == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_a_lack_of_descriptors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is accepted is served, and the rest a little later; one line is logged."""
    monkeypatch.setattr(sockets, "_PAUSE_SECONDS", 0.05)
    listener = await Listener.open("127.0.0.1", 0)
    listener._sockets = [
        _OutOfDescriptors(fileno=bound.detach()) for bound in listener._sockets
    ]
    served = []
    listener.serve(lambda connection, _: served.append(connection))
    with (
        socket.create_connection(("127.0.0.1", port_of(listener))),
        socket.create_connection(("127.0.0.1", port_of(listener))),
    ):
        await ends.eventually(lambda: len(served) == 2)
    listener.close()
    for connection in served:
        connection.close()
    (record,) = caplog.records
    assert record.getMessage() == "cannot accept connections"


async def test_addresses_take_turns() -> None:
    """One that waits many times delays another by one turn; one that leaves, nobody."""
    locks = Turns()
    order = []

    async def wait(peer: str) -> None:
        async with locks.take(peer):
            order.append(peer)
            await asyncio.sleep(0)

    waiting = [asyncio.create_task(wait(peer)) for peer in ("a", *"aaaaa", "b", "c")]
    await asyncio.sleep(0)
    waiting[1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert "".join(order) == "abcaaaa"
