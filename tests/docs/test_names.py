"""Every name of this project on a page exists: of series, alerts, flags, variables, endpoints, files."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import promql_parser
import pytest

from docs import names
from docs.inventory import ROOT, blocks, pages, prose
from docs.shell import logical_lines, simple_commands
from vllm_specdec_exporter.cli import COMMANDS, PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_SERIES = re.compile(r"(?<![\w./@-])(?:\w+:)?(?:vllm_specdec_(?!exporter)|vllm:)[\w:]*\*?")
_LABELS = re.compile(r"(?P<name>vllm_specdec_\w+)\{(?P<labels>\w+(?:, ?\w+)*)\}")
_ALERT = re.compile(r"VLLMSpecDecode[A-Z]\w*")
_VARIABLE = re.compile(r"\b(?:VLLM_SPECDEC_EXPORTER|SPECDEC)_[A-Z_]*[A-Z]\b(?!_?\*)")
_FLAG = re.compile(r"(?<![\w-])--[a-z](?:[\w.-]*\w)?(?:\.\*)?")
_ENDPOINT = re.compile(r"(?<![\w./])(?:/-/\w+|/api/v1/\w+)")
_PATH = re.compile(r"(?:alerts|bench|dashboards|docs|exporter|helm|tests)/[\w./*{},-]*[\w*/]")
_UID = re.compile(r"(?<![\w/.-])vllm-specdec-(?!exporter)[a-z]+\b(?![/.-])")

#: Flags of programs of others that pages name alone, and whose they are. Not in code of ours, so nothing but
#: this can say that they are meant.
FOREIGN = {
    "vLLM": (
        *("--speculative-config", "--per-request-spec-decode-metrics", "--enable-force-include-usage"),
        *("--enable-per-request-metrics", "--middleware", "--disable-log-stats", "--max-num-seqs", "--uds"),
        *("--served-model-name", "--headless"),
    ),
    "llama.cpp": ("--metrics",),
    "Alertmanager": ("--web.external-url",),
    "amtool": ("--alertmanager.url",),
    "Thanos": ("--alert.label-drop", "--endpoint", "--label", "--remote-write.config-file"),
    "kubectl": ("--server-side",),
    "Helm": ("--kube-version", "--post-renderer", "--set"),
    "Docker": ("--profile", "--read-only"),
    "pip": ("--no-deps",),
}
#: Programs of others: what their flags are is their matter.
PROGRAMS = (
    *("kubectl", "helm", "docker", "promtool", "amtool", "prometheus", "vmagent", "vmalert", "pip", "curl"),
    *("vllm", "npm", "python", "python3", "make", "git", "systemctl", "htpasswd", "journalctl", "mimirtool"),
)
#: Endpoints of others under paths like ours, and whose.
ENDPOINTS_OF_OTHERS = {
    "/api/v1/write": "Prometheus",
    "/api/v1/push": "Mimir",
}
#: Where upstream's own code is described, with names that no capture has.
UPSTREAM = ROOT / "tests" / "data"
OURS = tuple(page for page in pages() if not page.is_relative_to(UPSTREAM))
EACH = pytest.mark.parametrize("page", OURS, ids=lambda page: page.relative_to(ROOT).as_posix())


def spans(text: str) -> list[str]:
    """The code within the sentences of a page."""
    return [" ".join(found[1].split()) for found in _SPAN.findall(prose(text))]


def unknown(found: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return what is not known; a name that ends with a star or an underscore stands for several."""
    every = set(known)
    return sorted(
        {
            name
            for name in found
            if name not in every
            and not (name[-1] in "*_:" and any(one.startswith(name.rstrip("*")) for one in every))
        }
    )


@EACH
def test_series_exist(page: Path) -> None:
    """Of the exporter, of a server as captured, or of a recording rule; also in blocks."""
    assert unknown(_SERIES.findall(page.read_text("utf-8")), names.metrics()) == []


@EACH
def test_alerts_exist(page: Path) -> None:
    assert unknown(_ALERT.findall(page.read_text("utf-8")), names.alerts()) == []


@EACH
def test_variables_exist(page: Path) -> None:
    assert unknown(_VARIABLE.findall(page.read_text("utf-8")), names.variables()) == []


@EACH
def test_flags_exist(page: Path) -> None:
    """Behind a command of ours, they are that command's; alone, of any of them or of a known other."""
    known = names.all_flags() | {flag for flags in FOREIGN.values() for flag in flags}
    wrong = []
    for span in spans(page.read_text("utf-8")):
        words = span.split()
        first = words[0] if words else ""
        if first in PROGRAMS:
            continue
        command = first if first in COMMANDS else words[1] if first == PROGRAM and len(words) > 1 else ""
        of_command = names.flags(command) if command in COMMANDS else known
        wrong += [f"{span}: {flag}" for flag in unknown(_FLAG.findall(span), of_command)]
    assert wrong == []


@EACH
def test_commands_exist(page: Path) -> None:
    """What stands behind the name of the program, and what is called a target of the Makefile."""
    wrong = []
    for span in spans(page.read_text("utf-8")):
        words = span.split()
        if words[:1] == [PROGRAM] and len(words) > 1 and re.fullmatch(r"[a-z]+", words[1]):
            wrong += [span] if words[1] not in COMMANDS else []
        if words[:1] == ["make"]:
            wrong += [span for word in words[1:] if "=" not in word and word not in names.targets()]
    assert wrong == []


def test_targets_of_the_makefile_exist() -> None:
    """In blocks: `make` finds nothing to do for the name of a folder, and says so without an error."""
    used = {
        (block.where, word)
        for block in blocks()
        if block.language == "sh"
        for line in logical_lines(block.text)
        for words in simple_commands(line)
        if words[0] == "make"
        for word in words[1:]
        if "=" not in word
    }
    assert used
    assert {(where, word) for where, word in used if word not in names.targets()} == set()


@EACH
def test_endpoints_exist(page: Path) -> None:
    known = names.endpoints() | set(ENDPOINTS_OF_OTHERS)
    assert unknown(_ENDPOINT.findall(page.read_text("utf-8")), known) == []


@EACH
def test_dashboards_exist(page: Path) -> None:
    found = [uid for span in spans(page.read_text("utf-8")) for uid in _UID.findall(span)]
    assert unknown(found, names.dashboards()) == []


@EACH
def test_files_exist(page: Path) -> None:
    """From the root of the repository or from the page's folder; a pattern has files."""
    wrong = []
    for span in spans(page.read_text("utf-8")):
        path = _PATH.fullmatch(span)
        if path is not None and not any(
            any(folder.glob(one.rstrip("/"))) for folder in (ROOT, page.parent) for one in _alternatives(span)
        ):
            wrong.append(span)
    assert wrong == []


def _alternatives(pattern: str) -> list[str]:
    """Return a pattern with braces as patterns without."""
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        return [pattern]
    return [pattern[: found.start()] + one + pattern[found.end() :] for one in found[1].split(",")]


@EACH
def test_expressions_within_sentences_are_promql(page: Path) -> None:
    """Whatever has a series of ours or of vLLM and looks like more than its name."""
    wrong = []
    for span in spans(page.read_text("utf-8")):
        if labels := _LABELS.fullmatch(span):
            wrong += [f"{span}: {one}" for one in unknown_labels(labels["name"], labels["labels"])]
        elif _is_expression(span):
            try:
                promql_parser.parse(span)
            except ValueError as error:
                wrong.append(f"{span}: {error}")
    assert wrong == []


def _is_expression(span: str) -> bool:
    other = "..." in span or span.split()[0] in PROGRAMS
    return bool(not other and _SERIES.search(span) and re.search(r"[({\[]| [/*+<>=-] ", span))


def unknown_labels(name: str, labels: str) -> list[str]:
    """Return which labels a metric does not have that is written as `name{label,label}`."""
    known = names.labels(name)
    return [label for label in re.split(r", ?", labels) if known is not None and label not in known]


@EACH
def test_commands_within_sentences_can_be_read(page: Path) -> None:
    """By a shell."""
    for span in spans(page.read_text("utf-8")):
        if span.split()[:1] == [PROGRAM]:
            assert shlex.split(span)
            assert list(simple_commands(span)), span


# --- what is found


@pytest.mark.parametrize(
    ("find", "text", "found"),
    [
        (_SERIES.findall, "vllm_specdec_up{a='b'} vllm:num_x model:vllm_specdec_y:rate1h", 3),
        (_SERIES.findall, "vllm_specdec_exporter.client tests/vllm_specdec_exporter vllm/vllm-openai:v1", 0),
        (_ALERT.findall, "VLLMSpecDecodeHarmful.md", 1),
        (_VARIABLE.findall, "`VLLM_SPECDEC_EXPORTER_VLLM_URL` SPECDEC_PUSH_URL VLLM_SPECDEC_EXPORTER_*", 2),
        (_FLAG.findall, "--vllm.url=a --no-loop -- --vllm.*", 3),
        (_ENDPOINT.findall, "http://a:1/-/ready /api/v1/snapshot?x=1", 2),
        (_UID.findall, "vllm-specdec-payoff vllm-specdec-exporter", 1),
        (spans, "a `b c` ``d ` e`` and\n```\nf\n```\n", 2),
    ],
)
def test_names_are_found(find: Callable[[str], list[str]], text: str, found: int) -> None:
    """And what only looks like one is not."""
    if find == _ENDPOINT.findall:
        text = text.replace("http://a:1", "")
    assert len(find(text)) == found, find(text)


def test_what_is_unknown_is_told() -> None:
    assert unknown(["a", "b_", "c*", "d"], ["a", "b_c", "cde"]) == ["d"]
    assert unknown(["x*"], ["a"]) == ["x*"]


def test_labels_are_looked_up() -> None:
    assert unknown_labels("vllm_specdec_activity", "state, engine") == []
    assert unknown_labels("vllm_specdec_activity", "verdict") == ["verdict"]


def test_the_tables_have_names() -> None:
    """An empty table would let nothing pass; one that is made wrongly may lack a kind."""
    assert {"vllm_specdec_up", "vllm:spec_decode_num_drafts_total"} <= names.metrics()
    assert "model:vllm_specdec_acceptance:ratio_rate1h" in names.metrics()
    assert {"/metrics", "/-/reload", "/api/v1/snapshot", "/api/v1/requests", "/alerts"} <= names.endpoints()
    assert "vllm-specdec-payoff" in names.dashboards()
    assert {"--push", "--spec.config", "--runbooks"} <= names.all_flags()
    assert {"demo", "rules"} <= names.targets()
