"""`simulate`: the HTTP server of a simulated vLLM, for demonstrations, scale tests and
rare cases.

It serves /metrics like vLLM 0.32, or like its Rust front end, under a scripted
scenario. A `Simulation` keeps exact totals of what it drafted and accepted::

    simulation = Simulation(SimulationConfig(), seed=1)
    simulation.advance(60)
    text = simulation.render("vllm")
"""

import argparse
import asyncio
import contextlib
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Self

from aiohttp import web
from msgspec.structs import asdict

from ...config.listen_address import format_address, parse_listen_address
from ...config.values import number
from ...engines.limits import MAX_ENGINES
from ...runtime.shutdown import on_each_signal
from ..arguments import add_flag, whole_between
from ..exit_codes import FINE, PROBLEM, USAGE
from .families import DIALECTS
from .phases import MAX_K, ScenarioError
from .simulation import SCENARIOS, Simulation, SimulationConfig, load_scenario

_DEFAULTS = SimulationConfig()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the simulator's flags to a parser."""
    parser.epilog = (
        f"Exit codes: {FINE} stopped by SIGINT or SIGTERM; {PROBLEM} cannot listen; "
        f"{USAGE} bad usage."
    )
    add = partial(add_flag, parser)
    add(
        "--web.listen-address HOST:PORT",
        "Address to serve /metrics on.",
        "127.0.0.1:8000",
        parse_listen_address,
    )
    add("--dialect", "Front end of vLLM that writes.", "vllm", choices=tuple(DIALECTS))
    group = parser.add_mutually_exclusive_group()
    add_flag(
        group,
        "--scenario NAME",
        "What happens.",
        default="tour",
        choices=tuple(SCENARIOS),
    )
    add_flag(
        group,
        "--scenario.file FILE",
        "YAML file with a scenario of your own.",
        parse=Path,
    )
    add(
        "--engines N",
        "Engines of the server.",
        f"{_DEFAULTS.engines}",
        whole_between(1, MAX_ENGINES),
    )
    add("--model NAME", "Served model.", _DEFAULTS.model)
    add(
        "--num-speculative-tokens K",
        "Draft tokens per step; 0: no speculation.",
        f"{_DEFAULTS.num_speculative_tokens}",
        whole_between(0, MAX_K),
    )
    add(
        "--seed SEED",
        "Seed of the random numbers: with the same flags, two runs have the same "
        "counters at the same simulated time, however fast the machine is.",
        type=int,
    )
    add("--speed X", "Simulated seconds per second.", "1", number(0.001))


def run(args: argparse.Namespace) -> int:
    """Serve a simulation until SIGINT or SIGTERM; return the exit code."""
    file = args.scenario_file
    scenario = load_scenario(file) if file else SCENARIOS[args.scenario]
    config = SimulationConfig(
        model=args.model,
        engines=args.engines,
        num_speculative_tokens=args.num_speculative_tokens,
        scenario=scenario,
        start_time=time.time(),
    )
    host, port = args.web_listen_address
    server = SimulatorServer(
        Simulation(config, args.seed),
        dialect=args.dialect,
        host=host,
        port=port,
        speed=args.speed,
    )
    try:
        asyncio.run(_serve(server))
    except OSError as error:
        address = format_address(host, port)
        _log(f"cannot listen on {address}: {error.strerror or error}")
        return PROBLEM
    except KeyboardInterrupt:  # before the signal handlers are installed
        pass
    return FINE


async def _serve(server: "SimulatorServer") -> None:
    stopped = asyncio.Event()
    scenario = server.simulation.config.scenario.name
    with on_each_signal(stopped.set):
        async with server:
            _log(f"serving {server.url}/metrics (scenario {scenario})")
            await stopped.wait()


def _log(text: str) -> None:
    print(f"simulate: {text}", file=sys.stderr, flush=True)


#: The version of vLLM whose families the data files hold.
_VERSION = "0.32.0"
# Shorter than any scrape interval, so that a restart is seen when it happens.
_TICK_SECONDS = 0.1
# Simulated time passes in whole steps: with a seed, counters must not depend on when
# the server is scraped. Finer than any scrape interval.
_STEP_SECONDS = 0.1
# Open connections of scrapers must not delay a restart.
_SHUTDOWN_SECONDS = 0.3


class SimulatorServer:
    """Serves a simulation over HTTP in real time, as an async context manager; OSError
    if it cannot listen.

    While the simulated server restarts, the listening socket is closed, so that
    connections are refused.

    Args:
        simulation: The simulation.
        dialect: A name from `DIALECTS`.
        host: Empty for all addresses.
        port: 0 for a free one.
        speed: Simulated seconds per second; 0: time passes only in `advance`.
    """

    def __init__(
        self,
        simulation: Simulation | None = None,
        *,
        dialect: str = "vllm",
        host: str = "127.0.0.1",
        port: int = 0,
        speed: float = 1.0,
    ) -> None:
        self.simulation = simulation or Simulation()
        self.dialect = dialect
        self.host = host
        self.port = port
        self.speed = speed
        self._runner: web.AppRunner | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._synchronizing = asyncio.Lock()
        self._last = 0.0  # when the simulation caught up, on the monotonic clock
        self._pending = 0.0  # simulated seconds since then that make no step yet

    @property
    def url(self) -> str:
        """Address of the server, without a path."""
        return f"http://{format_address(self.host or '127.0.0.1', self.port)}"

    async def __aenter__(self) -> Self:
        self._last = time.monotonic()
        await self._open()
        self._ticker = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._ticker is not None:
                self._ticker.cancel()
                await asyncio.gather(self._ticker, return_exceptions=True)
        finally:
            await self._close()

    async def advance(self, seconds: float) -> None:
        """Simulate seconds at once, and open or close the socket as the simulation
        requires.
        """
        self.simulation.advance(seconds)
        await self.synchronize()

    async def synchronize(self) -> None:
        """Open or close the socket as the simulation's state requires."""
        async with self._synchronizing:
            if not self.simulation.serving:
                await self._close()
            elif self._runner is None:
                await self._open()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._catch_up()
            # The port may be in use; the next tick tries again.
            with contextlib.suppress(OSError):
                await self.synchronize()

    def _catch_up(self) -> None:
        last = self._last
        self._last = time.monotonic()
        self._pending += (self._last - last) * self.speed
        while self._pending >= _STEP_SECONDS:
            self._pending -= _STEP_SECONDS
            self.simulation.advance(_STEP_SECONDS)

    async def _open(self) -> None:
        app = web.Application()
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/health", self._get_health)
        app.router.add_get("/version", self._get_version)
        app.router.add_get("/simulator", self._get_simulator)
        app.router.add_post("/simulator/phase", self._post_phase)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS
        )
        try:
            await self._runner.setup()
            site = web.TCPSite(self._runner, self.host or None, self.port)
            starting = asyncio.create_task(site.start())
            try:
                # asyncio forgets, but does not close, sockets of a cancelled start.
                await asyncio.shield(starting)
            finally:
                await starting
        except BaseException:  # also a cancellation
            await self._close()
            raise
        if self.port == 0:
            # A restarted server listens on the same port.
            self.port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        if self._runner is not None:
            # Forgotten only once it is closed: this may be cancelled, and called again.
            await self._runner.cleanup()
            self._runner = None

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        self._catch_up()
        if not self.simulation.serving:  # until the next tick closes the socket
            return web.Response(status=503, text="the model is being loaded\n")
        return web.Response(
            body=self.simulation.render(self.dialect),
            headers={"Content-Type": DIALECTS[self.dialect]},
        )

    async def _get_health(self, _request: web.Request) -> web.Response:
        return web.Response(status=200 if self.simulation.serving else 503)

    async def _get_version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": _VERSION})

    async def _get_simulator(self, _request: web.Request) -> web.Response:
        self._catch_up()
        return web.json_response(self.status())

    async def _post_phase(self, request: web.Request) -> web.Response:
        self._catch_up()
        try:
            parameters = dict(await request.json())
            name = parameters.pop("phase", "")
            self.simulation.set_phase(name, **parameters)
        # not JSON, no object, or no such phase
        except (ScenarioError, TypeError, ValueError) as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response(self.status())

    def status(self) -> dict[str, Any]:
        """Return the document of GET /simulator."""
        simulation = self.simulation
        return {
            "phase": simulation.phase.kind.name,
            "phase_elapsed_seconds": simulation.phase_elapsed,
            "phase_seconds": simulation.phase.seconds,
            "elapsed_seconds": simulation.elapsed,
            "scenario": simulation.config.scenario.name,
            "serving": simulation.serving,
            "restarts": simulation.restarts,
            "num_speculative_tokens": simulation.num_speculative_tokens,
            "truth": asdict(simulation.truth),
        }
