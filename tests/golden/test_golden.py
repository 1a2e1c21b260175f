"""`/metrics` of recorded servers: one whole text, byte for byte, and what holds for all
of them.

The values are held against independent truths in tests/core: `test_captures.py` and
`test_dialects.py`.
"""

import math
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import (
    generate_latest as generate_openmetrics,
)
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_classic

from golden.cases import CASES, run
from support.golden import golden_text
from support.programs import find_program
from vllm_specdec_exporter.judgement.activity import ActivityState
from vllm_specdec_exporter.judgement.quality import QualityLevel
from vllm_specdec_exporter.observe.result import ExporterResult
from vllm_specdec_exporter.publish.metrics import (
    METRICS,
    PREFIX,
    Kind,
    MetricScope,
    parse_metric,
)
from vllm_specdec_exporter.publish.metrics_text import metrics_text

HERE = Path(__file__).parent
#: What one exporter of three servers, with a baseline and single requests, returns: the
#: example for people.
GOLDEN = HERE / "metrics.prom"
SHOWN = "three-engines"

#: The `Accept` header that asks for a format.
ACCEPT = {
    "classic": "text/plain;version=0.0.4",
    "openmetrics": (
        "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    ),
}
#: Python's own version is published too, and is not ours to fix in a file.
PYTHON = "3.11.0"

Labels = frozenset[tuple[str, str]]


@cache
def result(name: str) -> ExporterResult:
    """What the exporter of a case holds."""
    return run(next(case for case in CASES if case.name == name))


@cache
def scraped(name: str, form: str = "classic") -> str:
    """What a scrape of a case returns in a format."""
    text = "".join(metrics_text(result(name), open_metrics=form == "openmetrics"))
    return text.replace(
        f'python_version="{platform.python_version()}"', f'python_version="{PYTHON}"'
    )


@cache
def families(name: str) -> tuple[Metric, ...]:
    """The families of a case in the classic text."""
    return tuple(parse_classic(scraped(name)))


def samples(name: str) -> dict[str, dict[Labels, float]]:
    """The samples of a case by name, without the prefix, and labels."""
    values: dict[str, dict[Labels, float]] = {}
    for family in families(name):
        for sample in family.samples:
            own = values.setdefault(sample.name.removeprefix(PREFIX), {})
            own[frozenset(sample.labels.items())] = sample.value
    return values


NAMES = tuple(case.name for case in CASES)

# --- the text


def test_a_scrape_returns_the_golden_file() -> None:
    """Every byte of `/metrics` is as committed.

    `UPDATE_GOLDEN=1` writes it anew; review the difference.
    """
    assert golden_text(GOLDEN, scraped(SHOWN)) == scraped(SHOWN)


def test_prometheus_linter_accepts_every_metric_in_silence() -> None:
    """Names, types and help texts, of the cases that show a metric not seen before."""
    command = [find_program("promtool", "prometheus"), "check", "metrics"]
    seen = set[str]()
    for name in NAMES:
        shown = {family.name for family in families(name)}
        if shown - seen:
            done = subprocess.run(
                command, input=scraped(name), capture_output=True, text=True
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), name
        seen |= shown


@pytest.mark.parametrize("name", NAMES)
def test_both_formats_say_the_same(name: str) -> None:
    """Each is what prometheus_client writes of what it reads in it; both have the same
    samples.
    """

    def values(parsed: Iterable[Metric]) -> dict[tuple[str, Labels], float]:
        return {
            (s.name, frozenset(s.labels.items())): s.value
            for family in parsed
            for s in family.samples
        }

    text = scraped(name, "openmetrics")
    end = "# EOF\n"
    read = tuple(parse_openmetrics(text + end))
    assert (
        generate_openmetrics(SimpleNamespace(collect=lambda: read)).decode()
        == text + end
    )
    assert values(families(name)) == values(read)
    assert generate_latest(
        SimpleNamespace(collect=lambda: families(name))
    ).decode() == scraped(name)


# --- what is in them


def test_every_metric_of_the_table_is_in_a_case() -> None:
    """A metric that no recorded answer brings forth is not tested by any of them."""
    seen = {
        sample.name
        for name in NAMES
        for family in families(name)
        for sample in family.samples
    }
    names = {
        f"{row.full_name}_count" if row.kind is Kind.HISTOGRAM else row.full_name
        for row in METRICS
    }
    assert set() == names - seen


@pytest.mark.parametrize("case", NAMES)
def test_values_can_be(case: str) -> None:
    """No ratio is beyond 1, nothing is a mean over no drafts, and a histogram holds
    every draft.
    """
    values = samples(case)
    empty = {labels for labels, n in values.get("window_drafts", {}).items() if n == 0}
    above_one = {
        "advised_speedup_ratio",
        "break_even_acceptance_ratio",
        "latency_ratio",
        "return_on_speculation_ratio",
    }
    for name, rows in values.items():
        top = math.inf if name in above_one else 1
        assert all(map(math.isfinite, rows.values())), name
        assert not name.endswith("_ratio") or all(
            0 <= n <= top for n in rows.values()
        ), name
    for name in (
        "mean_acceptance_length",
        "mean_draft_length",
        "estimated_speedup",
        "mean_batch_size",
    ):
        assert not set(values.get(name, {})) & empty, name
    assert (
        values.get("accepted_tokens_per_draft_count", {}).items()
        <= values.get("drafts_total", {}).items()
    )


@pytest.mark.parametrize("key", ["upstreem", "feild", "labels"])
def test_an_unknown_key_in_the_metric_table_is_an_error(key: str) -> None:
    """Ignored, a misspelt `field` would publish the value of another one."""
    entry = {"scope": "engine", "help": "Verified drafts."}
    assert parse_metric("drafts", entry).name == "drafts"
    with pytest.raises(ValueError, match=f"^drafts: unknown: {key}; known: "):
        parse_metric("drafts", {**entry, key: "counters.drafts"})


def test_series_that_need_something_are_nowhere_else() -> None:
    """Measured ones need a fitting baseline; V0 has no usable counter of drafts, and 0
    would be wrong.
    """
    measured = {
        "measured_speedup",
        "latency_ratio",
        "return_on_speculation_ratio",
        "benefit_tokens_per_second",
    }
    of_drafts = {"drafts_total", "window_drafts", "drafts_per_second", "coverage_ratio"}
    for name in NAMES:
        shown = set(samples(name))
        assert measured & shown == (
            measured if name in ("ngram-measured", SHOWN) else set()
        ), name
        assert not (name.startswith("v0") and of_drafts & shown), name


# --- single cases


def test_the_cases_show_every_state() -> None:
    """Each activity, each level, and servers that are down, with no series of an
    engine.
    """
    left = {
        row.name
        for row in METRICS
        if row.scope in (MetricScope.TARGET, MetricScope.EXPORTER)
    }
    shown = set[str]()
    down = 0
    for values in map(samples, NAMES):
        states = (values.get(name, {}) for name in ("activity", "quality"))
        labels = {
            text for one in states for key, hot in one.items() if hot for _, text in key
        }
        shown |= labels & {*ActivityState, *QualityLevel}
        if set(values["up"].values()) == {0.0}:
            down += 1
            assert set(values) <= left
    assert shown == {*ActivityState, *QualityLevel}
    assert down == 3


def test_a_torn_answer_and_a_restart_are_counted() -> None:
    """The one torn answer is no reset; after the restart windows begin behind it."""
    torn = samples("ngram-torn")
    restarted = samples("ngram-restarted")
    assert list(torn["inconsistent_samples_total"].values()) == [1.0]
    assert list(torn["engine_resets_total"].values()) == [0.0]
    assert list(restarted["engine_resets_total"].values()) == [1.0]
    assert max(restarted["window_span_seconds"].values()) < 16
