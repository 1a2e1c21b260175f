"""Who imports whom within the package, as the source says it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2] / "exporter" / "vllm_specdec_exporter"
PACKAGE = "vllm_specdec_exporter"


@dataclass(frozen=True)
class Module:
    """A module of the package.

    Attributes:
        name: without the package's own name; empty for the package itself.
        lines: how long it is.
        own: the modules of the package that it imports when it runs, and those of them within functions.
        late: those of them that are imported within functions only.
        others: the modules that it imports from elsewhere.
        calls: the names of what it calls, such as ``open`` or ``time.time``.
    """

    name: str
    lines: int
    own: frozenset[str]
    late: frozenset[str]
    others: frozenset[str]
    calls: frozenset[str]


@cache
def modules() -> dict[str, Module]:
    """Every module, by name."""
    paths = {_name(path): path for path in sorted(ROOT.rglob("*.py"))}
    return {name: _read(name, path, frozenset(paths)) for name, path in paths.items()}


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".")


def _read(name: str, path: Path, known: frozenset[str]) -> Module:
    text = path.read_text("utf-8")
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    own: dict[str, bool] = {}
    others: set[str] = set()
    calls: set[str] = set()
    for node, late in _walk(ast.parse(text), late=False):
        if isinstance(node, ast.Call):
            calls.add(ast.unparse(node.func))
        for target, is_own in _imported(node, package, known):
            if is_own:
                own[target] = own.get(target, True) and late
            else:
                others.add(target)
    return Module(
        name,
        text.count("\n"),
        frozenset(own),
        frozenset(target for target, late in own.items() if late),
        frozenset(others),
        frozenset(calls),
    )


def _walk(node: ast.AST, *, late: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Yield every node that runs, and whether it stands within a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child, late
        inside = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _walk(child, late=inside)


def _imported(node: ast.AST, package: str, known: frozenset[str]) -> Iterator[tuple[str, bool]]:
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
