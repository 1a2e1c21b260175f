"""How densely Python is written: counted with Python's own tokenizer and syntax tree.

Lines can be saved by packing: a conditional inside a comprehension inside a call is one
line, and must be read three times. So what is counted is what makes a line dense, per
thousand lines of code. The libraries that this project takes as models (h11, structlog,
httpx, prometheus_client) lie far below the limits of `test_density.py`.
"""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

#: Names that do not say what a value holds.
VAGUE_NAMES = frozenset(
    {
        "after",
        "all_",
        "before",
        "early",
        "found",
        "given",
        "known",
        "late",
        "least",
        "most",
        "now",
        "one",
        "other",
        "own",
        "place",
        "rest",
        "seen",
        "that",
        "these",
        "this",
        "those",
        "told",
        "what",
        "which",
        "whole",
        "words",
    }
)
#: More positional arguments than a reader keeps in order.
MANY_ARGUMENTS = 5

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LAYOUT = frozenset(
    {
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
        tokenize.COMMENT,
    }
)


def density(folder: Path) -> Mapping[str, float]:
    """Return the measures of all Python files below a folder, by name.

    ``tokens``, ``nested conditionals`` and ``calls with many arguments`` are counts;
    ``comments`` is a percentage of all lines, ``vague names`` one of all bound names;
    ``characters`` is a mean of lines of code, and the others are per thousand of them.
    """
    counts: Counter[str] = Counter()
    for path in sorted(folder.rglob("*.py")):
        if "node_modules" not in path.parts:
            counts.update(_count(path.read_text("utf-8")))
    code = counts["code"]
    return {
        "tokens": counts["tokens"],
        "characters": counts["characters"] / code,
        "conditionals": 1000 * counts["conditionals"] / code,
        "nested conditionals": counts["nested conditionals"],
        "comprehensions": 1000 * counts["comprehensions"] / code,
        "nested comprehensions": 1000 * counts["nested comprehensions"] / code,
        "tuple assignments": 1000 * counts["tuple assignments"] / code,
        "comments": 100 * counts["comments"] / counts["lines"],
        "calls with many arguments": counts["calls with many arguments"],
        "vague names": 100 * counts["vague names"] / counts["names"],
    }


def _count(source: str) -> Counter[str]:
    lines = source.splitlines()
    tree = ast.parse(source)
    counts = Counter(_of_tree(tree))
    documentation = _documentation_lines(tree)
    code = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT and token.start[0] not in documentation:
            counts["tokens"] += 1
            code.update(range(token.start[0], token.end[0] + 1))
    counts["code"] = len(code)
    counts["characters"] = sum(len(lines[number - 1].strip()) for number in code)
    counts["comments"] = sum(line.lstrip().startswith("#") for line in lines)
    counts["lines"] = len(lines)
    return counts


def _documentation_lines(tree: ast.Module) -> set[int]:
    numbers: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            numbers.update(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return numbers


def _of_tree(tree: ast.Module) -> Iterator[str]:
    """Yield the name of a measure for each place in the tree that counts for it."""
    for node, enclosing in _walk(tree, ()):
        if isinstance(node, ast.IfExp):
            yield "conditionals"
            if any(isinstance(parent, ast.IfExp) for parent in enclosing):
                yield "nested conditionals"
        elif isinstance(node, _COMPREHENSIONS):
            yield "comprehensions"
            within = any(isinstance(parent, _COMPREHENSIONS) for parent in enclosing)
            if within or len(node.generators) > 1:
                yield "nested comprehensions"
        elif isinstance(node, ast.Call) and len(node.args) >= MANY_ARGUMENTS:
            yield "calls with many arguments"
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            if isinstance(node.targets[0], ast.Tuple):
                yield "tuple assignments"
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield "names"
            if node.id in VAGUE_NAMES:
                yield "vague names"


def _walk(
    node: ast.AST, enclosing: tuple[ast.AST, ...]
) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """Yield every node with the expressions of the same statement around it."""
    if isinstance(node, ast.stmt):
        enclosing = ()
    yield node, enclosing
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, (*enclosing, node))
