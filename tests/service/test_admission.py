"""How many are served at a time, and how long each may take: nobody keeps out the others."""

import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from support.certificates import Authority, server_side
from support.exporter import RunningExporter, request, running_exporter
from support.programs import eventually
from vllm_specdec_exporter.serve import connection_limits as module
from vllm_specdec_exporter.serve.connection_limits import ConnectionLimiter
from vllm_specdec_exporter.serve.sockets import Listener

NO_SERVER = ("--vllm.url", "http://127.0.0.1:1")
TOKEN = "a-token-for-tests"
REQUEST = b"GET /answer HTTP/1.1\r\nHost: x\r\n\r\n"


#: The beginning of a push, with which a request stays under way.
HALF_PUSH = (
    f"POST /api/v1/requests HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    "Content-Length: 100\r\n\r\n{"
).encode()


def connected(exporter: RunningExporter, sent: bytes) -> socket.socket:
    """A client that has sent this, and no more."""
    parts = urlsplit(exporter.url)
    client = socket.create_connection((parts.hostname, parts.port), timeout=20)
    client.sendall(sent)
    return client


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    (tmp_path / "token").write_text(TOKEN)
    return str(tmp_path / "token")


def test_too_many_requests(token_file: str) -> None:
    """The request above the limit gets 503 with the reason; probes do not; it works again afterwards."""
    flags = ("--push.bearer-token-file", token_file, "--web.max-requests", "2")
    with running_exporter(*NO_SERVER, *flags) as exporter, contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(exporter, HALF_PUSH)) for _ in range(2)]
        refused = eventually(lambda: (answer := exporter.get("/metrics")).status == 503 and answer)
        assert refused.headers["retry-after"] == "1"
        assert "--web.max-requests" in refused.text
        assert exporter.get("/-/healthy").status == 200
        assert exporter.get("/-/ready").status == 200
        held[0].close()
        eventually(lambda: exporter.get("/metrics").status == 200)
        [line] = exporter.log_lines("too many requests at a time")
        assert line["web_max_requests"] == "2"


def test_one_client_leaves_room_for_others(token_file: str) -> None:
    """However many requests one address has under way, another address is answered."""
    flags = ("--push.bearer-token-file", token_file, "--web.listen-address", ":0")
    with contextlib.ExitStack() as stack:
        exporter = stack.enter_context(running_exporter(*NO_SERVER, *flags))
        port = int(re.search(r"0\.0\.0\.0:(\d+)", exporter.log())[1])  # type: ignore[index]
        exporter.url = f"http://127.0.0.1:{port}"
        for _ in range(60):
            stack.enter_context(connected(exporter, HALF_PUSH))
        eventually(lambda: exporter.get("/metrics").status == 503)
        assert request(f"http://127.0.0.2:{port}/metrics", source="127.0.0.2").status == 200


# --- in this process, where limits can be made small


@contextlib.asynccontextmanager
async def serving(
    app: web.Application, *tls: Any, **limits: int
) -> AsyncIterator[tuple[ConnectionLimiter, int]]:
    """Serve an application behind admission; yield that and the port."""
    admission = ConnectionLimiter(0)
    runner = await admission.set_up(app)
    listener = await Listener.open("127.0.0.1", 0, **limits)
    listener.serve(admission, *tls)
    yield admission, int(listener.addresses[0].rpartition(":")[2])
    listener.close()
    await runner.cleanup()


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ConnectionLimiter, int]]:
    """An application with a large answer, behind admission with short limits."""
    monkeypatch.setattr(module, "REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(module, "SHARE_OF_ONE_PEER", 1.0)

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=bytes(32 * 1024 * 1024))

    app = web.Application()
    app.router.add_get("/answer", answer)
    async with serving(app) as served:
        yield served


async def _ended(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(30):
            return await reader.read() == b""
    except ConnectionError:
        return True


async def test_an_answer_that_nobody_takes(
    served: tuple[ConnectionLimiter, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection ends, and does not count as being answered any more."""
    monkeypatch.setattr(module, "RESPONSE_SECONDS", 1.0)
    admission, port = served
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(REQUEST)
    await asyncio.to_thread(eventually, lambda: admission._active == 1)
    await asyncio.to_thread(eventually, lambda: not admission.server.connections)
    assert admission._active == 0
    writer.close()


async def test_an_answer_that_is_taken(served: tuple[ConnectionLimiter, int]) -> None:
    """All of it comes, and the connection stays for the next request."""
    _, port = served
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert await reader.readexactly(32 * 1024 * 1024) == bytes(32 * 1024 * 1024)
        await asyncio.sleep(0.6)  # longer than an unused connection may be silent
    writer.close()


@pytest.mark.parametrize("said", [b"", b"GET /answer HT", REQUEST[:-2]])
async def test_an_incomplete_request(served: tuple[ConnectionLimiter, int], said: bytes) -> None:
    """A client that connects and does not finish the head of a request is cut off."""
    _, port = served
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    assert await _ended(reader)
    writer.close()


async def test_all_are_busy(served: tuple[ConnectionLimiter, int]) -> None:
    """Where every connection is being answered, a further one is refused rather than one of them."""
    admission, port = served
    busy = [await asyncio.open_connection("127.0.0.1", port, limit=1024) for _ in range(3)]
    for _, writer in busy:
        writer.write(REQUEST)
    await asyncio.to_thread(eventually, lambda: admission._active == 3)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await _ended(reader)
    assert admission._active == 3
    for _, one in (*busy, (reader, writer)):
        one.close()


async def test_handshakes(tmp_path: Path) -> None:
    """A handshake above the limit ends the oldest, and its deadline ends it too; a complete one is served."""
    authority = Authority(tmp_path, "authority")
    context = server_side(authority.issue("127.0.0.1"))
    async with serving(web.Application(), context, 1.0, most_handshakes=3) as (_, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        assert await _ended(silent[0][0])
        assert await _ended(silent[1][0])

        trust = ssl.create_default_context(cafile=str(authority.file))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        writer.write(b"GET /nothing HTTP/1.0\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.0 404 ")
        assert all([await _ended(waiting) for waiting, _ in silent[2:]])
        for _, one in (*silent, (reader, writer)):
            one.close()


async def test_many_that_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit on connections holds also where many handshakes end in the same moment."""
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 20)  # a quarter of them for one address
    limiter = ConnectionLimiter(0)
    runner = await limiter.set_up(web.Application())
    said = {"get_extra_info.return_value": None, "is_closing.return_value": False}
    transports = [Mock(spec=asyncio.Transport, **said) for _ in range(40)]
    for made in transports:
        limiter().connection_made(made)
    taken = [made for made in transports if not made.abort.called]
    assert len(taken) == 5
    for made in taken:  # an answer counts as received when the client has it, not when it is buffered
        made.set_write_buffer_limits.assert_called_once_with(high=1, low=0)
    for made in transports:
        made.set_protocol.call_args.args[0].connection_lost(None)
    await runner.cleanup()
