import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from vllm_specdec_exporter.simulator import (
    SCENARIOS,
    Simulation,
    SimulationConfig,
    SimulatorServer,
)


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float = 5) -> None:
    """Wait until a condition holds."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, "it never happened"
        await asyncio.sleep(0.02)


async def test_paths() -> None:
    simulation = Simulation(SimulationConfig(), seed=1)
    simulation.advance(30)
    async with (
        SimulatorServer(simulation, speed=0) as server,
        aiohttp.ClientSession(server.url) as client,
    ):
        async with client.get("/metrics") as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=1.0.0; charset=utf-8"
            assert await answer.read() == simulation.render()
        async with client.get("/version") as answer:
            assert await answer.json() == {"version": "0.32.0"}
        async with client.get("/health") as answer:
            assert answer.status == 200
        async with client.get("/simulator") as answer:
            status = await answer.json()
    assert status["phase"] == "healthy"
    assert status["elapsed_seconds"] == pytest.approx(30)
    assert status["truth"]["drafts"] == simulation.truth.drafts


@pytest.mark.parametrize(
    ("dialect", "content_type", "version"),
    [
        ("vllm-rust", "application/openmetrics-text; version=1.0.0; charset=utf-8", 200),
        ("vllm-underscore", "application/openmetrics-text; version=1.0.0; charset=utf-8", 200),
        ("vllm-v0", "text/plain; version=0.0.4; charset=utf-8", 200),
        ("llamacpp", "text/plain; version=0.0.4", 404),
    ],
)
async def test_dialects(dialect: str, content_type: str, version: int) -> None:
    async with (
        SimulatorServer(Simulation(seed=1), dialect=dialect) as server,
        aiohttp.ClientSession(server.url) as client,
    ):
        async with client.get("/metrics") as answer:
            assert answer.headers["Content-Type"] == content_type
        async with client.get("/version") as answer:
            assert answer.status == version


async def test_time_passes_by_itself_and_faster_if_asked() -> None:
    async with (
        SimulatorServer(Simulation(seed=1), speed=50) as server,
        aiohttp.ClientSession(server.url) as client,
    ):

        async def advanced() -> bool:
            async with client.get("/simulator") as answer:
                return bool((await answer.json())["elapsed_seconds"] > 20)

        await eventually(advanced)


async def test_a_restart_closes_the_port_and_opens_it_again() -> None:
    async with (
        SimulatorServer(Simulation(seed=1), speed=0) as server,
        aiohttp.ClientSession(server.url) as client,
    ):
        async with client.get("/metrics"):  # leaves a connection open for reuse
            pass
        body = {"phase": "restart", "downtime_seconds": 5}
        async with client.post("/simulator/phase", json=body) as answer:
            assert answer.status == 200
            assert (await answer.json())["serving"] is False

        async def refused() -> bool:
            try:
                async with client.get("/metrics"):
                    return False
            except aiohttp.ClientConnectorError:
                return True

        await eventually(refused)
        assert not server.listening
        port = server.port
        await server.advance(5)
        assert server.port == port
        async with client.get("/metrics") as answer:
            assert answer.status == 200


async def test_a_restart_can_show_itself_as_503() -> None:
    async with (
        SimulatorServer(Simulation(seed=1), speed=0) as server,
        aiohttp.ClientSession(server.url) as client,
    ):
        server.simulation.set_phase("restart", downtime_seconds=5, unavailable="503")
        await server.synchronize()
        for path in ("/metrics", "/health", "/version"):
            async with client.get(path) as answer:
                assert answer.status == 503
        await server.advance(5)
        async with client.get("/metrics") as answer:
            assert answer.status == 200


async def test_a_phase_is_set_over_http() -> None:
    async with (
        SimulatorServer(Simulation(seed=1), speed=0) as server,
        aiohttp.ClientSession(server.url) as client,
    ):
        body = {"phase": "collapse", "acceptance": 0.3, "seconds": 9}
        async with client.post("/simulator/phase", json=body) as answer:
            status = await answer.json()
        assert status["phase"] == "collapse"
        assert status["phase_seconds"] == 9
        assert server.simulation.phase.parameters.number("acceptance") == 0.3


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is not JSON"),
        (b"[]", "the body must be an object with phase, and any parameters of it"),
        (b"{}", "the body must be an object with phase, and any parameters of it"),
        (b'{"phase": 3}', "unknown phase 3; the phases are healthy, "),
        (b'{"phase": "idle", "clients": "x"}', "phase idle: clients must be a whole number"),
        (b'{"phase": "idle", "parameters": {}}', "phase idle has no parameter 'parameters'"),
    ],
)
async def test_a_faulty_phase_is_refused(body: bytes, message: str) -> None:
    async with (
        SimulatorServer(Simulation(seed=1), speed=0) as server,
        aiohttp.ClientSession(server.url) as client,
        client.post("/simulator/phase", data=body) as answer,
    ):
        assert answer.status == 400
        assert (await answer.json())["error"].startswith(message)
        assert server.simulation.phase.kind.name == "healthy"


async def test_phases_are_announced_once_each() -> None:
    names = []
    simulation = Simulation(SimulationConfig(scenario=SCENARIOS["collapse"]), seed=1)
    server = SimulatorServer(simulation, speed=0, on_phase=lambda phase: names.append(phase.kind.name))
    async with server:
        await server.advance(100)
        await server.advance(10)
        await server.advance(50)
        await server.advance(200)
    assert names == ["healthy", "collapse", "healthy"]


async def test_a_taken_port_is_an_error() -> None:
    async with SimulatorServer(Simulation(seed=1), speed=0) as server:
        with pytest.raises(OSError, match="in use"):
            await SimulatorServer(Simulation(seed=1), port=server.port).start()
