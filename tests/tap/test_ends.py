"""How connections end through the tap: as they would without it, at once, and without a trace."""

from __future__ import annotations

import asyncio

import pytest

from tap.ends import WAYS, End, connect, eventually, road
from tap.streams import (
    ASKED,
    BEGUN,
    EVENTS,
    answer,
    chat_answer,
    chat_request,
    chunks,
    request,
    split,
    stream_head,
)
from vllm_specdec_exporter.tap import relay as module


async def _break_off(server: End, client: End, how: str) -> None:
    """Let the server end the connection; the client learns of it, and how."""
    if how == "end":
        await server.close()
    else:
        server.reset()
    assert await client.rest() == (b"", how)
    await client.close()


async def _leave(client: End, server: End, how: str) -> None:
    """Let the client leave; the server learns of it, and how."""
    if how == "close":
        await client.close()
    else:
        client.reset()
    assert await server.rest() == (b"", "end" if how == "close" else "reset")
    await server.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_that_leaves_a_stream_is_a_server_connection_that_ends(way: str, how: str) -> None:
    """The server learns of it without sending anything: it need not generate for nobody."""
    async with road(way) as built:
        client, server = await built.both(ASKED)
        await server.send(BEGUN)
        assert await client.read(len(BEGUN)) == BEGUN
        await _leave(client, server, how)
        if built.relay is not None:
            await built.relay.becomes_quiet()
            assert built.relay.unobserved == {"aborted": 1}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_that_leaves_after_the_last_word(way: str, how: str) -> None:
    """Many do: its stream is observed, whether the last chunk comes or not."""
    async with road(way) as built:
        client, server = await built.both(ASKED)
        sent = stream_head() + chunks(EVENTS).removesuffix(b"0\r\n\r\n")
        await server.send(sent)
        assert await client.read(len(sent)) == sent
        await _leave(client, server, how)
        if built.relay is not None:
            await built.relay.becomes_quiet()
            (seen,) = built.relay.told
            assert seen.record is not None
            assert built.relay.unobserved == {}


_UNTIL_THE_END = {"transfer-encoding": None, "connection": "close"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_until_the_end_of_the_connection(way: str, version: str, stream: bool) -> None:
    """It arrives as it is, and is observed."""
    asked = ASKED if stream else request(chat_request())
    sent = stream_head(**_UNTIL_THE_END) + b"".join(EVENTS) if stream else _plain_until_the_end()
    sent = sent.replace(b"HTTP/1.1", version.encode())
    async with road(way) as built:
        client, server = await built.both(asked)
        for place in range(0, len(sent), 100):
            await server.send(sent[place : place + 100])
        await server.close()
        assert await client.rest() == (sent, "end")
        await client.close()
        if built.relay is not None:
            await built.relay.becomes_quiet()
            (seen,) = built.relay.told
            assert seen.record is not None
            assert built.relay.unobserved == {}


def _plain_until_the_end() -> bytes:
    return answer(chat_answer(), Content_Length=None, Connection="close")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["end", "reset"])
async def test_half_an_answer_until_the_end_of_the_connection(way: str, how: str) -> None:
    """None is taken for a whole one, and a reset stays one."""
    async with road(way) as built:
        client, server = await built.both(ASKED)
        sent = stream_head(**_UNTIL_THE_END) + b"".join(EVENTS[:-1])
        await server.send(sent)
        assert await client.read(len(sent)) == sent
        await _break_off(server, client, how)
        if built.relay is not None:
            await built.relay.becomes_quiet()
            assert built.relay.unobserved == {"aborted": 1}


async def test_an_asked_stream_until_the_end_of_the_connection() -> None:
    """Its extra event is taken out, and its record observed."""
    async with road("asking") as built:
        client = await connect(built.port)
        await client.send(request(chat_request(stream=True)))
        server = await built.server.connection()
        head = stream_head(**_UNTIL_THE_END)
        await server.send(head)
        assert await client.read(len(head)) == head
        for event in EVENTS:
            await server.send(event)
            if event != EVENTS[-2]:
                assert await client.read(len(event)) == event
        await server.close()
        assert await client.rest() == (b"", "end")
        await client.close()
        assert built.relay is not None
        await built.relay.becomes_quiet()
        assert [seen.record is not None for seen in built.relay.told] == [True]


@pytest.mark.parametrize("way", WAYS)
async def test_a_client_that_leaves_before_its_answer(way: str) -> None:
    async with road(way) as built:
        client, server = await built.both(request(chat_request()))
        await client.close()
        assert await server.rest() == (b"", "end")
        await server.close()
        if built.relay is not None:
            await built.relay.becomes_quiet()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "begun",
    [
        BEGUN,
        answer(chat_answer())[:-9],
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf",
        b"HTTP/1.1 2",
        b"",
    ],
    ids=["stream", "known length", "until the end", "head", "nothing"],
)
@pytest.mark.parametrize("how", ["end", "reset"])
async def test_a_server_that_breaks_off_is_seen_as_such(way: str, begun: bytes, how: str) -> None:
    """A connection that broke is one that broke for the client too: half an answer must not look whole."""
    async with road(way) as built:
        client, server = await built.both(ASKED)
        await server.send(begun)
        assert await client.read(len(begun)) == begun
        await _break_off(server, client, how)
        if built.relay is not None:
            await built.relay.becomes_quiet()
            assert sum(built.relay.unobserved.values()) == 1


async def test_a_broken_asked_stream_ends_where_it_broke() -> None:
    """What the tap still held back of an answer reaches the client."""
    async with road("asking") as built:
        client = await connect(built.port)
        await client.send(request(chat_request(stream=True)))
        server = await built.server.connection()
        await server.send(stream_head() + b"20\r\ndata: half")
        assert await client.read(len(stream_head())) == stream_head()
        await server.close()
        assert await client.rest() == (b"a\r\ndata: half\r\n", "end")
        await client.close()


@pytest.mark.parametrize("way", WAYS)
async def test_a_client_may_end_its_requests_and_still_read(way: str) -> None:
    """As with nc, or a shutdown of the sending side."""
    async with road(way) as built:
        client, server = await built.both(ASKED)
        client.end()
        assert await server.read(1) == b""
        sent = stream_head() + chunks(EVENTS)
        for byte in range(0, len(sent), 100):
            await server.send(sent[byte : byte + 100])
        await server.close()
        assert await client.rest() == (sent, "end")
        await client.close()
        if built.relay is not None:
            await built.relay.becomes_quiet()
            assert len(built.relay.told) == 1


@pytest.mark.parametrize("sent", [ASKED[:20], ASKED[:-3]], ids=["head", "body"])
@pytest.mark.parametrize("way", WAYS)
async def test_half_a_request_and_its_end(way: str, sent: bytes) -> None:
    """The server gets both."""
    async with road(way) as built:
        client = await connect(built.port)
        await client.send(sent)
        client.end()
        server = await built.server.connection()
        assert await server.rest() == (sent, "end")
        await server.send(answer(b"", "400 Bad Request"))
        await server.close()
        assert await client.rest() == (answer(b"", "400 Bad Request"), "end")
        await client.close()


@pytest.mark.parametrize("way", ["direct", "tap"])
async def test_a_server_may_refuse_an_upload_and_still_read(way: str) -> None:
    """A client that sends all before it reads gets the answer, and no reset."""
    async with road(way) as built:
        head, body = split(request(b"x" * 3_000_000, "/v1/audio/transcriptions", Content_Type="audio/wav"))
        refusal = answer({"error": {}}, "413 Payload Too Large", Connection="close")
        client, server = await built.both(head)
        await server.send(refusal)
        server.end()
        reading = asyncio.create_task(server.read(len(body)))
        await client.send(body)
        assert await client.rest() == (refusal, "end")
        assert await reading == body
        await client.close()
        assert await server.rest() == (b"", "end")
        await server.close()


@pytest.mark.parametrize("way", WAYS)
async def test_a_server_that_closes_an_idle_connection(way: str) -> None:
    """As they do a few seconds after the last request. The client sees it, and the tap keeps nothing."""
    async with road(way) as built:
        client, server = await built.both(request(method="GET"))
        await server.send(answer({}))
        assert await client.read(len(answer({}))) == answer({})
        await server.close()
        if built.relay is not None:
            await built.relay.becomes_quiet()  # also where the client does not look
        assert await client.rest() == (b"", "end")
        await client.close()


async def test_a_client_that_does_not_see_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is not kept for ever."""
    monkeypatch.setattr(module, "LINGER_SECONDS", 0.05)
    async with road("tap") as built:
        client, server = await built.both(ASKED)
        await server.send(BEGUN)
        await server.close()
        assert built.relay is not None
        await built.relay.becomes_quiet()
        assert await client.rest() == (BEGUN, "end")
        await client.close()


async def test_a_slow_reader_gets_all_of_an_answer_after_its_server_left() -> None:
    """What the tap has is sent, however long that takes."""
    async with road("tap") as built:
        body = bytes(range(256)) * 4000
        sent = answer(body, Content_Type="a/b", Connection="close")
        client, server = await built.both(request(method="GET"))
        sending = asyncio.create_task(server.send(sent))
        for place in range(0, len(sent), 50_000):
            part = sent[place : place + 50_000]
            assert await client.read(len(part)) == part
            await asyncio.sleep(0)
        await sending
        await server.close()
        assert await client.rest() == (b"", "end")
        await client.close()


async def test_a_probe_that_only_knocks_costs_the_server_nothing() -> None:
    """Load balancers do, all day."""
    async with road("tap") as built:
        for how in ("close", "reset", "end") * 5:
            client = await connect(built.port)
            if how == "reset":
                client.reset()
            elif how == "end":
                client.end()
                assert await client.rest() == (b"", "end")
            await client.close()
        assert built.relay is not None
        await eventually(lambda: built.relay is not None and built.relay.result.connections_total == 15)
        await built.relay.becomes_quiet()
        assert built.server.ends == []
        assert built.relay.errors == {}
