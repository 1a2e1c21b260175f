"""Checks, checklist, memory and verdict: each rule of the published pre-flight, at its
limits.
"""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from plan.configs import DEEPSEEK_V3, LLAMA_8B, LLAMA_70B, MIXTRAL, QWEN_7B, QWEN_HALF_B
from vllm_specdec_exporter.commands.plan.checklist import Answer
from vllm_specdec_exporter.commands.plan.checks import Check, Verdict
from vllm_specdec_exporter.commands.plan.estimates import Memory, account, estimate_head
from vllm_specdec_exporter.commands.plan.planning import (
    Conclusion,
    Plan,
    make_plan,
    speculative_config,
)
from vllm_specdec_exporter.commands.plan.question import (
    METHODS,
    Facts,
    Gpus,
    Objective,
    PlannedLoad,
    Question,
)
from vllm_specdec_exporter.economics.architecture import read_architecture
from vllm_specdec_exporter.economics.model import (
    Model,
    from_architecture,
    from_parameters,
)
from vllm_specdec_exporter.economics.sizes import PRECISIONS

BF16 = PRECISIONS["bf16"]
T70 = from_parameters(70 * 10**9, BF16)


def model(config: dict[str, Any], precision: str = "bf16") -> Model:
    return from_architecture(read_architecture(config), PRECISIONS[precision])


GOOD_FACTS = Facts(
    (0.0, 0.2),
    Objective.TPOT,
    same_tokenizer=True,
    same_family=True,
    uniform_batch=True,
    validated=True,
    monitored=True,
    min_p_or_logit_bias=False,
)
#: A question that nothing speaks against, to change in one point.
GOOD = Question(
    method=METHODS["draft_model"],
    target=model(LLAMA_70B),
    draft=model(LLAMA_8B),
    gpus=Gpus(4, 80e9, 0.9),
    kv_precision=BF16,
    k=3,
    acceptance=0.8,
    load=PlannedLoad(4096, 32),
    facts=GOOD_FACTS,
    drafter_name="meta-llama/Llama-3.1-8B",
)


def planned(**changes: Any) -> Plan:
    """The plan for `GOOD` with these changes."""
    return make_plan(replace(GOOD, **changes))


def check(plan: Plan, name: str) -> Check:
    """Return the check of this name."""
    (named,) = (check for check in plan.checks if check.name == name)
    return named


def test_nothing_that_is_not_said_is_assumed() -> None:
    plan = planned(facts=Facts(), load=PlannedLoad())
    assert plan.conclusion is Conclusion.MEASURE_FIRST
    assert {
        item.holds for item in (*plan.checklist.use, *plan.checklist.leave_off)
    } == {Answer.UNKNOWN}
    for name in ("same_family", "same_tokenizer"):
        assert check(plan, name).verdict is Verdict.UNKNOWN, name
        assert "not known: find out" in check(plan, name).text, name
    assert (
        "not known: same_tokenizer, same_family, temperature, headroom, " in plan.reason
    )


def test_known_problems_of_method_and_model_warn_with_their_source() -> None:
    on_gpu = replace(GOOD, method=METHODS["ngram_gpu"], draft=None, drafter_name="")
    hybrid = replace(
        GOOD,
        method=METHODS["mtp"],
        draft=None,
        drafter_name="",
        target_name="Qwen/Qwen3.6-27B",
    )
    for question, issue in ((on_gpu, "37150"), (hybrid, "38182")):
        plan = make_plan(question)
        problem = check(plan, "known_problem")
        assert problem.verdict is Verdict.WARN, issue
        assert issue in problem.text, issue
        assert "known_problem" in plan.reason, issue
    for fine in (
        GOOD,
        replace(hybrid, target_name=""),
        replace(hybrid, target_name="Qwen/Qwen3-8B"),
    ):
        assert "known_problem" not in {each.name for each in make_plan(fine).checks}, (
            fine.target_name
        )


# --- the draft model


def test_the_published_limits_of_size_and_share() -> None:
    """A draft of 1:8 up to 1:12; at most about 15 % of VRAM, as whole percents; a
    target of up to 70 %.
    """
    ok = Verdict.OK
    warn = Verdict.WARN
    fail = Verdict.FAIL
    for ratio, verdict in (
        (7.9, warn),
        (8, ok),
        (10, ok),
        (12, ok),
        (12.1, warn),
        (1, fail),
        (0.97, fail),
    ):
        draft = from_parameters(round(70 / ratio * 1e9), BF16)
        assert (
            check(planned(target=T70, draft=draft), "size_ratio").verdict is verdict
        ), ratio
    half = replace(
        GOOD,
        target=from_parameters(50 * 10**9, PRECISIONS["int8"]),
        gpus=Gpus(1, 100e9, 0.9),
    )
    for gigabytes, verdict in ((15.0, ok), (15.4, ok), (15.6, fail), (30.0, fail)):
        plan = make_plan(
            replace(half, draft=from_parameters(round(gigabytes / 2 * 1e9), BF16))
        )
        assert check(plan, "draft_share").verdict is verdict, gigabytes
    for gigabytes, verdict in ((100.0, ok), (99.0, warn), (200.0, ok)):
        plan = planned(target=T70, gpus=Gpus(2, gigabytes * 1e9, 0.9))
        assert check(plan, "target_share").verdict is verdict, gigabytes


def test_vocabularies_of_different_size_fail_whatever_is_said() -> None:
    """Qwen2.5 pads its vocabulary by size; vLLM refuses the pair, though the tokenizer
    is the same.
    """
    question = replace(
        GOOD,
        target=model(QWEN_7B),
        draft=model(QWEN_HALF_B),
        facts=replace(GOOD_FACTS, same_tokenizer=True),
    )
    plan = make_plan(question)
    tokenizer = check(plan, "same_tokenizer")
    assert tokenizer.verdict is Verdict.FAIL
    assert "152064" in tokenizer.text
    assert "151936" in tokenizer.text
    assert plan.conclusion is Conclusion.LEAVE_OFF


@pytest.mark.parametrize(
    ("fact", "name"),
    [("same_tokenizer", "same_tokenizer"), ("same_family", "same_family")],
)
def test_only_the_operator_knows_whether_tokenizer_and_family_are_the_same(
    fact: str, name: str
) -> None:
    plans = {
        answer: planned(facts=replace(GOOD_FACTS, **{fact: answer}))
        for answer in (True, False, None)
    }
    verdicts = {answer: check(plan, name).verdict for answer, plan in plans.items()}
    assert verdicts == {True: Verdict.OK, False: Verdict.FAIL, None: Verdict.UNKNOWN}


def test_a_target_that_does_not_fit_or_leaves_no_room_for_one_request_fails() -> None:
    alone = check(planned(gpus=Gpus(1, 80e9, 0.9)), "kv_budget")
    assert "the target alone does not fit" in alone.text
    budget = check(
        planned(gpus=Gpus(2, 90e9, 0.9), load=PlannedLoad(131072, 1)), "kv_budget"
    )
    assert budget.verdict is Verdict.FAIL
    assert "not even one request of 131,072 tokens" in budget.text


# --- temperature and the other facts


YES = Answer.YES
NO = Answer.NO
#: Temperatures, and whether they speak for speculation and against it: they must be low
#: and alike.
TEMPERATURES = {
    (0.5,): (YES, NO),
    (0.6,): (NO, NO),
    (0.7,): (NO, NO),
    (0.71,): (NO, YES),
    (0.1, 0.3): (YES, NO),  # 0.3 - 0.1 is more than 0.2 in binary
    (0.1, 0.4): (NO, YES),
    (0.7, 0.8, 0.8): (NO, YES),
    (): (Answer.UNKNOWN, Answer.UNKNOWN),
}
#: Speculation is for output tokens, not for the first.
OBJECTIVES = {
    Objective.TPOT: (YES, NO),
    Objective.THROUGHPUT: (YES, NO),
    Objective.TTFT: (NO, YES),
}


def test_what_the_traffic_is_for_speaks_for_or_against() -> None:
    def answers(
        use_name: str, leave_off_name: str, **fact: Any
    ) -> tuple[Answer, Answer]:
        checklist = planned(facts=replace(GOOD_FACTS, **fact)).checklist
        use, leave_off = (
            {i.name: i.holds for i in items}
            for items in (checklist.use, checklist.leave_off)
        )
        return use[use_name], leave_off[leave_off_name]

    by_temperatures = {
        values: answers("temperature", "temperature", temperatures=values)
        for values in TEMPERATURES
    }
    assert by_temperatures == TEMPERATURES
    assert {
        value: answers("objective", "ttft_bound", objective=value)
        for value in OBJECTIVES
    } == OBJECTIVES


def test_requests_that_vllm_refuses_are_a_reason_to_leave_it_off() -> None:
    """A real vLLM 0.32 with speculation answers min_p and logit_bias with HTTP 400."""
    refused = planned(facts=replace(GOOD_FACTS, min_p_or_logit_bias=True))
    assert refused.conclusion is Conclusion.LEAVE_OFF
    assert refused.reason == "speaks against it: refused_requests"
    unknown = planned(facts=replace(GOOD_FACTS, min_p_or_logit_bias=None))
    assert unknown.conclusion is Conclusion.MEASURE_FIRST
    assert "not known: refused_requests" in unknown.reason


def test_greedy_drafts_are_named_unless_no_request_is_sampled() -> None:
    """Or acceptance was measured with them."""
    warned = {}
    for temperatures in ((), (0.0,), (0.0, 0.2)):
        facts = replace(GOOD_FACTS, temperatures=temperatures, validated=None)
        checks = planned(facts=facts).checks
        warned[temperatures] = any("draft_sample_method" in c.text for c in checks)
    assert warned == {(): True, (0.0,): False, (0.0, 0.2): True}
    measured = planned(facts=GOOD_FACTS).checks
    assert not any("draft_sample_method" in check.text for check in measured)


def test_unmonitored_is_a_reason_to_leave_it_off_and_unvalidated_is_not() -> None:
    unmonitored = planned(facts=replace(GOOD_FACTS, monitored=False))
    assert unmonitored.conclusion is Conclusion.LEAVE_OFF
    assert unmonitored.reason == "speaks against it: unmonitored"
    for name in ("validated", "uniform_batch"):
        plan = planned(facts=replace(GOOD_FACTS, **{name: False}))
        assert plan.conclusion is Conclusion.MEASURE_FIRST, name
        assert f"not as wanted: {name}" in plan.reason, name
        assert plan.reason.startswith("nothing speaks against it; "), name


# --- methods


def test_the_usual_k_is_2_to_5_for_eagle_and_2_to_3_for_draft_models() -> None:
    usual = {
        "draft_model": {2, 3},
        "eagle": {2, 3, 4, 5},
        "eagle3": {2, 3, 4, 5},
        "ngram": {*range(1, 10)},
    }
    for method, k in product(usual, range(1, 10)):
        plan = planned(method=METHODS[method], k=k)
        verdict = Verdict.OK if k in usual[method] else Verdict.WARN
        assert check(plan, "num_speculative_tokens").verdict is verdict, (method, k)


def test_mtp_needs_layers_that_the_target_brings() -> None:
    question = replace(GOOD, method=METHODS["mtp"], draft=None, k=1)
    assert check(make_plan(question), "mtp_layers").verdict is Verdict.UNKNOWN
    deepseek = model(DEEPSEEK_V3, "fp8")
    assert (
        check(make_plan(replace(question, target=deepseek)), "mtp_layers").verdict
        is Verdict.OK
    )


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_planned_without_knowing_anything(method: str) -> None:
    """No fact, no load, no acceptance, no drafter: a plan all the same, with nothing
    made up.
    """
    question = Question(
        METHODS[method], T70, None, Gpus(2, 141e9, 0.9), kv_precision=BF16
    )
    plan = make_plan(question)
    assert plan.conclusion is Conclusion.MEASURE_FIRST
    assert plan.speculative_config["method"] == method
    assert [assumed.name for assumed in plan.outlook.assumptions] == [
        "cautious",
        "good",
    ]


@pytest.mark.parametrize(
    ("method", "name", "more"),
    [
        ("draft_model", "org/d", {"model": "org/d"}),
        ("eagle3", "", {"model": "<draft model>"}),
        ("mtp", "", {}),
        ("suffix", "", {}),
        ("ngram", "", {"prompt_lookup_min": 2, "prompt_lookup_max": 4}),
        ("ngram_gpu", "", {"prompt_lookup_min": 2, "prompt_lookup_max": 4}),
    ],
)
def test_the_configuration_has_what_vllm_wants(
    method: str, name: str, more: dict[str, Any]
) -> None:
    config = speculative_config(METHODS[method], 3, name)
    assert config == {"method": method, "num_speculative_tokens": 3, **more}


# --- speedup


def test_the_speedup_is_expected_tokens_over_the_cost_of_a_step() -> None:
    plan = planned()
    (assumed,) = plan.outlook.assumptions
    assert assumed.tokens == pytest.approx((1 - 0.8**4) / (1 - 0.8))
    assert [row.batch for row in plan.outlook.rows] == [
        1,
        2,
        4,
        8,
        16,
        32,
        64,
        128,
        256,
    ]
    for row in plan.outlook.rows:
        (speedup,) = row.speedups
        assert speedup.value == pytest.approx(assumed.tokens / row.step_cost), row
        assert speedup.low == pytest.approx(
            speedup.value / (1 + plan.outlook.uncertainty)
        ), row
        assert speedup.low < speedup.value < speedup.high <= assumed.tokens, row


def test_a_batch_of_ones_own_has_its_row() -> None:
    plan = planned(load=PlannedLoad(1024, 48))
    costs = {row.batch: row.step_cost for row in plan.outlook.rows}
    assert costs[48] > costs[32]
    assert "at batch 48" in check(plan, "speedup").text


@pytest.mark.parametrize(
    ("acceptance", "verdict"),
    [(0.0, Verdict.FAIL), (0.3, Verdict.WARN), (0.8, Verdict.OK)],
)
def test_an_acceptance_that_cannot_pay_fails(
    acceptance: float, verdict: Verdict
) -> None:
    assert check(planned(acceptance=acceptance), "speedup").verdict is verdict


def test_a_draft_costs_by_its_size_and_by_the_bytes_of_the_target() -> None:
    """Drafting and small batches are bound by the bytes that are read, not by
    parameters.
    """

    def cost(draft: int, precision: str = "bf16") -> float:
        target = from_parameters(70 * 10**9, PRECISIONS[precision])
        question = replace(
            GOOD, target=target, draft=from_parameters(draft * 10**9, BF16)
        )
        return make_plan(question).outlook.rows[0].step_cost

    assert cost(1) < cost(8) < cost(8, "int4")


def test_a_mixture_of_experts_counts_by_what_a_token_reads() -> None:
    """Mixtral reads 12.9B of its 46.7B: a draft of 1B is one of 1:12.9, not 1:46.7."""
    mixtral = model(MIXTRAL)
    plan = planned(target=mixtral, draft=from_parameters(10**9, BF16))
    assert plan.outlook.profile == "draft_model 1:12.9"


# --- what the weights leave for keys and values


DRAFT = from_parameters(8 * 10**9, BF16)


def reckon(
    target: Model,
    draft: Model | None,
    gpus: Gpus,
    load: PlannedLoad = PlannedLoad(),  # noqa: B008 - frozen
    method: str = "draft_model",
) -> Memory:
    return account(
        Question(METHODS[method], target, draft, gpus, kv_precision=BF16, load=load)
    )


def test_a_draft_model_caches_keys_and_values_of_its_own() -> None:
    """Llama-3.1 in BF16: 327,680 bytes a token for the 70B, 131,072 more for the 8B."""
    memory = reckon(
        model(LLAMA_70B), model(LLAMA_8B), Gpus(2, 141e9, 0.9), PlannedLoad(8192, 32)
    )
    assert memory.before.kv_bytes_per_token == 327_680
    assert memory.after.kv_bytes_per_token == 327_680 + 131_072
    assert memory.draft_kv_known
    assert memory.before.tokens == int(memory.before.kv_budget_bytes // 327_680)
    assert memory.before.requests == memory.before.tokens // 8192 == 41
    assert memory.after.requests == 25
    assert memory.before.fits is True
    assert memory.after.fits is False


def test_an_eagle_head_caches_one_layer_of_the_target() -> None:
    target = model(LLAMA_70B)
    head = estimate_head(METHODS["eagle"], target, BF16, 3)
    memory = reckon(target, head, Gpus(2, 141e9, 0.9), method="eagle")
    assert memory.after.kv_bytes_per_token == memory.before.kv_bytes_per_token * 81 / 80


def test_what_is_not_known_stays_unknown() -> None:
    """Without dimensions there are no tokens; without the heads' size no room after."""
    memory = reckon(
        T70, None, Gpus(2, 141e9, 0.9), PlannedLoad(8192, 32), method="eagle"
    )
    assert memory.after is None
    assert memory.draft_weights_bytes is None
    assert memory.draft_share is None
    assert memory.before.tokens is None
    assert memory.before.fits is None


def test_a_drafts_cache_of_unknown_size_is_said_to_be_missing() -> None:
    memory = reckon(model(LLAMA_70B), DRAFT, Gpus(2, 141e9, 0.9))
    assert not memory.draft_kv_known
    assert memory.after.kv_bytes_per_token == memory.before.kv_bytes_per_token


@given(
    batch=st.integers(1, 500),
    context=st.integers(1, 100_000),
    memory=st.floats(17e9, 3e11),
)
def test_a_batch_fits_if_and_only_if_its_tokens_do(
    batch: int, context: int, memory: float
) -> None:
    budget = reckon(
        model(LLAMA_8B),
        None,
        Gpus(1, memory, 0.9),
        PlannedLoad(context, batch),
        method="ngram",
    ).before
    assert budget.fits == (budget.tokens >= batch * context)
    if budget.requests >= batch:
        assert budget.fits


def test_heads_of_unknown_size_are_estimated_and_say_so() -> None:
    """Where there is nothing to go by there is no estimate."""
    for method, share in {
        "eagle": 0.035,
        "eagle3": 0.053,
        "mtp": 0.021,
        "medusa": 3 * 0.022,
    }.items():
        head = estimate_head(METHODS[method], T70, BF16, 3)
        assert head.parameters == pytest.approx(share * 70e9), method
        assert head.estimated, method
        assert "estimated (" in head.source, method
    for method in ("mlp_speculator", "ngram", "draft_model"):
        assert estimate_head(METHODS[method], T70, BF16, 3) is None, method
