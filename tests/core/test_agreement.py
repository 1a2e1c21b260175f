"""Quality, payoff, advice and the published rules, looked at together: where they
differ, it is explained.
"""

import re
from collections.abc import Callable
from itertools import product

import pytest

from economics.servers import expected, judged, settings_for, survival_of
from support.messages import name_of, values_of
from vllm_specdec_exporter.economics.cost import Basis
from vllm_specdec_exporter.economics.profiles import BUILTIN, for_method
from vllm_specdec_exporter.economics.speculative_config import drafts_without_model
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.judgement.findings import Finding, Severity
from vllm_specdec_exporter.judgement.payoff import PayoffVerdict
from vllm_specdec_exporter.judgement.published_rules import DISABLE, LOWER_K, RAISE_K
from vllm_specdec_exporter.judgement.quality import QualityLevel
from vllm_specdec_exporter.observe.result import EngineResult

DRAFTS = 10_000

#: One method of each profile, and none.
METHODS = [*(profile.methods[0] for profile in BUILTIN.values() if profile.methods), ""]
SHAPES = {
    "nothing": (0.0,) * 8,
    "hopeless": (0.1,) * 8,
    "poor": (0.45, 0.4, 0.35, *(0.3,) * 5),
    "first only": (0.9, *(0.1,) * 7),
    "steep": (0.8, 0.6, 0.5, 0.4, *(0.3,) * 4),
    "half": (0.5,) * 8,
    "good": (0.8,) * 8,
    "very good": (0.95,) * 8,
    "all": (1.0,) * 8,
}


@pytest.fixture(scope="module")
def results() -> dict[str, EngineResult]:
    """Every profile at every batch size, K and shape of acceptance."""
    by_situation = {}
    # Drafts that are not full speak for any basis: one of the two is enough.
    kinds = ((Basis.CALIBRATED, 1.0), (Basis.CALIBRATED, 0.8), (Basis.MODELLED, 1.0))
    loads = product((1, 256), (1, 5))
    for method, (batch, k), shape, (basis, full) in product(
        METHODS, loads, SHAPES, kinds
    ):
        positions = expected(survival_of(SHAPES[shape][:k]), DRAFTS)
        tokens = max(sum(positions), DRAFTS * k * full)
        settings = settings_for(for_method(method), method, k, basis)
        name = (
            f"{method or 'unknown'} batch {batch} K={k} {shape} {basis} drafts "
            f"{full:.0%} full"
        )
        by_situation[name] = judged(
            settings, positions, drafts=DRAFTS, batch=batch, draft_tokens=tokens
        )
    return by_situation


def test_the_grid_holds_what_it_is_for(results: dict[str, EngineResult]) -> None:
    """Every verdict, level and action that full data can give occurs, and so does every
    contradiction.
    """
    assert {r.payoff.verdict for r in results.values()} == set(PayoffVerdict)
    assert {r.quality.level for r in results.values()} == set(QualityLevel)
    assert {r.advice.action for r in results.values()} == set(Action)
    pairs = {(r.quality.level, r.payoff.verdict) for r in results.values()}
    assert (QualityLevel.POOR, PayoffVerdict.BENEFICIAL) in pairs
    assert (QualityLevel.OPTIMAL, PayoffVerdict.HARMFUL) in pairs


def loses(r: EngineResult) -> bool:
    return r.payoff.verdict is PayoffVerdict.HARMFUL


def pays(r: EngineResult) -> bool:
    return r.payoff.verdict in (PayoffVerdict.MARGINAL, PayoffVerdict.BENEFICIAL)


def contradicts(r: EngineResult) -> str:
    """The finding that says why two judgements both hold; empty where they agree."""
    if r.quality.level is QualityLevel.POOR and pays(r):
        return "poor_but_pays"
    if r.quality.level in (QualityLevel.HEALTHY, QualityLevel.OPTIMAL) and loses(r):
        return "good_but_loses"
    return ""


def named(finding: Finding) -> str:
    return name_of(finding.text).removeprefix("finding.").removesuffix(".text")


def explanations_fit(r: EngineResult) -> bool:
    """Poor acceptance that pays, and good acceptance that loses, are explained; nothing
    else is.
    """
    explained = {"poor_but_pays", "good_but_loses"} & set(map(named, r.findings))
    return explained == {contradicts(r)} - {""}


def no_k_pays_where_it_is_to_be_switched_off(r: EngineResult) -> bool:
    """No option beside 0 does, nor any row; and what is beneficial is never to be
    switched off.

    With a draft model there is no row: K=0 would still cost its first pass.
    """
    if r.advice.action is not Action.DISABLE:
        return True
    window = r.window("5m")
    batch = window.estimate.batch_size
    scheduled = [
        row.num_speculative_tokens
        for row in r.advice.schedule
        if row.first <= batch <= row.last
    ]
    expected = []
    if drafts_without_model(r.deployment.method):
        expected = [0]
    return (
        scheduled == expected
        and all(option.speedup_low <= 1 for option in r.advice.options[1:])
        and r.payoff.verdict is not PayoffVerdict.BENEFICIAL
    )


def harm_alone_is_a_problem(r: EngineResult) -> bool:
    """Whatever its quality: the gravest finding says so.

    Where nothing is lost there is but a hint.
    """
    if pays(r):
        return not any(f.severity is Severity.PROBLEM for f in r.findings)
    first = r.findings[0]
    said = (first.severity, named(first)) == (Severity.PROBLEM, "harmful")
    return said or not loses(r)


def no_verdict_of_a_model_leads_to_nothing(r: EngineResult) -> bool:
    """No advice, and no problem but those of acceptance and a likely loss, if a model
    cannot decide.
    """
    if (
        r.payoff.verdict is not PayoffVerdict.UNKNOWN
        or r.payoff.basis is not Basis.MODELLED
    ):
        return r.payoff.verdict is not PayoffVerdict.UNKNOWN or r.payoff.speedup is None
    problems = [f for f in r.findings if f.severity is Severity.PROBLEM]
    allowed = {"first_position", "decay", "last_positions", "poor", "likely_harmful"}
    advice = r.advice
    return (
        {named(f) for f in problems} <= allowed
        and (advice.action, advice.num_speculative_tokens)
        == (Action.INSUFFICIENT_DATA, None)
        and not (advice.speculative_config or advice.schedule or advice.options)
        and r.payoff.speedup is None
    )


def advice_is_told(r: EngineResult) -> bool:
    """A change of K is among the findings, with the reason that the advice has."""
    if r.advice.action in (Action.KEEP, Action.INSUFFICIENT_DATA):
        return True
    without = ("remedy.without", "remedy.without_or_schedule")
    for finding in r.findings:
        remedy = values_of(finding.action).get("action")
        if name_of(remedy) == "remedy.otherwise":  # behind a setting to try first
            remedy = values_of(remedy)["remedy"]
        said = f"{finding.text} {finding.action}".lower()
        if r.advice.reason.lower() in said or name_of(remedy) in without:
            return True
    return False


def rules_that_say_otherwise_stand_beside_the_advice(r: EngineResult) -> bool:
    """With their numbers; advice then speaks of what the rule does not see: time, or
    noise.
    """
    same = {
        DISABLE: Action.DISABLE,
        RAISE_K: Action.INCREASE_K,
        LOWER_K: Action.DECREASE_K,
    }
    differing = [
        rule
        for rule in r.advice.rules
        if r.advice.action is not same.get(rule.says, r.advice.action)
    ]
    numbered = all(re.search(r"\d", rule.text) for rule in differing)
    table = name_of(r.advice.reason).partition(".")[0]
    reasoned = table in ("advice", "no_advice")
    return not differing or (numbered and reasoned)


def every_rule_is_applied(r: EngineResult) -> bool:
    """Those on deep positions only where drafts are full."""
    deep = {"last_position", "marginal_benefit"}
    varying = r.window("5m").drafts_vary
    names = {"mean_acceptance_length", "acceptance_ratio"}
    if not varying:
        names |= deep
    return {rule.name for rule in r.advice.rules} == names


def the_action_is_that_of_k(r: EngineResult) -> bool:
    """It says which way from the present K, and a K is there unless nothing can be
    said.
    """
    k = r.advice.num_speculative_tokens
    present = r.num_speculative_tokens
    if k is None or present is None:
        return k is None and r.advice.action is Action.INSUFFICIENT_DATA
    return {
        Action.DISABLE: k == 0,
        Action.KEEP: k == present,
        Action.INCREASE_K: k > present,
        Action.DECREASE_K: 0 < k < present,
        Action.SWITCH_METHOD: k > 0,
    }[r.advice.action]


@pytest.mark.parametrize(
    "law",
    [
        explanations_fit,
        no_k_pays_where_it_is_to_be_switched_off,
        harm_alone_is_a_problem,
        no_verdict_of_a_model_leads_to_nothing,
        advice_is_told,
        rules_that_say_otherwise_stand_beside_the_advice,
        every_rule_is_applied,
        the_action_is_that_of_k,
    ],
)
def test_in_every_situation(
    law: Callable[[EngineResult], bool], results: dict[str, EngineResult]
) -> None:
    assert [name for name, result in results.items() if not law(result)] == []
