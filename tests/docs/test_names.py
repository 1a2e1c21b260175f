"""Every name of this project on a page exists: of series, alerts, flags, variables,
endpoints, files.
"""

import re
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

import promql_parser
import pytest

from docs import names
from docs.inventory import pages, prose
from docs.shell import simple_commands
from support.repository import ROOT, data_of
from vllm_specdec_exporter.commands.table import COMMANDS, PROGRAM

Rule = Callable[[Path], list[str]]

_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_SERIES = re.compile(
    r"(?<![\w./@-])(?:\w+:)?(?:vllm_specdec_(?!exporter)|vllm:)[\w:]*\*?"
)
_LABELS = re.compile(r"(?P<name>vllm_specdec_\w+)\{(?P<labels>\w+(?:, ?\w+)*)\}")
_ALERT = re.compile(r"VLLMSpecDecode[A-Z]\w*")
_VARIABLE = re.compile(r"\b(?:VLLM_SPECDEC_EXPORTER|SPECDEC)_[A-Z_]*[A-Z]\b(?!_?\*)")
_FLAG = re.compile(r"(?<![\w-])--[a-z](?:[\w.-]*\w)?(?:\.\*)?")
_ENDPOINT = re.compile(r"(?<![\w./])(?:/-/\w+|/api/v1/\w+)")
_PATH = re.compile(
    r"(?:alerts|bench|dashboards|docs|exporter|helm|tests)/[\w./*{},-]*[\w*/]"
)
_UID = re.compile(r"(?<![\w/.-])vllm-specdec-(?!exporter)[a-z]+\b(?![/.-])")

#: Flags and programs of others.
OTHERS = data_of("tests/docs/others.yml")
FOREIGN = set(chain.from_iterable(OTHERS["flags"]))
#: Endpoints of Prometheus and of Mimir, under paths like ours.
ENDPOINTS_OF_OTHERS = {"/api/v1/write", "/api/v1/push"}
#: Where upstream's own code is described, with names that no capture has.
UPSTREAM = ROOT / "tests/data"
OURS = tuple(page for page in pages() if not page.is_relative_to(UPSTREAM))


#: What a changelog says of the past.
_REMOVED = re.compile(r"\n### Removed\n.*?(?=\n##|\Z)", re.DOTALL)


def of_today(page: Path) -> str:
    """Return the text of a page without what a changelog lists as removed."""
    return _REMOVED.sub("", page.read_text("utf-8"))


def spans(text: str) -> list[str]:
    """The code within the sentences of a page."""
    return [" ".join(match[1].split()) for match in _SPAN.findall(prose(text))]


def unknown(used: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return what is not known; a name that ends with a star or an underscore stands
    for several.
    """
    existing = set(names)
    wrong = []
    for name in sorted(set(used) - existing):
        begin = name.rstrip("*")
        stands_for_several = name[-1] in "*_:"
        if not stands_for_several or not any(
            candidate.startswith(begin) for candidate in existing
        ):
            wrong.append(name)
    return wrong


def _known(
    pattern: re.Pattern[str],
    existing: Callable[[], Iterable[str]],
    *,
    code: bool = False,
) -> Rule:
    """Return a rule: what fits the pattern, on a page or in its code alone, is one of
    the known names.
    """

    def wrong(page: Path) -> list[str]:
        text = of_today(page)
        if code:
            text = "\n".join(spans(text))
        return unknown(pattern.findall(text), existing())

    return wrong


def _flags(page: Path) -> list[str]:
    """Behind a command of ours, they are that command's; alone, of any of them or of a
    known other.
    """
    wrong = []
    for span in spans(of_today(page)):
        name, *arguments = span.split() or [""]
        if name in OTHERS["programs"]:
            continue
        if name == PROGRAM and arguments:
            name = arguments[0]
        flags = names.all_flags() | names.engine_flags() | FOREIGN
        if name in COMMANDS:
            flags = names.flags(name)
        wrong += [f"{span}: {flag}" for flag in unknown(_FLAG.findall(span), flags)]
    return wrong


def _commands(page: Path) -> list[str]:
    """What stands behind the name of the program, and what is called a target of the
    Makefile.
    """
    wrong = []
    for span in spans(of_today(page)):
        name, *arguments = span.split() or [""]
        if name == PROGRAM:
            simple = list(simple_commands(span))  # a shell can read it
            command = re.match(r"[a-z]+\Z", "".join(arguments[:1]))
            if not simple or (command and command[0] not in COMMANDS):
                wrong.append(span)
        if name == "make":
            targets = {word for word in arguments if "=" not in word}
            wrong += [span for _ in targets - names.targets()]
    return wrong


def _files(page: Path) -> list[str]:
    """From the root of the repository or from the page's folder; a pattern has
    files.
    """
    paths = filter(_PATH.fullmatch, spans(of_today(page)))
    return [
        span
        for span in paths
        if not _has_file(ROOT, span) and not _has_file(page.parent, span)
    ]


def _has_file(folder: Path, pattern: str) -> bool:
    return any(
        any(folder.glob(alternative.rstrip("/")))
        for alternative in _alternatives(pattern)
    )


def _alternatives(pattern: str) -> list[str]:
    """Return a pattern with braces as patterns without."""
    braces = re.search(r"\{([^{}]*)\}", pattern)
    if braces is None:
        return [pattern]
    return [
        pattern[: braces.start()] + part + pattern[braces.end() :]
        for part in braces[1].split(",")
    ]


def _expressions(page: Path) -> list[str]:
    """Whatever has a series of ours or of vLLM and looks like more than its name is
    PromQL.
    """
    wrong = []
    for span in spans(of_today(page)):
        if labels := _LABELS.fullmatch(span):
            listed = re.split(r", ?", labels["labels"])
            # Of vLLM's series the labels are not known.
            existing = names.labels(labels["name"]) or listed
            wrong += [f"{span}: {label}" for label in set(listed).difference(existing)]
        elif _is_expression(span):
            try:
                promql_parser.parse(span)
            except ValueError as error:
                wrong.append(f"{span}: {error}")
    return wrong


def _is_expression(span: str) -> bool:
    foreign = "..." in span or span.split()[0] in OTHERS["programs"]
    return bool(
        not foreign and _SERIES.search(span) and re.search(r"[({\[]| [/*+<>=-] ", span)
    )


RULES: dict[str, Rule] = {
    "series": _known(_SERIES, names.metrics),
    "alerts": _known(_ALERT, names.alerts),
    "variables": _known(_VARIABLE, names.variables),
    "endpoints": _known(_ENDPOINT, lambda: names.endpoints() | ENDPOINTS_OF_OTHERS),
    "dashboards": _known(_UID, names.dashboards, code=True),
    "flags": _flags,
    "commands": _commands,
    "files": _files,
    "expressions": _expressions,
}


@pytest.mark.parametrize("kind", RULES)
def test_what_the_pages_name_exists(kind: str) -> None:
    """Such as series of the exporter, of a server or of a rule, and flags of the
    command before them.
    """
    for page in OURS:
        assert RULES[kind](page) == [], page


@pytest.mark.parametrize(
    ("kind", "text", "wrong"),
    [
        (
            "series",
            (
                "vllm_specdec_upp{a='b'} vllm:num_x vllm_specdec_exporter.client "
                "vllm_specdec_up"
            ),
            2,
        ),
        ("alerts", "VLLMSpecDecodeHarmfull.md VLLMSpecDecodeHarmful", 1),
        (
            "variables",
            "`VLLM_SPECDEC_EXPORTER_VLLM_URI` VLLM_SPECDEC_EXPORTER_VLLM_URL",
            1,
        ),
        ("endpoints", "/-/read /api/v1/snapshots?x=1 /api/v1/snapshot", 2),
        (
            "dashboards",
            "`vllm-specdec-over` `vllm-specdec-overview` vllm-specdec-none",
            1,
        ),
        ("flags", "`--no-such` ``--vllm.url=a`` `plan --vllm.url` `helm --nothing`", 2),
        ("commands", f"`{PROGRAM} chek` `{PROGRAM} check` `make tests` `make test`", 2),
        ("files", "`docs/nothing.md` `docs/{concepts,none*}.md` `tests/docs/*.py`", 1),
        (
            "expressions",
            (
                "`sum(vllm_specdec_up` `vllm_specdec_activity{verdict}` "
                "`vllm_specdec_up == 1`"
            ),
            2,
        ),
    ],
)
def test_what_does_not_exist_is_found(
    kind: str, text: str, wrong: int, tmp_path: Path
) -> None:
    """By each rule; and what exists, or only looks like a name, is left alone."""
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert len(RULES[kind](page)) == wrong, RULES[kind](page)
