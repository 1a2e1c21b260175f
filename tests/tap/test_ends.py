"""How connections end through the tap: as without it, at once, and completely."""

import asyncio

import pytest

from tap.ends import End, Road, connect, eventually, leaves, passes, road
from tap.streams import (
    ANSWERED_PLAIN,
    ASKED,
    ASKED_PLAIN,
    BEGUN,
    EVENTS,
    STREAMED,
    answer,
    chat_answer,
    request,
    split,
    stream_head,
)
from vllm_specdec_exporter.serve.tap import relay as module

_UNTIL_THE_END = {"transfer-encoding": None, "connection": "close"}


async def _break_off(server: End, client: End, how: str) -> None:
    """Let the server end the connection; the client learns of it, and how."""
    if how == "end":
        await server.close()
    else:
        server.reset()
    assert await client.rest() == (b"", how)
    await client.close()


async def _observed(built: Road) -> None:
    """One request was observed with its record, and none was not."""
    await built.relay.becomes_quiet()
    assert [seen.record is not None for seen in built.relay.told] == [True]
    assert built.relay.unobserved == {}


@pytest.mark.parametrize("how", ["end", "reset"])
@pytest.mark.parametrize(
    ("begun", "unobserved"),
    [(b"", {"aborted": 1}), (BEGUN, {"aborted": 1}), (STREAMED.removesuffix(b"0\r\n\r\n"), {})],
    ids=["before its answer", "within a stream", "after the last word"],
)
async def test_a_client_that_leaves_is_a_server_connection_that_ends(
    begun: bytes, unobserved: dict[str, int], how: str
) -> None:
    """The server's connection is closed at once. A stream is observed if its [DONE] was read."""
    async with road() as built:
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
        assert len(built.relay.told) == 1 - len(unobserved)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_until_the_end_of_the_connection(stream: bool) -> None:
    """It arrives as it is, and is observed."""
    plain = answer(chat_answer(), Content_Length=None, Connection="close")
    sent = stream_head(**_UNTIL_THE_END) + b"".join(EVENTS) if stream else plain
    async with road() as built:
        client, server = await built.both(ASKED if stream else ASKED_PLAIN)
        for place in range(0, len(sent), 100):
            await server.send(sent[place : place + 100])
        await server.close()
        assert await client.rest() == (sent, "end")
        await client.close()
        await _observed(built)


@pytest.mark.parametrize("how", ["end", "reset"])
@pytest.mark.parametrize(
    "begun",
    [BEGUN, stream_head(**_UNTIL_THE_END) + b"".join(EVENTS[:-1]), ANSWERED_PLAIN[:-9], b"HTTP/1.1 2", b""],
    ids=["stream", "stream until the end", "known length", "head", "nothing"],
)
async def test_a_server_that_breaks_off_is_seen_as_such(begun: bytes, how: str) -> None:
    """A reset stays a reset: an incomplete response must not look complete."""
    async with road() as built:
        client, server = await built.both(ASKED)
        await passes(server, client, begun)
        await _break_off(server, client, how)
        await built.relay.becomes_quiet()
        assert sum(built.relay.unobserved.values()) == 1


async def test_a_client_may_end_its_requests_and_still_read() -> None:
    """As with nc, or a shutdown of the sending side."""
    async with road() as built:
        client, server = await built.both(ASKED)
        client.end()
        assert await server.read(1) == b""
        for byte in range(0, len(STREAMED), 100):
            await server.send(STREAMED[byte : byte + 100])
        await server.close()
        assert await client.rest() == (STREAMED, "end")
        await client.close()
        await _observed(built)


@pytest.mark.parametrize("sent", [ASKED[:20], ASKED[:-3]], ids=["head", "body"])
async def test_half_a_request_and_its_end(sent: bytes) -> None:
    """The server gets both."""
    async with road() as built:
        client = await connect(built.port)
        await client.send(sent)
        client.end()
        server = await built.server.connection()
        assert await server.rest() == (sent, "end")
        await server.send(answer(b"", "400 Bad Request"))
        await server.close()
        assert await client.rest() == (answer(b"", "400 Bad Request"), "end")
        await client.close()


async def test_a_server_may_refuse_an_upload_and_still_read() -> None:
    """A client that sends all before it reads gets the answer, and no reset."""
    async with road() as built:
        head, body = split(request(b"x" * 3_000_000, "/v1/audio/transcriptions", Content_Type="audio/wav"))
        refusal = answer({"error": {}}, "413 Payload Too Large", Connection="close")
        client, server = await built.both(head)
        await server.send(refusal)
        server.end()
        reading = asyncio.create_task(server.read(len(body)))
        await client.send(body)
        assert await client.rest() == (refusal, "end")
        assert await reading == body
        await leaves(client, server)


async def test_a_server_that_closes_an_idle_connection() -> None:
    """The client's connection is closed too, and nothing is kept."""
    async with road() as built:
        client, server = await built.both(request(method="GET"))
        await passes(server, client, answer({}))
        await server.close()
        await built.relay.becomes_quiet()  # also where the client does not look
        assert await client.rest() == (b"", "end")
        await client.close()


async def test_a_client_that_does_not_see_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is closed after a time."""
    monkeypatch.setattr(module, "LINGER_SECONDS", 0.05)
    async with road() as built:
        client, server = await built.both(ASKED)
        await server.send(BEGUN)
        await server.close()
        await built.relay.becomes_quiet()
        assert await client.rest() == (BEGUN, "end")
        await client.close()


async def test_a_slow_reader_gets_all_of_an_answer_after_its_server_left() -> None:
    """What the tap has is sent, however long that takes."""
    async with road() as built:
        sent = answer(bytes(range(256)) * 4000, Content_Type="a/b", Connection="close")
        client, server = await built.both(request(method="GET"))
        sending = asyncio.create_task(server.send(sent))
        for place in range(0, len(sent), 50_000):
            part = sent[place : place + 50_000]
            assert await client.read(len(part)) == part
            await asyncio.sleep(0)
        await sending
        await _break_off(server, client, "end")


async def test_a_probe_that_only_connects_does_not_reach_the_server() -> None:
    """The server is not connected to."""
    async with road() as built:
        for how in ("close", "reset", "end") * 5:
            client = await connect(built.port)
            if how == "reset":
                client.reset()
            elif how == "end":
                client.end()
                assert await client.rest() == (b"", "end")
            await client.close()
        await eventually(lambda: built.relay.result.connections_total == 15)
        await built.relay.becomes_quiet()
        assert built.server.ends == []
        assert built.relay.errors == {}
