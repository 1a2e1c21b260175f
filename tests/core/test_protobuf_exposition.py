"""The protobuf exposition, decoded by the real library, says what the texts say, and native buckets."""

import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from golden.cases import CASES, run
from support.copies import replace
from support.observed import observed
from support.protobuf_families import decode, samples, series
from vllm_specdec_exporter.exposition import histogram as native
from vllm_specdec_exporter.exposition.histogram import Histogram
from vllm_specdec_exporter.exposition.protobuf import accepts, encode
from vllm_specdec_exporter.measures.measures import Distribution
from vllm_specdec_exporter.observe.result import ExporterResult
from vllm_specdec_exporter.publish import collector
from vllm_specdec_exporter.publish.collector import ResultCollector
from vllm_specdec_exporter.requests.result import GroupResult, Observed, RequestsResult


def decoded(*families: Metric) -> list[Any]:
    return decode(encode(SimpleNamespace(collect=lambda: families)))  # type: ignore[arg-type]


def by_text(registry: CollectorRegistry) -> dict[Any, float]:
    """The series of the classic text."""
    return samples(text_string_to_metric_families(generate_latest(registry).decode()))


# --- the same as text


def exposed_twice(result: ExporterResult) -> tuple[CollectorRegistry, list[Any]]:
    """A result as a registry for the texts, and as it is decoded from protobuf."""
    text, protobuf = CollectorRegistry(), CollectorRegistry()
    text.register(ResultCollector(lambda: result))
    protobuf.register(ResultCollector(lambda: result, native=True))
    return text, decode(encode(protobuf))


def test_every_exporter_answer_says_the_same_as_its_text() -> None:
    """Names, labels, `le` and values of every family."""
    for case in CASES:
        text, found = exposed_twice(run(case))
        assert series(found) == by_text(text) != {}, case


def test_types_and_help_are_those_of_the_text() -> None:
    """A family without samples is left out."""
    full = (
        CounterMetricFamily("a", "Counts.\nAll.", value=1.0),
        GaugeMetricFamily("b", "Stands.", value=1.0),
        HistogramMetricFamily("c", "Spreads.", buckets=[("+Inf", 1.0)], sum_value=1.0),
    )
    empty = GaugeMetricFamily("h", "Stands."), HistogramMetricFamily("i", "Spreads.")
    found = decoded(*full, *empty)

    assert [(family.name, family.help, family.type) for family in found] == [
        ("a_total", "Counts.\nAll.", 0),
        ("b", "Stands.", 1),
        ("c", "Spreads.", 4),
    ]


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_VALUES = st.floats(allow_nan=False) | st.integers(-(2**53), 2**53).map(float)
_COUNTS = st.integers(0, 2**53).map(float)
_LABELS = st.tuples(_TEXTS, _TEXTS)
_BOUNDS = st.lists(st.floats(0, 1e12), max_size=6, unique=True).map(sorted)


@st.composite
def families(draw: st.DrawFn) -> list[Metric]:
    """A family of each type, its series told apart by two labels of any text."""

    def own() -> list[tuple[str, str]]:
        return draw(st.lists(_LABELS, min_size=1, max_size=3, unique=True))

    def any_values(family: Any, *values: st.SearchStrategy[Any]) -> Metric:
        for labels in own():
            family.add_metric(labels, *map(draw, values))
        return family  # type: ignore[no-any-return]

    names = ("one", "two")
    histogram = HistogramMetricFamily("histogram", draw(_TEXTS), labels=names)
    for labels in own():
        # Counts from a rate or an average need not be whole.
        counts = st.floats(0, 1e9) | _COUNTS
        buckets = [(exposed(bound), draw(counts)) for bound in [*draw(_BOUNDS), math.inf]]
        histogram.add_metric(labels, buckets, draw(_VALUES))
    return [
        any_values(CounterMetricFamily("counter", draw(_TEXTS), labels=names), _VALUES),
        any_values(GaugeMetricFamily("gauge", draw(_TEXTS), labels=names), _VALUES),
        histogram,
    ]


def exposed(bound: float) -> str:
    """A bound as `exposed_histogram` writes it."""
    family = HistogramMetricFamily("any", "")
    collector.add_histogram(family, (), Observed(Histogram((bound,), (0.0,), 0.0, 0.0)), native=False)
    return family.samples[0].labels["le"]


@given(families())
def test_every_type_with_any_values_and_label_texts_is_read_back(made: list[Metric]) -> None:
    """Also label texts in other scripts, empty, or with what the text formats escape."""
    assert series(decoded(*made)) == samples(made)


# --- histograms


def family_of(found: Observed | Distribution | None, *, with_native: bool, **labels: str) -> Metric:
    family = HistogramMetricFamily("x", "Spreads.")
    collector.add_histogram(family, tuple(labels.items()), found, with_native)
    return family


_OBSERVATIONS = st.lists(st.floats(0, 1.0) | st.floats(0, 1e6) | st.sampled_from([0.0, 0.5, 1.0]))


@given(_OBSERVATIONS)
@example([])
def test_native_buckets_hold_what_was_observed(values: list[float]) -> None:
    """Beside the classic ones of the text. Without observations the threshold tells that it is native."""
    text = family_of(observed(values), with_native=False, model_name="m")
    (family,) = decoded(family_of(observed(values), with_native=True, model_name="m"))
    (metric,) = family.metric
    histogram = metric.histogram

    buckets, index, count = {}, 0, 0
    deltas = iter(histogram.positive_delta)
    for place, span in enumerate(histogram.positive_span):
        assert span.length > 0
        assert place == 0 or span.offset > 0, "spans do not touch"
        index += span.offset
        for _ in range(span.length):
            count += next(deltas)
            buckets[index] = count
            index += 1
    assert list(deltas) == []
    assert buckets == Counter(i for i in map(native.index_of, values) if i is not None)
    assert histogram.zero_count == sum(value <= native.ZERO_THRESHOLD for value in values)
    assert histogram.zero_count + sum(buckets.values()) == histogram.sample_count == len(values)
    assert histogram.sample_sum == math.fsum(values)
    assert (histogram.schema, histogram.zero_threshold) == (native.SCHEMA, native.ZERO_THRESHOLD)
    assert histogram.zero_threshold > 0
    assert not histogram.negative_span
    assert series([family]) == samples([text])


def test_a_distribution_has_no_native_buckets() -> None:
    found = Distribution(buckets=(3.0, 7.0, 9.0), count=9.0, sum=8.0)

    (family,) = decoded(family_of(found, with_native=True, engine="0"))

    assert not family.metric[0].histogram.HasField("schema")


def test_an_exporter_answer_has_the_native_buckets_of_its_requests_in_protobuf_alone() -> None:
    values = observed([0.4, 0.8, 0.8])
    group = GroupResult("m", "0-0.5", "code", values, values, observed([]), observed([]))
    result = replace(run(CASES[0]), requests=RequestsResult(groups=(group,)))
    name = "vllm_specdec_request_acceptance_ratio"

    text, found = exposed_twice(result)

    (family,) = [family for family in found if family.name == name]
    (metric,) = family.metric
    assert sum(span.length for span in metric.histogram.positive_span) == 2
    assert series(found) == by_text(text)
    assert not [sample for family in text.collect() for sample in family.samples if sample.native_histogram]


# --- what a client accepts


PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
#: Prometheus 2 without native histograms.
TEXTS = f"{OPENMETRICS},application/openmetrics-text;version=0.0.1;q=0.75,text/plain;q=0.5,*/*;q=0.1"


#: Who prefers protobuf, and everybody else.
PREFER = [
    PROTOBUF,
    # Prometheus 2, and Prometheus 3
    f"{PROTOBUF},{OPENMETRICS};q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    f"{PROTOBUF};q=0.6,{OPENMETRICS};escaping=allow-utf-8;q=0.5,text/plain;q=0.2,*/*;q=0.1",
    f"text/plain;q=0.9, {PROTOBUF}",
    f"text/plain, {PROTOBUF}",
    f"*/*;q=0.2,{PROTOBUF};q=0.3",
    f"text/plain;q=high,{PROTOBUF};q=0.3",
    'Application/Vnd.Google.Protobuf; Proto="io.prometheus.client.MetricFamily" ; encoding = "delimited"',
    f'text/html;title="a,b;q=1, text/plain",{PROTOBUF};q=0.3',
    f"{PROTOBUF};q=0.1,{PROTOBUF};q=0.9,text/plain;q=0.5",
]
OTHERS = [
    "",
    "*/*",
    TEXTS,
    f"{PROTOBUF};q=0.4,text/plain;q=0.5",
    f"{PROTOBUF};q=0.4,text/*;q=0.5",
    f"{PROTOBUF};q=0",
    f"{PROTOBUF};q=high",
    f"{PROTOBUF};q=1.5",
    "application/vnd.google.protobuf",
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
    "application/vnd.google.protobuf;proto=io.prometheus.write.v2.Request;encoding=delimited",
    f'text/html;title="{PROTOBUF}"',
    f'text/html;title="a,{PROTOBUF}',
    f'text/html;title="a,{PROTOBUF}\\',
]


def test_protobuf_is_for_who_prefers_it_and_text_for_everybody_else() -> None:
    assert [header for header in PREFER if not accepts(header)] == []
    assert [header for header in OTHERS if accepts(header)] == []


@given(st.text())
def test_no_header_is_too_odd(header: str) -> None:
    assert accepts(header) is False
