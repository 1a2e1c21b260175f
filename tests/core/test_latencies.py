"""Latencies: the histograms of an answer against what a real vLLM's own requests took."""

import math
import re
from itertools import pairwise, product

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.builders import final_answer, lines, requests, series, upstream
from support.copies import replace
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


def pooled(scenario: str, name: str) -> Histogram:
    """One kind of latency over all engines, when a scenario had ended."""
    total = Histogram()
    for latencies in latencies_of(final_answer(scenario)).values():
        total = total.plus(getattr(latencies, name))
    return total


def independent(body: bytes, name: str, engine: str) -> Histogram:
    """The same histogram as another parser reads it."""
    (family,) = (f for f in text_string_to_metric_families(body.decode()) if f.name == NAMES[name])
    own = [sample for sample in family.samples if sample.labels["engine"] == engine]
    buckets = {float(s.labels["le"]): s.value for s in own if s.name.endswith("_bucket")}
    (count,), (total,) = ([s.value for s in own if s.name.endswith(end)] for end in ("_count", "_sum"))
    assert buckets.pop(math.inf) == count
    return Histogram(tuple(sorted(buckets)), tuple(buckets[b] for b in sorted(buckets)), count, total)


#: How near the client's times are: in a short request it counts more that it saw the first token late.
TOLERANCE = {"nospec": 0.16, "ngram-phases": 0.01, "dp2": 0.05}


@pytest.mark.parametrize("scenario", TOLERANCE)
class TestCaptures:
    def test_another_parser_reads_the_same_and_every_request_is_counted(self, scenario: str) -> None:
        """Bounds, counts, number and sum of every engine; each finished request once in every histogram."""
        body = final_answer(scenario)
        for name in NAMES:
            found = {key: getattr(latencies, name) for key, latencies in latencies_of(body).items()}
            assert found == {key: independent(body, name, key.engine) for key in found}
            assert pooled(scenario, name).count == len(requests(scenario))

    def test_times_are_those_of_the_requests(self, scenario: str) -> None:
        """What the client measured holds vLLM's own time, and the way there and back."""
        rows = requests(scenario)
        decoding = math.fsum(row["decode_s"] / (row["usage"]["completion_tokens"] - 1) for row in rows)
        whole = math.fsum(row["end"] - row["start"] for row in rows)
        end_to_end, near = pooled(scenario, "end_to_end").sum, TOLERANCE[scenario]

        assert pooled(scenario, "time_per_output_token").sum == pytest.approx(decoding, rel=near)
        assert pooled(scenario, "time_to_first_token").sum <= math.fsum(row["ttft"] for row in rows)
        assert end_to_end <= whole
        assert end_to_end == pytest.approx(whole, rel=0.2)

    def test_they_never_fall_and_are_read_on_demand_only(self, scenario: str) -> None:
        """Poll by poll within a life; unasked they are left out, and all else is the same."""
        answers = [latencies_of(body) for _, body in series(scenario)]
        for (before, after), name in product(pairwise(answers), NAMES):
            for key in before:
                assert getattr(after[key], name).since(getattr(before[key], name)) is not None
        plain, asked = (read(final_answer(scenario), latencies=wanted).engines for wanted in (False, True))
        assert plain == tuple(replace(engine, latencies=None) for engine in asked)


TPOT = "vllm:request_time_per_output_token_seconds"


def answer(*rows: str) -> bytes:
    """An answer with a counter, and these rows of the histogram."""
    labels = 'model_name="m",engine="0"'
    return lines(f"vllm:generation_tokens_total{{{labels}}} 5", *(f"{TPOT}_{row}" for row in rows)).replace(
        b"LABELS", labels.encode()
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # A server without these series has none, which is not the same as empty ones.
        ([], None),
        # Series that differ only in a label that means nothing here add up.
        (
            [
                'bucket{LABELS,pid="1",le="0.1"} 2',
                'bucket{LABELS,pid="2",le="0.1"} 1',
                'bucket{LABELS,pid="1",le="+Inf"} 3',
                'bucket{LABELS,pid="2",le="+Inf"} 1',
                'count{LABELS,pid="1"} 3',
                'count{LABELS,pid="2"} 1',
                'sum{LABELS,pid="1"} 0.5',
                'sum{LABELS,pid="2"} 0.25',
            ],
            Histogram((0.1,), (3.0,), 4.0, 0.75),
        ),
        # An answer torn between two buckets is held monotone, so that quantiles exist.
        (
            [
                'bucket{LABELS,le="0.1"} 5',
                'bucket{LABELS,le="0.5"} 4',
                'bucket{LABELS,le="+Inf"} 4',
                "count{LABELS} 4",
                "sum{LABELS} 0.2",
            ],
            Histogram((0.1, 0.5), (5.0, 5.0), 5.0, 0.2),
        ),
        # Bounds are numbers: 10.0 comes behind 9.0, in whatever order they are printed.
        (
            ['bucket{LABELS,le="10.0"} 3', 'bucket{LABELS,le="9.0"} 2', "count{LABELS} 3", "sum{LABELS} 1"],
            Histogram((9.0, 10.0), (2.0, 3.0), 3.0, 1.0),
        ),
    ],
)
def test_text(rows: list[str], expected: Histogram | None) -> None:
    (latencies,) = latencies_of(answer(*rows)).values()

    assert latencies == Latencies(time_per_output_token=expected)


def test_a_dialect_without_known_histograms_is_read_all_the_same() -> None:
    (engine,) = read(upstream("llamacpp-k4.txt"), latencies=True).engines

    assert engine.latencies in (None, Latencies())
    assert engine.counters.drafts is not None


def test_impossible_values_are_refused_in_one_line_that_names_the_series() -> None:
    """Unasked, nothing of it is looked at."""
    starts = {
        "count{LABELS} -1": "is -1.0: it must be from 0 to ",
        "sum{LABELS} NaN": "is nan: it must be from 0 to ",
        "sum{LABELS} +Inf": "is inf: it must be from 0 to ",
        "bucket{LABELS} 3": "has no valid le label",
        **{f'bucket{{LABELS,le="{le}"}} 3': "has no valid le label" for le in ("x", "NaN", "-1")},
    }
    for row, start in starts.items():
        with pytest.raises(MalformedExposition, match=rf"^{TPOT}_\w+ {re.escape(start)}[^\n]*$"):
            read(answer(row), latencies=True)
        assert read(answer(row)).engines
