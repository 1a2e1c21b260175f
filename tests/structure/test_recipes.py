"""The recipes of CONTRIBUTING.md, followed in a copy of the repository."""

import json
import os
import re
import shutil
import sys
from itertools import chain
from pathlib import Path

import pytest

from support.programs import printed
from support.repository import ROOT, data_of, text_of

# On a busy machine the commands take minutes.
pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

#: What a copy does without: the history, environments, caches and what tests have
#: built.
LEFT_OUT = shutil.ignore_patterns(
    *(".git", ".venv*", ".*_cache", "__pycache__", "node_modules", "dist", "build")
)
#: Two commands take half a minute each, all others six seconds together: one scores all
#: estimates, which read no counter; one counts series, and reads no rule.
SCORE = "bench/accuracy/score.py"
SERIES = "-m scaling.series"
PACKAGE = "exporter/vllm_specdec_exporter"
MEASURES = "measures/measures.py"

#: A new gauge: by file, the text before which something is put, and what.
GAUGE = {
    f"{PACKAGE}/publish/metrics.toml": {
        "[window_drafts]": """\
[rejected_tokens_per_second]
scope = "window"
help = "Rejected draft tokens per second, over the real span of the window."

"""
    },
    f"{PACKAGE}/{MEASURES}": {
        "        generation_tokens_per_second: ": (
            "        rejected_tokens_per_second: not accepted.\n"
        ),
        "    generation_tokens_per_second: float": (
            "    rejected_tokens_per_second: float | None = None\n"
        ),
        "        generation_tokens_per_second=_rate(": (
            "        rejected_tokens_per_second=None\n"
            "        if None in (delta.draft_tokens, delta.accepted_tokens)\n"
            "        else _rate(delta.draft_tokens - delta.accepted_tokens, span),\n"
        ),
    },
    "tests/core/test_measures.py": {
        "            generation_tokens_per_second=40.0,": (
            "            rejected_tokens_per_second=20.0,\n"
        )
    },
    "docs/concepts.md": {
        "| rates per second |": (
            "| `vllm_specdec_rejected_tokens_per_second` | tokens | wasted work |\n"
        )
    },
    "CHANGELOG.md": {"## [Unreleased]": ""},
}
#: A new alert, likewise, and its runbook.
ALERT = {
    "alerts/alert_rules/activity.py": {
        'Group("vllm-specdec.activity.long"': (
            'Group("vllm-specdec.draftless", (_draftless(),)),\n        '
        ),
        "def _collapsed()": """\
def _draftless() -> Alert:
    return Alert(
        name="Draftless",
        subject="activity",
        expr="model:vllm_specdec_drafts:rate30m == 0",
        hold="1h",
        keep="15m",
        summary="Nothing is drafted.",
        description=f"{t.WHO['model']} has drafted nothing for an hour.",
        action="Read vLLM's log.",
        value=t.this(t.COUNT),
    )


""",
    }
}
RUNBOOK = "alerts/runbooks/VLLMSpecDecodeDraftless.md"
#: A new engine, with names of its own.
ENGINE = {
    f"{PACKAGE}/engines/foo.toml": """\
# Foo (1.0, foo/metrics.c).
name = "Foo"
speculation_option = "--draft-with"
k_option = "--draft-most {k}"

[dialects.foo]
server = "Foo 1.0 and later"
prefixes = ["foo:"]

[dialects.foo.series]
drafts = ["rounds_total"]
draft_tokens = ["drafted_total"]
accepted_tokens = ["accepted_total"]
accepted_tokens_per_position = ["accepted_at_total"]
generation_tokens = ["tokens_total"]
""",
    "tests/data/upstream/foo.txt": """\
# TYPE foo:rounds_total counter
foo:rounds_total{model_name="m"} 100
foo:drafted_total{model_name="m"} 200
foo:accepted_total{model_name="m"} 90
foo:accepted_at_total{model_name="m",position="0"} 60
foo:accepted_at_total{model_name="m",position="1"} 30
foo:tokens_total{model_name="m"} 195
""",
}
#: Written by the commands of its recipe.
WRITTEN_FOR_AN_ENGINE = {
    "README.md",
    "docs/reference/dialects.md",
    "docs/reference/metrics.md",
    "tests/data/upstream/expected.json",
}
#: Written by the commands of the recipe for a gauge.
GENERATED = {
    "docs/reference/metrics.md",
    "docs/reference/snapshot.schema.json",
    "docs/operations.md",
    "tests/golden/metrics.prom",
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the repository that a test may change."""
    return shutil.copytree(ROOT, tmp_path / "copy", ignore=LEFT_OUT)


def recipe(name: str) -> str:
    """Return the text of a recipe."""
    text = text_of("CONTRIBUTING.md")
    return text.partition(f"**{name}**")[2].partition("\n**")[0]


def commands(text: str) -> list[str]:
    """Return the commands of a recipe; of `make generate`, those of the target."""
    makefile = text_of("Makefile")
    lines: list[str] = []
    for code in re.findall(r"`([^`]+)`", text):
        if code == "make generate":
            lines += re.findall(
                r"\t(.+)", makefile.partition("\ngenerate:")[2].partition("\n\n")[0]
            )
        elif " -m pytest " in code:
            lines.append(code)
    return [
        re.sub(r"\$\(BIN\)/python|\.venv/bin/python", sys.executable, line)
        for line in lines
    ]


def without(lines: list[str], *programs: str) -> list[str]:
    """Leave out the commands of these programs."""
    return [line for line in lines if not any(each in line for each in programs)]


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder but bytecode and caches."""
    files = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_file() and "__pycache__" not in name and not name.startswith("."):
            files[name] = path.read_bytes()
    return files


def edit(copy: Path, changes: dict[str, dict[str, str]]) -> None:
    """Put texts into files of a copy: by file, each before the text that it names."""
    for name, additions in changes.items():
        text = text_of(copy / name)
        for following, added in additions.items():
            assert text.count(following) == 1, (name, following)
            text = text.replace(following, added + following)
        (copy / name).write_text(text, "utf-8")


def run(lines: list[str], copy: Path) -> None:
    """Execute commands in a copy of the repository."""
    path = f"{copy / 'exporter'}{os.pathsep}{copy / 'tests'}"
    environment = os.environ | {"PYTHONPATH": path}
    for command in lines:
        script = command.replace("PYTHONPATH=tests ", "")
        printed("bash", "-c", script, cwd=copy, env=environment, timeout=None)


def changed(earlier: dict[str, bytes], later: dict[str, bytes]) -> set[str]:
    """Return the files that differ."""
    return dict(earlier.items() ^ later.items()).keys()


def test_a_gauge_changes_the_files_that_its_recipe_names_and_no_others(
    copy: Path,
) -> None:
    """Five by hand; all others are written by the commands, which succeed."""
    original = contents(copy)
    text = recipe("A metric")
    files = [name.removeprefix(f"{PACKAGE}/") for name in GAUGE]
    assert [name for name in files if name not in text] == []
    edit(copy, GAUGE)
    run(without(commands(text), SCORE), copy)
    edited = {name for name, additions in GAUGE.items() if any(additions.values())}
    assert changed(original, contents(copy)) == edited | GENERATED


def test_an_engine_is_one_table_and_one_answer(copy: Path) -> None:
    """It is recognised, documented, and told its own option."""
    original = contents(copy)
    text = recipe("An engine")
    for name, added in ENGINE.items():
        file = Path(name.removeprefix(f"{PACKAGE}/"))
        assert str(file.parent) in text, name
        assert f"NAME{file.suffix}`" in text, name
        (copy / name).write_text(added, "utf-8")
    run(commands(text), copy)

    written = contents(copy)
    assert changed(original, written) == ENGINE.keys() | WRITTEN_FOR_AN_ENGINE
    expected = json.loads(written["tests/data/upstream/expected.json"])["foo.txt"]
    assert (expected["dialect"], expected["server"]) == ("foo", "Foo")
    (engine,) = expected["engines"]
    assert engine["counters"]["accepted_tokens_per_position"] == [60.0, 30.0]
    for page, shown in (
        ("docs/reference/dialects.md", "| `foo` | Foo 1.0 and later |"),
        ("docs/reference/dialects.md", "| Foo | `--draft-with` | `--draft-most K` |"),
        ("docs/reference/metrics.md", "`foo`"),
        ("README.md", "Aphrodite, Foo, llama.cpp"),
    ):
        assert shown in written[page].decode(), page


def test_an_alert_is_generated_before_it_has_a_case_or_a_text(copy: Path) -> None:
    """The rule, in the chart too, and its row in the catalogue with its summary."""
    text = recipe("An alert")
    assert "`alerts/alert_rules/`" in text
    assert "`alerts/runbooks/`" in text
    edit(copy, ALERT)
    (copy / RUNBOOK).write_text("# VLLMSpecDecodeDraftless\n", "utf-8")
    original = contents(copy)
    # The cases, which take minutes, are those of `tests/alerts` itself.
    run(without(commands(text), SCORE, SERIES, " pytest "), copy)

    file = "rules/activity.yml"
    assert changed(original, contents(copy)) == {
        f"alerts/{file}",
        f"helm/vllm-specdec-exporter/files/{file}",
        "helm/vllm-specdec-exporter/values.schema.json",
        "docs/reference/alerts.md",
    }
    groups = data_of(copy / "alerts" / file)["groups"]
    rules = chain.from_iterable(group["rules"] for group in groups)
    (rule,) = (r for r in rules if r.get("alert") == "VLLMSpecDecodeDraftless")
    assert rule["annotations"]["runbook_url"].endswith("/VLLMSpecDecodeDraftless.md")
    page = (copy / "docs/reference/alerts.md").read_text("utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| [Draftless]"))
    assert row.endswith("| Nothing is drafted. |")
