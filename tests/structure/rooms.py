"""The rooms of the package, from the bottom up, and who imports whom, type-checking
imports included.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from support.repository import ROOT

PACKAGE = ROOT / "exporter/vllm_specdec_exporter"

#: A room imports only rooms to the left of it, and the package's version.
ROOMS = (
    "exposition",
    "config",
    "engines",
    "economics",
    "measures",
    "judgement",
    "per_request",
    "observe",
    "publish",
    "runtime",
    "upstream",
    "listener",
    "settings",
    "serve",
    "client",
    "commands",
)

#: Rooms that do no I/O and read no clock. Elsewhere that holds for modules whose first
#: line ends in "Pure."
PURE = frozenset(ROOMS) - {
    "config",
    "runtime",
    "upstream",
    "listener",
    "settings",
    "serve",
    "client",
    "commands",
}

#: What pure modules may import or call of `IMPURE` and `IMPURE_CALLS`, and why.
ALLOWED = {
    **{
        (module, what): "its own table, which is data of the package"
        for module in (
            "economics.architecture",
            "economics.known_problems",
            "economics.profiles",
            "economics.sizes",
            "economics.speculative_config",
            "engines.tables",
            "judgement.messages",
            "publish.metrics",
        )
        for what in ("pathlib", "read_text")
    },
    ("engines.tables", "glob"): "one file for each engine",
    ("publish.events", "logging"): "the numbers of the levels",
    (
        "publish.metrics",
        "platform",
    ): "the version of Python, which is that of the process",
    ("publish.pages", "pathlib"): "its own templates, which are data of the package",
    ("publish.pages", "read_text"): "the same",
}

IMPURE = frozenset(
    {
        "aiohttp",
        "asyncio",
        "concurrent",
        "ctypes",
        "fcntl",
        "fileinput",
        "getpass",
        "glob",
        "http",
        "httptools",
        "importlib",
        "linecache",
        "locale",
        "logging",
        "mmap",
        "multiprocessing",
        "os",
        "pathlib",
        "pkgutil",
        "platform",
        "queue",
        "resource",
        "runpy",
        "sched",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "socketserver",
        "sqlite3",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "urllib.request",
        "uuid",
        "webbrowser",
    }
)

#: Functions, and methods of whatever object.
IMPURE_CALLS = frozenset(
    {
        "open",
        "input",
        "print",
        "breakpoint",
        "__import__",
        "eval",
        "exec",
        "read_text",
        "read_bytes",
        "write_text",
        "write_bytes",
        "glob",
        "rglob",
        "iterdir",
        "exists",
        "is_file",
        "is_dir",
        "is_symlink",
        "stat",
        "mkdir",
        "touch",
        "unlink",
        "rmdir",
        "now",
        "utcnow",
        "today",
        "sleep",
    }
)


@dataclass(frozen=True)
class Module:
    """A module of the package."""

    lines: int
    summary: str  # the first paragraph of its docstring
    #: Modules of the package that it imports, also in functions and for type checking.
    own: frozenset[str]
    impure: frozenset[str]  # what it imports and calls that reaches outside the process


@cache
def modules() -> dict[str, Module]:
    """Return every module of the package by its name, which is empty for the package
    itself.
    """
    return parse(
        {_name(path): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    )


def _name(path: Path) -> str:
    return (
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        .removesuffix("__init__")
        .rstrip(".")
    )


def parse(sources: Mapping[str, str]) -> dict[str, Module]:
    """Return modules by name from their texts.

    A module with another one within it is a package.
    """
    packages = {name.rpartition(".")[0] for name in sources}
    return {
        name: _parse(name, text, sources, name in packages)
        for name, text in sources.items()
    }


def _parse(name: str, text: str, known: Mapping[str, str], is_package: bool) -> Module:
    tree = ast.parse(text)
    package = (name if is_package else name.rpartition(".")[0]).split(".")
    own = set()
    impure = set()
    for node, typing in _walk(tree, typing=False):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [part for part in package if part][: len(package) - node.level + 1]
            base = ".".join(base + ([node.module] if node.module else [])).lstrip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                own.add(
                    inner
                    if inner in known
                    else base
                    if alias.name != "__version__"
                    else name
                )
        elif isinstance(node, ast.Import | ast.ImportFrom) and not typing:
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                names = [a.name for a in node.names]
            impure |= {n for n in names if {n, n.partition(".")[0]} & IMPURE}
        elif isinstance(node, ast.Call):
            impure |= {ast.unparse(node.func).rpartition(".")[2]} & IMPURE_CALLS
    first = (ast.get_docstring(tree) or "").partition("\n\n")[0]
    summary = " ".join(first.split())
    return Module(text.count("\n"), summary, frozenset(own - {name}), frozenset(impure))


def _walk(node: ast.AST, *, typing: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Yield every node, and whether it is there for type checking only."""
    for child in ast.iter_child_nodes(node):
        yield child, typing
        only = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        yield from _walk(child, typing=typing or only)


def upward(found: Mapping[str, Module]) -> list[str]:
    """Return imports of a room by one below it, and imports of the package itself by a
    room.
    """
    return [
        f"{name} -> {own or 'the package itself'}"
        for name, module in found.items()
        for own in sorted(module.own)
        if (room := name.partition(".")[0]) in ROOMS
        and own.partition(".")[0] not in ROOMS[: ROOMS.index(room) + 1]
    ]


def circle(found: Mapping[str, Module]) -> str:
    """Return a circle of modules that import each other, empty where there is none.

    A module within a package does not depend on the package's `__init__`, which names
    what is in it.
    """
    graph = {
        name: {own for own in module.own if own and not name.startswith(f"{own}.")}
        for name, module in found.items()
        if name
    }
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return " -> ".join(reversed(error.args[1]))
    return ""


def impure(found: Mapping[str, Module]) -> list[str]:
    """Return what pure modules import and call that is not allowed, and allowances that
    nothing uses.
    """
    pure = {
        name: module
        for name, module in found.items()
        if name.partition(".")[0] in PURE or module.summary.endswith("Pure.")
    }
    used = {(name, what) for name, module in pure.items() for what in module.impure}
    return [f"{name}: {what}" for name, what in sorted(used ^ ALLOWED.keys())]


PAGE = ROOT / "docs/architecture.md"
_BEGIN = "<!-- rooms: written by `make generate` -->"
_END = "<!-- end of rooms -->"


def drawn(found: Mapping[str, Module]) -> str:
    """Return the rooms as a table and as a picture, without arrows that others
    imply.
    """
    rows = [
        (
            f"| `{room}/` | {found[room].summary} | "
            f"{sum(n.partition('.')[0] == room for n in found)} |"
        )
        for room in reversed(ROOMS)
    ]
    below: dict[str, set[str]] = {room: set() for room in ROOMS}
    for name, module in found.items():
        room = name.partition(".")[0]
        if room in below:
            below[room] |= {own.partition(".")[0] for own in module.own} & set(
                ROOMS
            ) - {room}
    reach: dict[str, set[str]] = {}
    for room in ROOMS:  # those below come first
        reach[room] = below[room].union(*(reach[other] for other in below[room]))
    arrows = [
        f"  {room} --> {other}"
        for room in reversed(ROOMS)
        for other in ROOMS
        if other in below[room]
        and not any(other in reach[between] for between in below[room])
    ]
    table = ["| room | what lives there | modules |", "|---|---|---|", *rows]
    return "\n".join(
        [
            *table,
            "",
            "<!-- not run: a drawing -->",
            "```mermaid",
            "graph TD",
            *arrows,
            "```",
        ]
    )


def main() -> int:
    """Write the rooms into the page about the architecture, or with --check compare
    them with it.
    """
    page = PAGE.read_text("utf-8")
    before, rest = page.split(f"{_BEGIN}\n")
    after = rest.split(f"\n{_END}")[1]
    wanted = f"{before}{_BEGIN}\n{drawn(modules())}\n{_END}{after}"
    if "--check" in sys.argv:
        if page != wanted:
            print(f"{PAGE} is out of date: run `make generate`", file=sys.stderr)
        return int(page != wanted)
    PAGE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
