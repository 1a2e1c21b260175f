"""Conversations through the tap: every byte arrives, in both directions, before the other side says more."""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from support.closing import clean_up
from tap.ends import HOST, WAYS, End, Road, connect, eventually, road, tapping
from tap.streams import (
    ASKED,
    EVENTS,
    answer,
    chat_answer,
    chat_request,
    chunks,
    request,
    split,
    stream_head,
    unchunk,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

#: Who says what, one after the other: the client (>) or the server (<).
Conversation = list[tuple[str, bytes]]

_OK = answer({"data": []})


def _one(asked: bytes, answered: bytes) -> Conversation:
    return [(">", asked), ("<", answered)]


_CONVERSATIONS: dict[str, Conversation] = {
    **{
        method: _one(request(method=method, path="/v1/models?a=b#c"), _OK)
        for method in ("GET", "DELETE", "OPTIONS", "TRACE", "PURGE", "get", "M-SEARCH")
    },
    **{method: _one(request({"a": 1}, "/x", method), _OK) for method in ("POST", "PUT", "PATCH", "QUERY")},
    "HEAD": [
        *_one(request(method="HEAD", path="/v1/models"), split(answer(b"", Content_Length="4711"))[0]),
        *_one(request(method="GET"), _OK),
    ],
    "204 and 304": [
        *_one(request(method="DELETE"), b"HTTP/1.1 204 No Content\r\n\r\n"),
        *_one(request(method="GET"), b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\nETag: x\r\n\r\n"),
        *_one(request(chat_request()), answer(chat_answer())),
    ],
    "100-continue": [
        (">", split(request(chat_request(), Expect="100-continue"))[0]),
        ("<", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (">", split(request(chat_request()))[1]),
        ("<", answer(chat_answer())),
    ],
    "417": _one(split(request(chat_request(), Expect="200-maybe"))[0], answer(b"", "417 Expectation Failed")),
    "early hints": _one(
        request(chat_request()), b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + answer(chat_answer())
    ),
    "chunks and trailers": [
        (">", request(b"", "/v1/audio/transcriptions", Transfer_Encoding="chunked", Trailer="X-Sum")),
        (">", b"5;name=value\r\nhello\r\n"),
        (">", b"00\r\nX-Sum: 5\r\n\r\n"),
        ("<", stream_head(Trailer="X-T")),
        ("<", b"A\r\n0123456789\r\n"),
        ("<", b"0\r\nX-T: 1\r\nX-U: 2\r\n\r\n"),
        *_one(request(method="GET"), _OK),
    ],
    "a stream": [
        (">", ASKED),
        ("<", stream_head()),
        *(("<", b"%x\r\n%s\r\n" % (len(event), event)) for event in EVENTS),
        ("<", b"0\r\n\r\n"),
        *_one(request(method="GET"), _OK),
    ],
    "an event in pieces": [
        (">", ASKED),
        ("<", stream_head()),
        *(("<", bytes((byte,))) for byte in chunks(EVENTS[:2])),
    ],
    "keep-alive": [
        part
        for number in range(20)
        for part in _one(request(chat_request(n=number)), answer(chat_answer(), X_Number=str(number)))
    ],
    "pipelined": [
        (">", request(chat_request()) + request(method="GET") + ASKED),
        ("<", answer(chat_answer())),
        (">", request(method="GET", path="/more")),
        ("<", _OK + stream_head()),
        ("<", chunks(EVENTS)),
        ("<", _OK),
    ],
    "no length": _one(b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + bytes(range(256)) * 20),
    "HTTP/1.0": _one(request(chat_request(), version="1.0"), answer(chat_answer(), version="1.0")),
    "HTTP/0.9": _one(b"GET /\r\n", b"<html>"),
    "lines ended by LF": _one(b"GET / HTTP/1.1\nHost: x\n\n", b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok"),
    "headers as they may be": _one(
        b"GET / HTTP/1.1\r\nhOsT:x\r\nX-2: 1\r\nX-2: 2\r\nX-\xe9: \xff\xfe \r\nX-Folded: a\r\n b\r\n\r\n",
        b"HTTP/1.1 299 \r\nSet-Cookie: a\r\nSet-Cookie: b\r\ncontent-length:0\r\n\r\n",
    ),
    "a large head": _one(request(method="GET", X_Large="x" * 200_000), answer(b"", X_Large="y" * 200_000)),
    "a large body": _one(
        request(b"\x00\xff" * 300_000, "/x", Content_Type="a/b"), answer(b"\xff\x00" * 300_000)
    ),
    "an absolute address": _one(request(method="GET", path="http://vllm:8000/v1/models"), _OK),
    "an answer without a request's end": [
        (">", split(request({"input": "x"}, "/v1/embeddings"))[0]),
        ("<", answer({"error": {}}, "413 Payload Too Large")),
        (">", split(request({"input": "x"}, "/v1/embeddings"))[1]),
        *_one(request(method="GET"), _OK),
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
    "HTTP/2": _one(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", b"\x00\x00\x00\x04\x01"
    ),
    "TLS": _one(b"\x16\x03\x01\x00\x05hello", b"\x15\x03\x01\x00\x02\x02\x46"),
    "zeros": _one(bytes(5000), bytes(5000)),
    "the server first": [(">", b"\r\n"), ("<", answer(b"", "408 Request Timeout"))],
}


async def _hold(conversation: Conversation, way: Road) -> None:
    """Let both say what they say; each part has to arrive before the next one is sent."""
    (_, first), *others = conversation
    client, server = await way.both(first)
    for who, data in others:
        sender, receiver = (client, server) if who == ">" else (server, client)
        sending = asyncio.create_task(sender.send(data))
        assert await receiver.read(len(data)) == data
        await sending
    await client.close()
    assert await server.rest() == (b"", "end")
    await server.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", _CONVERSATIONS)
async def test_each_part_arrives_before_the_next(name: str, way: str) -> None:
    async with road(way) as built:
        await _hold(_CONVERSATIONS[name], built)
        if built.relay is not None:
            await built.relay.becomes_quiet()
            assert "internal" not in built.relay.unobserved


@pytest.mark.parametrize("way", WAYS)
async def test_streams_are_not_delayed(way: str) -> None:
    """The server sends an event once the client has the one before: also where the tap takes one out."""
    async with road(way) as built:
        sent = request(chat_request(stream=True))
        client = await connect(built.port)
        await client.send(sent)
        server = await built.server.connection()
        head, body = split(sent)
        if way == "asking":
            body = body.replace(b"{", b'{"stream_options":{"include_usage":true},', 1)
            head = head.replace(b"%d\r\n" % len(split(sent)[1]), b"%d\r\n" % len(body))
        assert await server.read(len(head + body)) == head + body
        await server.send(stream_head())
        assert await client.read(len(stream_head())) == stream_head()
        for event in EVENTS:
            block = b"%x\r\n%s\r\n" % (len(event), event)
            await server.send(block)
            if way != "asking" or event != EVENTS[-2]:
                assert await client.read(len(block)) == block
        await server.send(b"0\r\n\r\n")
        assert await client.read(5) == b"0\r\n\r\n"
        await client.close()
        assert await server.rest() == (b"", "end")
        if built.relay is not None:
            (seen,) = built.relay.told
            assert seen.record is not None


@pytest.mark.parametrize("way", WAYS)
async def test_a_client_that_sends_byte_by_byte(way: str) -> None:
    """Slow ones are served too, and observed."""
    async with road(way) as built:
        client = await connect(built.port)
        for byte in ASKED:
            await client.send(bytes((byte,)))
            await asyncio.sleep(0)
        server = await built.server.connection()
        assert await server.read(len(ASKED)) == ASKED
        for byte in stream_head() + chunks(EVENTS):
            await server.send(bytes((byte,)))
            assert await client.read(1) == bytes((byte,))
        await client.close()
        assert await server.rest() == (b"", "end")
        if built.relay is not None:
            assert len(built.relay.told) == 1


async def test_pipelined_streams_keep_their_events() -> None:
    """With a tap that asks: only a stream that was sent alone is asked, and loses its extra event."""
    plain = request(chat_request(stream=True))
    stream = stream_head() + chunks(EVENTS)
    async with road("asking") as built:
        client, server = await built.both(ASKED + plain)
        await server.send(stream + stream)
        assert await client.read(2 * len(stream)) == stream + stream
        await client.send(plain)
        assert await server.read(len(plain)) == plain  # it cannot tell any more whose answer comes
        await server.send(stream)
        assert await client.read(len(stream)) == stream
        await client.close()
        assert await server.rest() == (b"", "end")


async def _is_asked(server: End) -> None:
    """Read the next request, which asks for its usage."""
    head = await server.read_head()
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    assert b'"include_usage":true' in await server.read(length)


async def _streamed(client: End, server: End) -> bytes:
    """Stream all events, and return those that arrive."""
    await server.send(stream_head() + chunks(EVENTS))
    assert await client.read_head() == stream_head()
    body = b""
    while not body.endswith(b"\r\n0\r\n\r\n"):
        body += await client.read(1)
    events, end = unchunk(body)
    assert end == b"\r\n"
    return events


async def test_a_stream_after_others_is_asked() -> None:
    """On one connection: each of them alone."""
    plain = request(chat_request(stream=True))
    async with road("asking") as built:
        client, server = await built.both(request(method="GET"))
        await server.send(_OK)
        assert await client.read(len(_OK)) == _OK
        for _ in range(3):
            await client.send(plain)
            await _is_asked(server)
            assert await _streamed(client, server) == b"".join(EVENTS[:-2] + EVENTS[-1:])
        await client.close()
        assert await server.rest() == (b"", "end")
        assert built.relay is not None
        assert [seen.record is not None for seen in built.relay.told] == [True] * 3


async def test_streams_after_a_request_in_chunks_are_asked() -> None:
    """On one connection: only the one in chunks is not."""
    chunked = request(b"", Transfer_Encoding="chunked") + chunks([split(ASKED)[1]])
    plain = request(chat_request(stream=True))
    async with road("asking") as built:
        client, server = await built.both(chunked)
        for first in (True, False, False):
            if not first:
                await client.send(plain)
                await _is_asked(server)
            events = EVENTS if first else EVENTS[:-2] + EVENTS[-1:]
            assert await _streamed(client, server) == b"".join(events)
        await client.close()
        assert await server.rest() == (b"", "end")
        assert built.relay is not None
        assert [seen.record is not None for seen in built.relay.told] == [True] * 3


@pytest.mark.parametrize("ask", [False, True])
async def test_web_sockets(ask: bool) -> None:
    """With a client and a server that know them: texts, bytes, pings, large messages, and the farewell."""

    async def talk(asked: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(asked)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await socket.send_str(message.data.upper())
            else:
                await socket.send_bytes(message.data[::-1])
        await socket.close(code=4001, message=b"bye")
        return socket

    app = web.Application()
    app.router.add_get("/v1/realtime", talk)

    async def use(session: aiohttp.ClientSession, port: int) -> None:
        url = f"http://{HOST}:{port}/v1/realtime"
        async with session.ws_connect(url, max_msg_size=0) as socket:
            await socket.send_str("hello")
            assert await socket.receive_str() == "HELLO"
            await socket.ping()
            large = bytes(range(256)) * 8192
            await socket.send_bytes(large)
            assert await socket.receive_bytes() == large[::-1]
            await socket.close()
            assert socket.close_code is not None

    async with _running(app) as port, tapping(f"http://{HOST}:{port}", ask=ask) as relay:
        async with aiohttp.ClientSession() as session:
            for way in (port, relay.port):
                await use(session, way)
        await relay.becomes_quiet()
        assert relay.result.requests_total in (0, 1)


@pytest.mark.parametrize("ask", [False, True])
async def test_a_client_and_a_server_of_a_library(ask: bool) -> None:
    """They come to the same: methods, uploads, forms, cookies, compression, redirects."""
    app = web.Application(client_max_size=1 << 26)

    async def echo(asked: web.Request) -> web.StreamResponse:
        body = await asked.read()
        names = ("Content-Type", "Transfer-Encoding", "Cookie", "X-Test", "Expect")
        headers = {f"X-Seen-{name}": asked.headers.get(name, "-") for name in names}
        answered = web.Response(body=asked.method.encode() + b" " + body, headers=headers)
        answered.set_cookie("a", "b")
        answered.enable_compression()
        return answered

    async def move(_: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect("/echo")

    app.router.add_route("*", "/echo", echo)
    app.router.add_route("*", "/move", move)

    async def use(port: int) -> list[object]:
        found: list[object] = []
        calls: list[Callable[[aiohttp.ClientSession, str], Awaitable[aiohttp.ClientResponse]]] = [
            lambda session, url: session.get(url + "/echo"),
            lambda session, url: session.head(url + "/echo"),
            lambda session, url: session.post(url + "/echo", json={"stream": True}),
            lambda session, url: session.post(url + "/echo", data=BytesIO(b"x" * 3_000_000), expect100=True),
            lambda session, url: session.put(url + "/echo", data={"form": "\u00e9"}),
            lambda session, url: session.post(url + "/move", data=b"body", headers={"X-Test": "1"}),
            lambda session, url: session.post(url + "/echo", data=b"x" * 9999, compress="gzip"),
            lambda session, url: session.get(url + "/nothing"),
        ]
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            for call in calls:
                async with await call(session, f"http://{HOST}:{port}") as answered:
                    headers = {key: value for key, value in answered.headers.items() if key != "Date"}
                    found.append((answered.status, headers, await answered.read()))
        return found

    async with _running(app) as port, tapping(f"http://{HOST}:{port}", ask=ask) as relay:
        assert await use(relay.port) == await use(port)
        assert relay.result.requests_total == 9
        await eventually(lambda: relay.result.connections == 0)


class _running:  # noqa: N801 - used like a function
    """Run an application on a free port."""

    def __init__(self, app: web.Application) -> None:
        self._runner = web.AppRunner(app, shutdown_timeout=1.0)

    async def __aenter__(self) -> int:
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def __aexit__(self, *_: object) -> None:
        await clean_up(self._runner)
