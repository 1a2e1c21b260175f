"""The command line: which subcommand, and errors as one line.

Each subcommand is a module with `add_arguments(parser)` and `run(args)`; it is imported only when it is
called, so that the sidecar carries nothing else.
"""

from __future__ import annotations

import difflib
import importlib
import os
import signal
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING

from . import __version__
from .config.options import ConfigError, Parser

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "vllm-specdec-exporter"

#: Commands: their module, and what they do.
COMMANDS = {
    "serve": ("serve.command", "poll vLLM and serve derived metrics (the default)"),
    "demo": ("commands.demo", "simulator, exporter, Prometheus and Alertmanager in one terminal"),
    "health": ("serve.health", "tell whether the exporter on this machine is alive"),
    "dashboards": ("commands.dashboards.command", "list, write or push the Grafana dashboards"),
    "act": ("commands.act.command", "receive Alertmanager's decisions, and carry them out safely"),
    "check": ("commands.check", "diagnose a server once, in the terminal"),
    "compare": ("commands.compare.command", "servers or recorded snapshots, side by side"),
    "requests": ("commands.requests.command", "acceptance of single requests, from recorded answers"),
    "baseline": ("commands.baseline.command", "record how fast a server is without speculation"),
    "plan": ("commands.plan.command", "does a draft model fit, and what may it gain"),
    "sweep": ("commands.sweep.command", "measure acceptance at chosen temperatures and loads"),
    "simulate": ("commands.simulate.command", "serve the /metrics of a simulated vLLM"),
}

#: The commands as `--help` shows them.
GROUPS = {
    "Run": ("serve", "demo", "health", "dashboards", "act"),
    "Diagnose": ("check", "compare", "requests", "baseline"),
    "Plan": ("plan", "sweep", "simulate"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode still gets its report
    name = "serve"
    if words and not words[0].startswith("-"):
        name = words.pop(0)
    elif words[:1] in (["-h"], ["--help"]):
        print(_overview(), end="")
        return 0
    if name not in COMMANDS:
        print(f"{PROGRAM}: error: unknown command {name!r}; {_hint(name)}", file=sys.stderr)
        return 2
    if name == "serve" and argv is None:
        # The first process of a container has no defaults for signals: SIGTERM while it imports would be
        # lost, and the pod would wait out its grace period. Elsewhere SIGHUP would end it too early.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    module_name, summary = COMMANDS[name]
    module = importlib.import_module(f".{module_name}", __package__)
    command = f"{PROGRAM} {name}"
    parser = Parser(PROGRAM if name == "serve" else command, f"{name}: {summary}.", shown_by=command)
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
        from .publish.wording import printable  # here, so that `health` starts fast

        print(f"{parser.prog}: error: {printable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _overview() -> str:
    """Return the help of the program: one screen of 80 columns and 24 lines."""
    lines = [
        f"usage: {PROGRAM} [COMMAND] [FLAG ...]",
        "",
        "Is speculative decoding paying off right now, and if not, what should I change?",
    ]
    for title, names in GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:<12}{COMMANDS[name][1]}" for name in names]
    lines += [
        "",
        f"Example: {PROGRAM} check http://127.0.0.1:8000",
        f"Flags of a command: {PROGRAM} COMMAND --help",
    ]
    return "\n".join(lines) + "\n"


def _hint(name: str) -> str:
    """Return what may have been meant by a word that is no command."""
    if "://" in name:
        return f"a server is given with --vllm.url, or as {PROGRAM} check URL"
    near = difflib.get_close_matches(name, COMMANDS, 1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(COMMANDS)}"
