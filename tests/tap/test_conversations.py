"""Conversations through the tap: every byte arrives, in both directions, before the next is sent."""

from tap.ends import connect, leaves, passes, road
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
)

#: Who says what, one after the other: the client (>) or the server (<).
Conversation = list[tuple[str, bytes]]

_OK = answer({"data": []})
_GET = request(method="GET")


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
    "pipelined streams": [(">", ASKED + ASKED), ("<", STREAMED * 2), *_one(ASKED, STREAMED)],
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


async def test_each_part_arrives_before_the_next() -> None:
    """Whatever the protocol."""
    wrong = []
    async with road() as built:
        for name, conversation in _CONVERSATIONS.items():
            try:
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
