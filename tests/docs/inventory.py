"""Every code block, fenced or indented, of every Markdown file, and what the page says of why one is not run.

A comment right above a fence says why the block is not run: `<!-- not run: needs a cluster -->`.
"""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<language>[\w-]*)[^`]*$")
_MARKER = re.compile(r"^ *<!-- not run: (?P<reason>.+?) -->$")
_LIST = re.compile(r"^ *(?:[-*+]|\d+\.) |^ ")
#: The language of a block that is indented by four spaces instead of fenced.
INDENTED = "indented"
#: Folders with Markdown of others, or with what tests and builds leave behind.
_FOREIGN = {"node_modules", "build", "dist", "site-packages"}


@dataclass(frozen=True)
class Block:
    """A block.

    Attributes:
        path: its file, from the root of the repository.
        line: of the opening fence, or of the first line, from 1.
        language: of the fence, empty where it has none; `INDENTED` where there is no fence.
        text: without its indentation.
        reason: why it is not run; empty where it has no marker.
    """

    path: str
    line: int
    language: str
    text: str
    reason: str

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
        return json.loads(self.text) if self.language == "json" else yaml.safe_load(self.text)


@cache
def pages() -> tuple[Path, ...]:
    """Return the Markdown files of the repository, whether under version control yet or not."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md")
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found = {ROOT / name for name in names.splitlines()}
    else:  # an unpacked source distribution
        found = {
            path
            for path in ROOT.rglob("*.md")
            if not any(part in _FOREIGN or part.startswith(".") for part in path.relative_to(ROOT).parts)
        }
    return tuple(sorted(path for path in found if path.is_file()))


@cache
def blocks() -> tuple[Block, ...]:
    """Return every block of every page."""
    return tuple(block for path in pages() for block in blocks_of(path.read_text("utf-8"), _name(path)))


def blocks_of(text: str, path: str) -> list[Block]:
    """Return the blocks of a page."""
    found, lines, number = [], text.splitlines(), 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        if opening is None:
            end = _end_of_indented(lines, number)
            if end > number:
                text_of = "".join(f"{line[4:]}\n" for line in lines[number:end])
                found.append(
                    _block(path, number, INDENTED, text_of, _marker_above(lines, number, blank=True))
                )
            number = max(end, number + 1)
            continue
        indent = len(opening["indent"])
        end = number + 1
        while end < len(lines) and lines[end].strip() != opening["ticks"]:
            end += 1
        if end == len(lines):
            msg = f"{path}:{number + 1}: the fence is not closed"
            raise ValueError(msg)
        body = [line[indent:] if not line[:indent].strip() else line for line in lines[number + 1 : end]]
        text_of = "".join(f"{line}\n" for line in body)
        found.append(_block(path, number, opening["language"], text_of, _marker_above(lines, number)))
        number = end + 1
    return found


def prose(text: str) -> str:
    """Return a page without its blocks, with as many lines."""
    lines = text.splitlines()
    for block in blocks_of(text, ""):
        fences = 0 if block.language == INDENTED else 2
        for number in range(block.line - 1, block.line - 1 + block.text.count("\n") + fences):
            lines[number] = ""
    return "".join(f"{line}\n" for line in lines)


def _block(path: str, number: int, language: str, text: str, marker: re.Match[str] | None) -> Block:
    return Block(path, number + 1, language, text, marker["reason"] if marker else "")


def _marker_above(lines: list[str], number: int, *, blank: bool = False) -> re.Match[str] | None:
    """Return the marker right above a line; with `blank`, empty lines may stand between them."""
    above = number - 1
    while blank and above > 0 and not lines[above].strip():
        above -= 1
    return _MARKER.match(lines[above]) if above >= 0 else None


def _end_of_indented(lines: list[str], number: int) -> int:
    """Return where the indented block ends that begins at a line; the line itself where none does.

    Four spaces below a paragraph or within a list go on with these.
    """
    if not lines[number].startswith("    ") or not lines[number].strip() or lines[number - 1].strip():
        return number
    above = number - 1
    while above > 0 and not lines[above].strip():
        above -= 1
    if _LIST.match(lines[above]):
        return number
    end = number
    for after in range(number, len(lines)):
        if lines[after].startswith("    ") and lines[after].strip():
            end = after + 1
        elif lines[after].strip():
            break
    return end


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
