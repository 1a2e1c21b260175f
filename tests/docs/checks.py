"""How each block is run or checked, and what is wrong with one that is not, or is
marked wrongly.
"""

import re
from enum import Enum
from functools import cache
from itertools import chain

from docs.inventory import Block, blocks
from docs.offline_commands import KINDS
from docs.other_tests import in_other_test
from docs.readers import reader_of
from docs.shell import logical_lines, simple_commands


class Check(Enum):
    """What happens to a block."""

    OTHER_TEST = "run or compared by another test"
    SHELL = "run as shell commands"
    PYTHON = "run as Python"
    TRANSCRIPT = "run, and its output compared"
    DOCUMENT = "read by the tool that it is for"
    PROMQL = "parsed as PromQL"
    UNIT = "read by systemd"
    NOT_CODE = "not run: no code"


_LANGUAGES = {
    "sh": Check.SHELL,
    "yaml": Check.DOCUMENT,
    "json": Check.DOCUMENT,
    "python": Check.PYTHON,
    "promql": Check.PROMQL,
    "ini": Check.UNIT,
}
#: What a block may be that is no code, as its marker says.
_NOT_CODE = re.compile(r"a (drawing|formula|synopsis)\b")
#: How a marker ends above commands that no test runs: when a person ran them, and with
#: which versions.
_BY_HAND = re.compile(r"; (?:by hand \d{4}-\d\d-\d\d, .*\d.*|not yet by hand)\Z")
#: Pages for those who change the project, whose commands are its own.
_FOR_DEVELOPERS = re.compile(r"CONTRIBUTING|tests/")
_PROGRAM = re.compile(
    r"(?m)^(\$ |vllm-|"
    "(kubectl|promtool|amtool|bash|pytest|curl|make|helm|docker) )"
)


@cache
def check_of(block: Block) -> Check | None:
    """Return what happens to a block; `None` where nothing does."""
    language = block.language
    if in_other_test(block):
        return Check.OTHER_TEST
    if block.text.startswith("$ "):
        return Check.TRANSCRIPT
    if language in _LANGUAGES or _PROGRAM.search(block.text):
        return _LANGUAGES.get(language)
    return Check.NOT_CODE


def complaint(block: Block) -> str:
    """Return what is wrong with a block or with its marker, empty where nothing is."""
    check = check_of(block)
    needs_marker = False
    if check is Check.SHELL:
        try:
            lines = [
                line
                for line in logical_lines(block.text)
                if not line.startswith("export ")
            ]
        except ValueError as error:
            return f"{block.where}: {error}"
        commands = chain.from_iterable(map(simple_commands, lines))
        needs_marker = any(map(KINDS.of, commands))
        if (
            block.reason
            and not _BY_HAND.search(block.reason)
            and not _FOR_DEVELOPERS.match(block.path)
        ):
            return f"{block.where}: the marker does not say when it was run by hand"
    elif check is Check.DOCUMENT:
        reader = reader_of(block.document())
        if reader is None:
            return f"{block.where}: docs/readers.py has no tool that reads it"
        needs_marker = reader.foreign
    elif check is Check.NOT_CODE:
        needs_marker = True
        if block.reason and not _NOT_CODE.match(block.reason):
            return f"{block.where}: marked as not run, and not as {_NOT_CODE.pattern}"
    elif check is None:
        return f"{block.where}: nothing runs or checks it"
    # a marker says what was measured elsewhere
    elif check in (Check.OTHER_TEST, Check.TRANSCRIPT):
        needs_marker = bool(block.reason)
    if needs_marker and not block.reason:
        return f"{block.where}: no marker `not run`"
    if block.reason and not needs_marker:
        return f"{block.where}: marked, and it is run"
    return ""


def blocks_with(*checks: Check) -> tuple[Block, ...]:
    """Return the blocks with one of these checks."""
    return tuple(block for block in blocks() if check_of(block) in checks)
