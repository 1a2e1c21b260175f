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

#: From the names of a histogram's samples to its own.
HISTOGRAMS = {
    f"{row.full_name}_{part}": row.full_name
    for row in METRICS
    for part in ("bucket", "count", "sum")
    if row.kind is Kind.HISTOGRAM
}
#: The labels that tell what samples hang on, where there is a single server.
IDENTITY = {
    Scope.EXPORTER: set[str](),
    Scope.TARGET: set[str](),
    Scope.ENGINE: {"model_name", "engine"},
    Scope.WINDOW: {"model_name", "engine", "window"},
    Scope.REQUESTS: set[str](),
    Scope.GROUP: {"model_name", "temperature", "request_type"},
    Scope.TENANT: {"model_name", "tenant"},
    Scope.MODEL: {"model_name"},
    Scope.RECENT: {"model_name", "window"},
}

Labels = frozenset[tuple[str, str]]


@cache
def exposition(name: str, suffix: str) -> str:
    """What a scrape of a case returns in a format."""
    case = next(case for case in CASES if case.name == name)
    result = run(case)
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


def without(labels: Labels, *names: str) -> Labels:
    return frozenset(pair for pair in labels if pair[0] not in names)


# --- the files


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_scrape_returns_the_golden_file(case: Case) -> None:
    """Every byte of `/metrics` is as committed, in both formats."""
    for suffix in ACCEPT:
        path = golden(case, suffix)
        now = exposition(case.name, suffix)
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(now, encoding="utf-8", newline="")
        assert path.read_bytes().decode() == now


def test_every_golden_file_belongs_to_a_case() -> None:
    """No file is left over from a case that is gone."""
    expected = {golden(case, suffix).name for case in CASES for suffix in ACCEPT}
    assert expected == {path.name for path in HERE.iterdir() if path.suffix in (".prom", ".om")}


# --- the formats


def promtool_has_nothing_to_say(case: Case) -> None:
    """Prometheus's own linter accepts the names, types and help texts, and is silent."""
    with golden(case, "prom").open("rb") as file:
        command = [find_program("promtool", "prometheus"), "check", "metrics"]
        found = subprocess.run(command, stdin=file, capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def both_formats_say_the_same(case: Case) -> None:
    """The OpenMetrics file is valid, and holds the samples of the classic one and no others."""

    def values(found: Iterable[Metric]) -> dict[tuple[str, Labels], float]:
        return {(s.name, frozenset(s.labels.items())): s.value for family in found for s in family.samples}

    text = golden(case, "om").read_text(encoding="utf-8")
    assert text.endswith("# EOF\n")
    assert values(families(case.name)) == values(parse_openmetrics(text))


def base_name(line: str) -> str:
    """The table's name of what a sample line belongs to, empty for comments."""
    if line.startswith("#"):
        return ""
    name = line.partition("{")[0].partition(" ")[0]
    return HISTOGRAMS.get(name, name)


def labels_are_those_of_the_metric_table(case: Case) -> None:
    """A sample has its identity labels and the table's own ones, none of them empty, and no others."""
    several = len(case.servers) > 1
    for row in METRICS:
        of_server = row.scope in (Scope.TARGET, Scope.ENGINE, Scope.WINDOW)
        target = {"target"} if several and of_server else set[str]()
        allowed = target | IDENTITY[row.scope] | set(row.labels)
        parts = ("_bucket", "_count", "_sum") if row.kind is Kind.HISTOGRAM else ("",)
        for part in parts:
            for labels in samples(case).get(row.name + part, {}):
                names = {name for name, _ in labels}
                assert names >= target, (row.name, labels)
                assert names - ({"le"} if part == "_bucket" else set()) <= allowed, (row.name, labels)
                assert all(value for _, value in labels), (row.name, labels)


# --- what is in them


def test_every_metric_of_the_table_is_in_a_golden_file() -> None:
    """A metric that no recorded answer brings forth is not tested by any of them."""
    seen = {
        base_name(line) for case in CASES for line in golden(case, "prom").read_text("utf-8").splitlines()
    }
    assert set() == {row.full_name for row in METRICS} - seen


@pytest.mark.parametrize("key", ["upstreem", "feild", "labels"])
def test_an_unknown_key_in_the_metric_table_is_an_error(key: str) -> None:
    """Ignored, a misspelt `field` would publish the value of another one."""
    entry = {"scope": "engine", "help": "Verified drafts."}
    assert parse_metric("drafts", entry).name == "drafts"
    with pytest.raises(ValueError, match=f"^drafts: unknown: {key}; known: "):
        parse_metric("drafts", {**entry, key: "counters.drafts"})


#: Ratios, and the series of the same window whose increase is their denominator.
OVER_DRAFTS = (
    "mean_acceptance_length",
    "mean_draft_length",
    "position_acceptance_ratio",
    "expected_tokens_per_step",
    "mean_acceptance_length_at",
    "position_decay_ratio",
    "estimated_speedup",
    "break_even_acceptance_length",
    "break_even_acceptance_ratio",
    "mean_batch_size",
)

#: Ratios of two amounts of which neither is a part of the other: above 1 they say something too.
UNBOUNDED = ("break_even_acceptance_ratio", "latency_ratio")


def a_ratio_without_a_denominator_is_absent(case: Case) -> None:
    """Where a window holds no draft, no draft token or no token, nothing is divided by it."""
    found = samples(case)

    def carriers(name: str) -> set[Labels]:
        return {without(labels, "position", "num_speculative_tokens") for labels in found.get(name, {})}

    def empty(name: str) -> set[Labels]:
        return {labels for labels, value in found.get(name, {}).items() if value == 0}

    for name in OVER_DRAFTS:
        assert set() == carriers(name) & empty("window_drafts"), name
    assert set() == carriers("acceptance_ratio") & empty("draft_tokens_per_second")
    assert set() == carriers("coverage_ratio") & empty("generation_tokens_per_second")
    conditional = found.get("position_conditional_acceptance_ratio", {})
    for labels in conditional:
        position = int(dict(labels)["position"])
        if position:
            before = without(labels, "position") | {("position", str(position - 1))}
            assert found["position_acceptance_ratio"][before] > 0, labels


def values_lie_in_their_ranges(case: Case) -> None:
    """Ratios from 0 to 1, lengths from 1 to 1+K, one-hot states with at most one 1."""
    found = samples(case)
    for name, by_labels in found.items():
        for labels, value in by_labels.items():
            # No NaN and no infinity: what does not exist is absent.
            assert math.isfinite(value), (name, labels)
            if name.endswith(("_ratio", "_speedup")):
                assert value >= 0, (name, labels)
                assert value <= 1 or name in UNBOUNDED or name.endswith("_speedup"), (name, labels)
    for name in ("break_even_acceptance_length", "mean_batch_size"):
        assert all(value >= 1 for value in found.get(name, {}).values()), name
    lengths = ("mean_acceptance_length", "expected_tokens_per_step", "mean_acceptance_length_at")
    for name in lengths:
        for labels, value in found.get(name, {}).items():
            engine = without(labels, "window", "num_speculative_tokens")
            assert 1 <= value <= 1 + found["num_speculative_tokens"][engine], (name, labels)
    for name, label in (
        ("activity", "state"),
        ("quality", "level"),
        ("payoff", "verdict"),
        ("recommendation", "action"),
    ):
        hot: dict[Labels, float] = {}
        for labels, value in found.get(name, {}).items():
            hot[without(labels, label)] = hot.get(without(labels, label), 0) + value
        assert set(hot.values()) <= {0.0, 1.0}, name
        assert name != "recommendation" or set(hot.values()) <= {1.0}, "something is always advised"


def test_series_that_need_something_are_nowhere_else() -> None:
    """Measured ones need a baseline of the server's model and release; of V0 nothing is said about drafts.

    It has no usable counter of drafts: what would follow from one is unknown, and 0 would be wrong.
    """
    measured = {
        "measured_speedup", "measured_requests", "latency_ratio", "return_on_speculation_ratio",
        "benefit_tokens_per_second",
    }  # fmt: skip
    of_drafts = {"drafts_total", "window_drafts", "drafts_per_second", "coverage_ratio"}
    for case in CASES:
        names = set(samples(case))
        assert measured & names == (measured if case.name == "ngram-measured" else set()), case.name
        assert not (case.name.startswith("v0") and of_drafts & names), case.name


def the_histogram_is_one(case: Case) -> None:
    """Buckets rise with their bounds 0..K, the last is the count, and the count is the drafts."""
    found = samples(case)
    engines: dict[Labels, dict[float, float]] = {}
    for labels, value in found.get("accepted_tokens_per_draft_bucket", {}).items():
        engines.setdefault(without(labels, "le"), {})[float(dict(labels)["le"])] = value
    assert set(engines) == set(found.get("accepted_tokens_per_draft_count", {}))
    for engine, buckets in engines.items():
        k = int(found["num_speculative_tokens"][engine])
        assert [*map(float, range(k + 1)), math.inf] == sorted(buckets)
        ordered = [buckets[bound] for bound in sorted(buckets)]
        assert sorted(ordered) == ordered
        assert found["drafts_total"][engine] == found["accepted_tokens_per_draft_count"][engine]
        assert buckets[math.inf] == buckets[float(k)] == found["drafts_total"][engine]
        assert found["accepted_tokens_total"][engine] == found["accepted_tokens_per_draft_sum"][engine]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_golden_file_is_valid_and_its_values_agree(case: Case) -> None:
    promtool_has_nothing_to_say(case)
    both_formats_say_the_same(case)
    labels_are_those_of_the_metric_table(case)
    a_ratio_without_a_denominator_is_absent(case)
    values_lie_in_their_ranges(case)
    the_histogram_is_one(case)


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
