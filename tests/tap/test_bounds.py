"""Limits of buffered bytes, and the shutdown of a tap."""

import asyncio

import pytest

from tap.ends import PATIENCE, connect, eventually, late, road
from tap.streams import answer, chat_request, request, split
from vllm_specdec_exporter.serve.tap import observer
from vllm_specdec_exporter.serve.tap import relay as module


async def test_what_asking_holds_back_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit, requests pass unchanged; all arrive, and nothing stays buffered."""
    body = chat_request(stream=True, padding="x" * 9000)
    head, data = split(request(body))
    most = 3 * len(data)
    for where in (module, observer):
        monkeypatch.setattr(where, "MAX_HELD", most)
    async with road("asking") as built:
        relay, upstream = built.relay, built.server
        clients = [await connect(relay.port) for _ in range(5)]
        for client in clients:
            await client.send(head + data[:-1])
        await eventually(lambda: relay.result.connections == 5)
        servers = [await upstream.connection() for _ in clients]
        await eventually(lambda: relay.held > most // 2)
        assert relay.held <= most
        for client in clients:
            await client.send(data[-1:])
        asked = 0
        for server in servers:
            got = await server.read_head()
            length = int(got.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            found = await server.read(length)
            asked += b'"include_usage":true' in found
            assert found.replace(b'"stream_options":{"include_usage":true},', b"") == data
        assert 0 < asked < 5
        for client in clients:
            await client.close()
        for server in servers:
            await server.close()


async def test_a_request_that_is_held_back_is_under_way() -> None:
    """A shutdown waits for it as for any other."""
    async with road("asking", drain=PATIENCE) as built:
        relay, upstream = built.relay, built.server
        sent = request(chat_request(stream=True))
        client, idle = await connect(relay.port), await connect(relay.port)
        await client.send(sent[:-1])
        await eventually(lambda: relay.held > 0 and relay.result.connections == 2)
        ending = asyncio.create_task(relay.tap.drain())
        assert await idle.rest() == (b"", "end")  # it has looked who is idle
        await client.send(sent[-1:])
        server = await upstream.connection()
        await server.read_head()
        await server.send(answer({"error": {}}, "400 Bad Request"))
        assert await client.rest() == (answer({"error": {}}, "400 Bad Request"), "end")
        await ending
        await client.close()
        await idle.close()


async def test_the_end_of_the_tap_waits_for_who_is_being_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request is under way."""
    async with road(drain=PATIENCE) as built:
        relay, upstream = built.relay, built.server
        client, idle = await connect(relay.port), await connect(relay.port)
        connecting = late(monkeypatch)
        await client.send(request(method="GET"))
        await connecting.begun.wait()
        await eventually(lambda: relay.result.connections == 2)
        ending = asyncio.create_task(relay.tap.drain())
        assert await idle.rest() == (b"", "end")  # it has looked who is idle
        connecting.go.set()
        server = await upstream.connection()
        await server.send(answer({}))
        assert await client.rest() == (answer({}), "end")
        await ending
        await client.close()
        await idle.close()


async def test_the_end_of_the_tap_leaves_no_attempt_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    async with road() as built:
        relay = built.relay
        client = await connect(relay.port)
        connecting = late(monkeypatch)
        await client.send(request(method="GET"))
        await connecting.begun.wait()
        await relay.tap.drain()
        assert (await client.rest())[0] == b""
        await client.close()  # that no task is left is asserted where the tap ends
