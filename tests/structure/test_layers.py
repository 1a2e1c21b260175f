"""The layers: a core of functions of values, that does no I/O and knows no clock, within a thin shell.

Whatever is not named here as shell belongs to the core, so a new module is held to that from its first line.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import pytest

from structure.imports import ROOT, modules

#: The shell: what opens files and sockets, waits, starts processes, or asks what time it is. A name stands
#: for a package with all that is in it.
SHELL = frozenset(
    {
        # the process, the command line, and what commands share
        *("__main__", "cli", "serve", "standby", "ending", "health", "one_shot", "check", "demo", "api"),
        *("logs", "log_stream", "files"),
        # the client of the servers, the poll loop, and all of them together
        *("upstream", "upstream_tls", "tls", "resolver", "poller", "exporter"),
        # the server
        *("server", "listener", "admission", "metrics_endpoint", "push", "requests"),
        *("webconfig.authentication", "webconfig.context", "webconfig.doors", "webconfig.files"),
        *("webconfig.guard", "webconfig.source", "webconfig.worker"),
        *("tap.observer", "tap.relay", "tap.service", "tap.tap"),
        # settings: what is read from files and from the environment
        *("config", "values", "option_table", "request_options", "web_options", "baseline.file"),
        *("webconfig.fields", "webconfig.document", "webconfig.tlssection", "webconfig.yamltext"),
        # the other commands
        *("act.arguments", "act.authorization", "act.command", "act.process", "act.runner", "act.server"),
        *(
            "act.statefile",
            "baseline.command",
            "baseline.watch",
            "client",
            "compare.command",
            "compare.sources",
        ),
        *("grafana", "per_request.command", "plan.command", "plan.inputs", "simulator.command"),
        *("simulator.scenariofile", "simulator.server"),
        *("sweep.arguments", "sweep.cell", "sweep.client", "sweep.command", "sweep.counters"),
        *("sweep.endpoint", "sweep.progress", "sweep.prompts", "sweep.recordfile", "sweep.runner"),
    }
)

#: What does I/O, waits, or starts something.
IO = frozenset(
    {
        *(
            "aiohttp",
            "asyncio",
            "concurrent",
            "fcntl",
            "http",
            "httptools",
            "httpx",
            "logging",
            "multiprocessing",
        ),
        *("os", "pathlib", "queue", "resource", "select", "selectors", "shutil", "signal", "socket", "ssl"),
        *("subprocess", "sys", "tempfile", "threading", "time", "urllib.request", "secrets"),
    }
)

#: Calls that ask the world, whatever they are imported from.
ASKING = frozenset(
    {"open", "input", "print", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
)

#: What the core may have of it, and why.
ALLOWED = {
    ("events", "logging"): "the numbers of the levels",
    ("economics.profiles", "pathlib"): "its own table, which is data of the package",
    ("statuspage.page", "pathlib"): "the style sheet, read as the module is imported",
}


def _is_shell(name: str) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:count]) in SHELL for count in range(1, len(parts) + 1))


#: The front doors of packages only name what is behind them, core and shell.
DOORS = {name for name in modules() if (ROOT / name.replace(".", "/") / "__init__.py").is_file()}
CORE = [name for name in modules() if name not in DOORS and not _is_shell(name)]


@pytest.mark.parametrize("name", CORE)
def test_the_core_does_no_io(name: str) -> None:
    """It imports nothing that could, and calls nothing that asks the world."""
    module = modules()[name]
    imported = {top for top in module.others if top in IO or top.partition(".")[0] in IO - {"urllib.request"}}
    assert {top for top in imported if (name, top) not in ALLOWED} == set()
    assert module.calls & ASKING == set()


@pytest.mark.parametrize("name", CORE)
def test_the_core_does_not_know_the_shell(name: str) -> None:
    assert {own for own in modules()[name].own if _is_shell(own)} == set()


def test_the_lists_are_current() -> None:
    """Each name is that of a module or package; each permission is used."""
    for name in SHELL:
        assert name in modules(), f"no module is called {name}"
    for name, top in ALLOWED:
        assert top in modules()[name].others, f"{name} does not import {top}"


def test_no_cycles() -> None:
    """What modules import as they are imported has an order."""
    graph = {name: module.own - module.late - {name, ""} for name, module in modules().items() if name}
    # A package is imported before what is in it: that is no dependency of its own.
    graph = {name: {own for own in found if not name.startswith(f"{own}.")} for name, found in graph.items()}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"modules import each other in a circle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("name", modules())
def test_sizes(name: str) -> None:
    """One concept a module: one that grows past this is two."""
    assert modules()[name].lines <= MOST_LINES


#: Beyond some 300 lines a module is looked at; this is where it is divided.
MOST_LINES = 350


def test_every_package_says_what_it_is() -> None:
    """The first line of each module names its concept."""
    for path in sorted(ROOT.rglob("*.py")):
        assert path.read_text("utf-8").startswith(('"""', "from .cli", "#")), path.relative_to(ROOT)
