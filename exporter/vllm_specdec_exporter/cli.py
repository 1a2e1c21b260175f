"""The command line: which subcommand, and errors as one line.

Each subcommand is a module with `add_arguments(parser)` and `run(args)`; it is imported only when it is
called, so that the sidecar carries nothing else.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING

from . import __version__
from .options import ConfigError, Parser

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "vllm-specdec-exporter"

#: Subcommands: their module, and what they do.
COMMANDS = {
    "serve": ("serve", "poll vLLM and serve derived metrics (the default)"),
    "health": ("health", "tell whether the exporter on this machine is alive, for health checks"),
    "check": ("check", "diagnose a server once, in the terminal"),
    "requests": ("per_request.command", "what recorded answers tell of single requests, in the terminal"),
    "baseline": ("baseline.command", "record how fast the server is without speculation"),
    "compare": ("compare.command", "two or more servers, or recorded snapshots, side by side"),
    "sweep": ("sweep.command", "send requests at chosen temperatures and loads, and measure acceptance"),
    "plan": ("plan.command", "does a draft model fit, and what may it gain: pre-flight on paper"),
    "dashboards": ("grafana.command", "the Grafana dashboards: list, write as files, push to a Grafana"),
    "act": ("act.command", "receive Alertmanager's action alerts, and turn them into something safe"),
    "simulate": ("simulator.command", "serve the /metrics of a vLLM that does not exist"),
    "demo": ("demo", "simulator and exporter, with Prometheus and Alertmanager where installed"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode still gets its report
    name = "serve"
    if words and not words[0].startswith("-"):
        name = words.pop(0)
    if name not in COMMANDS:
        known = ", ".join(COMMANDS)
        hint = f" (a server is given with --vllm.url, or as {PROGRAM} check URL)" if "://" in name else ""
        print(f"{PROGRAM}: error: unknown command {name!r}; known: {known}{hint}", file=sys.stderr)
        return 2
    if name == "serve" and argv is None:
        # The first process of a container has no defaults for signals: SIGTERM while it imports would be
        # lost, and the pod would wait out its grace period. Elsewhere SIGHUP would end it too early.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    module_name, summary = COMMANDS[name]
    module = importlib.import_module(f".{module_name}", __package__)
    parser = Parser(
        prog=PROGRAM if name == "serve" else f"{PROGRAM} {name}",
        description=f"{name}: {summary}.",
        epilog=_epilog() if name == "serve" else None,
    )
    module.add_arguments(parser)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    try:
        try:
            args = parser.parse_args(words)
        except SystemExit as end:
            code = module.stand_by(words) if name == "serve" and end.code == 2 else None
            if code is None:
                raise
            return int(code)
        return int(module.run(args))
    except ConfigError as error:
        from .wording import printable  # here, so that `health` starts fast

        print(f"{parser.prog}: error: {printable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _epilog() -> str:
    commands = "; ".join(f"{name}: {summary}" for name, (_, summary) in COMMANDS.items())
    return f"Other commands, each with its own --help: {commands}."
