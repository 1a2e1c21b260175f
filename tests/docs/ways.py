"""How each block is run or checked, by its kind, and what is wrong where it is not, or is marked wrongly."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import yaml

from docs.fragments import reader_of
from docs.inventory import INDENTED, blocks, prose
from docs.shell import logical_lines, simple_commands
from docs.taken import taken
from docs.unavailable import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from docs.inventory import Block


class Way(Enum):
    """What happens to a block."""

    TAKEN = "taken by other tests"
    SHELL = "run as shell commands"
    PYTHON = "run as Python"
    TRANSCRIPT = "run, and its output compared"
    OUTPUT = "compared with what the block above prints"
    DOCUMENT = "read by the tool that it is for"
    PROMQL = "asked of a Prometheus"
    UNIT = "read by systemd"
    NOT_CODE = "not run: no code"


@dataclass(frozen=True)
class Found:
    """What a block's kind says.

    Attributes:
        way: what happens to it; `None` where nothing does.
        lacks: what of it cannot be run lacks, each as a regular expression that its marker must match.
        checked: whether something of it is run or checked all the same.
        complaint: why nothing happens to it.
    """

    way: Way | None
    lacks: tuple[str, ...] = ()
    checked: bool = True
    complaint: str = ""


#: What a block may be that is no code.
NOT_CODE = ("a drawing", "a formula", "a synopsis")
#: What the tests lack for transcripts of measurements, and for documents of programs that are in no package.
_MEASURED, _NO_CHART = r"measured with a real vLLM", r"Grafana's Helm chart"
_PROGRAM = re.compile(r"(\$ |vllm-|kubectl |promtool |amtool |bash |pytest |curl |make |helm |docker )")


def find(block: Block) -> Found:
    """Return what happens to a block."""
    if taken(block) is not None:
        return Found(Way.TAKEN)
    language = block.language
    if block.text.startswith("$ "):
        # Numbers measured elsewhere are told by the marker; without it, all of the output is compared.
        return Found(Way.TRANSCRIPT, (_MEASURED,) if block.reason else ())
    if language == INDENTED and _PROGRAM.match(block.text):
        language = "sh"
    return KINDS.get(language, _no_code)(block)


def complaint(block: Block) -> str:
    """Return what is wrong with a block or with its marker, empty where nothing is."""
    try:
        found = find(block)
    except ValueError as error:
        return f"{block.where}: {error}"
    if found.way is None:
        return f"{block.where}: nothing runs or checks it: {found.complaint}"
    missing = [lacks for lacks in found.lacks if not re.search(lacks, block.reason)]
    if missing and not block.reason:
        return f"{block.where}: no marker `not run`, and it needs one that says {' and '.join(missing)}"
    if missing:
        return f"{block.where}: its marker does not say {' and '.join(missing)}"
    if block.reason and not found.lacks:
        return f"{block.where}: marked as not run, and it is {found.way.value}"
    if block.reason and block.checked is not None and block.checked != found.checked:
        return f"{block.where}: the marker must {'' if found.checked else 'not '}say that it is checked"
    return ""


def report() -> str:
    """Return how many blocks are run, checked and not run, and why not."""
    ways: Counter[str] = Counter()
    for block in blocks():
        found = find(block)
        checked = found.checked if block.checked is None else block.checked
        way = found.way.value if found.way else "nothing"
        ways[f"{'checked, ' if checked else ''}not run: {block.reason}" if block.reason else way] += 1
    return "\n".join(f"{number:4}  {way}" for way, number in ways.most_common())


def source(block: Block) -> Block | None:
    """Return the shell block in the section of a block of output, above it, that may have printed it."""
    lines = prose(block.file.read_text("utf-8")).splitlines() if block.file.is_file() else []
    begin = max((n for n, line in enumerate(lines[: block.line], 1) if line.startswith("#")), default=0)
    above = [one for one in blocks() if one.path == block.path and begin <= one.line < block.line]
    return next((one for one in reversed(above) if one.language == "sh"), None)


def _shell(block: Block) -> Found:
    kinds, runnable = [], False
    for line in logical_lines(block.text):
        commands = list(simple_commands(line))
        found = [kind for words in commands if (kind := kind_of(words))]
        kinds += found
        runnable = runnable or (not found and not line.startswith("export "))
    return Found(
        Way.SHELL,
        tuple(dict.fromkeys(kind.lacks for kind in kinds)),
        checked=runnable or any(kind.check for kind in kinds),
    )


def _document(block: Block) -> Found:
    try:
        document = yaml.safe_load(block.text) if block.language == "yaml" else json.loads(block.text)
    except (ValueError, yaml.YAMLError) as error:
        return Found(None, complaint=str(error))
    reader = reader_of(document)
    if reader is None:
        return Found(None, complaint="no tool is known that reads it: docs/fragments.py has a table")
    return Found(Way.DOCUMENT, (_NO_CHART,) if reader.name == "our ConfigMaps" else ())


def _no_code(block: Block) -> Found:
    if any(_PROGRAM.match(line) for line in block.text.splitlines()):
        return Found(None, complaint=f"a command in a block of the language {block.language or 'none'}")
    if block.language == "text" and not block.reason and source(block) is not None:
        return Found(Way.OUTPUT)
    return Found(Way.NOT_CODE, (f"^({'|'.join(NOT_CODE)})\\b",), checked=False)


KINDS: dict[str, Callable[[Block], Found]] = {
    "sh": _shell,
    "yaml": _document,
    "json": _document,
    "python": lambda _: Found(Way.PYTHON),
    "promql": lambda _: Found(Way.PROMQL),
    "ini": lambda _: Found(Way.UNIT),
    "console": lambda block: Found(None, complaint="a transcript begins with `$ `"),
}
