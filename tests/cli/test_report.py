"""The report of `check` as text: golden files.

`UPDATE_GOLDEN=1 pytest tests/cli` writes the files anew; look at the difference before
it is committed.
"""

import json
import re
import shlex
from pathlib import Path

import pytest

from core import test_delivered as delivered
from economics.servers import settings_for
from golden.cases import CASES, run
from statuspage.examples import HOSTILE_TEXT, PAGES, engine, page_of, target
from support.copies import replace
from support.golden import golden_text
from vllm_specdec_exporter.economics.profiles import BUILTIN
from vllm_specdec_exporter.judgement.published_rules import Rule
from vllm_specdec_exporter.observe.result import ExporterResult
from vllm_specdec_exporter.publish import terminal_report as report

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
ADVISED = (
    "healthy",
    "optimal",
    "decrease",
    "poor",
    "disable",
    "measured",
    "measured_harmful",
    "unsaid",
)
SHOWN = {case.name: run(case) for case in CASES if case.name in NAMES} | {
    f"advice-{name.replace('_', '-')}": PAGES[name] for name in ADVISED
}
SHOWN["slow-engine"] = page_of(target(delivered.TestSlowEngine().polls(300)))
SHORT_ANSWERS, _ = delivered.REAL["draft model, 4 tokens"]
SHOWN["short-answers"] = page_of(
    target(delivered.poll(settings_for(BUILTIN["eagle"], "eagle", 6), SHORT_ANSWERS))
)

#: What is to be pasted: vLLM's flag, or the JSON alone where its method is not known.
PASTED = re.compile(r".*--speculative-config '|(?:    to paste  | {14})\{\"")


@pytest.mark.parametrize("name", SHOWN)
def test_the_report_is_the_golden_file(name: str) -> None:
    """Every byte of it is as committed, its coloured form has the same words, and all
    lines fit.

    None is longer than 100 columns but those to paste, and none ends in blanks.
    """
    text = report.render(SHOWN[name]) + "\n"
    assert golden_text(HERE / f"{name}.txt", text) == text
    painted = report.render(SHOWN[name], colour=True) + "\n"
    assert painted != text
    assert ESCAPES.sub("", painted) == text
    assert [
        line for line in text.splitlines() if len(line) > 100 and not PASTED.match(line)
    ] == []
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_every_golden_report_belongs_to_a_case() -> None:
    """No file is left over from a case that is gone."""
    assert {f"{name}.txt" for name in SHOWN} == {path.name for path in HERE.iterdir()}


# --- what to paste


def flags(result: ExporterResult) -> list[list[str]]:
    """What a shell makes of the lines that hold nothing but a flag to paste."""
    lines = report.render(result).splitlines()
    matches = [
        re.fullmatch(r"(?:    to paste  | {14})(--speculative-config .*)", line)
        for line in lines
    ]
    return [shlex.split(match[1]) for match in matches if match]


def test_what_to_paste_survives_a_shell_whatever_it_holds() -> None:
    """Quotes and substitutions within the operator's JSON reach vLLM as text."""
    ((_, config),) = flags(PAGES["hostile"])
    assert json.loads(config)["method"] == HOSTILE_TEXT


def test_a_rule_that_is_not_known_here_is_shown_all_the_same() -> None:
    """A snapshot of a newer exporter can still be read."""
    only = engine()
    advice = replace(only.advice, rules=(Rule("new", "newfangled", "something holds"),))
    page = page_of(target(replace(only, advice=advice)))
    assert re.search("newfangled +something holds", report.render(page, rules=True))
    folded = report.render(page)
    assert "something holds" not in folded
    assert "1 published rules of thumb" in folded


def test_long_names_and_messages_fit_too() -> None:
    """Whatever a server calls its model, and whatever went wrong, lines are wrapped; a
    word stays whole.
    """
    (case,) = (case for case in CASES if case.name == "two-targets-one-down")
    result = run(case)
    up, down = result.targets
    message = f"no trusted TLS connection: {'certificate ' * 20}"
    engines = tuple(
        replace(engine, model_name="org/a-model-" + "x" * 40) for engine in up.engines
    )
    down = replace(down, failure=replace(down.failure, message=message))
    lines = report.render(
        replace(result, targets=(replace(up, engines=engines), down))
    ).splitlines()
    assert [line for line in lines if len(line) > 100] == []
