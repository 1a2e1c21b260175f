"""The rooms of the package, from the bottom up, and who imports whom, type-checking
imports included.
"""

import ast
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from support.repository import ROOT, text_of

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
    ("engines.tables", "pathlib"): "one file for each engine",
    ("engines.tables", "glob"): "one file for each engine",
    ("publish.events", "logging"): "the numbers of the levels",
    ("publish.metrics", "platform"): "the version of Python, that of the process",
    ("publish.pages", "pathlib"): "its templates, which are data of the package",
    ("publish.pages", "read_text"): "its templates, which are data of the package",
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
    imports: frozenset[str]
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
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    return name.removesuffix("__init__").rstrip(".")


def parse(sources: Mapping[str, str]) -> dict[str, Module]:
    """Return modules by name from their texts.

    A module with another one within it is a package.
    """
    packages = {name.rpartition(".")[0] for name in sources}
    return {
        name: _parse(name, text, sources, name in packages)
        for name, text in sources.items()
    }


def _parse(name: str, text: str, modules: Collection[str], is_package: bool) -> Module:
    tree = ast.parse(text)
    package = [part for part in name.split(".") if part]
    if not is_package:
        del package[-1:]
    imported = set()
    impure = set()
    for node, typing in _walk(tree, typing=False):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            base += filter(None, [node.module])
            for alias in node.names:
                # A module, or a name in one; the version is the package's own.
                inner = ".".join([*base, alias.name])
                if inner in modules:
                    imported.add(inner)
                elif alias.name != "__version__":
                    imported.add(".".join(base))
        elif isinstance(node, ast.Import) and not typing:
            impure |= {alias.name for alias in node.names if _is_impure(alias.name)}
        elif isinstance(node, ast.ImportFrom) and not typing:
            impure |= {node.module} if _is_impure(node.module or "") else set()
        elif isinstance(node, ast.Call):
            impure |= {ast.unparse(node.func).rpartition(".")[2]} & IMPURE_CALLS
    first = (ast.get_docstring(tree) or "").partition("\n\n")[0]
    return Module(
        text.count("\n"),
        " ".join(first.split()),
        imports=frozenset(imported - {name}),
        impure=frozenset(impure),
    )


def _is_impure(name: str) -> bool:
    return not IMPURE.isdisjoint({name, name.partition(".")[0]})


def room_of(name: str) -> str:
    """Return the room of a module."""
    return name.partition(".")[0]


def _walk(node: ast.AST, *, typing: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Yield every node, and whether it is there for type checking only."""
    for child in ast.iter_child_nodes(node):
        yield child, typing
        only = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        yield from _walk(child, typing=typing or only)


def upward(modules: Mapping[str, Module]) -> list[str]:
    """Return imports of a room by one below it, and imports of the package itself by a
    room.
    """
    wrong = []
    for name, module in modules.items():
        room = room_of(name)
        if room in ROOMS:
            reachable = ROOMS[: ROOMS.index(room) + 1]
            wrong += [
                f"{name} -> {imported or 'the package itself'}"
                for imported in sorted(module.imports)
                if room_of(imported) not in reachable
            ]
    return wrong


def circle(modules: Mapping[str, Module]) -> str:
    """Return a circle of modules that import each other, empty where there is none.

    A module within a package does not depend on the package's `__init__`, which names
    what is in it.
    """
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for name, module in modules.items():
        for imported in module.imports:
            if name and imported and not name.startswith(f"{imported}."):
                sorter.add(name, imported)
    try:
        sorter.prepare()
    except CycleError as error:
        return " -> ".join(reversed(error.args[1]))
    return ""


def impure(modules: Mapping[str, Module]) -> list[str]:
    """Return what pure modules import and call that is not allowed, and allowances that
    nothing uses.
    """
    used: set[tuple[str, str]] = set()
    for name, module in modules.items():
        if room_of(name) in PURE or module.summary.endswith("Pure."):
            used.update((name, reached) for reached in module.impure)
    return [f"{name}: {reached}" for name, reached in sorted(used ^ ALLOWED.keys())]


PAGE = ROOT / "docs/architecture.md"
_BEGIN = "<!-- rooms: written by `make generate` -->"
_END = "<!-- end of rooms -->"


def drawn(modules: Mapping[str, Module]) -> str:
    """Return the rooms as a table and as a picture, without arrows that others
    imply.
    """
    sizes = Counter(map(room_of, modules))
    below: dict[str, set[str]] = {room: set() for room in ROOMS}
    for name, module in modules.items():
        if room_of(name) in below:
            below[room_of(name)].update(map(room_of, module.imports))
    reach: dict[str, set[str]] = {}
    arrows: list[str] = []
    for room in ROOMS:  # those below come first
        lower = [each for each in ROOMS if each in below[room] - {room}]
        implied = set().union(*(reach[each] for each in lower))
        reach[room] = implied.union(lower)
        arrows[:0] = [f"  {room} --> {each}" for each in lower if each not in implied]
    rows = [
        f"| `{room}/` | {modules[room].summary} | {sizes[room]} |"
        for room in reversed(ROOMS)
    ]
    head = ["| room | what lives there | modules |", "|---|---|---|"]
    picture = ["", "<!-- not run: a drawing -->", "```mermaid", "graph TD"]
    return "\n".join([*head, *rows, *picture, *arrows, "```"])


def main() -> int:
    """Write the rooms into the page about the architecture, or with --check compare
    them with it.
    """
    page = text_of(PAGE)
    head, _, written = page.partition(f"{_BEGIN}\n")
    tail = written.partition(f"\n{_END}")[2]
    wanted = f"{head}{_BEGIN}\n{drawn(modules())}\n{_END}{tail}"
    if "--check" not in sys.argv:
        PAGE.write_text(wanted, "utf-8")
        return 0
    if page != wanted:
        print(f"{PAGE} is out of date: run `make generate`", file=sys.stderr)
    return int(page != wanted)


if __name__ == "__main__":
    sys.exit(main())
