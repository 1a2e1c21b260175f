"""The command line of the simulator."""

import argparse
import asyncio
import sys
import time
from pathlib import Path

from ...config.values import format_address, number, parse_listen_address, whole_number
from ...serve.shutdown import on_each_signal
from ..arguments import converter
from .families import DIALECTS
from .phases import Phase, ScenarioError
from .scenario import SCENARIOS, find_scenario, load_scenario
from .server import SimulatorServer
from .simulation import Simulation, SimulationConfig

_DEFAULTS = SimulationConfig()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the simulator's flags to a parser."""
    parser.epilog = "Exit codes: 0 ended by SIGINT or SIGTERM; 1 it cannot listen; 2 bad usage."
    parser.add_argument(
        "--web.listen-address",
        dest="listen_address",
        type=converter(parse_listen_address),
        default=("127.0.0.1", 8000),
        metavar="HOST:PORT",
        help="address to serve /metrics on (default: 127.0.0.1:8000)",
    )
    parser.add_argument(
        "--dialect",
        choices=tuple(DIALECTS),
        default="vllm",
        help="how the metrics are written (default: vllm)",
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--scenario",
        default="tour",
        metavar="NAME",
        help=f"what happens: {', '.join(SCENARIOS)} (default: tour)",
    )
    group.add_argument(
        "--scenario.file",
        dest="scenario_file",
        type=Path,
        metavar="FILE",
        help="YAML file with a scenario of your own",
    )
    parser.add_argument(
        "--engines",
        type=converter(whole_number(1)),
        default=_DEFAULTS.engines,
        metavar="N",
        help="engines per model (default: 1)",
    )
    parser.add_argument(
        "--models",
        action="append",
        metavar="NAME",
        help=f"served model, repeatable (default: {_DEFAULTS.models[0]})",
    )
    parser.add_argument(
        "--num-speculative-tokens",
        type=converter(whole_number(0)),
        default=_DEFAULTS.num_speculative_tokens,
        metavar="K",
        help="draft tokens per step; 0: no speculation (default: 4)",
    )
    parser.add_argument(
        "--method",
        default=_DEFAULTS.method,
        help="name of the speculation method; it changes nothing but GET /simulator (default: "
        f"{_DEFAULTS.method})",
    )
    parser.add_argument("--seed", type=int, help="makes the simulation repeatable")
    parser.add_argument(
        "--speed",
        type=converter(number(0.001)),
        default=1.0,
        metavar="X",
        help="simulated seconds per second (default: 1)",
    )
    parser.add_argument(
        "--loop",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="start the scenario again at its end (default: as the scenario says)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve a simulation until SIGINT or SIGTERM; return the exit code."""
    file = args.scenario_file
    try:
        scenario = find_scenario(args.scenario) if file is None else load_scenario(file)
    except ScenarioError as error:
        _log(str(error))
        return 2
    config = SimulationConfig(
        models=tuple(dict.fromkeys(args.models)) if args.models else _DEFAULTS.models,
        engines=args.engines,
        num_speculative_tokens=args.num_speculative_tokens,
        scenario=scenario,
        loop=args.loop,
        method=args.method,
        start_time=time.time(),
    )
    host, port = args.listen_address
    try:
        asyncio.run(_serve(Simulation(config, args.seed), host, port, args))
    except OSError as error:
        _log(f"cannot listen on {format_address(host, port)}: {error.strerror or error}")
        return 1
    except KeyboardInterrupt:  # before the signal handlers were installed
        return 0
    return 0


async def _serve(simulation: Simulation, host: str, port: int, args: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    server = SimulatorServer(
        simulation, dialect=args.dialect, host=host, port=port, speed=args.speed, on_phase=_log_phase
    )
    with on_each_signal(stopped.set):
        await server.start()
        try:
            config = simulation.config
            _log(
                f"serving {server.metrics_url} (dialect {args.dialect}, {len(config.models)} model(s) "
                f"with {config.engines} engine(s) each, scenario {config.scenario.name})"
            )
            await stopped.wait()
        finally:
            await server.stop()


def _log_phase(phase: Phase) -> None:
    length = "" if phase.seconds is None else f" for {phase.seconds:g} s"
    _log(f"phase {phase.kind.name}{length}: {phase.kind.help}")


def _log(text: str) -> None:
    print(f"simulate: {text}", file=sys.stderr, flush=True)
