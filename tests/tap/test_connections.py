"""Connections through the tap: how they end, what passes, and how ends that do not read
stop the others.
"""

import asyncio
import hashlib
import ssl
from pathlib import Path
from unittest.mock import Mock

import pytest

from support.certificates import Authority, server_side
from tap.ends import (
    HOST,
    PATIENCE,
    End,
    Road,
    connect,
    eventually,
    late,
    leaves,
    passes,
    reaches,
    road,
    serving,
    tapping,
)
from tap.streams import (
    ANSWERED_PLAIN,
    ASKED,
    ASKED_PLAIN,
    BEGUN,
    EVENTS,
    STREAMED,
    UPLOAD,
    answer,
    byte_by_byte,
    chat_answer,
    chat_request,
    chunks,
    cut_at,
    events,
    request,
    split,
    stream_head,
)
from vllm_specdec_exporter.serve.tap import relay as module

_UPLOADS = "/v1/audio/transcriptions"
_UNTIL_THE_END = {"transfer-encoding": None, "connection": "close"}


async def _break_off(server: End, client: End, how: str) -> None:
    """Let the server end the connection; the client learns of it, and how."""
    if how == "end":
        await server.close()
    else:
        server.reset()
    assert await client.rest() == (b"", how)
    await client.close()


async def _send_in_pieces(server: End, data: bytes) -> None:
    for part in cut_at(data, range(0, len(data), 100)):
        await server.send(part)


async def _observed(built: Road) -> None:
    """One request was observed with its record, and none was not."""
    await built.relay.becomes_quiet()
    (observation,) = built.relay.observed
    assert observation.record is not None
    assert built.relay.unobserved == {}


@pytest.mark.parametrize("how", ["end", "reset"])
@pytest.mark.parametrize(
    ("begun", "unobserved"),
    [
        (b"", {"aborted": 1}),
        (BEGUN, {"aborted": 1}),
        (STREAMED.removesuffix(b"0\r\n\r\n"), {}),
    ],
    ids=["before its answer", "within a stream", "after the last word"],
)
async def test_a_client_that_leaves_is_a_server_connection_that_ends(
    built: Road, begun: bytes, unobserved: dict[str, int], how: str
) -> None:
    """The server's connection is closed at once.

    A stream is observed if its [DONE] was read.
    """
    client, server = await built.both(ASKED)
    await passes(server, client, begun)
    if how == "end":
        await client.close()
    else:
        client.reset()
    assert await server.rest() == (b"", how)
    await server.close()
    await built.relay.becomes_quiet()
    assert built.relay.unobserved == unobserved
    assert len(built.relay.observed) == 1 - len(unobserved)


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        (ASKED, stream_head(**_UNTIL_THE_END) + b"".join(EVENTS)),
        (ASKED_PLAIN, answer(chat_answer(), Content_Length=None, Connection="close")),
    ],
    ids=["stream", "plain"],
)
async def test_an_answer_until_the_end_of_the_connection(
    built: Road, asked: bytes, sent: bytes
) -> None:
    """It arrives as it is, and is observed."""
    client, server = await built.both(asked)
    await _send_in_pieces(server, sent)
    await server.close()
    assert await client.rest() == (sent, "end")
    await client.close()
    await _observed(built)


@pytest.mark.parametrize("how", ["end", "reset"])
@pytest.mark.parametrize(
    "begun",
    [
        BEGUN,
        stream_head(**_UNTIL_THE_END) + b"".join(EVENTS[:-1]),
        ANSWERED_PLAIN[:-9],
        b"HTTP/1.1 2",
        b"",
    ],
    ids=["stream", "stream until the end", "known length", "head", "nothing"],
)
async def test_a_server_that_breaks_off_is_seen_as_such(
    built: Road, begun: bytes, how: str
) -> None:
    """A reset stays a reset: an incomplete response must not look complete."""
    client, server = await built.both(ASKED)
    await passes(server, client, begun)
    await _break_off(server, client, how)
    await built.relay.becomes_quiet()
    assert sum(built.relay.unobserved.values()) == 1


async def test_a_client_may_end_its_requests_and_still_read(built: Road) -> None:
    """As with nc, or a shutdown of the sending side."""
    client, server = await built.both(ASKED)
    client.end()
    assert await server.read(1) == b""
    await _send_in_pieces(server, STREAMED)
    await server.close()
    assert await client.rest() == (STREAMED, "end")
    await client.close()
    await _observed(built)


@pytest.mark.parametrize("sent", [ASKED[:20], ASKED[:-3]], ids=["head", "body"])
async def test_half_a_request_and_its_end(built: Road, sent: bytes) -> None:
    """The server gets both."""
    client = await connect(built.port)
    await client.send(sent)
    client.end()
    server = await built.server.connection()
    assert await server.rest() == (sent, "end")
    await server.send(answer(b"", "400 Bad Request"))
    await server.close()
    assert await client.rest() == (answer(b"", "400 Bad Request"), "end")
    await client.close()


async def test_a_server_may_refuse_an_upload_and_still_read(built: Road) -> None:
    """A client that sends all before it reads gets the answer, and no reset."""
    head, body = split(request(b"x" * 3_000_000, _UPLOADS, Content_Type="audio/wav"))
    refusal = answer({"error": {}}, "413 Payload Too Large", Connection="close")
    client, server = await built.both(head)
    await server.send(refusal)
    server.end()
    reading = asyncio.create_task(server.read(len(body)))
    await client.send(body)
    assert await client.rest() == (refusal, "end")
    assert await reading == body
    await leaves(client, server)


async def test_a_server_that_closes_an_idle_connection(
    built: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's connection is closed too, at once, and nothing is kept."""
    monkeypatch.setattr(module, "LINGER_SECONDS", 2 * PATIENCE)
    client, server = await built.both(request(method="GET"))
    await passes(server, client, answer({}))
    await server.close()
    await built.relay.becomes_quiet()  # also where the client does not look
    assert await client.rest() == (b"", "end")
    await client.close()


async def test_a_client_that_does_not_see_the_end(
    built: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is closed after a time."""
    # The client below never closes: without a limit, the tap would wait for it.
    monkeypatch.setattr(module, "LINGER_SECONDS", 0.05)
    client, server = await built.both(ASKED)
    await server.send(BEGUN)
    await server.close()
    await built.relay.becomes_quiet()
    assert await client.rest() == (BEGUN, "end")
    await client.close()


async def test_a_slow_reader_gets_all_of_an_answer_after_its_server_left(
    built: Road,
) -> None:
    """What the tap has is sent, however long that takes."""
    sent = answer(bytes(range(256)) * 4000, Content_Type="a/b", Connection="close")
    client, server = await built.both(request(method="GET"))
    sending = asyncio.create_task(server.send(sent))
    received = b""
    while len(received) < len(sent):
        received += await client.read(min(50_000, len(sent) - len(received)))
        await asyncio.sleep(0)
    assert received == sent
    await sending
    await _break_off(server, client, "end")


async def test_a_probe_that_only_connects_does_not_reach_the_server(
    built: Road,
) -> None:
    """The server is not connected to."""
    for how in ("close", "reset", "end") * 5:
        client = await connect(built.port)
        if how == "reset":
            client.reset()
        elif how == "end":
            client.end()
            assert await client.rest() == (b"", "end"), how
        await client.close()
    await eventually(lambda: built.relay.result.connections_total == 15)
    await built.relay.becomes_quiet()
    assert built.server.ends == []
    assert built.relay.errors == {}


# --- the shutdown of the tap


async def test_the_end_of_the_tap_waits_for_who_is_being_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its request is under way."""
    async with road(drain=PATIENCE) as built:
        relay = built.relay
        upstream = built.server
        client = await connect(relay.port)
        idle = await connect(relay.port)
        connecting = late(monkeypatch)
        await client.send(request(method="GET"))
        await connecting.begun.wait()
        await eventually(lambda: relay.result.connections == 2)
        ending = asyncio.create_task(relay.tap.stop())
        assert await idle.rest() == (b"", "end")  # it has looked who is idle
        connecting.go.set()
        server = await upstream.connection()
        await server.send(answer({}))
        assert await client.rest() == (answer({}), "end")
        await ending
        await client.close()
        await idle.close()


async def test_the_end_of_the_tap_leaves_no_attempt_to_connect(
    built: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = built.relay
    client = await connect(relay.port)
    connecting = late(monkeypatch)
    await client.send(request(method="GET"))
    await connecting.begun.wait()
    await relay.tap.stop()
    assert (await client.rest())[0] == b""
    await client.close()  # that no task is left is asserted where the tap ends


# --- conversations: every byte arrives, in both directions, before the next is sent


#: Who says what, one after the other: the client (>) or the server (<).
Conversation = list[tuple[str, bytes]]

_OK = answer({"data": []})
_GET = request(method="GET")


def _one(asked: bytes, answered: bytes) -> Conversation:
    return [(">", asked), ("<", answered)]


_CONVERSATIONS = {
    "a method with a body": _one(request({"a": 1}, "/x", "M-SEARCH"), _OK),
    "100-continue": [
        (">", split(request(chat_request(), Expect="100-continue"))[0]),
        ("<", b"HTTP/1.1 100 Continue\r\n\r\n"),
        *_one(split(ASKED_PLAIN)[1], ANSWERED_PLAIN),
    ],
    "chunks and trailers": [
        (">", request(b"", _UPLOADS, Transfer_Encoding="chunked", Trailer="X-Sum")),
        (">", b"5;name=value\r\nhello\r\n"),
        (">", b"00\r\nX-Sum: 5\r\n\r\n"),
        ("<", stream_head(Trailer="X-T")),
        ("<", b"A\r\n0123456789\r\n"),
        ("<", b"0\r\nX-T: 1\r\nX-U: 2\r\n\r\n"),
        *_one(_GET, _OK),
    ],
    "a stream byte by byte": [
        *((">", byte) for byte in byte_by_byte(ASKED)),
        *(("<", byte) for byte in byte_by_byte(STREAMED)),
        *_one(_GET, _OK),
    ],
    "keep-alive": 20 * _one(ASKED_PLAIN, ANSWERED_PLAIN),
    "pipelined": [
        *_one(ASKED_PLAIN + _GET + ASKED, ANSWERED_PLAIN),
        (">", request(method="GET", path="/more")),
        ("<", _OK + stream_head()),
        ("<", chunks(EVENTS)),
        ("<", _OK),
    ],
    "pipelined streams": [*_one(ASKED * 2, STREAMED * 2), *_one(ASKED, STREAMED)],
    "no length": _one(
        b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + bytes(range(256)) * 20
    ),
    "HTTP/1.0": _one(
        request(chat_request(), version="1.0"), answer(chat_answer(), version="1.0")
    ),
    "lines ended by LF": _one(
        b"GET / HTTP/1.1\nHost: x\n\n", b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok"
    ),
    "headers as they may be": _one(
        (
            b"GET / HTTP/1.1\r\nhOsT:x\r\nX-2: 1\r\nX-2: 2\r\nX-\xe9: \xff\xfe \r\n"
            b"X-Folded: a\r\n b\r\n\r\n"
        ),
        b"HTTP/1.1 299 \r\nSet-Cookie: a\r\nSet-Cookie: b\r\ncontent-length:0\r\n\r\n",
    ),
    "a large head": _one(
        request(method="GET", X_Large="x" * 200_000), answer(b"", X_Large="y" * 200_000)
    ),
    "a large body": _one(
        request(b"\x00\xff" * 300_000, "/x", Content_Type="a/b"),
        answer(b"\xff\x00" * 300_000),
    ),
    "an answer before a request's end": [
        *_one(split(ASKED_PLAIN)[0], answer({"error": {}}, "413 Payload Too Large")),
        (">", split(ASKED_PLAIN)[1]),
        *_one(_GET, _OK),
    ],
    "another protocol": [
        (">", request(method="GET", Connection="Upgrade", Upgrade="websocket")),
        ("<", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"),
        *_one(b"\x81\x85\x00\x00\x00\x00hello", b"\x81\x05hello"),
        *_one(bytes(range(256)), bytes(range(255, -1, -1))),
    ],
    "a tunnel": [
        *_one(b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"),
        *_one(b"\x16\x03\x01", b"\x15\x03"),
    ],
    "TLS": _one(b"\x16\x03\x01\x00\x05hello", b"\x15\x03\x01\x00\x02\x02\x46"),
    "the server first": _one(b"\r\n", answer(b"", "408 Request Timeout")),
}


async def test_each_part_arrives_before_the_next(built: Road) -> None:
    """Whatever the protocol."""
    wrong = []
    for name, conversation in _CONVERSATIONS.items():
        try:
            client = await connect(built.port)
            server = await reaches(client, built.server, conversation[0][1])
            for who, data in conversation[1:]:
                if who == ">":
                    await passes(client, server, data)
                else:
                    await passes(server, client, data)
            await leaves(client, server)
        except (AssertionError, TimeoutError, OSError) as error:
            wrong.append(f"{name}: {error!r}")
    assert wrong == []
    await built.relay.becomes_quiet()
    assert "internal" not in built.relay.unobserved


# --- back-pressure: an end that does not read stops the other one; nothing is lost


#: Bytes that the tap and the buffers of the system may hold between two ends; most of
#: `UPLOAD` has to wait.
_BETWEEN = UPLOAD // 2
_BLOCK = 1 << 16
_UPLOAD_HEAD = request(b"", Content_Length=str(UPLOAD), Content_Type="audio/wav")


async def _send(end: End, data: bytes, sent: list[int]) -> None:
    """Send, and count the bytes that were taken."""
    for start in range(0, len(data), _BLOCK):
        end.writer.write(data[start : start + _BLOCK])
        await end.writer.drain()
        sent[0] = start


async def _stalls(sent: list[int]) -> int:
    """Wait until no more is taken; return how much was."""
    taken = -1
    while taken != sent[0]:
        taken = sent[0]
        await asyncio.sleep(0.2)  # the tap runs in the same loop: it had its turns
    return taken


async def _waits_then_arrives(sender: End, reader: End, data: bytes) -> None:
    """An end that does not read stops the sender; it then gets every byte."""
    transport = reader.writer.transport
    transport.pause_reading()
    sent = [0]
    sending = asyncio.create_task(_send(sender, data, sent))
    assert await _stalls(sent) < _BETWEEN
    transport.resume_reading()
    received = await reader.read(len(data))
    await sending
    # Digests: pytest would take minutes to show how 50 MiB differ.
    assert hashlib.sha256(received).digest() == hashlib.sha256(data).digest()


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, ssl.SSLContext]:
    """TLS of the server, and of the tap towards it."""
    authority = Authority(tmp_path, "authority")
    trust = ssl.create_default_context(cafile=str(authority.file))
    return {"server": server_side(authority.issue(HOST)), "trust": trust}


@pytest.mark.parametrize("over_tls", [False, True])
async def test_an_end_that_does_not_read_makes_the_other_wait(
    over_tls: bool, tls: dict[str, ssl.SSLContext]
) -> None:
    """The tap takes in only what can go on: an upload waits at its client, an answer at
    its server.
    """
    secure = tls if over_tls else {}
    async with (
        serving(tls=secure.get("server")) as upstream,
        tapping(upstream.url, trust=secure.get("trust")) as relay,
    ):
        client = await connect(relay.port)
        server = await reaches(client, upstream, _UPLOAD_HEAD)
        await _waits_then_arrives(
            client, server, hashlib.shake_128(b"upload").digest(UPLOAD)
        )
        assert relay.held < _BETWEEN

        await client.send(request(chat_request(stream=True)))
        await server.read_head()
        await server.send(stream_head())
        assert await client.read_head() == stream_head()
        event = events([{"choices": [{"delta": {"content": "x" * 60_000}}]}])[0]
        await _waits_then_arrives(
            server, client, chunks([event] * (UPLOAD // len(event)))
        )
        await client.close()
        await server.close()


async def test_a_server_that_is_being_connected_to_makes_its_client_wait(
    built: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as that takes; then all arrives."""
    client = await connect(built.port)
    connecting = late(monkeypatch)
    data = request(bytes(UPLOAD), Content_Type="audio/wav")
    sent = [0]
    sending = asyncio.create_task(_send(client, data, sent))
    assert await _stalls(sent) < _BETWEEN
    connecting.go.set()
    server = await built.server.connection()
    assert await server.read(len(data)) == data
    await sending
    await client.close()
    await server.close()


async def test_a_client_that_breaks_off_while_its_server_does_not_read(
    built: Road,
) -> None:
    """The server's connection breaks too."""
    client, server = await built.both(_UPLOAD_HEAD)
    transport = server.writer.transport
    transport.pause_reading()
    sent = [0]
    sending = asyncio.create_task(_send(client, bytes(UPLOAD), sent))
    await _stalls(sent)
    client.reset()
    # The reset may break the write itself.
    await asyncio.gather(sending, return_exceptions=True)
    transport.resume_reading()
    assert (await server.rest())[1] == "reset"


class _Lost(asyncio.Transport):
    """As asyncio's over TLS when the connection below is lost: it has no socket."""

    aborted = False

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """None is needed."""

    def abort(self) -> None:
        self.aborted = True


def test_a_connection_that_is_lost_already_is_reset_without_an_error() -> None:
    """An error here would leave the client's request under way until the end of the
    drain.
    """
    end = module.RelayEnd(Mock())
    transport = _Lost()
    end.connection_made(transport)
    end.end(ConnectionResetError())
    assert transport.aborted
