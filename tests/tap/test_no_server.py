"""No server behind the tap: clients are told as the API tells of errors, and why is counted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import socket
from typing import TYPE_CHECKING

import pytest

from tap.ends import HOST, PATIENCE, connect, eventually, late, serving, tapping
from tap.streams import (
    ASKED,
    EVENTS,
    UPLOAD,
    answer,
    chunks,
    request,
    split,
    stream_head,
)
from vllm_specdec_exporter.serve.tap import relay as module
from vllm_specdec_exporter.serve.tap import tap as tap_module
from vllm_specdec_exporter.serve.tap.relay import ERRORS

if TYPE_CHECKING:
    from pathlib import Path


async def _refused(port: int, sent: bytes) -> tuple[int, dict[str, str], dict[str, object]]:
    client = await connect(port)
    await client.send(sent)
    found, how = await client.rest()
    assert how == "end"
    await client.close()
    head, body = split(found)
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:] if line)
    assert len(body) == int(headers["Content-Length"])
    return int(lines[0].split()[1]), headers, json.loads(body)


def _unused() -> int:
    with socket.create_server((HOST, 0)) as found:
        return int(found.getsockname()[1])


@pytest.mark.parametrize("ask", [False, True])
@pytest.mark.parametrize("sent", [ASKED, request(method="GET"), ASKED[:30]])
async def test_no_server_is_a_502_as_the_api_has_errors(ask: bool, sent: bytes) -> None:
    async with tapping(f"http://{HOST}:{_unused()}", ask=ask) as relay:
        status, headers, document = await _refused(relay.port, sent)
        assert (status, headers["Content-Type"], headers["Connection"]) == (502, "application/json", "close")
        assert document == {
            "error": {
                "message": f"the server cannot be reached: {ERRORS['refused']}",
                "type": "bad_gateway",
                "code": 502,
            }
        }
        assert relay.errors == {"refused": 1}
        assert relay.result.requests_total == 0
        await relay.becomes_quiet()


@pytest.mark.parametrize("ask", [False, True])
@pytest.mark.parametrize("begun", ["HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n", "HEAD /", "H", "\r\nHEAD /"])
async def test_the_502_to_a_head_has_no_body(ask: bool, begun: str) -> None:
    """Only the length that another method's would have."""
    async with tapping(f"http://{HOST}:{_unused()}", ask=ask) as relay:
        found = []
        for sent in (begun.encode(), request(method="GET")):
            client = await connect(relay.port)
            await client.send(sent)
            found.append(await client.rest())
            await client.close()
        (head, how), (whole, _) = found
        assert how == "end"
        assert head == split(whole)[0]
        assert split(whole)[1] != b""
        await relay.becomes_quiet()


async def test_a_large_request_to_no_server_gets_its_502() -> None:
    """A client that sends all before it reads is not reset while it does."""
    async with tapping(f"http://{HOST}:{_unused()}") as relay:
        sent = request(b"x" * UPLOAD, Content_Type="audio/wav")

        def upload() -> bytes:
            with socket.create_connection((HOST, relay.port), timeout=PATIENCE) as sock:
                sock.sendall(sent)
                found = b""
                while data := sock.recv(65536):
                    found += data
                return found

        found = await asyncio.to_thread(upload)
        assert found.startswith(b"HTTP/1.1 502 ")
        await relay.becomes_quiet()


async def test_a_client_that_goes_on_sending_to_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection ends all the same."""
    monkeypatch.setattr(module, "LINGER_SECONDS", 0.1)
    async with tapping(f"http://{HOST}:{_unused()}") as relay:
        client = await connect(relay.port)
        with contextlib.suppress(OSError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    await client.send(b"x" * 10_000)
                    await asyncio.sleep(0)
        client.reset()
        await relay.becomes_quiet()
        assert relay.errors == {"refused": 1}


async def test_a_server_that_comes_later(caplog: pytest.LogCaptureFixture) -> None:
    """As while a model loads: the next connection reaches it, and the log tells once of each time without."""
    port = _unused()
    async with tapping(f"http://{HOST}:{port}") as relay:
        for _ in range(3):
            assert (await _refused(relay.port, request(method="GET")))[0] == 502
        async with serving(port=port) as upstream:
            client = await connect(relay.port)
            await client.send(request(method="GET"))
            server = await upstream.connection()
            await server.send(answer({}))
            assert await client.read(len(answer({}))) == answer({})
            await client.close()
            await server.close()
        assert (await _refused(relay.port, request(method="GET")))[0] == 502
        assert relay.errors == {"refused": 4}
        assert [record.getMessage() for record in caplog.records] == ["tap cannot reach the server"] * 2


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (ConnectionRefusedError(), "refused"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), [Errno 101] x"),
            "refused",
        ),
        (FileNotFoundError(), "refused"),
        (PermissionError(), "unreachable"),
        (OSError(errno.EHOSTUNREACH, "no route"), "unreachable"),
        (OSError(errno.EMFILE, "too many open files"), "unreachable"),
        (socket.gaierror(-2, "name"), "unreachable"),
        (UnicodeError("label too long"), "unreachable"),
        (RuntimeError("can't start new thread"), "unreachable"),
        (ConnectionResetError(), "reset"),
        (TimeoutError(), "timeout"),
    ],
)
async def test_why_there_is_no_server(
    raised: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong, the client gets an answer."""

    async def fail(*_: object, **__: object) -> None:
        raise raised

    async with tapping(f"http://{HOST}:8000") as relay:
        monkeypatch.setattr(tap_module, "start_connection", fail)
        with socket.create_connection((HOST, relay.port)) as sock:
            loop = asyncio.get_running_loop()
            sock.setblocking(False)
            await loop.sock_sendall(sock, request(method="GET"))
            assert (await loop.sock_recv(sock, 4096)).startswith(b"HTTP/1.1 502 ")
        assert relay.errors == {reason: 1}


async def test_a_name_with_several_addresses_that_all_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """As localhost has: it is refused, and nothing else."""

    def resolve(host: str, port: int, *_: object, **__: object) -> list[object]:
        assert host in ("vllm.test", HOST)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in (HOST, "127.0.0.2")
        ]

    async with tapping(f"http://vllm.test:{_unused()}") as relay:
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        with socket.create_connection((HOST, relay.port)) as sock:
            loop = asyncio.get_running_loop()
            sock.setblocking(False)
            await loop.sock_sendall(sock, request(method="GET"))
            assert (await loop.sock_recv(sock, 4096)).startswith(b"HTTP/1.1 502 ")
        assert relay.errors == {"refused": 1}


async def test_a_server_that_does_not_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clients are told after the time for a connection."""
    monkeypatch.setattr(tap_module, "CONNECT_SECONDS", 0.05)

    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    async with tapping(f"http://{HOST}:8000") as relay:
        monkeypatch.setattr(tap_module, "start_connection", never)
        with socket.create_connection((HOST, relay.port)) as sock:
            loop = asyncio.get_running_loop()
            sock.setblocking(False)
            await loop.sock_sendall(sock, request(method="GET"))
            assert b"no connection within the time" in await loop.sock_recv(sock, 4096)
        assert relay.errors == {"timeout": 1}


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_that_leaves_while_the_server_is_connected_to(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is ended as soon as it is made."""
    async with serving() as upstream, tapping(upstream.url) as relay:
        client = await connect(relay.port)
        go = late(monkeypatch)
        await client.send(request(method="GET"))
        await eventually(lambda: any(one._connecting is not None for one in relay.tap._clients))
        if how == "close":
            await client.close()
        else:
            client.reset()
        go.set()
        server = await upstream.connection()
        assert (await server.rest())[0] in (request(method="GET"), b"")
        await server.close()
        await relay.becomes_quiet()


async def test_a_unix_socket(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The server may be at one; until it is there, clients are told."""
    path = str(tmp_path / "vllm.sock")
    async with tapping(f"unix:{path}") as relay:
        assert (await _refused(relay.port, request(method="GET")))[0] == 502
        assert relay.errors == {"refused": 1}
        async with serving(unix=path):
            pass
        async with serving(unix=path) as upstream:
            client = await connect(relay.port)
            await client.send(ASKED)
            server = await upstream.connection()
            assert await server.read(len(ASKED)) == ASKED
            sent = stream_head() + chunks(EVENTS)
            await server.send(sent)
            assert await client.read(len(sent)) == sent
            server.reset()
            assert await client.rest() == (b"", "end")
            await client.close()
        assert (await _refused(relay.port, request(method="GET")))[0] == 502
        assert relay.errors == {"refused": 2}
        assert len(relay.told) == 1
        assert relay.result.upstream == f"unix:{path}"
        assert [record.getMessage() for record in caplog.records] == ["tap cannot reach the server"] * 2
