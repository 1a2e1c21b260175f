"""The simulated engine and its drafts: tokens, latencies, load and time agree; drafts
count as in vLLM.
"""

import math
from random import Random
from statistics import fmean, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_specdec_exporter.commands.simulate.engine import Engine
from vllm_specdec_exporter.commands.simulate.speculation import (
    Conditions,
    DraftDistribution,
    EngineConfig,
    Traffic,
    binomial,
    multinomial,
    sample_drafts,
)

GOOD = (0.92, 0.85, 0.78, 0.72)


def run(
    seconds: float,
    acceptance: tuple[float, ...] = GOOD,
    k: int | None = 4,
    **load: float,
) -> Engine:
    engine = Engine(EngineConfig(), k, Random(6))
    conditions = Conditions(DraftDistribution(acceptance), Traffic(**load))
    for _ in range(round(seconds)):
        engine.advance(1.0, conditions)
    return engine


def mean(engine: Engine, name: str) -> float:
    histogram = engine.measurements.histogram(name)
    return histogram.sum / histogram.count


def drain(engine: Engine) -> Engine:
    engine.advance(60, Conditions(DraftDistribution(GOOD), Traffic(clients=0)))
    return engine


def test_requests_and_tokens_agree() -> None:
    """Tokens are drafts with their bonus and first tokens, also before all requests are
    answered.
    """
    engine = run(30)
    counts = engine.measurements
    totals = engine.totals
    first_tokens = counts.histogram("time_to_first_token_seconds").count
    assert (
        counts.get("generation_tokens")
        == totals.drafts + totals.accepted_tokens + first_tokens
    )
    drain(engine)
    finished = counts.histogram("e2e_request_latency_seconds").count
    assert finished == counts.get("http_requests") > 0
    reasons = ("stop", "length", "repetition", "abort", "error")
    assert sum(counts.get("request_success", reason) for reason in reasons) == finished
    assert counts.histogram("request_generation_tokens").sum == counts.get(
        "generation_tokens"
    )
    assert counts.histogram("request_prompt_tokens").sum == counts.get("prompt_tokens")
    assert counts.get("num_requests_running") == counts.get("kv_cache_usage_perc") == 0
    cached = "local_cache_hit"
    computed = "local_compute"
    by_source = [
        counts.get("prompt_tokens_by_source", source) for source in (cached, computed)
    ]
    assert (
        sum(by_source)
        == counts.get("prompt_tokens")
        == counts.get("prefix_cache_queries")
    )
    assert (
        by_source[0]
        == counts.get("prefix_cache_hits")
        == counts.get("prompt_tokens_cached")
    )
    iteration = counts.histogram("iteration_tokens_total")
    assert iteration.sum == counts.get("generation_tokens") + by_source[1]
    # Each output after the first of a request holds one draft here.
    outputs = counts.histogram("inter_token_latency_seconds").count
    assert outputs == counts.get("spec_decode_num_drafts")


def test_latencies_add_up() -> None:
    engine = drain(run(30))
    queue, prefill, decode = (
        engine.measurements.histogram(f"request_{part}_time_seconds").sum
        for part in ("queue", "prefill", "decode")
    )
    latency = engine.measurements.histogram("e2e_request_latency_seconds").sum
    assert queue + prefill + decode == pytest.approx(latency)
    inference = engine.measurements.histogram("request_inference_time_seconds").sum
    assert prefill + decode == pytest.approx(inference)


@pytest.mark.parametrize(("k", "seconds"), [(None, 0.01), (4, 0.015)])
def test_a_drafter_reads_prompts_too(k: int | None, seconds: float) -> None:
    """A prefill with a drafter takes longer, by default by the share of one layer of
    Llama (14 hidden^2 parameters) in the 8B of the target.
    """
    usual = EngineConfig()
    share = usual.draft_prefill_token_seconds / usual.prefill_token_seconds
    assert share == pytest.approx(14 * 4096**2 / 8e9)
    config = EngineConfig(prefill_token_seconds=0.01, draft_prefill_token_seconds=0.005)
    engine = Engine(config, k, Random(6))
    traffic = Traffic(clients=1, prefix_hit_ratio=0.0)
    for _ in range(60):
        engine.advance(1.0, Conditions(DraftDistribution(GOOD), traffic))
    drain(engine)
    prefill = engine.measurements.histogram("request_prefill_time_seconds").sum
    tokens = engine.measurements.get("prompt_tokens")
    assert prefill / tokens == pytest.approx(seconds, rel=0.02)


def test_acceptance_changes_time_per_output_token_not_inter_token_latency() -> None:
    good = run(60)
    bad = run(60, (0.05,))
    none = run(60, k=None)
    tpot = "request_time_per_output_token_seconds"
    itl = "inter_token_latency_seconds"
    assert mean(good, tpot) < 0.6 * mean(none, tpot)
    assert mean(bad, tpot) > 1.1 * mean(none, tpot)
    assert mean(good, itl) == pytest.approx(mean(bad, itl), rel=0.2)
    # An H100 reads the 16 GB of the weights in 4.8 ms; steps, some with prompts, take
    # twice that.
    assert 0.0048 < mean(none, itl) < 0.011 < mean(good, itl) < 0.019


def test_an_overloaded_engine_queues_and_preempts() -> None:
    engine = run(90, clients=200, think_seconds=0.1, output_tokens=400)
    counts = engine.measurements
    assert counts.get("num_requests_waiting") > 50
    assert counts.get("num_requests_waiting_by_reason", "capacity") > 50
    assert counts.get("kv_cache_usage_perc") > 0.85
    assert counts.get("num_preemptions") > 0
    assert mean(engine, "request_queue_time_seconds") > 1
    assert mean(engine, "time_to_first_token_seconds") > 10 * mean(
        run(60), "time_to_first_token_seconds"
    )
    drain(engine).advance(600, Conditions(DraftDistribution(GOOD), Traffic(clients=0)))
    assert counts.histogram("request_num_preemptions").sum == counts.get(
        "num_preemptions"
    )
    # A preempted request emits one more token when its prompt is computed again.
    assert counts.histogram("request_generation_tokens").sum == counts.get(
        "generation_tokens"
    )


def test_never_more_requests_than_seats() -> None:
    engine = Engine(EngineConfig(max_num_seqs=3), 4, Random(1))
    running = []
    for _ in range(20):
        engine.advance(0.5, Conditions(DraftDistribution(GOOD), Traffic(clients=30)))
        running.append(engine.measurements.get("num_requests_running"))
    assert max(running) == 3
    assert engine.measurements.get("num_requests_waiting") > 20


def test_a_prompt_larger_than_the_cache_does_not_block_the_engine() -> None:
    engine = Engine(EngineConfig(kv_cache_tokens=64), 4, Random(1))
    engine.advance(60, Conditions(DraftDistribution(GOOD), Traffic(clients=4)))
    assert engine.measurements.histogram("request_generation_tokens").count > 3


@pytest.mark.parametrize("step", [0.03, 7.0])
def test_time_passes_in_any_portions(step: float) -> None:
    engine = Engine(EngineConfig(), 4, Random(1))
    conditions = Conditions(DraftDistribution(GOOD), Traffic())
    for _ in range(round(42 / step)):
        engine.advance(step, conditions)
    assert engine.now == pytest.approx(42, abs=0.3)
    assert engine.measurements.get("generation_tokens") == pytest.approx(
        42 * 3450, rel=0.15
    )


# --- drafts


def within(successes: int, trials: int, chance: float) -> bool:
    """Whether a number of successes is within five standard deviations of its mean."""
    return (
        abs(successes - trials * chance)
        <= 5 * math.sqrt(trials * chance * (1 - chance)) + 1
    )


@given(
    request_steps=st.integers(0, 5000),
    acceptance=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    draft_probability=st.floats(0, 1),
    weights=st.lists(st.floats(0, 10), max_size=10),
    k=st.integers(0, 12),
    seed=st.integers(),
)
def test_counts_follow_vllm_semantics(
    request_steps: int,
    acceptance: list[float],
    draft_probability: float,
    weights: list[float],
    k: int,
    seed: int,
) -> None:
    model = DraftDistribution(tuple(acceptance), draft_probability, tuple(weights))
    totals = sample_drafts(Random(seed), request_steps, model, k)
    assert totals.drafts <= request_steps
    assert (
        totals.drafts <= totals.draft_tokens <= k * totals.drafts or totals.drafts == 0
    )
    assert sum(totals.accepted_per_position) == totals.accepted_tokens
    assert totals.accepted_tokens <= totals.draft_tokens
    reached = [totals.drafts, *totals.accepted_per_position]
    assert reached == sorted(reached, reverse=True)


def test_draft_lengths_follow_their_weights() -> None:
    model = DraftDistribution((1.0,), draft_probability=0.5, length_weights=(1, 1, 2))
    totals = sample_drafts(Random(2), 100_000, model, 4)
    assert within(totals.drafts, 100_000, 0.5)
    # With certain acceptance, drafts of a length have as many accepted tokens.
    for position, share in enumerate((1, 0.75, 0.5, 0)):
        assert within(totals.accepted_per_position[position], totals.drafts, share), (
            position
        )
    assert model.mean_draft_tokens(4) == pytest.approx(0.5 * 2.25)


def test_weights_that_leave_no_length_mean_drafts_of_full_length() -> None:
    assert DraftDistribution((1.0,), length_weights=(0, 0, 1)).lengths(2) == [0.0, 1.0]


# --- draws


def test_draws_have_mean_and_variance_of_the_binomial_distribution() -> None:
    draws = 20_000
    for trials, chance in (
        (1, 0.3),
        (4, 0.9),
        (30, 0.02),
        (64, 0.92),
        (100, 0.37),
        (500, 0.5),
        (5000, 0.01),
    ):
        rng = Random(f"{trials}/{chance}")
        mean = trials * chance
        variance = trials * chance * (1 - chance)
        successes = [binomial(rng, trials, chance) for _ in range(draws)]
        assert 0 <= min(successes) <= max(successes) <= trials, trials
        # Within five standard deviations, of which the kurtosis adds 1 / variance to
        # those of a variance.
        assert fmean(successes) == pytest.approx(
            mean, abs=5 * math.sqrt(variance / draws)
        ), (trials, chance)
        spread = 5 * variance * math.sqrt((2 + 1 / variance) / draws)
        assert pvariance(successes, mean) == pytest.approx(variance, abs=spread), (
            trials,
            chance,
        )


def test_certain_outcomes_and_impossible_distributions() -> None:
    certain = {(0, 0.5): 0, (100, 0.0): 0, (100, 1.0): 100, (100, 5e-324): 0}
    assert {of: binomial(Random(1), *of) for of in certain} == certain
    for trials, chance in ((-1, 0.5), (1, -0.1), (1, 1.1), (1, math.nan)):
        with pytest.raises(ValueError, match="no binomial distribution"):
            binomial(Random(1), trials, chance)
    with pytest.raises(ValueError, match="positive weight"):
        multinomial(Random(1), 1, [0.0, 0.0])
