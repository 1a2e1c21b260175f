"""Back-pressure through the tap: an end that does not read stops the other one; nothing is lost."""

import asyncio
import hashlib
import ssl
from pathlib import Path
from typing import Any

import pytest

from support.certificates import Authority, server_side
from tap.ends import HOST, End, connect, late, serving, tapping
from tap.streams import UPLOAD, chat_request, chunks, events, request, stream_head

#: Bytes that the tap and the buffers of the system may hold between two ends; most of `UPLOAD` has to wait.
_BETWEEN = UPLOAD // 2
_BLOCK = 1 << 16


async def _send(end: End, data: bytes, sent: list[int]) -> None:
    """Send, and count the bytes that were taken."""
    for place in range(0, len(data), _BLOCK):
        end.writer.write(data[place : place + _BLOCK])
        await end.writer.drain()
        sent[0] = place


async def _stalls(sent: list[int]) -> int:
    """Wait until no more is taken; return how much was."""
    before = -1
    while before != sent[0]:
        before = sent[0]
        await asyncio.sleep(0.2)  # the tap runs in the same loop: it had its turns
    return before


async def _waits_then_arrives(sender: End, reader: End, data: bytes) -> None:
    """An end that does not read stops the sender; then it reads, and gets every byte."""
    transport: Any = reader.writer.transport
    transport.pause_reading()
    sent = [0]
    sending = asyncio.create_task(_send(sender, data, sent))
    assert await _stalls(sent) < _BETWEEN
    transport.resume_reading()
    found = await reader.read(len(data))
    await sending
    assert hashlib.sha256(found).digest() == hashlib.sha256(data).digest()


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, ssl.SSLContext]:
    """TLS of the tap: towards clients, and towards the server."""
    authority = Authority(tmp_path, "authority")
    trust = ssl.create_default_context(cafile=str(authority.file))
    return {"listen": server_side(authority.issue(HOST)), "trust": trust}


@pytest.mark.parametrize("over_tls", [False, True])
async def test_an_end_that_does_not_read_makes_the_other_wait(
    over_tls: bool, tls: dict[str, ssl.SSLContext]
) -> None:
    """The tap takes in only what can go on: an upload waits at its client, an answer at its server."""
    secure: dict[str, Any] = tls if over_tls else {}
    async with (
        serving(tls=secure.get("listen")) as upstream,
        tapping(upstream.url, **secure) as relay,
    ):
        client = await connect(relay.port, secure.get("trust"))
        await client.send(request(b"", Content_Length=str(UPLOAD), Content_Type="audio/wav"))
        server = await upstream.connection()
        await server.read_head()
        await _waits_then_arrives(client, server, hashlib.shake_128(b"upload").digest(UPLOAD))
        assert relay.held < _BETWEEN

        await client.send(request(chat_request(stream=True)))
        await server.read_head()
        await server.send(stream_head())
        assert await client.read_head() == stream_head()
        event = events([{"choices": [{"delta": {"content": "x" * 60_000}}]}])[0]
        await _waits_then_arrives(server, client, chunks([event] * (UPLOAD // len(event))))
        await client.close()
        await server.close()


async def test_a_server_that_is_being_connected_to_makes_its_client_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As long as that takes; then all arrives."""
    async with serving() as upstream, tapping(upstream.url) as relay:
        client = await connect(relay.port)
        connecting = late(monkeypatch)
        data, sent = request(bytes(UPLOAD), Content_Type="audio/wav"), [0]
        sending = asyncio.create_task(_send(client, data, sent))
        assert await _stalls(sent) < _BETWEEN
        connecting.go.set()
        server = await upstream.connection()
        assert await server.read(len(data)) == data
        await sending
        await client.close()
        await server.close()


async def test_a_client_that_breaks_off_while_its_server_does_not_read() -> None:
    """The server's connection breaks too."""
    async with serving() as upstream, tapping(upstream.url) as relay:
        client = await connect(relay.port)
        await client.send(request(b"", Content_Length=str(UPLOAD), Content_Type="audio/wav"))
        server = await upstream.connection()
        transport: Any = server.writer.transport
        transport.pause_reading()
        sent = [0]
        sending = asyncio.create_task(_send(client, bytes(UPLOAD), sent))
        await _stalls(sent)
        client.reset()
        await asyncio.gather(sending, return_exceptions=True)
        transport.resume_reading()
        assert (await server.rest())[1] == "reset"
        await relay.becomes_quiet()
