"""`/metrics` of recorded servers: one whole text, byte for byte, and what holds for all
of them.

The values are held against independent truths in tests/core: `test_captures.py` and
`test_dialects.py`.
"""

import math
import platform
import subprocess
from collections import defaultdict
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
    by_name = defaultdict(dict)
    for family in families(name):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            by_name[sample.name.removeprefix(PREFIX)][labels] = sample.value
    return dict(by_name)


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
    checked = set[str]()
    for name in NAMES:
        shown = {family.name for family in families(name)}
        if shown - checked:
            done = subprocess.run(
                command, input=scraped(name), capture_output=True, text=True
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), name
        checked |= shown


def registry(read: tuple[Metric, ...]) -> SimpleNamespace:
    """Return what prometheus_client writes these families of."""
    return SimpleNamespace(collect=lambda: read)


def values(read: Iterable[Metric]) -> dict[tuple[str, Labels], float]:
    """Return the samples by name and labels."""
    by_series = {}
    for family in read:
        for sample in family.samples:
            by_series[sample.name, frozenset(sample.labels.items())] = sample.value
    return by_series


@pytest.mark.parametrize("name", NAMES)
def test_both_formats_say_the_same(name: str) -> None:
    """Each is what prometheus_client writes of what it reads in it; both have the same
    samples.
    """
    text = f"{scraped(name, 'openmetrics')}# EOF\n"
    read = tuple(parse_openmetrics(text))
    assert generate_openmetrics(registry(read)).decode() == text
    classic = families(name)
    assert values(classic) == values(read)
    assert generate_latest(registry(classic)).decode() == scraped(name)


# --- what is in them


def test_every_metric_of_the_table_is_in_a_case() -> None:
    """A metric that no recorded answer brings forth is not tested by any of them."""
    missing = set()
    for row in METRICS:
        suffix = "_count" if row.kind is Kind.HISTOGRAM else ""
        missing.add(f"{row.name}{suffix}")
    for name in NAMES:
        missing -= samples(name).keys()
    assert missing == set()


#: Ratios that may be above 1.
ABOVE_ONE = {
    "advised_speedup_ratio",
    "break_even_acceptance_ratio",
    "latency_ratio",
    "return_on_speculation_ratio",
}
#: Metrics of a window that need its drafts.
OVER_DRAFTS = (
    "mean_acceptance_length",
    "mean_draft_length",
    "estimated_speedup",
    "mean_batch_size",
)


@pytest.mark.parametrize("case", NAMES)
def test_values_can_be(case: str) -> None:
    """No ratio is beyond 1, nothing is a mean over no drafts, and a histogram holds
    every draft.
    """
    by_name = samples(case)
    for name, rows in by_name.items():
        assert all(map(math.isfinite, rows.values())), name
        if name.endswith("_ratio"):
            assert min(rows.values()) >= 0, name
            assert name in ABOVE_ONE or max(rows.values()) <= 1, name
    empty = set()
    for labels, drafts in by_name.get("window_drafts", {}).items():
        if drafts == 0:
            empty.add(labels)
    for name in OVER_DRAFTS:
        assert empty.isdisjoint(by_name.get(name, {})), name
    counted = by_name.get("accepted_tokens_per_draft_count", {})
    assert counted.items() <= by_name.get("drafts_total", {}).items()


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
        shown = samples(name).keys()
        if name in ("ngram-measured", SHOWN):
            assert measured <= shown, name
        else:
            assert measured.isdisjoint(shown), name
        if name.startswith("v0"):
            assert of_drafts.isdisjoint(shown), name


def test_words_are_in_no_metric() -> None:
    """The exporter adds reasons and findings for pages and snapshots alone, so no
    metric may follow from them.
    """
    for case in CASES:
        bare = run(case, words=False)
        assert list(metrics_text(bare)) == list(metrics_text(run(case))), case.name
        for target in bare.targets:
            assert not any(engine.payoff.reasons for engine in target.engines)


# --- single cases


def test_the_cases_show_every_state() -> None:
    """Each activity, each level, and servers that are down, with no series of an
    engine.
    """
    without_engines = set()
    for row in METRICS:
        if row.scope in (MetricScope.TARGET, MetricScope.EXPORTER):
            without_engines.add(row.name)
    states = set[str]()
    down = []
    for name in NAMES:
        by_name = samples(name)
        for metric in ("activity", "quality"):
            for labels, present in by_name.get(metric, {}).items():
                if present:
                    states.update(dict(labels).values())
        if set(by_name["up"].values()) == {0.0}:
            down.append(name)
            assert by_name.keys() <= without_engines, name
    assert {*ActivityState, *QualityLevel} <= states
    assert len(down) == 3


def test_a_torn_answer_and_a_restart_are_counted() -> None:
    """The one torn answer is no reset; after the restart windows begin behind it."""
    torn = samples("ngram-torn")
    restarted = samples("ngram-restarted")
    assert list(torn["inconsistent_samples_total"].values()) == [1.0]
    assert list(torn["engine_resets_total"].values()) == [0.0]
    assert list(restarted["engine_resets_total"].values()) == [1.0]
    assert max(restarted["window_span_seconds"].values()) < 16
