"""Latencies: the histograms of an answer against what a real vLLM's own requests took."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.builders import final_answer, lines, requests, series, upstream
from vllm_specdec_exporter.dialects import read
from vllm_specdec_exporter.exposition import MalformedExposition
from vllm_specdec_exporter.histogram import Histogram
from vllm_specdec_exporter.reading import EngineKey, Latencies

SCENARIOS = ("nospec", "ngram-phases", "dp2")
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS)

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


def pooled(body: bytes, name: str) -> Histogram:
    """One kind of latency over all engines."""
    total = Histogram()
    for latencies in latencies_of(body).values():
        total = total.plus(getattr(latencies, name))
    return total


def independent(body: bytes, name: str, engine: str) -> Histogram:
    """The same histogram as another parser reads it."""
    (family,) = (f for f in text_string_to_metric_families(body.decode()) if f.name == NAMES[name])
    buckets, count, total = {}, 0.0, 0.0
    for sample in family.samples:
        if sample.labels["engine"] != engine:
            continue
        if sample.name.endswith("_bucket"):
            buckets[float(sample.labels["le"])] = sample.value
        elif sample.name.endswith("_count"):
            count = sample.value
        elif sample.name.endswith("_sum"):
            total = sample.value
    assert buckets.pop(math.inf) == count
    return Histogram(tuple(sorted(buckets)), tuple(buckets[b] for b in sorted(buckets)), count, total)


class TestCaptures:
    @every_scenario
    @pytest.mark.parametrize("name", NAMES)
    def test_another_parser_reads_the_same(self, scenario: str, name: str) -> None:
        """Bounds, counts, number and sum of every engine are those of the answer."""
        body = final_answer(scenario)
        for key, latencies in latencies_of(body).items():
            assert getattr(latencies, name) == independent(body, name, key.engine)

    @every_scenario
    @pytest.mark.parametrize("name", NAMES)
    def test_every_request_is_counted(self, scenario: str, name: str) -> None:
        """Each finished request counts once in every histogram."""
        assert pooled(final_answer(scenario), name).count == len(requests(scenario))

    @pytest.mark.parametrize(
        ("scenario", "tolerance"),
        # The shorter a request, the more it counts that its client saw the first token late.
        [("nospec", 0.16), ("ngram-phases", 0.01), ("dp2", 0.05)],
    )
    def test_time_per_output_token_is_that_of_the_requests(self, scenario: str, tolerance: float) -> None:
        """The sum agrees with what the client measured: decoding time over the tokens behind the first."""
        true = math.fsum(
            row["decode_s"] / (row["usage"]["completion_tokens"] - 1) for row in requests(scenario)
        )

        assert pooled(final_answer(scenario), "time_per_output_token").sum == pytest.approx(
            true, rel=tolerance
        )

    @every_scenario
    def test_it_is_no_time_per_step(self, scenario: str) -> None:
        """A step that emits several tokens counts by its tokens: inter-token latency would count it once."""
        body = final_answer(scenario)
        mean = pooled(body, "time_per_output_token").mean
        per_step = next(
            f
            for f in text_string_to_metric_families(body.decode())
            if f.name == "vllm:inter_token_latency_seconds"
        )
        total = math.fsum(s.value for s in per_step.samples if s.name.endswith("_sum"))
        steps = math.fsum(s.value for s in per_step.samples if s.name.endswith("_count"))

        assert mean is not None
        if scenario == "nospec":
            assert mean == pytest.approx(total / steps, rel=0.01)
        else:
            assert mean < 0.75 * total / steps

    @every_scenario
    @pytest.mark.parametrize(("name", "of"), [("time_to_first_token", "ttft"), ("end_to_end", "whole")])
    def test_the_client_waits_a_little_longer(self, scenario: str, name: str, of: str) -> None:
        """What the client measured holds vLLM's own time, and the way there and back."""
        true = math.fsum(
            row["ttft"] if of == "ttft" else row["end"] - row["start"] for row in requests(scenario)
        )
        found = pooled(final_answer(scenario), name).sum

        assert found <= true
        assert name == "time_to_first_token" or found == pytest.approx(true, rel=0.2)

    @every_scenario
    def test_they_never_fall(self, scenario: str) -> None:
        """Poll by poll within a life, something or nothing was observed since."""
        answers = [latencies_of(body) for _, body in series(scenario)]
        for before, after in pairwise(answers):
            for key in before:
                for name in NAMES:
                    assert getattr(after[key], name).since(getattr(before[key], name)) is not None

    @every_scenario
    def test_they_are_read_on_demand_only(self, scenario: str) -> None:
        """Unasked they are left out, and all else is the same."""
        plain = read(final_answer(scenario))
        assert [engine.latencies for engine in plain.engines] == [None] * len(plain.engines)
        asked = read(final_answer(scenario), latencies=True)
        assert [(e.key, e.counters, e.load) for e in plain.engines] == [
            (e.key, e.counters, e.load) for e in asked.engines
        ]


TPOT = "vllm:request_time_per_output_token_seconds"


def answer(*rows: str) -> bytes:
    """An answer with a counter, and these rows of the histogram."""
    labels = 'model_name="m",engine="0"'
    return lines(f"vllm:generation_tokens_total{{{labels}}} 5", *(f"{TPOT}_{row}" for row in rows)).replace(
        b"LABELS", labels.encode()
    )


class TestText:
    def test_a_server_without_them(self) -> None:
        """A server without these series has none, which is not the same as empty ones."""
        (latencies,) = latencies_of(answer()).values()

        assert latencies == Latencies()

    def test_other_dialects(self) -> None:
        """A dialect without known histograms has none, and is read all the same."""
        (engine,) = read(upstream("llamacpp-k4.txt"), latencies=True).engines

        assert engine.latencies in (None, Latencies())
        assert engine.counters.drafts is not None or engine.counters.draft_tokens is not None

    def test_series_of_several_processes(self) -> None:
        """Series that differ only in a label that means nothing here add up."""
        body = answer(
            'bucket{LABELS,pid="1",le="0.1"} 2',
            'bucket{LABELS,pid="2",le="0.1"} 1',
            'bucket{LABELS,pid="1",le="+Inf"} 3',
            'bucket{LABELS,pid="2",le="+Inf"} 1',
            'count{LABELS,pid="1"} 3',
            'count{LABELS,pid="2"} 1',
            'sum{LABELS,pid="1"} 0.5',
            'sum{LABELS,pid="2"} 0.25',
        )
        (latencies,) = latencies_of(body).values()

        assert latencies.time_per_output_token == Histogram((0.1,), (3.0,), 4.0, 0.75)

    def test_a_torn_histogram_never_falls_with_its_bounds(self) -> None:
        """An answer torn between two buckets is held monotone, so that quantiles exist."""
        body = answer(
            'bucket{LABELS,le="0.1"} 5',
            'bucket{LABELS,le="0.5"} 4',
            'bucket{LABELS,le="+Inf"} 4',
            "count{LABELS} 4",
            "sum{LABELS} 0.2",
        )
        (latencies,) = latencies_of(body).values()

        assert latencies.time_per_output_token == Histogram((0.1, 0.5), (5.0, 5.0), 5.0, 0.2)

    def test_bounds_in_any_order(self) -> None:
        """Bounds are numbers: 10.0 comes behind 9.0, in whatever order they are printed."""
        body = answer(
            'bucket{LABELS,le="10.0"} 3', 'bucket{LABELS,le="9.0"} 2', "count{LABELS} 3", "sum{LABELS} 1"
        )
        (latencies,) = latencies_of(body).values()

        assert latencies.time_per_output_token == Histogram((9.0, 10.0), (2.0, 3.0), 3.0, 1.0)

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ("count{LABELS} -1", r"is -1\.0: it lies from 0 to "),
            ("sum{LABELS} NaN", "is nan: it lies from 0 to "),
            ("sum{LABELS} +Inf", "is inf: it lies from 0 to "),
            ("bucket{LABELS} 3", "has no usable le label"),
            ('bucket{LABELS,le="x"} 3', "has no usable le label"),
            ('bucket{LABELS,le="NaN"} 3', "has no usable le label"),
            ('bucket{LABELS,le="-1"} 3', "has no usable le label"),
        ],
    )
    def test_what_cannot_be(self, row: str, message: str) -> None:
        """Impossible values are refused in one line that names the series."""
        with pytest.raises(MalformedExposition, match=rf"^{TPOT}_\w+ {message}[^\n]*$"):
            read(answer(row), latencies=True)

        assert read(answer(row)).engines  # unasked, nothing of it is looked at
