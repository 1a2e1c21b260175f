"""The commands, by name. Importing this imports none of them."""

from functools import reduce
from operator import or_

PROGRAM = "vllm-specdec-exporter"

#: Commands by group, as `--help` shows them: module and summary.
GROUPS = {
    "Run": {
        "serve": ("serve.command", "poll vLLM and serve derived metrics (the default)"),
        "demo": (
            "commands.demo",
            "simulator, exporter, Prometheus and Alertmanager in one terminal",
        ),
        "health": (
            "commands.health",
            "check whether the exporter on this machine is alive",
        ),
        "dashboards": (
            "commands.dashboards",
            "list the Grafana dashboards, or write them to files",
        ),
        "act": (
            "commands.act",
            "receive Alertmanager's notifications and act on them safely",
        ),
    },
    "Diagnose": {
        "check": ("commands.check", "diagnose a server once, in the terminal"),
        "compare": (
            "commands.compare",
            "two servers or recorded snapshots, side by side",
        ),
        "history": (
            "commands.history",
            "measured speedups of the past, from your Prometheus",
        ),
        "requests": (
            "commands.requests",
            "acceptance of single requests, from recorded answers",
        ),
        "baseline": (
            "commands.baseline",
            "record how fast a server is without speculation",
        ),
        "calibrate": (
            "commands.calibrate",
            "measure what speculation costs on this machine",
        ),
    },
    "Plan": {
        "plan": ("commands.plan", "whether a draft model fits, and what it may gain"),
        "sweep": (
            "commands.sweep",
            "measure acceptance at chosen temperatures and loads",
        ),
        "simulate": ("commands.simulate", "serve the /metrics of a simulated vLLM"),
    },
}
COMMANDS = {
    **reduce(or_, GROUPS.values()),
    # The overview names it in its last line: it belongs to no group.
    "completion": (
        "commands.completion",
        "print a script that completes commands and flags in bash or zsh",
    ),
}
