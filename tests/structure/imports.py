"""Who imports whom within the package, as the source says it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2] / "exporter" / "vllm_specdec_exporter"
PACKAGE = "vllm_specdec_exporter"


@dataclass(frozen=True)
class Module:
    """A module of the package.

    Attributes:
        name: without the package's own name; empty for the package itself.
        lines: how long it is.
        own: the modules of the package that it imports when it runs, and those of them within functions. What
            it takes from a front door comes from the module behind it.
        late: those of them that are imported within functions only.
        others: the modules that it imports from elsewhere.
        calls: what it calls, such as ``open``, ``time.time`` or ``Path(name).read_text``.
        is_door: whether it is a package's `__init__` that only names what is behind it: it defines nothing,
            but for the hooks by which a module names something when asked.
    """

    name: str
    lines: int
    own: frozenset[str]
    late: frozenset[str]
    others: frozenset[str]
    calls: frozenset[str]
    is_door: bool


#: How a module names something when it is asked (PEP 562).
_HOOKS = frozenset({"__getattr__", "__dir__"})


@cache
def modules() -> dict[str, Module]:
    """Every module, by name."""
    texts = {path: path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py"))}
    return read({_name(path): (text, path.name == "__init__.py") for path, text in texts.items()})


def read(sources: Mapping[str, tuple[str, bool]]) -> dict[str, Module]:
    """Return modules by name.

    Args:
        sources: by name their text, and whether each is the `__init__` of a package.
    """
    behind = {name: _behind(name, text) for name, (text, is_package) in sources.items() if is_package}
    return {
        name: _read(name, text, is_package=is_package, known=frozenset(sources), behind=behind)
        for name, (text, is_package) in sources.items()
    }


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".")


def _behind(package: str, text: str) -> dict[str, str]:
    """Return from which module an `__init__` has each name that it takes from within its package."""
    prefix = f"{package}." if package else ""
    return {
        alias.asname or alias.name: f"{prefix}{node.module}"
        for node in ast.parse(text).body
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
        for alias in node.names
    }


def _read(
    name: str, text: str, *, is_package: bool, known: frozenset[str], behind: Mapping[str, Mapping[str, str]]
) -> Module:
    package = name if is_package else name.rpartition(".")[0]
    tree = ast.parse(text)
    own: dict[str, bool] = {}
    others: set[str] = set()
    calls: set[str] = set()
    for node, late in _walk(tree, late=False):
        if isinstance(node, ast.Call):
            calls.add(ast.unparse(node.func))
        for target, is_own in _imported(node, package, known, behind):
            if is_own:
                own[target] = own.get(target, True) and late
            else:
                others.add(target)
    defined = {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    return Module(
        name,
        text.count("\n"),
        frozenset(own),
        frozenset(target for target, late in own.items() if late),
        frozenset(others),
        frozenset(calls),
        is_door=is_package and defined <= _HOOKS,
    )


def _walk(node: ast.AST, *, late: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Yield every node that runs, and whether it stands within a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child, late
        inside = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _walk(child, late=inside)


def _imported(
    node: ast.AST, package: str, known: frozenset[str], behind: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, bool]]:
    """Yield what a statement imports, and whether that is a module of the package."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, False
    elif isinstance(node, ast.ImportFrom) and not node.level:
        yield node.module or "", False
    elif isinstance(node, ast.ImportFrom):
        parts = package.split(".") if package else []
        base = ".".join(parts[: len(parts) - node.level + 1] + ([node.module] if node.module else []))
        for alias in node.names:
            inner = f"{base}.{alias.name}".lstrip(".")
            yield (inner if inner in known else base), True
            if inner not in known and alias.name in behind.get(base, {}):
                yield behind[base][alias.name], True
