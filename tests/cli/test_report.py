"""The report of `check` as text: golden files.

`UPDATE_GOLDEN=1 pytest tests/cli` writes the files anew; look at the difference before it is committed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from golden.cases import CASES, run
from statuspage.examples import HOSTILE_TEXT, PAGES, engine, page_of, target
from vllm_specdec_exporter import report
from vllm_specdec_exporter.judgement.rules import Rule

if TYPE_CHECKING:
    from vllm_specdec_exporter.result import ExporterResult

HERE = Path(__file__).parent / "golden"
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")

#: One of each kind; the values are those of the golden `/metrics` files.
NAMES = (
    "ngram-steady",
    "ngram-collapse",
    "ngram-idle",
    "ngram-torn",
    "ngram-restarted",
    "ngram-by-method",
    "ngram-measured",
    "ngram-baseline-of-another-release",
    "nospec",
    "nospec-though-configured",
    "v0-with-spec-config",
    "diffusion",
    "llamacpp",
    "not-polled-yet",
    "two-targets-one-down",
)
#: One of each advice, and of each basis.
ADVISED = ("healthy", "optimal", "decrease", "poor", "disable", "measured", "measured_harmful", "unsaid")
SHOWN: dict[str, ExporterResult] = {case.name: run(case) for case in CASES if case.name in NAMES} | {
    f"advice-{name.replace('_', '-')}": PAGES[name] for name in ADVISED
}

every_case = pytest.mark.parametrize("name", SHOWN)


@every_case
def test_the_report_is_the_golden_file(name: str) -> None:
    """Every byte of the report is as committed."""
    path = HERE / f"{name}.txt"
    now = report.render(SHOWN[name]) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        HERE.mkdir(exist_ok=True)
        path.write_text(now, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == now


def test_every_golden_report_belongs_to_a_case() -> None:
    """No file is left over from a case that is gone."""
    assert {f"{name}.txt" for name in SHOWN} == {path.name for path in HERE.iterdir()}
    assert len(SHOWN) == len(NAMES) + len(ADVISED)


@every_case
def test_colours_change_nothing_but_the_colour(name: str) -> None:
    """Without its escape codes, the coloured report is the plain one: not a line is broken elsewhere."""
    painted = report.render(SHOWN[name], colour=True)
    assert painted != report.render(SHOWN[name])
    assert ESCAPES.sub("", painted) == report.render(SHOWN[name])


#: What is to be pasted: vLLM's flag, or the JSON alone where its method is not known.
PASTED = re.compile(r".*--speculative-config '|(?:    to paste  | {14})\{\"")


@every_case
def test_lines_fit_into_a_terminal(name: str) -> None:
    """No line is longer than 100 columns but those to paste, and none ends in blanks."""
    lines = report.render(SHOWN[name]).splitlines()
    assert [line for line in lines if len(line) > 100 and not PASTED.match(line)] == []
    assert [line for line in lines if line != line.rstrip()] == []


# --- what to paste


def flags(result: ExporterResult) -> list[list[str]]:
    """What a shell makes of the lines that hold nothing but a flag to paste."""
    lines = report.render(result).splitlines()
    own = [re.fullmatch(r"(?:    to paste  | {14})(--speculative-config .*)", line) for line in lines]
    return [shlex.split(found[1]) for found in own if found]


def test_what_to_paste_stands_on_one_line() -> None:
    """Both the K and the schedule can be copied as they stand, however long they are."""
    k, schedule = flags(PAGES["poor"])
    assert (k[0], schedule[0], len(k), len(schedule)) == (
        "--speculative-config",
        "--speculative-config",
        2,
        2,
    )
    assert json.loads(k[1])["num_speculative_tokens"] == 1
    rows = json.loads(schedule[1])["num_speculative_tokens_per_batch_size"]
    assert [row[2] for row in rows] == [1, 0]


def test_findings_leave_what_to_paste_on_one_line() -> None:
    """The action of a finding may hold the flag too; no line break gets into its JSON."""
    text = report.render(PAGES["decrease"])
    within = re.findall(r"--speculative-config '(\{.*\})'", text)
    assert len(within) == 2
    assert [json.loads(found)["num_speculative_tokens"] for found in within] == [2, 2]


def test_what_to_paste_survives_a_shell_whatever_it_holds() -> None:
    """Quotes and substitutions within the operator's JSON reach vLLM as text."""
    ((_, config),) = flags(PAGES["hostile"])
    assert json.loads(config)["method"] == HOSTILE_TEXT


def test_json_without_the_operators_own_is_called_incomplete() -> None:
    """Without --spec.config the method is not known, so the JSON alone would not start a server."""
    words = "Only what changes is in it: add it to the server's own JSON."
    assert words in " ".join(report.render(PAGES["unsaid"]).split())
    assert words not in " ".join(report.render(PAGES["decrease"]).split())


# --- advice


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("healthy", "keep K=4 (K=4 runs 1.92 times as fast"),
        ("decrease", "lower K to 2 (K=2 runs 1.77 times as fast"),
        ("poor", "try another method (eagle3 usually reaches 2 tokens a draft"),
        ("disable", "switch speculation off (no K pays at 100.0 requests a batch"),
        ("varying", "no advice (drafts hold 2.3 of K=4 tokens on average"),
    ],
)
def test_advice_is_in_plain_words_with_its_reason(name: str, words: str) -> None:
    """What to do comes first, and why in brackets; that nothing is advised is said once."""
    assert f"    advice    {words}" in report.render(PAGES[name])


def test_speedups_stand_beside_the_judged_window_alone() -> None:
    """They are told of that window, so beside the lengths of another they would mislead."""
    tables = report.render(PAGES["healthy"]).split("    position  accepted")[1:]
    assert ["speedup" in table.splitlines()[0] for table in tables] == [False, True]
    assert ["1.92x" in table.partition("\n\n")[0] for table in tables] == [False, True]


def test_a_larger_k_is_shown_as_extrapolated() -> None:
    """Positions that nobody drafted have no acceptance, and their speedup is marked."""
    lines = report.render(PAGES["optimal"]).splitlines()
    beyond = [line.split() for line in lines if line.endswith("extrapolated")]
    k = PAGES["optimal"].targets[0].engines[0].advice.num_speculative_tokens
    assert k is not None
    assert k > 4
    assert [words[0] for words in beyond] == [str(position) for position in range(4, k)]
    assert {tuple(words[1:3]) for words in beyond} == {("–", "–")}


def test_a_rule_that_is_not_known_here_is_shown_all_the_same() -> None:
    """A snapshot of a newer exporter can still be read."""
    only = engine()
    advice = replace(only.advice, rules=(Rule("new", "newfangled", "something holds"),))
    assert "newfangled: something holds" in report.render(page_of(target(replace(only, advice=advice))))


def test_what_was_measured_is_told_beside_what_is_estimated() -> None:
    """Both speedups with their ranges, the latencies by quantile, and the return."""
    text = report.render(PAGES["measured"])
    measured = PAGES["measured"].targets[0].engines[0].window("5m").measured  # type: ignore[union-attr]
    ends = f"{measured.speedup_low:.2f}x to {measured.speedup_high:.2f}x"
    for line in (
        "    estimated speedup       1.92x (1.37x to 3.20x)",
        f"    measured speedup        1.62x ({ends}, 1,200 requests)",
        "    output token, time      P50 0.62x, P95 0.62x, P99 0.62x of the baseline's",
    ):
        assert line in text.splitlines()
    assert "    return on speculation   " in text
    assert "measured speedup" not in report.render(PAGES["healthy"])


def test_long_names_and_messages_fit_too() -> None:
    """Whatever a server calls its model, and whatever went wrong, lines are wrapped; a word stays whole."""
    (case,) = (case for case in CASES if case.name == "two-targets-one-down")
    result = run(case)
    up, down = result.targets
    assert down.failure is not None
    message = f"no trusted TLS connection: {'certificate ' * 20}"
    engines = tuple(replace(engine, model_name="org/a-model-" + "x" * 40) for engine in up.engines)
    down = replace(down, failure=replace(down.failure, message=message))
    lines = report.render(replace(result, targets=(replace(up, engines=engines), down))).splitlines()
    assert [line for line in lines if len(line) > 100] == []
