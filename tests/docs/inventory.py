"""Every fenced code block of every Markdown file, and what the page says of why one is
not run.

A comment right above a fence says why the block is not run, and for commands when a
person ran them: `<!-- not run: needs a cluster; by hand 2026-11-26, Kubernetes 1.36.2
-->`, or `; not yet by hand`.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from support.repository import ROOT

_FENCED = re.compile(
    r"^(?: *<!-- not run: (?P<reason>.+?) -->\n)?"
    r"(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w-]*)[^`\n]*\n"
    r"(?P<text>.*?)^(?P=indent)(?P=ticks)$",
    re.MULTILINE | re.DOTALL,
)
#: Folders with Markdown of others, or with what tests and builds leave behind.
_FOREIGN = {"node_modules", "build", "dist", "site-packages"}


@dataclass(frozen=True)
class Block:
    """A block."""

    path: str  # its file, from the root of the repository
    line: int  # of the opening fence, from 1
    language: str  # of the fence, empty where it has none
    text: str  # without its indentation
    reason: str  # why it is not run; empty where it has no marker

    @property
    def where(self) -> str:
        """As `file:line`."""
        return f"{self.path}:{self.line}"

    @property
    def file(self) -> Path:
        """Its file."""
        return ROOT / self.path

    def document(self) -> Any:
        """What it says as YAML or JSON."""
        if self.language == "json":
            return json.loads(self.text)
        return yaml.safe_load(self.text)


@cache
def pages() -> tuple[Path, ...]:
    """Return the Markdown files of the repository, whether under version control yet or
    not.
    """
    if shutil.which("git") and (ROOT / ".git").exists():
        command = (
            "git",
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "*.md",
        )
        names = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        paths = {ROOT / name for name in names.splitlines()}
    else:  # an unpacked source distribution
        paths = {path for path in ROOT.rglob("*.md") if not _is_foreign(path)}
    return tuple(sorted(path for path in paths if path.is_file()))


def _is_foreign(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return any(part in _FOREIGN or part.startswith(".") for part in parts)


@cache
def blocks() -> tuple[Block, ...]:
    """Return every block of every page."""
    listed = []
    for path in pages():
        name = path.relative_to(ROOT).as_posix()
        listed.extend(blocks_of(path.read_text("utf-8"), name))
    return tuple(listed)


def blocks_of(text: str, path: str) -> Iterator[Block]:
    """Yield the blocks of a page."""
    for match in _FENCED.finditer(text):
        line = text.count("\n", 0, match.start("ticks")) + 1
        body = re.sub(rf"(?m)^{match['indent']}", "", match["text"])
        yield Block(
            path,
            line,
            language=match["language"],
            text=body,
            reason=match["reason"] or "",
        )


def prose(text: str) -> str:
    """Return a page without its blocks, with as many lines."""
    return _FENCED.sub(lambda match: "\n" * match[0].count("\n"), text)
