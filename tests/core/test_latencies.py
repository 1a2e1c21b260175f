"""Latencies: the histograms of an answer against what requests of a real vLLM took."""

import math
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.builders import final_answer, lines, requests
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.engines.limits import MAX_BOUNDS
from vllm_specdec_exporter.engines.reading import EngineKey, Latencies
from vllm_specdec_exporter.exposition.histogram import Histogram
from vllm_specdec_exporter.exposition.text import MalformedExposition

NAMES = {
    "time_to_first_token": "vllm:time_to_first_token_seconds",
    "time_per_output_token": "vllm:request_time_per_output_token_seconds",
    "end_to_end": "vllm:e2e_request_latency_seconds",
}


def latencies_of(body: bytes) -> dict[EngineKey, Latencies]:
    by_engine = {}
    for engine in read(body, latencies=True).engines:
        assert engine.latencies is not None, engine.key
        by_engine[engine.key] = engine.latencies
    return by_engine


def independent(body: bytes, name: str, engine: str) -> Histogram:
    """Return the same histogram as another parser reads it."""
    buckets = {}
    others = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            part = sample.name.removeprefix(f"{NAMES[name]}_")
            if family.name != NAMES[name] or sample.labels["engine"] != engine:
                continue
            if part == "bucket":
                buckets[float(sample.labels["le"])] = sample.value
            else:
                others[part] = sample.value
    assert buckets.pop(math.inf) == others["count"]
    bounds, counts = zip(*sorted(buckets.items()), strict=True)
    return Histogram(bounds, counts, others["count"], others["sum"])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scenario", ["nospec", "ngram-phases", "dp2"])
def test_another_parser_reads_the_same_and_every_request_is_counted(
    scenario: str, name: str
) -> None:
    """Bounds, counts, number and sum of every engine."""
    body = final_answer(scenario)
    requests_of_all = 0.0
    for key, latencies in latencies_of(body).items():
        histogram = getattr(latencies, name)
        assert histogram == independent(body, name, key.engine), key
        requests_of_all += histogram.count
    assert requests_of_all == len(requests(scenario))


TPOT = "vllm:request_time_per_output_token_seconds"


def answer(*rows: str) -> bytes:
    """An answer with a counter, and these rows of the histogram."""
    labels = 'model_name="m",engine="0"'
    return lines(
        f"vllm:generation_tokens_total{{{labels}}} 5",
        *(f"{TPOT}_{row}" for row in rows),
    ).replace(b"LABELS", labels.encode())


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # A server without these series has none, which is not the same as empty ones.
        ([], None),
        # One without its sum, as a federation may have: a mean of 0 would be invented.
        (['bucket{LABELS,le="0.1"} 1', "count{LABELS} 1"], None),
        # Series that differ only in a label that means nothing here add up.
        (
            [
                'bucket{LABELS,pid="1",le="0.1"} 1',
                'count{LABELS,pid="1"} 2',
                'sum{LABELS,pid="1"} 2',
                'bucket{LABELS,pid="2",le="0.1"} 2',
                'count{LABELS,pid="2"} 3',
                'sum{LABELS,pid="2"} 3',
            ],
            Histogram((0.1,), (3.0,), 5.0, 5.0),
        ),
        # An answer torn between two buckets is held monotone, so that quantiles exist.
        (
            [
                'bucket{LABELS,le="0.1"} 5',
                'bucket{LABELS,le="0.5"} 4',
                "count{LABELS} 4",
                "sum{LABELS} 0.2",
            ],
            Histogram((0.1, 0.5), (5.0, 5.0), 5.0, 0.2),
        ),
        # Bounds are numbers: 10.0 comes behind 9.0, in whatever order they are printed.
        (
            [
                'bucket{LABELS,le="10.0"} 3',
                'bucket{LABELS,le="9.0"} 2',
                "count{LABELS} 3",
                "sum{LABELS} 1",
            ],
            Histogram((9.0, 10.0), (2.0, 3.0), 3.0, 1.0),
        ),
    ],
)
def test_text(rows: list[str], expected: Histogram | None) -> None:
    (latencies,) = latencies_of(answer(*rows)).values()

    assert latencies == Latencies(time_per_output_token=expected)


@pytest.mark.parametrize(
    ("row", "start"),
    [
        ("count{LABELS} -1", "is -1.0: it must be from 0 to "),
        ("sum{LABELS} NaN", "is nan: it must be from 0 to "),
        ("sum{LABELS} +Inf", "is inf: it must be from 0 to "),
        ("bucket{LABELS} 3", "has no valid le label"),
        ('bucket{LABELS,le="x"} 3', "has no valid le label"),
        ('bucket{LABELS,le="NaN"} 3', "has no valid le label"),
        ('bucket{LABELS,le="-1"} 3', "has no valid le label"),
    ],
)
def test_impossible_values_are_refused_in_one_line_that_names_the_series(
    row: str, start: str
) -> None:
    """Unasked, nothing of it is looked at."""
    with pytest.raises(
        MalformedExposition, match=rf"^{TPOT}_\w+ {re.escape(start)}[^\n]*$"
    ):
        read(answer(row), latencies=True)
    assert read(answer(row)).engines


def test_buckets_are_limited() -> None:
    """As many as the limit are read."""
    rows = [f'bucket{{LABELS,le="{bound}"}} 1' for bound in range(1, MAX_BOUNDS)]
    rows += ['bucket{LABELS,le="+Inf"} 1', "count{LABELS} 1", "sum{LABELS} 1"]
    assert read(answer(*rows), latencies=True).engines[0].latencies is not None
    with pytest.raises(MalformedExposition, match=r": more than 256 buckets$"):
        read(answer('bucket{LABELS,le="0.5"} 0', *rows), latencies=True)
