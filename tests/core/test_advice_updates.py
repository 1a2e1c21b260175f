"""What is given to paste, and when nothing is."""

import pytest

from economics.servers import expected, judged, settings_for, survival_of
from support.copies import replace
from support.messages import name_of, values_of
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.cost import (
    Basis,
    CostProfile,
    DraftCost,
    TargetCost,
)
from vllm_specdec_exporter.economics.profiles import BUILTIN, for_method
from vllm_specdec_exporter.economics.speculative_config import Speculation
from vllm_specdec_exporter.engines import ENGINE_OF, ENGINES, Engine
from vllm_specdec_exporter.engines.reading import Counters
from vllm_specdec_exporter.judgement.activity import Activity, ActivityState
from vllm_specdec_exporter.judgement.advice import Action, how_to_start
from vllm_specdec_exporter.judgement.advising import CurrentAdvice, update_advice
from vllm_specdec_exporter.judgement.case import Case
from vllm_specdec_exporter.judgement.findings import Verdicts, find, of_payoff
from vllm_specdec_exporter.judgement.hysteresis import AdvisedK, HysteresisState
from vllm_specdec_exporter.judgement.payoff import Payoff, PayoffVerdict
from vllm_specdec_exporter.judgement.quality import Quality, QualityLevel

SPECULATION = Speculation(
    True,
    "eagle3",
    draft_model="",
    num_speculative_tokens=4,
    document='{"method": "eagle3", "num_speculative_tokens": 4}',
)
DRAFTS = 5_000.0
VLLM, APHRODITE, SGLANG, LLAMACPP = (
    ENGINE_OF[name] for name in ("vllm-v1", "aphrodite", "sglang", "llamacpp")
)


def case(*conditional: float, batch: float = 8.0, drafts: float = DRAFTS) -> Case:
    """What advice is drawn from after a window of drafts with this acceptance."""
    positions = expected(survival_of(conditional), drafts)
    settings = settings_for(for_method("eagle3"), "eagle3", len(conditional))
    result = judged(settings, positions, drafts, batch)
    return Case(
        activity=Activity(ActivityState.ACTIVE, ""),
        measures=result.window(result.judged_window),
        counters=Counters(
            drafts, drafts * len(conditional), sum(positions), tuple(positions)
        ),
        k=len(conditional),
        method="eagle3",
        profile=for_method("eagle3"),
        thresholds=Thresholds(),
        engine=VLLM,
        speculation=SPECULATION,
    )


def counsel(situation: Case) -> CurrentAdvice:
    return update_advice(CurrentAdvice(), situation, 300.0, 300.0)


#: Each token of a batch costs, so that no draft pays in a large one.
LOADED = CostProfile(
    "loaded", TargetCost(1.0, per_token=0.01), DraftCost(fixed=0.05, per_position=0.02)
)
STEADY = (0.9, 0.8, 0.7, 0.55)
SHALLOW = (0.9, 0.7, 0.1, 0.1)
RISING = (0.95, 0.95, 0.95, 0.95)


def test_a_schedule_is_given_with_the_advised_k_at_the_present_load() -> None:
    """What is to be pasted by batch size says the same of the present batch as the
    advice.
    """
    for conditional in (STEADY, SHALLOW):
        advice = counsel(case(*conditional)).advice
        here = next(row for row in advice.schedule if row.first <= 8 <= row.last)

        assert here.num_speculative_tokens == advice.num_speculative_tokens, conditional

    few = counsel(case(0.9, 0.8, 0.6, 0.6, drafts=500.0)).advice
    assert (few.action, few.schedule, few.schedule_config) == (Action.KEEP, (), "")
    assert name_of(few.schedule_note) == "no_schedule.another_here"


def test_engines_of_one_model_get_no_schedule() -> None:
    """VLLM ignores a schedule with data parallelism, so none is offered, and the reason
    is.
    """
    advice = counsel(replace(case(*SHALLOW), engines=2)).advice

    assert (advice.schedule, advice.schedule_config) == ((), "")
    assert name_of(advice.schedule_note) == "no_schedule.data_parallel"
    assert (
        advice.speculative_config == '{"method": "eagle3", "num_speculative_tokens": 2}'
    )


def test_a_larger_k_comes_before_a_schedule() -> None:
    """A schedule can only hold K up to the present one, and would undo the advice to
    raise it.
    """
    advice = counsel(case(*RISING)).advice

    assert advice.action is Action.INCREASE_K
    assert (advice.schedule, advice.schedule_config) == ((), "")
    assert name_of(advice.schedule_note) == "no_schedule.larger_k_first"
    assert "--speculative-adaptive" not in how_to_start(
        replace(case(*RISING), profile=LOADED, engine=SGLANG), advice
    )


def test_a_schedule_is_kept_for_a_part_of_the_window() -> None:
    """Rows that move with every poll could not be copied."""
    standing = counsel(case(*SHALLOW))
    loaded = replace(case(*SHALLOW), profile=LOADED)
    soon, later = (
        update_advice(standing, loaded, 300.0 + seconds, 300.0).advice
        for seconds in (1.0, 300.0)
    )

    assert (
        standing.advice.num_speculative_tokens
        == soon.num_speculative_tokens
        == later.num_speculative_tokens
    )
    assert (len(standing.advice.schedule), len(soon.schedule)) == (1, 1)
    assert len(later.schedule) > 1


def test_a_smaller_k_that_is_held_is_not_said_to_gain() -> None:
    """By the numbers beside it, the present K is a little faster, which the sample does
    not make sure.
    """
    standing = CurrentAdvice(state=HysteresisState(AdvisedK(3)), k=4)
    held, gains = (
        update_advice(standing, case(0.9, 0.8, 0.7, x), 300.0, 300.0).advice
        for x in (0.7, 0.3)
    )
    assert values_of(held.reason)["because"] == ""
    assert name_of(values_of(held.reason)["doubt"]) == "advice.none_surely_better"
    assert name_of(values_of(gains.reason)["because"]) == "advice.too_deep"
    assert values_of(gains.reason)["k"] == 3


def test_advice_begins_anew_with_another_k() -> None:
    """Which an adaptive server chooses without a restart: what was advised of the old K
    is not held.

    So it is with one that a K schedule kept at K=1 in the whole window before.
    """
    for with_old_k, with_new_k in (
        (case(*SHALLOW), case(*(0.95,) * 8)),
        (replace(case(0.9), k=4), case(*STEADY)),
    ):
        updated = update_advice(counsel(with_old_k), with_new_k, 301.0, 300.0)
        assert updated == update_advice(CurrentAdvice(), with_new_k, 301.0, 300.0), (
            f"K={with_new_k.k}"
        )


def test_sglang_gets_a_schedule_with_the_advised_k_for_methods_that_take_one() -> None:
    """Others ignore it. 0.5.13 does not start unless K is among the steps, and takes
    none of 0.
    """
    loaded = replace(case(*SHALLOW), profile=LOADED, engine=SGLANG)
    advice = counsel(loaded).advice
    k = advice.num_speculative_tokens
    offered = how_to_start(loaded, advice)
    assert f"--speculative-num-steps {k} " in offered
    assert f'{{"1": {{"candidate_steps": [{k}]}}, ' in offered
    assert offered.endswith('{"candidate_steps": [0]}} (0 needs 0.5.14 or later).')

    alone = how_to_start(loaded, replace(advice, num_speculative_tokens=9))
    for text in (
        alone,
        *(how_to_start(replace(loaded, method=m), advice) for m in ("draft_model", "")),
    ):
        assert "--speculative-num-steps" in text, text
        assert "--speculative-adaptive" not in text, text


@pytest.mark.parametrize(
    ("engine", "bypassed", "unknown"),
    [
        (
            VLLM,
            "a K schedule whose row for this batch size is 0",
            "Give the JSON of vLLM's --speculative",
        ),
        (
            SGLANG,
            "a batch size for which --speculative-adaptive has 0 steps",
            "Set --spec.server-info true",
        ),
        (
            APHRODITE,
            "a K schedule",
            "Give the JSON of Aphrodite's --speculative-config as --spec.config",
        ),
        (LLAMACPP, "a K schedule", "Give the method as --spec.config, as in {"),
    ],
)
def test_hints_are_in_the_words_of_the_server(
    engine: Engine, bypassed: str, unknown: str
) -> None:
    """What to look for if it drafts nothing, and how to tell the method if it is not
    known.
    """
    unnamed = replace(
        case(*STEADY), engine=engine, method="", profile=BUILTIN["unknown"]
    )
    payoff = Payoff(PayoffVerdict.BENEFICIAL, 1.5, basis=Basis.MODELLED)
    none = replace(unnamed, speculation=Speculation())
    for each, start in ((none, unknown), (unnamed, "Add the method to --spec.config")):
        hints = find(each, Verdicts(Quality(QualityLevel.HEALTHY), payoff))
        actions = [hint.action for hint in hints if "method is not known" in hint.text]
        assert [action.startswith(start) for action in actions] == [True], (
            each.speculation
        )

    paused = Activity(ActivityState.BYPASSED, "")
    (problem,) = find(replace(none, activity=paused, measures=None))
    assert f"Look for {bypassed}" in problem.action
    assert ("suffix" in problem.action) == (engine is not SGLANG)


#: How each engine is started with two tokens of EAGLE-3, as its documentation has it.
EAGLE3_WITH_K_2 = {
    "vLLM": (
        '--speculative-config \'{"method": "eagle3", "num_speculative_tokens": 2}\''
    ),
    "Aphrodite": (
        '--speculative-config \'{"method": "eagle3", "num_speculative_tokens": 2}\''
    ),
    "SGLang": (
        "--speculative-algorithm EAGLE3 --speculative-num-steps 2 "
        "--speculative-eagle-topk 1 --speculative-num-draft-tokens 3"
    ),
    "LMDeploy": "--speculative-algorithm eagle3 --speculative-num-draft-tokens 2",
    "TensorRT-LLM": "max_draft_len: 2 in its speculative_config",
    "llama.cpp": "--spec-type draft-eagle3 --spec-draft-n-max 2",
}


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_each_engine_is_told_its_own_option(engine: Engine) -> None:
    """To switch speculation on, to change K, and to switch it off. Only vLLM has its K
    schedule; whether a fork has it is not known.
    """
    situation = replace(case(*SHALLOW), engine=engine)
    advice = counsel(situation).advice
    assert bool(advice.speculative_config) is engine.takes_config
    if engine is not VLLM:
        assert advice.schedule_config == ""
        assert advice.schedule == ()
    if engine is APHRODITE:
        assert name_of(advice.schedule_note) == "no_schedule.not_vllm"
    pays = Payoff(PayoffVerdict.BENEFICIAL, 1.5)
    loses = Payoff(PayoffVerdict.HARMFUL, 0.8, reasons=("why",))
    off = Activity(ActivityState.OFF, "why")
    assert advice.action is Action.DECREASE_K

    (switched_off,) = find(replace(situation, activity=off, measures=None))
    (another_k,) = of_payoff(situation, Verdicts(payoff=pays, advice=advice))
    disable = replace(advice, action=Action.DISABLE, num_speculative_tokens=0)
    (harmful,) = of_payoff(situation, Verdicts(payoff=loses, advice=disable))
    option = engine.speculation_option
    assert f"Start {engine.name} with {option} to use it" in switched_off.action
    assert f"({engine.name}: without {option})" in harmful.action
    option_of_k = engine.k_option.format(k=2, verified=3)
    assert option_of_k in another_k.action
    assert EAGLE3_WITH_K_2.get(engine.name, option_of_k) in another_k.action
    for action in (switched_off.action, another_k.action, harmful.action):
        assert ("--speculative-config" in action) is engine.takes_config, action
