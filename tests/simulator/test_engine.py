"""The simulated engine: tokens, latencies, load and time agree with each other."""

from random import Random

import pytest

from vllm_specdec_exporter.commands.simulate.engine import Engine
from vllm_specdec_exporter.commands.simulate.speculation import (
    Conditions,
    DraftModel,
    EngineConfig,
    Traffic,
)

GOOD = (0.92, 0.85, 0.78, 0.72)


def run(seconds: float, acceptance: tuple[float, ...] = GOOD, k: int | None = 4, **load: float) -> Engine:
    engine = Engine(EngineConfig(), k, Random(6))
    conditions = Conditions(DraftModel(acceptance), Traffic(**load))  # type: ignore[arg-type]
    for _ in range(round(seconds)):
        engine.advance(1.0, conditions)
    return engine


def mean(engine: Engine, name: str) -> float:
    histogram = engine.measurements.histograms[name]
    return histogram.sum / histogram.count


def drain(engine: Engine) -> Engine:
    engine.advance(60, Conditions(DraftModel(GOOD), Traffic(clients=0)))
    return engine


def test_tokens_are_drafts_with_their_bonus_and_first_tokens() -> None:
    engine = run(30)
    counts, totals = engine.measurements, engine.totals
    first_tokens = counts.histograms["time_to_first_token_seconds"].count
    assert counts.get("generation_tokens") == totals.drafts + totals.accepted_tokens + first_tokens


def test_requests_and_tokens_agree_once_all_requests_are_answered() -> None:
    counts = drain(run(30)).measurements
    finished = counts.histograms["e2e_request_latency_seconds"].count
    assert finished == counts.get("http_requests") > 0
    reasons = ("stop", "length", "repetition", "abort", "error")
    assert sum(counts.get("request_success", reason) for reason in reasons) == finished
    assert counts.histograms["request_generation_tokens"].sum == counts.get("generation_tokens")
    assert counts.histograms["request_prompt_tokens"].sum == counts.get("prompt_tokens")
    assert counts.get("num_requests_running") == counts.get("kv_cache_usage_perc") == 0
    cached, computed = "local_cache_hit", "local_compute"
    by_source = [counts.get("prompt_tokens_by_source", source) for source in (cached, computed)]
    assert sum(by_source) == counts.get("prompt_tokens") == counts.get("prefix_cache_queries")
    assert by_source[0] == counts.get("prefix_cache_hits") == counts.get("prompt_tokens_cached")
    iteration = counts.histograms["iteration_tokens_total"]
    assert iteration.sum == counts.get("generation_tokens") + by_source[1]
    # Each output after the first of a request holds one draft here.
    outputs = counts.histograms["inter_token_latency_seconds"].count
    assert outputs == counts.get("spec_decode_num_drafts")


def test_latencies_add_up() -> None:
    engine = drain(run(30))
    queue, prefill, decode = (
        engine.measurements.histograms[f"request_{part}_time_seconds"].sum
        for part in ("queue", "prefill", "decode")
    )
    latency = engine.measurements.histograms["e2e_request_latency_seconds"].sum
    assert queue + prefill + decode == pytest.approx(latency)
    inference = engine.measurements.histograms["request_inference_time_seconds"].sum
    assert prefill + decode == pytest.approx(inference)


def test_time_per_output_token_depends_on_acceptance_but_inter_token_latency_does_not() -> None:
    good, bad, none = run(60), run(60, (0.05,)), run(60, k=None)
    tpot, itl = "request_time_per_output_token_seconds", "inter_token_latency_seconds"
    assert mean(good, tpot) < 0.6 * mean(none, tpot)
    assert mean(bad, tpot) > 1.1 * mean(none, tpot)
    assert mean(good, itl) == pytest.approx(mean(bad, itl), rel=0.2)


def test_an_overloaded_engine_queues_and_preempts() -> None:
    engine = run(90, clients=200, think_seconds=0.1, output_tokens=400)
    counts = engine.measurements
    assert counts.get("num_requests_waiting") > 50
    assert counts.get("num_requests_waiting_by_reason", "capacity") > 50
    assert counts.get("kv_cache_usage_perc") > 0.85
    assert counts.get("num_preemptions") > 0
    assert mean(engine, "request_queue_time_seconds") > 1
    assert mean(engine, "time_to_first_token_seconds") > 10 * mean(run(60), "time_to_first_token_seconds")
    drain(engine).advance(600, Conditions(DraftModel(GOOD), Traffic(clients=0)))
    assert counts.histograms["request_num_preemptions"].sum == counts.get("num_preemptions")
    # A preempted request emits one more token when its prompt is computed again.
    assert counts.histograms["request_generation_tokens"].sum == counts.get("generation_tokens")


def test_never_more_requests_than_seats() -> None:
    engine = Engine(EngineConfig(max_num_seqs=3), 4, Random(1))
    for _ in range(20):
        engine.advance(0.5, Conditions(DraftModel(GOOD), Traffic(clients=30)))
        assert engine.measurements.get("num_requests_running") <= 3
    assert engine.measurements.get("num_requests_waiting") > 20


def test_a_prompt_larger_than_the_cache_does_not_block_the_engine() -> None:
    engine = Engine(EngineConfig(kv_cache_tokens=64), 4, Random(1))
    engine.advance(60, Conditions(DraftModel(GOOD), Traffic(clients=4)))
    assert engine.totals.finished_requests > 3


def test_time_passes_in_any_portions() -> None:
    for step in (0.03, 7.0):
        engine = Engine(EngineConfig(), 4, Random(1))
        conditions = Conditions(DraftModel(GOOD), Traffic())
        for _ in range(round(42 / step)):
            engine.advance(step, conditions)
        assert engine.now == pytest.approx(42, abs=0.3)
        assert engine.measurements.get("generation_tokens") == pytest.approx(42 * 2150, rel=0.15)
