"""The shutdown of a tap."""

import asyncio

import pytest

from tap.ends import PATIENCE, connect, eventually, late, road
from tap.streams import answer, request


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
