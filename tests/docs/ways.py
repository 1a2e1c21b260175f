"""How each block is run or checked, by its kind, and what is wrong where it is not, or is marked wrongly."""

import re
from enum import Enum
from functools import cache

from docs.checking import KINDS
from docs.fragments import reader_of
from docs.inventory import Block, blocks
from docs.shell import logical_lines, simple_commands
from docs.taken import taken


class Way(Enum):
    """What happens to a block."""

    TAKEN = "taken by other tests"
    SHELL = "run as shell commands"
    PYTHON = "run as Python"
    TRANSCRIPT = "run, and its output compared"
    DOCUMENT = "read by the tool that it is for"
    PROMQL = "asked of a Prometheus"
    UNIT = "read by systemd"
    NOT_CODE = "not run: no code"


_LANGUAGES = {
    "sh": Way.SHELL,
    "yaml": Way.DOCUMENT,
    "json": Way.DOCUMENT,
    "python": Way.PYTHON,
    "promql": Way.PROMQL,
    "ini": Way.UNIT,
}
#: What a block may be that is no code, as its marker says.
_NOT_CODE = re.compile(r"a (drawing|formula|synopsis)\b")
_PROGRAM = re.compile(
    r"^(\$ |vllm-|kubectl |promtool |amtool |bash |pytest |curl |make |helm |docker )", re.MULTILINE
)


@cache
def find(block: Block) -> Way | None:
    """Return what happens to a block; `None` where nothing does."""
    language = block.language
    if taken(block):
        return Way.TAKEN
    if block.text.startswith("$ "):
        return Way.TRANSCRIPT
    if language in _LANGUAGES or _PROGRAM.search(block.text):
        return _LANGUAGES.get(language)
    return Way.NOT_CODE


def complaint(block: Block) -> str:
    """Return what is wrong with a block or with its marker, empty where nothing is."""
    way, needs_marker = find(block), False
    if way is Way.SHELL:
        try:
            lines = [line for line in logical_lines(block.text) if not line.startswith("export ")]
        except ValueError as error:
            return f"{block.where}: {error}"
        kinds = [KINDS.of(words) for line in lines for words in simple_commands(line)]
        needs_marker = any(kinds)
    elif way is Way.DOCUMENT:
        reader = reader_of(block.document())
        if reader is None:
            return f"{block.where}: no tool is known that reads it: docs/fragments.py has a table"
        needs_marker = reader.foreign
    elif way is Way.NOT_CODE:
        needs_marker = True
        if block.reason and not _NOT_CODE.match(block.reason):
            return f"{block.where}: marked as not run, and not as {_NOT_CODE.pattern}"
    elif way is None:
        return f"{block.where}: nothing runs or checks it"
    elif way in (Way.TAKEN, Way.TRANSCRIPT):  # a marker tells what was measured elsewhere
        needs_marker = bool(block.reason)
    if bool(block.reason) != needs_marker:
        return f"{block.where}: {'no marker `not run`' if needs_marker else 'marked, and it is run'}"
    return ""


def of(*ways: Way) -> tuple[Block, ...]:
    """Return the blocks to which these things happen."""
    return tuple(block for block in blocks() if find(block) in ways)
