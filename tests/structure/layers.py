"""Which modules are core and which are shell, and what is wrong with a module of the core.

Whatever is not named here as shell belongs to the core, so a new module is held to that from its first line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from structure.imports import PACKAGE

if TYPE_CHECKING:
    from structure.imports import Module

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
        *("tap.observer", "tap.relay", "tap.service", "tap.side", "tap.tap"),
        # settings: what is read from files and from the environment
        *("config", "values", "option_table", "request_options", "web_options", "baseline.file"),
        *("webconfig.fields", "webconfig.document", "webconfig.tlssection", "webconfig.yamltext"),
        # the other commands
        *("act.arguments", "act.authorization", "act.command", "act.process", "act.runner", "act.server"),
        *("act.statefile", "baseline.command", "baseline.watch", "client"),
        *("compare.command", "compare.sources"),
        *("grafana", "per_request.command", "plan.command", "plan.inputs", "simulator.command"),
        *("simulator.scenariofile", "simulator.server"),
        *("sweep.arguments", "sweep.cell", "sweep.client", "sweep.command", "sweep.counters"),
        *("sweep.endpoint", "sweep.progress", "sweep.prompts", "sweep.recordfile", "sweep.runner"),
    }
)

#: What does I/O, waits, starts something, or asks about the machine. A name stands for all below it.
IO = frozenset(
    {
        *("aiohttp", "asyncio", "concurrent", "ctypes", "fcntl", "fileinput", "getpass", "glob", "http"),
        *("httptools", "httpx", "importlib", "linecache", "locale", "logging", "mmap", "multiprocessing"),
        *("os", "pathlib", "pkgutil", "platform", "queue", "resource", "runpy", "sched", "secrets"),
        *("select", "selectors", "shutil", "signal", "socket", "socketserver", "sqlite3", "ssl"),
        *("subprocess", "sys", "tempfile", "threading", "time", "urllib.request", "uuid", "webbrowser"),
    }
)

#: Calls that ask the world.
ASKING = frozenset({"open", "input", "print", "breakpoint", "__import__", "eval", "exec"})

#: Methods that do, whatever they belong to: an object that is given brings them without an import.
ASKING_METHODS = frozenset(
    {
        *("open", "read_text", "read_bytes", "write_text", "write_bytes", "glob", "rglob", "iterdir"),
        *("exists", "is_file", "is_dir", "is_symlink", "stat", "mkdir", "touch", "unlink", "rmdir"),
        *("now", "utcnow", "today", "sleep"),
    }
)

#: What the core may import or call of it, and why.
ALLOWED = {
    ("dialects", "importlib"): "its own modules, as the package is imported",
    ("dialects", "pkgutil"): "which there are of them",
    ("economics.profiles", "pathlib"): "its own table, which is data of the package",
    ("economics.profiles", "read_text"): "the same",
    ("events", "logging"): "the numbers of the levels",
    ("metrics.serving", "platform"): "the version of Python, which is that of the process",
    ("simulator.families", "importlib.resources"): "its own tables, which are data of the package",
    ("simulator.families", "read_text"): "the same",
    ("statuspage.page", "pathlib"): "the style sheet, read as the module is imported",
    ("statuspage.page", "read_text"): "the same",
}


def is_shell(name: str) -> bool:
    """Tell whether a module, or a package that it is in, is named as shell."""
    parts = name.split(".")
    return any(".".join(parts[:count]) in SHELL for count in range(1, len(parts) + 1))


def asked(module: Module) -> set[str]:
    """Return what a module imports and calls that could reach the world, permitted or not."""
    found = {other for other in module.others if other in IO or IO & set(_parents(other))}
    found |= {other for other in module.others if other.partition(".")[0] == PACKAGE}  # seen when relative
    found |= module.calls & ASKING
    return found | {
        method
        for _, dot, method in (call.rpartition(".") for call in module.calls)
        if dot and method in ASKING_METHODS
    }


def io_of(module: Module) -> set[str]:
    """Return what of the world a module of the core, or a front door, asks and may not."""
    return {what for what in asked(module) if (module.name, what) not in ALLOWED}


def shell_of(module: Module) -> set[str]:
    """Return which modules of the shell a module of the core imports. Front doors may name what they like."""
    return set() if module.is_door else {own for own in module.own if is_shell(own)}


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]
