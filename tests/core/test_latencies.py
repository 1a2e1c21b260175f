"""Latencies: the histograms of an answer, and what a real vLLM's requests took."""

import math
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.builders import final_answer, lines, requests
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.engines.reading import EngineKey, Latencies
from vllm_specdec_exporter.exposition.histogram import Histogram
from vllm_specdec_exporter.exposition.text import MalformedExposition

NAMES = {
    "time_to_first_token": "vllm:time_to_first_token_seconds",
    "time_per_output_token": "vllm:request_time_per_output_token_seconds",
    "end_to_end": "vllm:e2e_request_latency_seconds",
}


def latencies_of(body: bytes) -> dict[EngineKey, Latencies]:
    found = {}
    for engine in read(body, latencies=True).engines:
        assert engine.latencies is not None
        found[engine.key] = engine.latencies
    return found


def independent(body: bytes, name: str, engine: str) -> Histogram:
    """The same histogram as another parser reads it."""
    (family,) = (
        f
        for f in text_string_to_metric_families(body.decode())
        if f.name == NAMES[name]
    )
    own = [sample for sample in family.samples if sample.labels["engine"] == engine]
    buckets = {
        float(s.labels["le"]): s.value for s in own if s.name.endswith("_bucket")
    }
    (count,), (total,) = (
        [s.value for s in own if s.name.endswith(end)] for end in ("_count", "_sum")
    )
    assert buckets.pop(math.inf) == count
    return Histogram(
        tuple(sorted(buckets)), tuple(buckets[b] for b in sorted(buckets)), count, total
    )


@pytest.mark.parametrize("scenario", ["nospec", "ngram-phases", "dp2"])
def test_another_parser_reads_the_same_and_every_request_is_counted(
    scenario: str,
) -> None:
    """Bounds, counts, number and sum of every engine."""
    body = final_answer(scenario)
    for name in NAMES:
        found = {
            key: getattr(latencies, name)
            for key, latencies in latencies_of(body).items()
        }
        assert found == {key: independent(body, name, key.engine) for key in found}
        assert sum(histogram.count for histogram in found.values()) == len(
            requests(scenario)
        )


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
                *(f'bucket{{LABELS,pid="{n}",le="0.1"}} {n}' for n in (1, 2)),
                *(
                    f'{part}{{LABELS,pid="{n}"}} {n + 1}'
                    for n in (1, 2)
                    for part in ("count", "sum")
                ),
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


def test_impossible_values_are_refused_in_one_line_that_names_the_series() -> None:
    """Unasked, nothing of it is looked at."""
    starts = {
        "count{LABELS} -1": "is -1.0: it must be from 0 to ",
        "sum{LABELS} NaN": "is nan: it must be from 0 to ",
        "sum{LABELS} +Inf": "is inf: it must be from 0 to ",
        "bucket{LABELS} 3": "has no valid le label",
        **{
            f'bucket{{LABELS,le="{le}"}} 3': "has no valid le label"
            for le in ("x", "NaN", "-1")
        },
    }
    for row, start in starts.items():
        with pytest.raises(
            MalformedExposition, match=rf"^{TPOT}_\w+ {re.escape(start)}[^\n]*$"
        ):
            read(answer(row), latencies=True)
        assert read(answer(row)).engines
