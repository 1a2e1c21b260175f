"""Conversations through the tap: every byte arrives, in both directions, before the next is sent."""

import asyncio

import pytest

from tap.ends import End, connect, each_way, leaves, passes, road
from tap.streams import (
    ASKED,
    EVENTS,
    STREAMED,
    answer,
    chat_answer,
    chat_request,
    chunks,
    request,
    split,
    stream_head,
    unchunk,
)

#: Who says what, one after the other: the client (>) or the server (<).
Conversation = list[tuple[str, bytes]]

_OK = answer({"data": []})
_GET = request(method="GET")
_PLAIN = request(chat_request(stream=True))


def _one(asked: bytes, answered: bytes) -> Conversation:
    return [(">", asked), ("<", answered)]


_CONVERSATIONS: dict[str, Conversation] = {
    "a method with a body": _one(request({"a": 1}, "/x", "M-SEARCH"), _OK),
    "100-continue": [
        (">", split(request(chat_request(), Expect="100-continue"))[0]),
        ("<", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (">", split(request(chat_request()))[1]),
        ("<", answer(chat_answer())),
    ],
    "chunks and trailers": [
        (">", request(b"", "/v1/audio/transcriptions", Transfer_Encoding="chunked", Trailer="X-Sum")),
        (">", b"5;name=value\r\nhello\r\n"),
        (">", b"00\r\nX-Sum: 5\r\n\r\n"),
        ("<", stream_head(Trailer="X-T")),
        ("<", b"A\r\n0123456789\r\n"),
        ("<", b"0\r\nX-T: 1\r\nX-U: 2\r\n\r\n"),
        *_one(_GET, _OK),
    ],
    "a stream byte by byte": [
        *((">", bytes((byte,))) for byte in ASKED),
        *(("<", bytes((byte,))) for byte in STREAMED),
        *_one(_GET, _OK),
    ],
    "keep-alive": [
        part
        for number in range(20)
        for part in _one(request(chat_request(n=number)), answer(chat_answer(), X_Number=str(number)))
    ],
    "pipelined": [
        (">", request(chat_request()) + _GET + ASKED),
        ("<", answer(chat_answer())),
        (">", request(method="GET", path="/more")),
        ("<", _OK + stream_head()),
        ("<", chunks(EVENTS)),
        ("<", _OK),
    ],
    # Only a stream that was sent alone can be asked: here nobody can tell whose answer comes.
    "pipelined streams": [(">", ASKED + _PLAIN), ("<", STREAMED * 2), *_one(_PLAIN, STREAMED)],
    "no length": _one(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + bytes(range(256)) * 20),
    "HTTP/1.0": _one(request(chat_request(), version="1.0"), answer(chat_answer(), version="1.0")),
    "lines ended by LF": _one(b"GET / HTTP/1.1\nHost: x\n\n", b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok"),
    "headers as they may be": _one(
        b"GET / HTTP/1.1\r\nhOsT:x\r\nX-2: 1\r\nX-2: 2\r\nX-\xe9: \xff\xfe \r\nX-Folded: a\r\n b\r\n\r\n",
        b"HTTP/1.1 299 \r\nSet-Cookie: a\r\nSet-Cookie: b\r\ncontent-length:0\r\n\r\n",
    ),
    "a large head": _one(request(method="GET", X_Large="x" * 200_000), answer(b"", X_Large="y" * 200_000)),
    "a large body": _one(
        request(b"\x00\xff" * 300_000, "/x", Content_Type="a/b"), answer(b"\xff\x00" * 300_000)
    ),
    "an answer before a request's end": [
        (">", split(request({"input": "x"}, "/v1/embeddings"))[0]),
        ("<", answer({"error": {}}, "413 Payload Too Large")),
        (">", split(request({"input": "x"}, "/v1/embeddings"))[1]),
        *_one(_GET, _OK),
    ],
    "another protocol": [
        (">", request(method="GET", path="/realtime", Connection="Upgrade", Upgrade="websocket")),
        ("<", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
        (">", b"\x81\x85\x00\x00\x00\x00hello"),
        ("<", b"\x81\x05hello"),
        (">", bytes(range(256))),
        ("<", bytes(range(255, -1, -1))),
    ],
    "a tunnel": [
        (">", b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"),
        ("<", b"HTTP/1.1 200 OK\r\n\r\n"),
        (">", b"\x16\x03\x01"),
        ("<", b"\x15\x03"),
    ],
    "TLS": _one(b"\x16\x03\x01\x00\x05hello", b"\x15\x03\x01\x00\x02\x02\x46"),
    "the server first": [(">", b"\r\n"), ("<", answer(b"", "408 Request Timeout"))],
}


@each_way
async def test_each_part_arrives_before_the_next(way: str) -> None:
    """Whatever is said. A tap that asks for usage waits for the end of a request."""
    wrong = []
    async with road(way) as built:
        for name, conversation in _CONVERSATIONS.items():
            try:
                if name == "a stream byte by byte" and way == "asking":
                    conversation = [(">", ASKED), *conversation[len(ASKED) :]]  # noqa: PLW2901
                client = await connect(built.port)
                await client.send(conversation[0][1])
                server = await built.server.connection()
                assert await server.read(len(conversation[0][1])) == conversation[0][1]
                for who, data in conversation[1:]:
                    await passes(*((client, server) if who == ">" else (server, client)), data)
                await leaves(client, server)
            except (AssertionError, TimeoutError, OSError) as error:
                wrong.append(f"{name}: {error!r}")
        assert wrong == []
        await built.relay.becomes_quiet()
        assert "internal" not in built.relay.unobserved


async def _is_asked(server: End) -> None:
    """Read the next request, which asks for its usage."""
    head = await server.read_head()
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    assert b'"include_usage":true' in await server.read(length)


async def _streamed(client: End, server: End) -> bytes:
    """Stream all events, and return those that arrive."""
    await server.send(STREAMED)
    assert await client.read_head() == stream_head()
    body = b""
    while not body.endswith(b"\r\n0\r\n\r\n"):
        body += await client.read(1)
    events, end = unchunk(body)
    assert end == b"\r\n"
    return events


async def test_an_asked_stream_is_not_delayed() -> None:
    """The server sends an event once the client has the one before: also where the tap takes one out."""
    async with road("asking") as built:
        client = await connect(built.port)
        for byte in _PLAIN:
            await client.send(bytes((byte,)))
            await asyncio.sleep(0)
        server = await built.server.connection()
        await _is_asked(server)
        await passes(server, client, stream_head())
        for event in EVENTS:
            block = b"%x\r\n%s\r\n" % (len(event), event)
            if event == EVENTS[-2]:
                await server.send(block)
            else:
                await passes(server, client, block)
        await passes(server, client, b"0\r\n\r\n")
        await leaves(client, server)
        assert [seen.record is not None for seen in built.relay.told] == [True]


@pytest.mark.parametrize("chunked", [False, True])
async def test_streams_after_others_are_asked(chunked: bool) -> None:
    """On one connection, each of them alone; the request before them, also one in chunks, is not."""
    first = request(b"", Transfer_Encoding="chunked") + chunks([split(ASKED)[1]]) if chunked else ASKED
    async with road("asking") as built:
        client, server = await built.both(first)
        assert await _streamed(client, server) == b"".join(EVENTS)
        for _ in range(2):
            await client.send(_PLAIN)
            await _is_asked(server)
            assert await _streamed(client, server) == b"".join(EVENTS[:-2] + EVENTS[-1:])
        await leaves(client, server)
        assert [seen.record is not None for seen in built.relay.told] == [True] * 3
