"""Quality, payoff, advice and the published rules, looked at together: where they differ, it is explained."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from economics.servers import expected, judged, settings_for, survival_of
from vllm_specdec_exporter.economics import BUILTIN, for_method
from vllm_specdec_exporter.judgement.advice import Action
from vllm_specdec_exporter.judgement.finding import Severity
from vllm_specdec_exporter.judgement.payoff import PayoffVerdict
from vllm_specdec_exporter.judgement.quality import QualityLevel
from vllm_specdec_exporter.judgement.rules import DISABLE, LOWER_K, RAISE_K
from vllm_specdec_exporter.thresholds import Thresholds

if TYPE_CHECKING:
    from vllm_specdec_exporter.result import EngineResult

DRAFTS = 10_000

#: Every method that has a profile, and none.
METHODS = sorted({method for profile in BUILTIN.values() for method in profile.methods} | {""})
BATCHES = (1, 8, 64, 256)
KS = (1, 3, 5, 8)
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


def situations() -> list[tuple[str, EngineResult]]:
    """Every method at every batch size, K and shape of acceptance, with drafts that are full or vary."""
    found = []
    for method, batch, k, shape, full in product(METHODS, BATCHES, KS, SHAPES, (1.0, 0.8)):
        positions = expected(survival_of(SHAPES[shape][:k]), DRAFTS)
        tokens = max(sum(positions), DRAFTS * k * full)
        settings = settings_for(for_method(method), method, k)
        result = judged(settings, positions, DRAFTS, batch, tokens)
        name = f"{method or 'unknown'} batch {batch} K={k} {shape} drafts {full:.0%} full"
        found.append((name, result))
    return found


@pytest.fixture(scope="module")
def results() -> list[tuple[str, EngineResult]]:
    return situations()


Results = list[tuple[str, "EngineResult"]]


class TestEverySituation:
    def test_the_grid_holds_what_it_is_for(self, results: Results) -> None:
        """Every verdict, level and action that full data can give occurs, and so does every contradiction."""
        assert {r.payoff.verdict for _, r in results} == set(PayoffVerdict)
        assert {r.quality.level for _, r in results} == set(QualityLevel)
        assert {r.advice.action for _, r in results} == set(Action)
        pairs = {(r.quality.level, r.payoff.verdict) for _, r in results}
        assert (QualityLevel.POOR, PayoffVerdict.BENEFICIAL) in pairs
        assert (QualityLevel.OPTIMAL, PayoffVerdict.HARMFUL) in pairs

    def test_poor_acceptance_that_pays_is_explained(self, results: Results) -> None:
        """Poor by the rubric and not harmful: a finding says why both hold."""
        unexplained = [
            name
            for name, r in results
            if r.quality.level is QualityLevel.POOR
            and r.payoff.verdict in (PayoffVerdict.MARGINAL, PayoffVerdict.BENEFICIAL)
            and not any(
                f.text.startswith("acceptance is poor by the thresholds") and f.action.startswith("Both hold")
                for f in r.findings
            )
        ]
        assert unexplained == []

    def test_good_acceptance_that_loses_is_explained(self, results: Results) -> None:
        """Healthy or optimal by the rubric and harmful: a finding says why both hold."""
        unexplained = [
            name
            for name, r in results
            if r.quality.level in (QualityLevel.HEALTHY, QualityLevel.OPTIMAL)
            and r.payoff.verdict is PayoffVerdict.HARMFUL
            and not any(
                f.text.startswith(f"acceptance is {r.quality.level}, and speculation loses all the same")
                and f.action.startswith("Both hold")
                for f in r.findings
            )
        ]
        assert unexplained == []

    def test_no_contradiction_is_explained_where_there_is_none(self, results: Results) -> None:
        """Where judgements agree, nothing says that both hold."""
        wrong = [
            name
            for name, r in results
            if any(f.action.startswith("Both hold") for f in r.findings)
            and not (
                (r.quality.level is QualityLevel.POOR and r.payoff.verdict is not PayoffVerdict.HARMFUL)
                or (
                    r.quality.level in (QualityLevel.HEALTHY, QualityLevel.OPTIMAL)
                    and r.payoff.verdict is PayoffVerdict.HARMFUL
                )
            )
        ]
        assert wrong == []

    def test_what_is_beneficial_is_not_to_be_switched_off(self, results: Results) -> None:
        """Beneficial and disable never stand side by side."""
        wrong = [
            name
            for name, r in results
            if r.payoff.verdict is PayoffVerdict.BENEFICIAL and r.advice.action is Action.DISABLE
        ]
        assert wrong == []

    def test_nothing_is_switched_off_while_a_smaller_k_pays(self, results: Results) -> None:
        """Advice to disable says that no K pays, so no option beside it does, nor any row."""
        wrong = []
        for name, r in results:
            window = r.window("5m")
            assert window is not None
            batch = window.estimate.batch_size
            assert batch is not None
            if r.advice.action is not Action.DISABLE:
                continue
            scheduled = [
                row.num_speculative_tokens for row in r.advice.schedule if row.first <= batch <= row.last
            ]
            if scheduled != [0] or any(option.speedup_low > 1 for option in r.advice.options[1:]):
                wrong.append(f"{name}: {r.advice.reason}; scheduled K {scheduled}")
        assert wrong == []

    def test_harm_is_a_problem(self, results: Results) -> None:
        """Whatever its quality, speculation that loses is a problem, and the gravest finding says so."""
        wrong = [
            name
            for name, r in results
            if r.payoff.verdict is PayoffVerdict.HARMFUL
            and not (
                r.findings[0].severity is Severity.PROBLEM
                and r.findings[0].text.startswith("speculation costs more than it gains")
            )
        ]
        assert wrong == []

    def test_what_pays_is_no_problem(self, results: Results) -> None:
        """Where speculation does not lose, no finding is graver than a hint."""
        wrong = [
            name
            for name, r in results
            if r.payoff.verdict in (PayoffVerdict.MARGINAL, PayoffVerdict.BENEFICIAL)
            and any(f.severity is Severity.PROBLEM for f in r.findings)
        ]
        assert wrong == []

    def test_what_is_advised_is_told(self, results: Results) -> None:
        """A change of K is among the findings, with the reason that the advice has."""
        silent = [
            name
            for name, r in results
            if r.advice.action in (Action.INCREASE_K, Action.DECREASE_K, Action.SWITCH_METHOD, Action.DISABLE)
            and not any(
                r.advice.reason.lower() in f"{f.text} {f.action}".lower()
                or f.action.startswith("Start the server without speculation")
                for f in r.findings
            )
        ]
        assert silent == []

    def test_rules_that_say_otherwise_stand_beside_the_advice(self, results: Results) -> None:
        """Where a published rule says something else than advice, it is listed with its numbers.

        Advice then has a reason of its own, which speaks of what the rule does not see: time, or noise.
        """
        same = {DISABLE: (Action.DISABLE,), RAISE_K: (Action.INCREASE_K,), LOWER_K: (Action.DECREASE_K,)}
        unexplained = []
        for name, r in results:
            differing = [
                rule
                for rule in r.advice.rules
                if rule.says in same and r.advice.action not in same[rule.says]
            ]
            if not differing:
                continue
            told = all(any(c.isdigit() for c in rule.text) for rule in differing)
            reasoned = "times as fast" in r.advice.reason or "no advice on K" in r.advice.reason
            if not (told and reasoned):
                unexplained.append(name)
        assert unexplained == []

    def test_every_rule_is_applied(self, results: Results) -> None:
        """Advice always lists what the rules say; those on deep positions only where drafts are full."""
        full = {"last_position", "marginal_benefit", "mean_acceptance_length", "acceptance_ratio"}
        for name, r in results:
            names = {rule.name for rule in r.advice.rules}
            varying = r.window("5m").drafts_vary  # type: ignore[union-attr]
            assert names == (full - {"last_position", "marginal_benefit"} if varying else full), name

    def test_the_action_is_that_of_k(self, results: Results) -> None:
        """The action says which way from the present K, and a K is there unless nothing can be said."""
        for name, r in results:
            k, present = r.advice.num_speculative_tokens, r.num_speculative_tokens
            assert present is not None
            match r.advice.action:
                case Action.INSUFFICIENT_DATA:
                    assert k is None, name
                case Action.DISABLE:
                    assert k == 0, name
                case Action.KEEP:
                    assert k == present, name
                case Action.INCREASE_K:
                    assert k is not None and k > present, name  # noqa: PT018
                case Action.DECREASE_K:
                    assert k is not None and 0 < k < present, name  # noqa: PT018
                case Action.SWITCH_METHOD:
                    assert k is not None and k > 0, name  # noqa: PT018


#: Five drafted tokens of which 45 % are accepted: 3.25 tokens a draft.
LENGTH_3_25 = (0.75, 0.60, 0.45, 0.28, 0.17)


class TestCheapAndUnknown:
    def counters(self) -> tuple[float, ...]:
        return expected(LENGTH_3_25, DRAFTS)

    def test_eagle_at_an_acceptance_of_0_45(self) -> None:
        """Five tokens at 0.45 are no poor acceptance for EAGLE, and pay."""
        result = judged(settings_for(for_method("eagle"), "eagle", 5), self.counters(), DRAFTS)
        window = result.window("5m")

        assert window is not None
        assert (window.acceptance_ratio, window.mean_acceptance_length) == pytest.approx((0.45, 3.25))
        assert result.quality.level is not QualityLevel.POOR
        assert result.payoff.verdict is PayoffVerdict.BENEFICIAL
        assert result.payoff.speedup == pytest.approx(3.25 / 1.61, rel=0.01)

    def test_an_unknown_method_is_judged_by_the_published_numbers(self) -> None:
        """The same counters without a method: neither poor nor healthy, and a rule says to disable."""
        settings = settings_for(for_method(""), "", 5)
        result = judged(settings, self.counters(), DRAFTS)
        rules = {rule.name: rule.says for rule in result.advice.rules}

        assert settings.thresholds == Thresholds()
        assert settings.profile == BUILTIN["unknown"]
        assert rules["acceptance_ratio"] == DISABLE
        by_name = {(c.measure, c.level): c.met for c in result.quality.criteria}
        assert by_name["acceptance_ratio", QualityLevel.POOR] is False
        assert by_name["acceptance_ratio", QualityLevel.HEALTHY] is False
        assert result.quality.level is QualityLevel.FAIR

    def test_a_poor_unknown_method_is_still_poor(self) -> None:
        """Below 0.40 the published rubric says poor, for the same counters that EAGLE is fine with."""
        positions = tuple(count * 0.85 for count in self.counters())
        unknown = judged(settings_for(for_method(""), "", 5), positions, DRAFTS)
        eagle = judged(settings_for(for_method("eagle"), "eagle", 5), positions, DRAFTS)

        assert unknown.quality.level is QualityLevel.POOR
        assert eagle.quality.level is not QualityLevel.POOR
