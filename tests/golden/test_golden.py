"""Golden `/metrics` files: what a scrape returns, byte for byte.

`UPDATE_GOLDEN=1 pytest tests/golden` writes the files anew; look at the difference before it is committed.
"""

import math
import os
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_classic

from golden.cases import CASES, Case, run
from support.programs import find_program
from vllm_specdec_exporter.judgement.activity import ActivityState
from vllm_specdec_exporter.judgement.quality import QualityLevel
from vllm_specdec_exporter.observe.result import ExporterResult
from vllm_specdec_exporter.publish.collector import ResultCollector
from vllm_specdec_exporter.publish.metrics import METRICS, PREFIX, Kind, Scope, parse_metric

HERE = Path(__file__).parent

#: The `Accept` header that asks for a format, by the suffix of its golden files.
ACCEPT = {
    "prom": "text/plain;version=0.0.4",
    "om": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
}
#: Python's own version is published too, and is not ours to fix in a file.
PYTHON = "3.11.0"

Labels = frozenset[tuple[str, str]]


def exposition(result: ExporterResult, suffix: str) -> str:
    """What a scrape returns in a format."""
    registry = CollectorRegistry()
    registry.register(ResultCollector(lambda: result))
    encode, _ = choose_encoder(ACCEPT[suffix])
    text = encode(registry).decode()
    return text.replace(f'python_version="{platform.python_version()}"', f'python_version="{PYTHON}"')


def golden(case: Case, suffix: str) -> Path:
    return HERE / f"{case.name}.{suffix}"


@cache
def families(name: str) -> tuple[Metric, ...]:
    """The families in a committed classic file."""
    return tuple(parse_classic((HERE / f"{name}.prom").read_text(encoding="utf-8")))


def samples(case: Case) -> dict[str, dict[Labels, float]]:
    """The samples in a committed file by name, without the prefix, and labels."""
    found: dict[str, dict[Labels, float]] = {}
    for family in families(case.name):
        for sample in family.samples:
            name = sample.name.removeprefix(PREFIX)
            found.setdefault(name, {})[frozenset(sample.labels.items())] = sample.value
    return found


# --- the files


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_scrape_returns_the_golden_file(case: Case) -> None:
    """Every byte of `/metrics` is as committed, in both formats."""
    result = run(case)
    for suffix in ACCEPT:
        path = golden(case, suffix)
        now = exposition(result, suffix)
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(now, encoding="utf-8", newline="")
        assert path.read_bytes().decode() == now


def test_every_golden_file_belongs_to_a_case() -> None:
    """No file is left over from a case that is gone."""
    expected = {golden(case, suffix).name for case in CASES for suffix in ACCEPT}
    assert expected == {path.name for path in HERE.iterdir() if path.suffix in (".prom", ".om")}


# --- the formats


def test_prometheus_linter_accepts_every_metric_in_silence() -> None:
    """Names, types and help texts, of the cases that show a metric not seen before."""
    command, seen = [find_program("promtool", "prometheus"), "check", "metrics"], set[str]()
    for case in CASES:
        names = {family.name for family in families(case.name)}
        if names - seen:
            with golden(case, "prom").open("rb") as file:
                found = subprocess.run(command, stdin=file, capture_output=True, text=True)
            assert (found.returncode, found.stdout, found.stderr) == (0, "", ""), case
        seen |= names


@pytest.mark.parametrize("case", CASES, ids=str)
def test_both_formats_say_the_same(case: Case) -> None:
    """The OpenMetrics file is valid, and holds the samples of the classic one and no others."""

    def values(found: Iterable[Metric]) -> dict[tuple[str, Labels], float]:
        return {(s.name, frozenset(s.labels.items())): s.value for family in found for s in family.samples}

    text = golden(case, "om").read_text(encoding="utf-8")
    assert text.endswith("# EOF\n")
    assert values(families(case.name)) == values(parse_openmetrics(text))


# --- what is in them


def test_every_metric_of_the_table_is_in_a_golden_file() -> None:
    """A metric that no recorded answer brings forth is not tested by any of them."""
    seen = {sample.name for case in CASES for family in families(case.name) for sample in family.samples}
    names = {f"{row.full_name}_count" if row.kind is Kind.HISTOGRAM else row.full_name for row in METRICS}
    assert set() == names - seen


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_can_be(case: Case) -> None:
    """No ratio is beyond 1, nothing is a mean over no drafts, and a histogram holds every draft."""
    found = samples(case)
    empty = {labels for labels, n in found.get("window_drafts", {}).items() if n == 0}
    for name, rows in found.items():
        top = math.inf if name in ("break_even_acceptance_ratio", "latency_ratio") else 1
        assert all(map(math.isfinite, rows.values())), name
        assert not name.endswith("_ratio") or all(0 <= n <= top for n in rows.values()), name
    for name in ("mean_acceptance_length", "mean_draft_length", "estimated_speedup", "mean_batch_size"):
        assert not set(found.get(name, {})) & empty, name
    assert found.get("accepted_tokens_per_draft_count", {}).items() <= found.get("drafts_total", {}).items()


@pytest.mark.parametrize("key", ["upstreem", "feild", "labels"])
def test_an_unknown_key_in_the_metric_table_is_an_error(key: str) -> None:
    """Ignored, a misspelt `field` would publish the value of another one."""
    entry = {"scope": "engine", "help": "Verified drafts."}
    assert parse_metric("drafts", entry).name == "drafts"
    with pytest.raises(ValueError, match=f"^drafts: unknown: {key}; known: "):
        parse_metric("drafts", {**entry, key: "counters.drafts"})


def test_series_that_need_something_are_nowhere_else() -> None:
    """Measured ones need a fitting baseline; V0 has no usable counter of drafts, and 0 would be wrong."""
    measured = {
        "measured_speedup", "measured_requests", "latency_ratio", "return_on_speculation_ratio",
        "benefit_tokens_per_second",
    }  # fmt: skip
    of_drafts = {"drafts_total", "window_drafts", "drafts_per_second", "coverage_ratio"}
    for case in CASES:
        names = set(samples(case))
        assert measured & names == (measured if case.name == "ngram-measured" else set()), case.name
        assert not (case.name.startswith("v0") and of_drafts & names), case.name


# --- single cases


def test_the_cases_show_every_state() -> None:
    """Each activity, each level, and servers that are down, with no series of an engine."""
    left = {row.name for row in METRICS if row.scope in (Scope.TARGET, Scope.EXPORTER)}
    shown, down = set[str](), 0
    for found in map(samples, CASES):
        states = (found.get(name, {}) for name in ("activity", "quality"))
        labels = {text for one in states for key, hot in one.items() if hot for _, text in key}
        shown |= labels & {*ActivityState, *QualityLevel}
        if set(found["up"].values()) == {0.0}:
            down += 1
            assert set(found) <= left
    assert shown == {*ActivityState, *QualityLevel}
    assert down == 3


def test_the_requests_of_a_real_server_agree_with_its_counters() -> None:
    """What is added up from each request is what vLLM counted for all of them."""
    found = samples(next(case for case in CASES if case.name == "ngram-requests"))
    final = (HERE.parent / "data" / "captures" / "ngram-phases" / "metrics-final.txt").read_text("utf-8")
    counters = {sample.name: sample.value for family in parse_classic(final) for sample in family.samples}
    for ours, theirs in (
        ("request_drafts_total", "vllm:spec_decode_num_drafts_total"),
        ("request_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total"),
        ("request_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"),
    ):
        assert sum(found[ours].values()) == counters[theirs], ours
    outcomes = sum(found["request_outcomes_total"].values())
    assert outcomes == sum(found["request_acceptance_ratio_count"].values())
    assert outcomes == sum(found["window_requests"].values())
    assert sum(found["request_observations_total"].values()) == 645


def test_a_torn_answer_and_a_restart_are_counted() -> None:
    """The one torn answer is no reset; after the restart windows begin behind it."""
    torn, restarted = (
        samples(next(case for case in CASES if case.name == f"ngram-{name}"))
        for name in ("torn", "restarted")
    )
    assert list(torn["inconsistent_samples_total"].values()) == [1.0]
    assert list(torn["engine_resets_total"].values()) == [0.0]
    assert list(restarted["engine_resets_total"].values()) == [1.0]
    assert max(restarted["window_span_seconds"].values()) < 16
