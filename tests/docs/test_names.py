"""Every name of this project on a page exists: of series, alerts, flags, variables,
endpoints, files.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import promql_parser
import pytest
import yaml

from docs import names
from docs.inventory import ROOT, pages, prose
from docs.shell import simple_commands
from vllm_specdec_exporter.cli import COMMANDS, PROGRAM

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
OTHERS = yaml.safe_load(Path(__file__).with_name("others.yml").read_text("utf-8"))
FOREIGN = {flag for flags in OTHERS["flags"] for flag in flags}
#: Endpoints of Prometheus and of Mimir, under paths like ours.
ENDPOINTS_OF_OTHERS = {"/api/v1/write", "/api/v1/push"}
#: Where upstream's own code is described, with names that no capture has.
UPSTREAM = ROOT / "tests" / "data"
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
    every = set(names)
    return sorted(
        {
            name
            for name in used
            if name not in every
            and not (
                name[-1] in "*_:"
                and any(existing.startswith(name.rstrip("*")) for existing in every)
            )
        }
    )


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
        return unknown(
            pattern.findall("\n".join(spans(text)) if code else text), existing()
        )

    return wrong


def _flags(page: Path) -> list[str]:
    """Behind a command of ours, they are that command's; alone, of any of them or of a
    known other.
    """
    flags = names.all_flags() | set(FOREIGN)
    wrong = []
    for span in spans(of_today(page)):
        words = span.split()
        first = words[0] if words else ""
        if first in OTHERS["programs"]:
            continue
        if first in COMMANDS:
            command = first
        elif first == PROGRAM and len(words) > 1:
            command = words[1]
        else:
            command = ""
        of_command = names.flags(command) if command in COMMANDS else flags
        wrong += [
            f"{span}: {flag}" for flag in unknown(_FLAG.findall(span), of_command)
        ]
    return wrong


def _commands(page: Path) -> list[str]:
    """What stands behind the name of the program, and what is called a target of the
    Makefile.
    """
    wrong = []
    for span in spans(of_today(page)):
        command = span.split()
        if command[:1] == [PROGRAM]:
            simple = list(simple_commands(span))  # a shell can read it
            unknown_command = (
                len(command) > 1
                and re.fullmatch(r"[a-z]+", command[1])
                and command[1] not in COMMANDS
            )
            wrong += [span] if unknown_command or not simple else []
        if command[:1] == ["make"]:
            wrong += [
                span
                for word in command[1:]
                if "=" not in word and word not in names.targets()
            ]
    return wrong


def _files(page: Path) -> list[str]:
    """From the root of the repository or from the page's folder; a pattern has
    files.
    """
    return [
        span
        for span in spans(of_today(page))
        if _PATH.fullmatch(span)
        and not any(
            any(folder.glob(alternative.rstrip("/")))
            for folder in (ROOT, page.parent)
            for alternative in _alternatives(span)
        )
    ]


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
            wrong += [
                f"{span}: {unknown_label}"
                for unknown_label in unknown_labels(labels["name"], labels["labels"])
            ]
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


def unknown_labels(name: str, labels: str) -> list[str]:
    """Return which labels a metric does not have that is written as
    `name{label,label}`.
    """
    known = names.labels(name)
    return [
        label
        for label in re.split(r", ?", labels)
        if known is not None and label not in known
    ]


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
    wrong_names = {
        page.relative_to(ROOT).as_posix(): wrong
        for page in OURS
        if (wrong := RULES[kind](page))
    }
    assert wrong_names == {}


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
