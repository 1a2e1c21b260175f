"""The simulated server on the network: its paths, clock, phases and port."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
import yaml

from support.ports import free_port
from vllm_specdec_exporter.commands import simulate
from vllm_specdec_exporter.commands.simulate import (
    Simulation,
    SimulationConfig,
    SimulatorServer,
)
from vllm_specdec_exporter.commands.simulate.simulation import parse_scenario


@contextlib.asynccontextmanager
async def serving(
    simulation: Simulation | None = None,
) -> AsyncIterator[tuple[SimulatorServer, aiohttp.ClientSession]]:
    """A server whose clock stands, and a client of it."""
    async with (
        SimulatorServer(simulation or Simulation(seed=1), speed=0) as server,
        aiohttp.ClientSession(server.url) as client,
    ):
        yield server, client


async def status_of(client: aiohttp.ClientSession, path: str) -> int:
    async with client.get(path) as answer:
        return answer.status


async def document_of(client: aiohttp.ClientSession, path: str) -> Any:
    async with client.get(path) as answer:
        return await answer.json()


async def test_paths() -> None:
    simulation = Simulation(SimulationConfig(), seed=1)
    simulation.advance(30)
    async with serving(simulation) as (_, client):
        async with client.get("/metrics") as answer:
            assert await answer.read() == simulation.render()
        assert await document_of(client, "/version") == {"version": "0.32.0"}
        assert await status_of(client, "/health") == 200
        status = await document_of(client, "/simulator")
    assert status["phase"] == "healthy"
    assert status["elapsed_seconds"] == pytest.approx(30)
    assert status["truth"]["drafts"] == simulation.truth.drafts


async def test_a_restart_closes_the_port_and_opens_it_again() -> None:
    async with serving() as (server, client):
        await status_of(client, "/metrics")  # leaves a connection open for reuse
        body = {"phase": "restart", "downtime_seconds": 5}
        async with client.post("/simulator/phase", json=body) as answer:
            assert answer.status == 200
            assert (await answer.json())["serving"] is False

        async def refused() -> bool:
            try:
                await status_of(client, "/metrics")
            except aiohttp.ClientConnectorError:
                return True
            return False

        for _ in range(1500):
            if await refused():
                break
            await asyncio.sleep(0.02)
        assert await refused()
        port = server.port
        await server.advance(5)
        assert server.port == port
        assert await status_of(client, "/metrics") == 200


async def test_counters_depend_on_seed_and_time_but_not_on_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often the server is scraped meanwhile, also across restarts."""
    scenario = parse_scenario(
        {
            "phases": [
                {"phase": "healthy", "seconds": 7.77},
                {"phase": "restart", "seconds": 5, "downtime_seconds": 1.25},
            ]
        },
        "restarting",
    )

    async def served(seed: int, pauses: list[float]) -> tuple[Any, bytes]:
        clock = SimpleNamespace(monotonic=lambda: sum(passed))
        passed = [0.0]
        monkeypatch.setattr(simulate, "time", clock)
        config = SimulationConfig(engines=2, scenario=scenario)
        server = SimulatorServer(Simulation(config, seed), speed=3)
        async with server, aiohttp.ClientSession(server.url) as client:
            for pause in pauses:
                passed.append(pause)
                with contextlib.suppress(aiohttp.ClientError):
                    await status_of(client, "/metrics")
            # While the port is closed, only the ticker catches up.
            while server.simulation.elapsed < 29.95:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.01)
            return server.status(), server.simulation.render()

    seldom = await served(1, [5.01, 5.01])
    often = await served(1, [0.07, 0.33, 0.6] * 10 + [0.02])
    assert often == seldom
    assert await served(2, [5.01, 5.01]) != seldom


FAULTY = yaml.safe_load(Path(__file__).with_name("refused.yml").read_text("utf-8"))[
    "bodies"
]


def _listens(port: int) -> bool:
    # Bound, not connected to: a connection would have an end in the server.
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return True
    return False


@pytest.mark.parametrize("turns", range(8))
async def test_nothing_listens_after_a_cancelled_start(turns: int) -> None:
    """Wherever it is cancelled: after any number of turns of the event loop."""
    port = free_port()

    async def serve() -> None:
        async with SimulatorServer(Simulation(seed=1), port=port, speed=0):
            await asyncio.Event().wait()

    serving = asyncio.create_task(serve())
    for _ in range(turns):
        await asyncio.sleep(0)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert not _listens(port)


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("opens", [False, True])
async def test_nothing_listens_after_an_end_within_a_restart(
    turns: int, *, opens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the ticker is while it closes the port, or opens it again."""
    monkeypatch.setattr(simulate, "_TICK_SECONDS", 0)
    port = free_port()
    simulation = Simulation(seed=1)
    async with SimulatorServer(simulation, port=port, speed=0):
        simulation.set_phase("restart", downtime_seconds=5)
        if opens:
            while _listens(port):  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0)
            simulation.advance(6)
        for _ in range(turns):
            await asyncio.sleep(0)
    assert not _listens(port)


async def test_a_phase_is_set_over_http_and_a_faulty_one_refused() -> None:
    async with serving() as (server, client):
        for body, message in FAULTY.items():
            async with client.post("/simulator/phase", data=body) as answer:
                assert answer.status == 400, body
                assert (await answer.json())["error"].startswith(message), body
                assert server.simulation.phase.kind.name == "healthy", body
        good = {"phase": "collapse", "acceptance": 0.3, "seconds": 9}
        async with client.post("/simulator/phase", json=good) as answer:
            status = await answer.json()
        assert status["phase"] == "collapse"
        assert status["phase_seconds"] == 9
        assert server.simulation.phase.parameters.acceptance == 0.3
