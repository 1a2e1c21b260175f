"""Checks, checklist and verdict: each rule of the published pre-flight, at its limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plan.configs import DEEPSEEK_V3, LLAMA_8B, MIXTRAL, QWEN_7B, QWEN_HALF_B
from plan.questions import BF16, GOOD, GOOD_FACTS, check, leave_off, use
from vllm_specdec_exporter.plan import (
    METHODS,
    PRECISIONS,
    Answer,
    Conclusion,
    Facts,
    Gpus,
    Load,
    Objective,
    Question,
    Verdict,
    from_architecture,
    from_parameters,
    make_plan,
    read_architecture,
    speculative_config,
)

T70 = from_parameters(70 * 10**9, BF16)


def test_nothing_speaks_against_a_good_plan() -> None:
    plan = make_plan(GOOD)
    assert plan.conclusion is Conclusion.USE
    assert {c.verdict for c in plan.checks} == {Verdict.OK}
    assert {item.holds for item in plan.checklist.use} == {Answer.YES}
    assert {item.holds for item in plan.checklist.leave_off} == {Answer.NO}


def test_nothing_that_is_not_said_is_assumed() -> None:
    plan = make_plan(replace(GOOD, facts=Facts(), load=Load()))
    assert plan.conclusion is Conclusion.MEASURE_FIRST
    assert {item.holds for item in (*plan.checklist.use, *plan.checklist.leave_off)} == {Answer.UNKNOWN}
    for name in ("same_family", "same_tokenizer", "batch_fits"):
        assert check(plan, name).verdict is Verdict.UNKNOWN
        assert "not known: find out" in check(plan, name).text
    assert "points are not known" in plan.reason


# --- the draft model


@pytest.mark.parametrize(
    ("draft", "verdict"),
    [
        (70.0 / 7.9, Verdict.WARN),
        (70.0 / 8, Verdict.OK),
        (70.0 / 10, Verdict.OK),
        (70.0 / 12, Verdict.OK),
        (70.0 / 12.1, Verdict.WARN),
        (70.0, Verdict.FAIL),
        (72.0, Verdict.FAIL),
    ],
)
def test_one_to_eight_up_to_one_to_twelve_is_recommended(draft: float, verdict: Verdict) -> None:
    plan = make_plan(replace(GOOD, target=T70, draft=from_parameters(round(draft * 1e9), BF16)))
    assert check(plan, "size_ratio").verdict is verdict


@pytest.mark.parametrize(
    ("draft", "verdict"), [(15.0, Verdict.OK), (15.4, Verdict.OK), (15.6, Verdict.FAIL), (30.0, Verdict.FAIL)]
)
def test_a_draft_takes_at_most_about_15_percent_of_vram(draft: float, verdict: Verdict) -> None:
    """Of 100 GB; the limit is of whole percents, as it is published."""
    question = replace(
        GOOD,
        target=from_parameters(50 * 10**9, PRECISIONS["int8"]),
        draft=from_parameters(round(draft / 2 * 1e9), BF16),
        gpus=Gpus(1, 100e9, 0.9),
    )
    assert check(make_plan(question), "draft_share").verdict is verdict


@pytest.mark.parametrize(("gpu", "verdict"), [(100.0, Verdict.OK), (99.0, Verdict.WARN), (200.0, Verdict.OK)])
def test_a_target_above_70_percent_of_vram_warns(gpu: float, verdict: Verdict) -> None:
    plan = make_plan(replace(GOOD, target=T70, gpus=Gpus(2, gpu * 1e9, 0.9)))
    assert check(plan, "target_share").verdict is verdict


def test_vocabularies_of_different_size_fail_whatever_is_said() -> None:
    """Qwen2.5 pads its vocabulary by size; vLLM refuses the pair, though the tokenizer is the same."""
    question = replace(
        GOOD,
        target=from_architecture(read_architecture(QWEN_7B), BF16),
        draft=from_architecture(read_architecture(QWEN_HALF_B), BF16),
        facts=replace(GOOD_FACTS, same_tokenizer=True),
    )
    plan = make_plan(question)
    found = check(plan, "same_tokenizer")
    assert found.verdict is Verdict.FAIL
    assert "152064" in found.text
    assert "151936" in found.text
    assert plan.conclusion is Conclusion.LEAVE_OFF


def test_vocabularies_of_one_size_prove_nothing() -> None:
    plan = make_plan(replace(GOOD, facts=replace(GOOD_FACTS, same_tokenizer=None)))
    found = check(plan, "same_tokenizer")
    assert found.verdict is Verdict.UNKNOWN
    assert "128256 in both, which is needed but proves nothing" in found.text


@pytest.mark.parametrize("name", ["same_family", "same_tokenizer"])
def test_another_family_or_tokenizer_fails(name: str) -> None:
    facts = replace(GOOD_FACTS, **{name: False})
    assert check(make_plan(replace(GOOD, facts=facts)), name).verdict is Verdict.FAIL


def test_another_architecture_hints_at_another_family() -> None:
    other = from_architecture(read_architecture({**LLAMA_8B, "model_type": "mistral"}), BF16)
    facts = replace(GOOD_FACTS, same_family=None)
    found = check(make_plan(replace(GOOD, draft=other, facts=facts)), "same_family")
    assert found.verdict is Verdict.WARN
    assert "llama and mistral" in found.text
    same = check(make_plan(replace(GOOD, facts=facts)), "same_family")
    assert same.verdict is Verdict.UNKNOWN
    assert "proves nothing" in same.text


# --- memory


def test_a_draft_that_does_not_fit_fails() -> None:
    plan = make_plan(replace(GOOD, gpus=Gpus(2, 80e9, 0.9)))
    assert "does not fit at all" in check(plan, "kv_budget").text
    assert check(plan, "kv_budget").verdict is Verdict.FAIL
    assert leave_off(plan, "memory_bound").holds is Answer.YES
    assert plan.conclusion is Conclusion.LEAVE_OFF


def test_a_target_that_does_not_fit_fails_by_itself() -> None:
    plan = make_plan(replace(GOOD, gpus=Gpus(1, 80e9, 0.9)))
    assert "the target alone does not fit" in check(plan, "kv_budget").text


def test_room_for_less_than_one_request_fails() -> None:
    plan = make_plan(replace(GOOD, gpus=Gpus(2, 90e9, 0.9), load=Load(131072, 1)))
    found = check(plan, "kv_budget")
    assert found.verdict is Verdict.FAIL
    assert "not even one request of 131,072 tokens" in found.text


def test_a_batch_that_no_longer_fits_is_a_reason_to_leave_it_off() -> None:
    plan = make_plan(replace(GOOD, gpus=Gpus(2, 141e9, 0.9), load=Load(8192, 32)))
    assert check(plan, "batch_fits").verdict is Verdict.WARN
    assert use(plan, "headroom").holds is Answer.NO
    assert leave_off(plan, "memory_bound").holds is Answer.YES
    assert "nor without it" not in leave_off(plan, "memory_bound").text
    assert plan.conclusion is Conclusion.LEAVE_OFF


def test_lookup_is_never_bound_by_memory_of_its_own() -> None:
    question = replace(
        GOOD, method=METHODS["ngram"], draft=None, gpus=Gpus(2, 141e9, 0.9), load=Load(131072, 64)
    )
    plan = make_plan(question)
    assert leave_off(plan, "memory_bound").holds is Answer.NO
    names = {c.name for c in plan.checks}
    assert not names & {"size_ratio", "draft_share", "same_family", "same_tokenizer"}


# --- temperature and the other facts


@pytest.mark.parametrize(
    ("temperatures", "cool", "hot"),
    [
        ((0.0,), Answer.YES, Answer.NO),
        ((0.5,), Answer.YES, Answer.NO),
        ((0.6,), Answer.NO, Answer.NO),
        ((0.7,), Answer.NO, Answer.NO),
        ((0.71,), Answer.NO, Answer.YES),
        ((0.1, 0.3), Answer.YES, Answer.NO),  # 0.3 - 0.1 is more than 0.2 in binary
        ((0.1, 0.4), Answer.NO, Answer.YES),
        ((0.0, 1.0), Answer.NO, Answer.YES),
        ((0.7, 0.8, 0.8), Answer.NO, Answer.YES),
        ((), Answer.UNKNOWN, Answer.UNKNOWN),
    ],
)
def test_temperature_must_be_low_and_alike(
    temperatures: tuple[float, ...], cool: Answer, hot: Answer
) -> None:
    plan = make_plan(replace(GOOD, facts=replace(GOOD_FACTS, temperatures=temperatures)))
    assert use(plan, "temperature").holds is cool
    assert leave_off(plan, "temperature").holds is hot


@pytest.mark.parametrize(
    ("objective", "gains", "bound"),
    [
        (Objective.TPOT, Answer.YES, Answer.NO),
        (Objective.THROUGHPUT, Answer.YES, Answer.NO),
        (Objective.TTFT, Answer.NO, Answer.YES),
    ],
)
def test_speculation_is_for_output_tokens_not_for_the_first(
    objective: Objective, gains: Answer, bound: Answer
) -> None:
    plan = make_plan(replace(GOOD, facts=replace(GOOD_FACTS, objective=objective)))
    assert use(plan, "objective").holds is gains
    assert leave_off(plan, "ttft_bound").holds is bound


def test_unmonitored_is_a_reason_to_leave_it_off_and_unvalidated_is_not() -> None:
    unmonitored = make_plan(replace(GOOD, facts=replace(GOOD_FACTS, monitored=False)))
    assert unmonitored.conclusion is Conclusion.LEAVE_OFF
    assert unmonitored.reason == "unmonitored speaks against it"
    for name in ("validated", "uniform_batch"):
        plan = make_plan(replace(GOOD, facts=replace(GOOD_FACTS, **{name: False})))
        assert plan.conclusion is Conclusion.MEASURE_FIRST
        assert plan.reason == f"nothing speaks against it, but {name} is not as wanted"


# --- methods


@pytest.mark.parametrize(
    ("method", "k", "verdict"),
    [
        ("draft_model", 1, Verdict.WARN),
        ("draft_model", 2, Verdict.OK),
        ("draft_model", 3, Verdict.OK),
        ("draft_model", 4, Verdict.WARN),
        ("eagle", 1, Verdict.WARN),
        ("eagle", 2, Verdict.OK),
        ("eagle3", 5, Verdict.OK),
        ("eagle3", 6, Verdict.WARN),
        ("ngram", 9, Verdict.OK),
    ],
)
def test_the_usual_k_is_2_to_5_for_eagle_and_2_to_3_for_draft_models(
    method: str, k: int, verdict: Verdict
) -> None:
    plan = make_plan(replace(GOOD, method=METHODS[method], k=k))
    assert check(plan, "num_speculative_tokens").verdict is verdict


def test_mtp_needs_layers_that_the_target_brings() -> None:
    question = replace(GOOD, method=METHODS["mtp"], draft=None, k=1)
    assert check(make_plan(question), "mtp_layers").verdict is Verdict.UNKNOWN
    deepseek = from_architecture(read_architecture(DEEPSEEK_V3), PRECISIONS["fp8"])
    assert check(make_plan(replace(question, target=deepseek)), "mtp_layers").verdict is Verdict.OK


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_planned_without_knowing_anything(method: str) -> None:
    """No fact, no load, no acceptance, no drafter: a plan all the same, with nothing made up."""
    plan = make_plan(Question(METHODS[method], T70, None, Gpus(2, 141e9, 0.9), BF16))
    assert plan.conclusion is Conclusion.MEASURE_FIRST
    assert plan.speculative_config["method"] == method
    assert [assumed.name for assumed in plan.outlook.assumptions] == ["cautious", "good"]


@pytest.mark.parametrize(
    ("method", "name", "config"),
    [
        ("draft_model", "org/d", {"method": "draft_model", "model": "org/d", "num_speculative_tokens": 3}),
        ("eagle3", "", {"method": "eagle3", "model": "<draft model>", "num_speculative_tokens": 3}),
        ("mtp", "", {"method": "mtp", "num_speculative_tokens": 3}),
        ("suffix", "", {"method": "suffix", "num_speculative_tokens": 3}),
        ("ngram", "", {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}),
    ],
)
def test_the_configuration_has_what_vllm_wants(method: str, name: str, config: dict[str, object]) -> None:
    assert speculative_config(METHODS[method], 3, name) == config


# --- speedup


def test_the_speedup_is_expected_tokens_over_the_cost_of_a_step() -> None:
    plan = make_plan(GOOD)
    (assumed,) = plan.outlook.assumptions
    assert assumed.tokens == pytest.approx((1 - 0.8**4) / (1 - 0.8))
    assert [row.batch for row in plan.outlook.rows] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    for row in plan.outlook.rows:
        (speedup,) = row.speedups
        assert speedup.middle == pytest.approx(assumed.tokens / row.step_cost)
        assert speedup.low == pytest.approx(speedup.middle / (1 + plan.outlook.uncertainty))
        assert speedup.low < speedup.middle < speedup.high <= assumed.tokens


def test_a_batch_of_ones_own_has_its_row() -> None:
    plan = make_plan(replace(GOOD, load=Load(1024, 48)))
    assert plan.outlook.at(48).step_cost > plan.outlook.at(32).step_cost
    assert "at batch 48" in check(plan, "speedup").text


@pytest.mark.parametrize(
    ("acceptance", "verdict"), [(0.0, Verdict.FAIL), (0.3, Verdict.WARN), (0.8, Verdict.OK)]
)
def test_an_acceptance_that_cannot_pay_fails(acceptance: float, verdict: Verdict) -> None:
    plan = make_plan(replace(GOOD, acceptance=acceptance))
    assert check(plan, "speedup").verdict is verdict


def test_a_smaller_draft_costs_less_a_step() -> None:
    large, small = (
        make_plan(replace(GOOD, target=T70, draft=from_parameters(size * 10**9, BF16))).outlook.at(1)
        for size in (8, 1)
    )
    assert small.step_cost < large.step_cost


def test_a_quantized_target_makes_the_same_draft_dearer() -> None:
    """Drafting and small batches are bound by the bytes that are read, not by parameters."""
    draft = from_parameters(8 * 10**9, BF16)
    full, quarter = (
        make_plan(replace(GOOD, target=from_parameters(70 * 10**9, PRECISIONS[name]), draft=draft))
        for name in ("bf16", "int4")
    )
    assert quarter.outlook.at(1).step_cost > full.outlook.at(1).step_cost


def test_a_mixture_of_experts_counts_by_what_a_token_reads() -> None:
    """Mixtral reads 12.9B of its 46.7B: a draft of 1B is one of 1:12.9, not of 1:46.7."""
    mixtral = from_architecture(read_architecture(MIXTRAL), BF16)
    plan = make_plan(replace(GOOD, target=mixtral, draft=from_parameters(10**9, BF16)))
    assert plan.outlook.profile == "draft_model 1:12.9"


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 16))
def test_more_acceptance_never_gains_less(one: float, other: float, k: int) -> None:
    less, more = sorted((one, other))
    low, high = (
        make_plan(replace(GOOD, acceptance=value, k=k)).outlook.at(8).speedups[0] for value in (less, more)
    )
    assert low.middle <= high.middle + 1e-9
