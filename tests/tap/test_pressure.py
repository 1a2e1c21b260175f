"""Back-pressure through the tap: whoever does not read makes the other side wait, and then all arrives."""

from __future__ import annotations

import asyncio
import hashlib
import socket

import pytest

from tap.ends import HOST, PATIENCE, connect, eventually, late, serving, sides, tapping
from tap.streams import (
    UPLOAD,
    answer,
    chat_request,
    chunks,
    events,
    request,
    stream_head,
)


async def _fill(sock: socket.socket, data: memoryview, paused: asyncio.Event) -> int:
    """Send as much as is taken; return how much, once the tap does not take more."""
    loop, sent = asyncio.get_running_loop(), 0
    async with asyncio.timeout(PATIENCE):
        while sent < len(data):
            try:
                sent += sock.send(data[sent : sent + 65536])
            except BlockingIOError:
                if paused.is_set():
                    return sent
                await asyncio.sleep(0.005)
    assert loop.is_running()
    return sent


@pytest.mark.parametrize("ask", [False, True])
async def test_a_server_that_does_not_read_makes_its_client_wait(ask: bool) -> None:
    """The tap takes in only what can go on: 50 MB of upload wait at the client, and arrive in the end."""
    async with serving() as upstream, tapping(upstream.url, ask=ask) as relay:
        body = hashlib.shake_128(b"upload").digest(UPLOAD)
        head = request(b"", Content_Length=str(len(body)), Content_Type="audio/wav")
        with socket.create_connection((HOST, relay.port)) as sock:
            sock.setblocking(False)
            sock.send(head)
            server = await upstream.connection()
            server.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client_side, server_side = await sides(relay)
            paused = asyncio.Event()
            watching = asyncio.create_task(_until_paused(client_side, paused))
            sent = await _fill(sock, memoryview(body), paused)
            await watching
            assert sent < UPLOAD
            assert server_side.get_write_buffer_size() < 1 << 20
            assert relay.held < 1 << 20

            server.writer.transport.resume_reading()  # type: ignore[attr-defined]
            rest = memoryview(body)[sent:]
            loop = asyncio.get_running_loop()
            sending = asyncio.create_task(loop.sock_sendall(sock, rest))
            assert await server.read(len(head)) == head
            seen = hashlib.sha256()
            left = len(body)
            while left:
                data = await server.read(min(left, 1 << 20))
                assert data
                seen.update(data)
                left -= len(data)
                assert server_side.get_write_buffer_size() < 1 << 20
            await sending
            assert seen.digest() == hashlib.sha256(body).digest()
            await server.send(answer({}))
            assert await loop.sock_recv(sock, 1000) == answer({})
        assert await server.rest() == (b"", "end")


async def _until_paused(transport: asyncio.Transport, paused: asyncio.Event) -> None:
    await eventually(lambda: not transport.is_reading())
    paused.set()


@pytest.mark.parametrize("ask", [False, True])
async def test_a_client_that_does_not_read_makes_its_server_wait(ask: bool) -> None:
    """And gets every byte when it does."""
    async with serving() as upstream, tapping(upstream.url, ask=ask) as relay:
        with socket.create_connection((HOST, relay.port)) as sock:
            sock.setblocking(False)
            sock.send(request(chat_request(stream=True)))
            server = await upstream.connection()
            await server.read_head()
            event = events([{"choices": [{"delta": {"content": "x" * 60_000}}]}])[0]
            whole = stream_head() + chunks([event] * 500) if not ask else b""
            sent = 0
            client_side, server_side = await sides(relay)

            async def write() -> None:
                nonlocal sent
                server.writer.write(stream_head())
                for _ in range(500):
                    server.writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                    await server.writer.drain()
                    sent += 1
                await server.send(b"0\r\n\r\n")

            writing = asyncio.create_task(write())
            await eventually(lambda: not server_side.is_reading())
            before = -1
            while before != sent:  # what the system's buffers still take
                before = sent
                await asyncio.sleep(0.05)
            assert sent < 500
            assert client_side.get_write_buffer_size() < 1 << 20

            loop, found = asyncio.get_running_loop(), bytearray()
            async with asyncio.timeout(PATIENCE):
                while not found.endswith(b"0\r\n\r\n"):
                    found += await loop.sock_recv(sock, 1 << 18)
                    assert client_side.get_write_buffer_size() < 1 << 20
            await writing
            if not ask:
                assert bytes(found) == whole
            assert found.count(b'{"content":"' + b"x" * 60_000) == 500
        await server.close()


@pytest.mark.parametrize("ask", [False, True])
async def test_a_server_that_is_being_connected_to_makes_its_client_wait(
    ask: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as that takes; then all arrives."""
    async with serving() as upstream, tapping(upstream.url, ask=ask) as relay:
        client = await connect(relay.port)
        go = late(monkeypatch)
        sent = request(bytes(UPLOAD), Content_Type="audio/wav")
        client.writer.write(sent)
        await eventually(lambda: any(one._waiting for one in relay.tap._clients))
        (side,) = relay.tap._clients
        assert side.transport is not None
        assert not side.transport.is_reading()
        go.set()
        server = await upstream.connection()
        assert await server.read(len(sent)) == sent
        await client.close()
        await server.close()


async def test_a_client_that_breaks_off_while_its_server_does_not_read() -> None:
    """Nobody waits for what nobody will send."""
    async with serving() as upstream, tapping(upstream.url) as relay:
        client = await connect(relay.port)
        await client.send(request(b"", Content_Length=str(UPLOAD), Content_Type="audio/wav"))
        server = await upstream.connection()
        server.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client_side, _ = await sides(relay)
        client.writer.write(bytes(UPLOAD))
        await eventually(lambda: not client_side.is_reading())
        client.reset()
        server.writer.transport.resume_reading()  # type: ignore[attr-defined]
        _, how = await server.rest()
        assert how == "reset"
        await relay.becomes_quiet()
