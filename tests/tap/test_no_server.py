"""No server behind the tap: clients get an error of the API; the reason is counted."""

import asyncio
import contextlib
import errno
import json
import socket
from pathlib import Path

import pytest

from tap.ends import (
    HOST,
    PATIENCE,
    Road,
    connect,
    late,
    passes,
    reaches,
    serving,
    tapping,
)
from tap.streams import ASKED, STREAMED, UPLOAD, answer, request, split
from vllm_specdec_exporter.serve.tap import relay as module
from vllm_specdec_exporter.serve.tap import tap as tap_module
from vllm_specdec_exporter.serve.tap.observer import UNOBSERVED
from vllm_specdec_exporter.serve.tap.relay import ERRORS


async def _answered(port: int, sent: bytes) -> bytes:
    client = await connect(port)
    await client.send(sent)
    response, how = await client.rest()
    assert how == "end"
    await client.close()
    return response


async def _refused(
    port: int, sent: bytes
) -> tuple[int, dict[str, str], dict[str, object]]:
    head, body = split(await _answered(port, sent))
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:] if line)
    assert len(body) == int(headers["Content-Length"])
    return int(lines[0].split()[1]), headers, json.loads(body)


_GET = request(method="GET")


def _unused() -> int:
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


async def test_no_server_is_a_502_in_the_format_of_the_api() -> None:
    """To a whole request or a part of one.

    The answer to a HEAD has the same head, and no body.
    """
    async with tapping(f"http://{HOST}:{_unused()}") as relay:
        error = {
            "message": f"the server cannot be reached: {ERRORS['refused']}",
            "type": "bad_gateway",
            "code": 502,
        }
        for sent in (ASKED, _GET, ASKED[:30]):
            status, headers, document = await _refused(relay.port, sent)
            assert status == 502, sent
            assert headers["Content-Type"] == "application/json", sent
            assert headers["Connection"] == "close", sent
            assert document == {"error": error}, sent
        head, _ = split(await _answered(relay.port, _GET))
        asked = b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n"
        for begun in (asked, b"HEAD /", b"H", b"\r\nHEAD /"):
            assert await _answered(relay.port, begun) == head, begun
        assert relay.errors == {"refused": 8}
        assert relay.result.requests_total == 0
        await relay.becomes_quiet()


async def test_a_large_request_to_no_server_gets_its_502() -> None:
    """A client that sends all before it reads is not reset while it does."""
    async with tapping(f"http://{HOST}:{_unused()}") as relay:
        assert (
            await _refused(relay.port, request(b"x" * UPLOAD, Content_Type="audio/wav"))
        )[0] == 502
        await relay.becomes_quiet()


async def test_a_client_that_goes_on_sending_to_no_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    """As while a model loads: the next connection reaches it, and the log tells once of
    each time without.
    """
    port = _unused()
    async with tapping(f"http://{HOST}:{port}") as relay:
        assert relay.result.upstream_errors_total == dict.fromkeys(ERRORS, 0)
        assert relay.result.unobserved_total == dict.fromkeys(UNOBSERVED, 0)
        statuses = [(await _refused(relay.port, _GET))[0] for _ in range(3)]
        assert statuses == [502, 502, 502]
        async with serving(port=port) as upstream:
            client = await connect(relay.port)
            server = await reaches(client, upstream, _GET)
            await passes(server, client, answer({}))
            await client.close()
            await server.close()
        assert (await _refused(relay.port, _GET))[0] == 502
        assert relay.errors == {"refused": 4}
        assert [record.getMessage() for record in caplog.records] == [
            "tap cannot reach the server"
        ] * 2


_RAISED = [
    (ConnectionRefusedError(), "refused"),
    (
        OSError(
            "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), "
            "[Errno 101] x"
        ),
        "refused",
    ),
    (FileNotFoundError(), "refused"),
    (OSError(errno.EMFILE, "too many open files"), "unreachable"),
    (socket.gaierror(-2, "name"), "unreachable"),
    (UnicodeError("label too long"), "unreachable"),
    (ConnectionResetError(), "reset"),
    (TimeoutError(), "timeout"),
]


@pytest.mark.parametrize(("raised", "reason"), _RAISED, ids=repr)
async def test_why_there_is_no_server(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, reason: str
) -> None:
    """Whatever goes wrong, the client gets an answer, and the reason is counted."""

    async def fail(*_: object, **__: object) -> None:
        raise raised

    async with tapping(f"http://{HOST}:8000") as relay:
        monkeypatch.setattr(tap_module, "start_connection", fail)
        assert (await _refused(relay.port, _GET))[0] == 502
        assert relay.errors == {reason: 1}


@pytest.mark.parametrize(
    "raised", [AttributeError("no such field"), RuntimeError("no thread")], ids=repr
)
async def test_a_defect_is_not_an_unreachable_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, raised: Exception
) -> None:
    """The client gets status 500, and the log has the traceback, once."""

    async def fail(*_: object, **__: object) -> None:
        raise raised

    async with tapping(f"http://{HOST}:8000") as relay:
        monkeypatch.setattr(tap_module, "start_connection", fail)
        for _ in range(2):
            status, _, document = await _refused(relay.port, _GET)
            assert status == 500
            assert document["error"] == {
                "message": f"the request was not relayed: {ERRORS['internal']}",
                "type": "internal_server_error",
                "code": 500,
            }
        assert relay.errors == {"internal": 2}
    [record] = caplog.records
    assert record.getMessage() == "tap failed unexpectedly"
    assert record.exc_info[1] is raised


async def test_the_log_has_the_cause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the words of the library; the client, who is not the operator, has only the
    reason.
    """

    async def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    async with tapping(f"http://{HOST}:8000") as relay:
        monkeypatch.setattr(tap_module, "start_connection", fail)
        answer = await _answered(relay.port, _GET)
    [record] = caplog.records
    logged = record.fields["error"]
    assert logged == f"{ERRORS['unreachable']}: [Errno -2] Name or service not known"
    assert b"not known" not in answer


async def test_a_server_that_does_not_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clients get the answer after the time for a connection."""
    monkeypatch.setattr(tap_module, "CONNECT_SECONDS", 0.05)
    async with tapping(f"http://{HOST}:{_unused()}") as relay:
        client = await connect(relay.port)
        monkeypatch.setattr(
            tap_module, "start_connection", lambda *_, **__: asyncio.Event().wait()
        )
        await client.send(_GET)
        assert b"no connection within" in (await client.rest())[0]
        await client.close()
        assert relay.errors == {"timeout": 1}


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_that_leaves_while_the_server_is_connected_to(
    built: Road, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is ended as soon as it is made."""
    client = await connect(built.port)
    connecting = late(monkeypatch)
    await client.send(_GET)
    await connecting.begun.wait()
    if how == "close":
        await client.close()
    else:
        client.reset()
    connecting.go.set()
    server = await built.server.connection()
    assert (await server.rest())[0] in (_GET, b"")
    await server.close()


async def test_a_unix_socket(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The server may be at one; until it is there, clients are told."""
    path = str(tmp_path / "vllm.sock")
    async with tapping(f"unix:{path}") as relay:
        assert (await _refused(relay.port, _GET))[0] == 502
        assert relay.errors == {"refused": 1}
        # What a server that ended leaves behind: a file, and nobody behind it.
        async with serving(unix=path):
            pass
        async with serving(unix=path) as upstream:
            client = await connect(relay.port)
            server = await reaches(client, upstream, ASKED)
            await passes(server, client, STREAMED)
            server.reset()
            assert await client.rest() == (b"", "end")
            await client.close()
        assert (await _refused(relay.port, _GET))[0] == 502
        assert relay.errors == {"refused": 2}
        assert len(relay.observed) == 1
        assert relay.result.upstream == f"unix:{path}"
        assert [record.getMessage() for record in caplog.records] == [
            "tap cannot reach the server"
        ] * 2
