"""Payoff and advice: the verdicts at their edges, how advice stands, and what is to be
pasted.
"""

import json
import re
from itertools import pairwise
from random import Random

import pytest

from economics.servers import Server, drawn, expected, judged, settings_for, survival_of
from support.copies import replace
from support.messages import name_of, values_of
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.baseline_match import Measured
from vllm_specdec_exporter.economics.cost import (
    Basis,
    CostProfile,
    DraftCost,
    TargetCost,
)
from vllm_specdec_exporter.economics.hardware import parse_machine
from vllm_specdec_exporter.economics.model_names import parse_model
from vllm_specdec_exporter.economics.profiles import (
    Hardware,
    for_method,
    hardware_profile,
)
from vllm_specdec_exporter.economics.speculative_config import ScheduleRow, Speculation
from vllm_specdec_exporter.economics.speedup import (
    Estimate,
    estimate,
    speedup_of_all_tokens,
)
from vllm_specdec_exporter.economics.statistics import Interval
from vllm_specdec_exporter.engines import ENGINE_OF
from vllm_specdec_exporter.engines.reading import Counters
from vllm_specdec_exporter.judgement.activity import Activity, ActivityState
from vllm_specdec_exporter.judgement.advice import Action, Advice
from vllm_specdec_exporter.judgement.advising import CurrentAdvice
from vllm_specdec_exporter.judgement.case import Case
from vllm_specdec_exporter.judgement.explanation import explain_payoff
from vllm_specdec_exporter.judgement.findings import Verdicts
from vllm_specdec_exporter.judgement.hysteresis import (
    AdvisedK,
    Evidence,
    HysteresisState,
    PendingChange,
    apply_hysteresis,
)
from vllm_specdec_exporter.judgement.judge import explain, judge_engine
from vllm_specdec_exporter.judgement.payoff import (
    Payoff,
    PayoffVerdict,
    correction,
    estimate_contradicted,
    judge_payoff,
    loss_probability,
)
from vllm_specdec_exporter.measures.measures import Measures
from vllm_specdec_exporter.observe.result import EngineResult
from vllm_specdec_exporter.publish.wording import to_do

EAGLE = for_method("eagle")


def measures(
    speedup: float | None,
    basis: Basis = Basis.CALIBRATED,
    *,
    length: float = 2.0,
    **more: object,
) -> Measures:
    """A window whose speedup is estimated like this."""
    window = Measures(
        window="5m", mean_acceptance_length=length, mean_draft_length=3.0, **more
    )
    if speedup is None:
        return window
    return replace(
        window,
        estimate=Estimate(
            speedup,
            speedup * 0.8,
            speedup * 1.25,
            step_cost=length / speedup,
            batch_size=4.0,
            basis=basis,
        ),
    )


def case_of(window: Measures, profile: CostProfile = EAGLE) -> Case:
    """An active engine with this window."""
    return Case(
        activity=Activity(ActivityState.ACTIVE),
        measures=window,
        counters=Counters(),
        k=None,
        method="eagle",
        profile=profile,
        thresholds=Thresholds(),
        engine=ENGINE_OF["vllm-v1"],
    )


def payoff_of(window: Measures) -> Payoff:
    return judge_payoff(window, Thresholds())


def with_measured(
    window: Measures, speedup: float, low: float | None, high: float | None
) -> Measures:
    """The same window, with a speedup that was measured against a baseline too."""
    return replace(window, measured=Measured(speedup, low, high, 100.0))


def explained(
    window: Measures, profile: CostProfile = EAGLE
) -> dict[str, dict[str, object]]:
    """The values of each message that explains the verdict of this window, by name."""
    reasons = explain_payoff(payoff_of(window), case_of(window, profile), window)
    return {name_of(reason): values_of(reason) for reason in reasons}


class TestPayoff:
    def test_where_harm_ends_and_benefit_begins(self) -> None:
        """Harmful below 1.0, beneficial above 1.2, marginal between; a loss that is
        shown as 1.00 is none.
        """
        harmful = PayoffVerdict.HARMFUL
        marginal = PayoffVerdict.MARGINAL
        beneficial = PayoffVerdict.BENEFICIAL
        edges = {
            0.994: harmful,
            0.998: marginal,
            1.002: marginal,
            1.2: marginal,
            1.200001: beneficial,
        }
        for speedup, verdict in edges.items():
            measured = Measured(speedup, speedup * 0.999, speedup * 1.001, 100.0)
            payoff = payoff_of(replace(measures(3.0), measured=measured))
            assert (payoff.verdict, payoff.speedup, payoff.basis) == (
                verdict,
                speedup,
                Basis.MEASURED,
            ), speedup

    @pytest.mark.parametrize("basis", Basis)
    def test_an_interval_that_includes_1(self, basis: Basis) -> None:
        """Whatever the basis, a speedup counts if its whole interval lies on one side
        of 1.
        """
        verdicts = {
            0.7: PayoffVerdict.HARMFUL,  # 0.56 to 0.88
            0.9: PayoffVerdict.UNKNOWN,
            1.1: PayoffVerdict.UNKNOWN,
            1.24: PayoffVerdict.UNKNOWN,  # 0.99 to 1.55
            1.3: PayoffVerdict.BENEFICIAL,
        }
        for speedup, verdict in verdicts.items():
            window = measures(speedup, basis)
            if basis is Basis.MEASURED:
                window = with_measured(window, speedup, speedup * 0.8, speedup * 1.25)
            payoff = payoff_of(window)
            shown = None
            if verdict is not PayoffVerdict.UNKNOWN:
                shown = speedup
            assert payoff.verdict is verdict, speedup
            assert payoff.speedup == shown, speedup
            assert payoff.speedup_low == speedup * 0.8, speedup
            assert payoff.speedup_high == speedup * 1.25, speedup
            assert payoff.basis is basis, speedup
            undecided = "payoff.includes_1" in explained(window)
            assert undecided is (shown is None), speedup

    def test_which_way_an_unknown_verdict_leans(self) -> None:
        """By the probability of a loss: of the normal distribution of the logarithm
        with this interval.
        """
        for speedup, loss, likely in (
            (0.9, 0.823, PayoffVerdict.HARMFUL),
            (1.0, 0.5, None),
            (1.1, 0.201, PayoffVerdict.BENEFICIAL),
        ):
            payoff = payoff_of(measures(speedup))
            assert payoff.loss_probability == pytest.approx(loss, abs=0.001), speedup
            assert (payoff.verdict, payoff.likely) == (PayoffVerdict.UNKNOWN, likely), (
                speedup
            )
        decided = payoff_of(measures(1.5))
        assert decided.loss_probability == pytest.approx(0.0002, abs=0.0001)
        assert decided.likely is None

    @pytest.mark.parametrize(
        ("low", "speedup", "high", "likely"),
        [
            # Said to be likely gains: a drafter whose length was 1.00, and one that
            # lost (0.68).
            (0.41, 1.3, 3.87, None),
            (0.70, 1.15, 1.31, None),
            # Twice as slow is within it, so nothing is likely.
            (0.5, 3.2, 20.0, None),
            (0.22, 0.66, 1.96, None),
            (0.95, 1.25, 1.60, PayoffVerdict.BENEFICIAL),
            (0.82, 1.6, 3.0, PayoffVerdict.BENEFICIAL),
            (0.60, 0.82, 1.08, PayoffVerdict.HARMFUL),
            (0.77, 0.9, 1.0, PayoffVerdict.HARMFUL),
            (0.1, 0.4, 1.1, PayoffVerdict.HARMFUL),
        ],
    )
    def test_a_direction_needs_an_interval_that_is_narrow_enough(
        self, low: float, speedup: float, high: float, likely: PayoffVerdict | None
    ) -> None:
        """It lies mostly on one side of 1, and reaches no large effect on the other."""
        payoff = payoff_of(with_measured(measures(None), speedup, low, high))
        assert (payoff.verdict, payoff.likely) == (PayoffVerdict.UNKNOWN, likely)
        if payoff.judged_speedup is not None:
            assert likely is PayoffVerdict.HARMFUL

    @pytest.mark.parametrize("covered", [None, 0.9, 0.97])
    def test_an_interval_that_ends_at_0_is_a_certain_loss(
        self, covered: float | None
    ) -> None:
        """Of a step whose cost has no end, logarithms of the speedup have none."""
        window = measures(1.0, Basis.MODELLED, coverage_ratio=covered)
        endless = replace(
            window.estimate, speedup=0.0, speedup_low=0.0, speedup_high=0.0
        )
        payoff = judge_payoff(replace(window, estimate=endless), Thresholds())
        assert payoff.verdict is PayoffVerdict.HARMFUL
        assert payoff.loss_probability == 1.0
        assert loss_probability(Interval(0.5, 0.0, 0.0)) == 1.0

    def test_an_end_that_is_not_known_is_the_speedup_itself(self) -> None:
        """In the verdict and in its explanation alike, of a measurement and of an
        estimate: an unknown end is not 0.
        """
        window = measures(1.5)
        estimate = replace(window.estimate, speedup_low=None, speedup_high=None)
        window = replace(
            window, estimate=estimate, measured=Measured(1.4, None, 1.6, 100.0)
        )
        payoff = judge_payoff(window, Thresholds())
        assert (payoff.speedup_low, payoff.speedup_high) == (1.4, 1.6)
        reasons = explained(window)
        measured = reasons["payoff.measured"]
        assert (measured["low"], measured["high"]) == ("1.40", "1.60")
        estimated = reasons["payoff.estimated"]
        assert (estimated["low"], estimated["high"]) == ("1.50", "1.50")

    @pytest.mark.parametrize("covered", [None, 0.9, 0.97])
    @pytest.mark.parametrize("speedup", [0.9, 1.9])
    def test_an_interval_that_begins_at_0_decides_nothing(
        self, speedup: float, covered: float | None
    ) -> None:
        """As of llama.cpp with several requests, whose cost has no upper end: no
        verdict, no direction.
        """
        window = measures(speedup, Basis.MODELLED, coverage_ratio=covered)
        window = replace(window, estimate=replace(window.estimate, speedup_low=0.0))
        payoff = payoff_of(window)
        assert payoff.verdict == PayoffVerdict.UNKNOWN
        assert payoff.likely is None
        assert payoff.speedup_low == 0.0
        assert payoff.loss_probability == 0.5

    @pytest.mark.parametrize("method", ["eagle3", ""])
    def test_near_break_even_a_model_without_the_hardware_decides_nothing(
        self, method: str
    ) -> None:
        """A third of first tokens accepted, six requests in the batch: 0.95 times, and
        neither way.
        """
        settings = settings_for(for_method(method), method, 4, Basis.MODELLED)
        positions = expected(survival_of((0.34, 0.6, 0.6, 0.5)), 25_000)
        payoff = judged(settings, positions, 25_000, 6.0).payoff
        assert (payoff.verdict, payoff.likely) == (PayoffVerdict.UNKNOWN, None)
        assert payoff.speedup_low < 0.7 < 1.4 < payoff.speedup_high

    @pytest.mark.parametrize("of_profile", [Basis.CALIBRATED, Basis.MODELLED])
    @pytest.mark.parametrize("of_step", [Basis.MODELLED, Basis.OBSERVED])
    def test_what_is_extrapolated(self, of_profile: Basis, of_step: Basis) -> None:
        """A modelled step, beyond the batches of a calibration; not one that is
        observed.
        """
        profile = replace(EAGLE, basis=of_profile, batches=(1.0, 8.0))
        said = explained(measures(1.5, of_step), profile).get("payoff.calibrated")
        calibrated = of_profile is Basis.CALIBRATED and of_step is Basis.MODELLED
        assert (said is not None) is calibrated
        assert said is None or said["batches"] == (1.0, 8.0)

    def test_an_end_at_exactly_1_decides_nothing(self) -> None:
        """A drafter that accepts nothing is never faster, and perhaps no slower."""
        window = measures(0.9)
        payoff = payoff_of(
            replace(window, estimate=replace(window.estimate, speedup_high=1.0))
        )
        assert payoff.verdict == PayoffVerdict.UNKNOWN
        assert payoff.likely == PayoffVerdict.HARMFUL

    def test_the_operators_numbers(self) -> None:
        """Both edges can be moved."""
        thresholds = Thresholds().with_values(
            {"harmful_speedup": 0.9, "beneficial_speedup": 1.5}
        )
        verdicts = [
            judge_payoff(measures(s), thresholds).verdict for s in (0.75, 1.45, 1.6)
        ]

        assert verdicts == [
            PayoffVerdict.HARMFUL,
            PayoffVerdict.MARGINAL,
            PayoffVerdict.BENEFICIAL,
        ]

    def test_what_cannot_be_known(self) -> None:
        """Without a speedup there is no verdict, and a reason."""
        length = {"mean_acceptance_length": 2.0}
        for reason, fields in (
            ("length_unknown", {}),
            ("draft_length_unknown", length),
            ("running_unknown", {**length, "mean_draft_length": 3.0}),
        ):
            window = Measures(window="5m", **fields)
            assert payoff_of(window) == Payoff(), reason
            assert explained(window) == {f"payoff.{reason}": {}}, reason

    @pytest.mark.parametrize(
        ("measured", "disagrees"),
        [(1.59, True), (1.61, False), (2.39, False), (2.41, True)],
    )
    def test_a_profile_that_does_not_fit(
        self, measured: float, disagrees: bool
    ) -> None:
        """From a fifth of difference on the profile is said not to fit, either way."""
        window = with_measured(measures(2.0), measured, measured, measured)
        assert ("payoff.misfit" in explained(window)) is disagrees

    def test_a_profile_fits_unless_what_is_measured_is_surely_on_the_other_side_of_1(
        self,
    ) -> None:
        for estimated, measured, low, high, disagrees in (
            (1.05, 0.95, 0.92, 0.98, True),
            (0.95, 1.05, 1.02, 1.08, True),
            (1.05, 0.95, 0.88, 1.03, False),
            (0.95, 1.05, 0.97, 1.13, False),
            (0.97, 0.95, 0.92, 0.98, False),
            # Far apart, by a measurement that says hardly anything.
            (1.2, 0.8, 0.01, 80.0, False),
        ):
            window = with_measured(measures(estimated), measured, low, high)
            assert ("payoff.misfit" in explained(window)) is disagrees, (
                estimated,
                measured,
                low,
                high,
            )

    @pytest.mark.parametrize(
        ("low", "high", "shown", "disagrees"),
        [
            (None, None, (0.7, 0.7), True),
            (None, 1.5, (0.7, 1.5), False),
            (0.6, None, (0.6, 0.7), True),
            (0.0, 1.5, (0.0, 1.5), False),
            (0.0, None, (0.0, 0.7), True),
        ],
    )
    def test_a_missing_end_of_what_is_measured_is_the_speedup(
        self,
        low: float | None,
        high: float | None,
        shown: tuple[float, float],
        disagrees: bool,
    ) -> None:
        """For the verdict as for the profile; an end at 0 is none that is missing."""
        window = with_measured(measures(1.4), 0.7, low, high)
        payoff = payoff_of(window)
        assert (payoff.speedup_low, payoff.speedup_high) == shown
        assert estimate_contradicted(window, Thresholds()) is disagrees

    @pytest.mark.parametrize(("speedup", "covered"), [(1.6, 0.4), (2.0, 0.9)])
    def test_a_measured_loss_that_shows_no_cost_of_a_draft(
        self, speedup: float, covered: float
    ) -> None:
        """Of few drafted tokens, or of a step that costs nothing by the estimate: no K
        rests on that.
        """
        counted = {"position_acceptance_ratio": (0.9, 0.7, 0.5), "drafts": 5_000.0}
        estimated = measures(speedup, coverage_ratio=covered, **counted)
        few = with_measured(estimated, 0.8, 0.79, 0.81)
        case = replace(case_of(few), k=3)
        judged, current = judge_engine(case, CurrentAdvice(), 0.0, 300.0)
        verdicts = Verdicts(judged.quality, judged.payoff, judged.advice)
        judgement = explain(case, verdicts)
        assert judgement.payoff.verdict is PayoffVerdict.HARMFUL
        assert judgement.advice.action is Action.INSUFFICIENT_DATA
        unadvisable = values_of(judgement.advice.reason)["reason"]
        assert name_of(unadvisable) == "unadvisable.contradicted"
        remedy = values_of(judgement.findings[0].action)["action"]
        assert name_of(remedy) == "remedy.insufficient_measured"
        assert current.schedule == ()

    @pytest.mark.parametrize("basis", [Basis.OBSERVED, Basis.MEASURED])
    def test_what_may_be_a_loss_or_a_gain_bounds_the_advice(self, basis: Basis) -> None:
        """No larger K, K=0 only if a loss is likely; both stay until the opposite is as
        clear.
        """
        drafts = 0.0
        self.current = CurrentAdvice()

        def advised(
            speedup: float, survival: tuple[float, ...], reach: float = 1.4
        ) -> str:
            """Two windows later; the profile says what K is best."""
            nonlocal drafts
            length = 1 + sum(survival)
            ends = (speedup, speedup / reach, speedup * reach)
            counted = {"position_acceptance_ratio": survival, "drafts": 50_000.0}
            estimate = Estimate(
                *ends, step_cost=length / speedup, batch_size=4.0, basis=basis
            )
            window = replace(
                measures(None, length=length, **counted), estimate=estimate
            )
            if basis is Basis.MEASURED:
                window = replace(window, measured=Measured(*ends, 90.0))
            for _ in range(3):
                drafts += 50_000.0
                accepted = tuple(drafts * share for share in survival)
                counters = Counters(
                    drafts=drafts, accepted_tokens_per_position=accepted
                )
                case = replace(case_of(window), counters=counters, k=len(survival))
                judgement, self.current = judge_engine(
                    case, self.current, drafts / 150, 300.0
                )
            return judgement.advice.action

        good = (0.95, 0.93, 0.92)
        poor = (0.1,)
        assert advised(1.3, good) == Action.KEEP
        assert advised(2.5, good, 1.1) == Action.INCREASE_K
        assert {advised(speedup, good) for speedup in (1.3, 1.5) * 5} == {
            Action.INCREASE_K
        }
        assert advised(0.9, good) == Action.KEEP
        assert advised(1.0, poor) == Action.KEEP
        assert {advised(speedup, poor) for speedup in (0.9, 1.1)} == {Action.DISABLE}
        reason = self.current.advice.reason
        assert name_of(reason) == "advice.disable_unsure"
        assert name_of(values_of(reason)["doubt"]) == "advice.gain_likely"
        assert advised(1.3, poor, 1.05) == Action.KEEP

    def test_a_measurement_that_says_less_than_the_estimate_corrects_no_cost(
        self,
    ) -> None:
        """Neither a loss nor a gain, and the estimate in its interval: its middle is
        noise.
        """
        calibrated = measures(1.5, length=2.5)
        for low, high, factor in (
            (0.6, 1.9, None),
            (0.9, 1.3, (2.5 / 1.1 - 1) / (2.5 / 1.5 - 1)),
            (1.05, 1.6, (2.5 / 1.1 - 1) / (2.5 / 1.5 - 1)),
        ):
            corrected = correction(
                replace(calibrated, measured=Measured(1.1, low, high, 40.0))
            )
            assert corrected == (factor and pytest.approx(factor)), (low, high)

    def test_a_correction_explains_what_is_measured_with_steps_of_k_0_too(self) -> None:
        """Three in five tokens come out of drafts; each other one pays for a drafter's
        first pass.
        """
        estimated = replace(
            measures(2.5 / 1.5, length=2.5, coverage_ratio=0.6),
            measured=Measured(0.9, 0.88, 0.92, 90.0),
        )
        step = replace(estimated.estimate, step_cost=1.5, undrafted_cost=1.2)
        factor = correction(replace(estimated, estimate=step))
        drafted = 2.5 / (1 + 0.5 * factor)
        undrafted = 1 + 0.2 * factor
        speedup = speedup_of_all_tokens(drafted, 0.6, undrafted)
        assert speedup == pytest.approx(0.9)

    def test_the_whole_server_gains_less(self) -> None:
        """Half of the tokens at twice the speed: the whole runs 1.33 times as fast."""
        estimated = explained(measures(2.0, coverage_ratio=0.5))["payoff.estimated"]
        of_all_tokens = estimated["of_all_tokens"]
        assert name_of(of_all_tokens) == "payoff.of_all_tokens"
        assert values_of(of_all_tokens)["speedup"] == "1.33"
        alike = explained(measures(2.0, coverage_ratio=0.999))["payoff.estimated"]
        assert alike["of_all_tokens"] == ""

    @pytest.mark.parametrize("method", ["eagle", "draft_model"])
    @pytest.mark.parametrize("prompt_tokens", [0.0, 3.0, 30.0, 300.0])
    def test_its_numbers_give_the_speedup_that_it_states(
        self, prompt_tokens: float, method: str
    ) -> None:
        """With prompts of 64,000 tokens it said 1.53 times, and 2.67 tokens for the
        time of 1.00 steps.
        """
        machine = Hardware(*parse_machine("h100"), parse_model("8B"))
        profile = hardware_profile(
            for_method(method), machine, method=method, draft_parameters=2e9
        ).with_prompts((prompt_tokens, prompt_tokens))
        estimated = estimate(2.5, 3, 8, profile)
        window = replace(measures(None, length=2.5), estimate=estimated)
        text = str(explain_payoff(payoff_of(window), case_of(window, profile), window))
        said = re.search(r"modelled (.*?) times.*the time of (.*?) plain", text)
        assert said is not None
        speedup, cost = map(float, said.groups())
        prompts = re.search(r"the time of (\S+) more .*, and of (\S+) with it", text)
        plain, drafted = map(float, prompts.groups() if prompts else (0, 0))
        told = (1 + plain) / (cost / 2.5 + drafted)
        assert told == pytest.approx(speedup, rel=0.02), text

    def test_the_interval_of_a_verdict_is_not_shown_as_including_1(self) -> None:
        """An end near 1 has three decimals."""
        window = with_measured(measures(0.8), 0.94, 0.88, 0.996)
        payoff = payoff_of(window)
        assert payoff.verdict is PayoffVerdict.HARMFUL
        measured = explained(window)["payoff.measured"]
        assert (measured["low"], measured["high"]) == ("0.88", "0.996")

    @pytest.mark.parametrize("covered", [1.0, 0.8, 0.7, 0.6])
    def test_drafts_of_which_none_is_accepted_are_harmful(self, covered: float) -> None:
        """They cannot gain, however little they may cost: the interval ends at 1."""
        estimated = measures(0.98, Basis.CALIBRATED, length=1.0, coverage_ratio=covered)
        free = replace(
            estimated,
            estimate=replace(estimated.estimate, speedup_low=0.39, speedup_high=1.0),
        )
        payoff = payoff_of(free)
        assert payoff.verdict is PayoffVerdict.HARMFUL
        assert payoff.speedup < 0.995
        assert payoff.loss_probability == pytest.approx(0.975)

    def test_what_nothing_accepted_costs_where_no_cost_is_known(self) -> None:
        """A step that seems as short as a plain one (vLLM 52479, after a sleep of level
        2): the middle of what is possible, 0.77 to 1.00.
        """
        window = measures(1.0, Basis.OBSERVED, length=1.0)
        window = replace(
            window,
            estimate=replace(window.estimate, speedup_low=0.77, speedup_high=1.0),
        )
        payoff = payoff_of(window)
        assert payoff.verdict is PayoffVerdict.HARMFUL
        assert payoff.speedup == payoff.judged_speedup == pytest.approx(0.77**0.5)
        assert "payoff.gives_nothing" in explained(window)
        contradicted = payoff_of(with_measured(window, 1.1, 1.05, 1.15))
        assert contradicted.verdict is PayoffVerdict.MARGINAL
        near = payoff_of(with_measured(window, 1.02, 0.9, 1.15))
        assert (near.verdict, near.speedup_high) == (PayoffVerdict.HARMFUL, 1.0)

    @pytest.mark.parametrize("basis", Basis)
    @pytest.mark.parametrize(
        ("method", "finding"), [("mtp", "nothing_accepted"), ("ngram", "nothing_found")]
    )
    def test_nothing_accepted_has_one_cause_and_one_advice(
        self, basis: Basis, method: str, finding: str
    ) -> None:
        """No rule says to raise K, and drafters whose weights were lost are named."""
        settings = settings_for(for_method(method), method, 2, basis)
        result = judged(settings, (0, 0), 667)
        assert result.payoff.verdict is PayoffVerdict.HARMFUL
        assert result.advice.action is Action.DISABLE
        assert name_of(result.advice.reason) == "advice.disable_nothing_accepted"
        assert to_do(result) == "switch speculation off"
        assert "raise_k" not in {rule.says for rule in result.advice.rules}
        actions = {name_of(each.text): each.action for each in result.findings}
        assert {"finding.harmful.text", f"finding.{finding}.text"} <= set(actions)
        assert "finding.first_position.text" not in actions
        if method == "mtp":
            assert "sleep of level 2" in actions["finding.nothing_accepted.text"]

    def test_a_gain_of_few_tokens_is_a_small_gain(self) -> None:
        """The verdict is on all tokens: twice as fast for three in ten is 1.18 times in
        all.
        """
        for covered, verdict in (
            (1.0, "beneficial"),
            (0.5, "beneficial"),
            (0.3, "marginal"),
        ):
            estimated = measures(2.0, length=3.0, coverage_ratio=covered)
            payoff = payoff_of(estimated)
            of_all_tokens = 1 / (covered / 2 + 1 - covered)
            measured = with_measured(
                estimated, of_all_tokens, of_all_tokens, of_all_tokens
            )
            assert payoff.verdict == verdict, covered
            assert payoff.speedup == pytest.approx(of_all_tokens), covered
            if covered >= 0.5:
                assert correction(measured) == pytest.approx(1.0), covered
            else:
                assert correction(measured) is None, covered
            assert "payoff.misfit" not in explained(measured), covered


def advice(
    *conditional: float,
    drafts: float = 5_000,
    batch: float = 4.0,
    profile: CostProfile = EAGLE,
    method: str = "eagle",
    **limits: float,
) -> Advice:
    """What is advised after one window of drafts with this acceptance."""
    settings = settings_for(profile, method, len(conditional))
    settings = replace(settings, thresholds=settings.thresholds.with_values(limits))
    return judged(
        settings, expected(survival_of(conditional), drafts), drafts, batch
    ).advice


def doubt_of(advised: Advice) -> str:
    """The name of the message of which other advice seems better."""
    return name_of(values_of(advised.reason)["doubt"])


#: A drafter whose third token just pays and whose fourth would not.
STEEP = CostProfile("steep", TargetCost(1.0), DraftCost(fixed=0.2, per_position=0.12))
GOOD = (0.85, 0.85, 0.85)
KEPT = (0.8, 0.7, 0.45)
BAD = (0.05, 0.05, 0.05)
#: A drafter whose fifth token gains about as much as it costs.
NEARLY = CostProfile("nearly", TargetCost(1.0), DraftCost(fixed=0.2, per_position=0.06))
#: For which two tokens would do.
SHORT = (0.8, 0.35, 0.1)


def polled(
    server: Server, conditional: tuple[float, ...], seconds: float, drafts: float = 300
) -> EngineResult:
    """The result after this time of drafts with this acceptance, polled every half
    minute.
    """
    for _ in range(round(seconds / 30)):
        server.add(drafts, expected(survival_of(conditional), drafts))
        result = server.poll(after=30)
    return result


class TestStanding:
    @staticmethod
    def server(profile: CostProfile = EAGLE) -> Server:
        server = Server(settings_for(profile, "eagle", 3), 3, 4)
        server.poll()
        return server

    def test_advice_never_contradicts_what_the_window_shows_beyond_doubt(self) -> None:
        """A collapse and its end: nobody is told to keep what loses, or to drop what
        gains.
        """
        server = self.server()
        actions = set()
        keeping = (Action.KEEP, Action.INCREASE_K)
        for poll, conditional in enumerate([GOOD] * 30 + [BAD] * 30 + [GOOD] * 30):
            result = polled(server, conditional, 30)
            speedup = result.payoff.speedup
            advised = result.advice
            actions.add(advised.action)
            said = (poll, advised.reason)
            if speedup is not None and speedup < 0.9:
                assert advised.action not in keeping, said
            if result.payoff.verdict is PayoffVerdict.BENEFICIAL:
                assert advised.action is not Action.DISABLE, said
            if name_of(advised.reason) == "advice.disable":
                best = max(option.speedup for option in advised.options[1:])
                assert best < 1, said
        assert Action.DISABLE in actions
        assert result.advice.action is not Action.DISABLE

    @pytest.mark.parametrize("basis", [Basis.CALIBRATED, Basis.MODELLED])
    def test_a_collapse_is_seen_in_the_shortest_window(self, basis: Basis) -> None:
        """It is judged while it shows the opposite, once in an hour; no advice rests on
        it.
        """
        server = Server(settings_for(EAGLE, "eagle", 3, basis), 3, 4)
        server.poll()
        gaining = polled(server, GOOD, 600)
        collapsed = polled(server, BAD, 30)
        assert gaining.judged_window == "5m"
        assert gaining.payoff.verdict is PayoffVerdict.BENEFICIAL
        assert collapsed.judged_window == "30s"
        # The judged window still shows what was.
        assert collapsed.windows[1].mean_acceptance_length > 2.9
        assert collapsed.advice.action is Action.INSUFFICIENT_DATA
        for poll in range(12):
            payoff = collapsed.payoff
            assert PayoffVerdict.HARMFUL in (payoff.verdict, payoff.likely), poll
            collapsed = polled(server, BAD, 30)
        assert collapsed.judged_window == "5m"
        assert polled(server, GOOD, 30).judged_window == "5m"
        assert polled(server, GOOD, 3600).judged_window == "5m"
        assert polled(server, BAD, 30).judged_window == "30s"

    @pytest.mark.parametrize("rate", [4, 8, 60])
    def test_while_no_advice_rests_on_the_shortest_window_something_is_to_be_done(
        self, rate: int
    ) -> None:
        """At any number of drafts per second, from the verdict on."""
        server = self.server()
        rng = Random(1)
        said = set()
        for conditional, polls in ((GOOD, 70), (BAD, 40)):
            for _ in range(polls):
                server.add(5 * rate, drawn(rng, conditional, 5 * rate))
                result = server.poll(after=5)
                if result.judged_window == "30s":
                    said.add(to_do(result))
        assert said == {"switch speculation off"}

    def test_traffic_that_changes_each_minute_is_judged_by_its_mean(self) -> None:
        server = self.server()
        results = [
            polled(server, conditional, 30)
            for conditional in (GOOD, GOOD, BAD, BAD) * 25
        ]
        assert {result.judged_window for result in results[20:]} == {"5m"}
        assert {result.payoff.verdict for result in results[20:]} == {
            PayoffVerdict.BENEFICIAL
        }

    @pytest.mark.parametrize("profile", [EAGLE, STEEP])
    def test_equal_traffic_and_small_changes_are_judged_over_the_judged_window(
        self, profile: CostProfile
    ) -> None:
        """However few drafts the shortest window has, at whatever distance from
        break-even.
        """
        server = self.server(profile)
        rng = Random(3)
        for chance in (0.3, 0.35, 0.45, 0.5, 0.8):
            for poll in range(40):
                server.add(120, drawn(rng, (chance, 0.5, 0.4), 120))
                judged_window = server.poll(after=30).judged_window
                assert judged_window == "5m", (chance, poll)

    def test_while_the_first_window_fills_advice_does_not_go_back_and_forth(
        self,
    ) -> None:
        """After each start, where the next K is about as good: what was given up does
        not come back.
        """
        for seed in range(6):
            server = Server(settings_for(NEARLY, "eagle", 5), 5, 4)
            rng = Random(seed)
            ks = [0]
            for _ in range(55):
                server.add(60, drawn(rng, (0.8, 0.7, 0.6, 0.55, 0.5), 60))
                ks.append(server.poll(after=5).advice.num_speculative_tokens or ks[-1])
            order = list(dict.fromkeys(ks))
            assert (
                sum(previous != following for previous, following in pairwise(ks))
                == len(order) - 1
            ), seed

    def test_what_is_held_against_the_data_says_so(self) -> None:
        """Another K must be better for as long as the window.

        Until then there is no schedule.
        """
        server = self.server(STEEP)
        kept = polled(server, KEPT, 900).advice
        assert kept.action is Action.KEEP
        assert name_of(kept.reason) == "advice.keep"
        assert doubt_of(kept) == "advice.none_surely_better"
        course = [polled(server, SHORT, 30).advice for _ in range(30)]
        held = [advice for advice in course if advice.action is Action.KEEP]
        assert held == course[: len(held)]
        assert 10 <= len(held) < 30
        for advice in (advice for advice in held if advice.doubted):
            assert doubt_of(advice) == "advice.k_seems_better", advice.reason
            assert values_of(values_of(advice.reason)["doubt"]) == {"k": 2}, (
                advice.reason
            )
            assert (advice.schedule, advice.schedule_config) == ((), ""), advice.reason
        assert held[-1].doubted
        assert course[-1].action is Action.DECREASE_K

    @pytest.mark.parametrize(("drafts", "kept"), [(251, True), (249, False)])
    def test_advice_once_given_is_not_taken_back_when_traffic_wanes_a_little(
        self, drafts: float, kept: bool
    ) -> None:
        """Half of the drafts that a first advice needs keep one that stands."""
        server = self.server()
        server.add(drafts, expected(survival_of(GOOD), drafts))
        assert server.poll(after=300).advice.action is Action.INSUFFICIENT_DATA
        server.add(5_000, expected(survival_of(GOOD), 5_000))
        standing = server.poll(after=300).advice
        server.add(drafts, expected(survival_of(GOOD), drafts))
        waned = server.poll(after=300).advice

        assert standing.action is not Action.INSUFFICIENT_DATA
        assert waned.action is (standing.action if kept else Action.INSUFFICIENT_DATA)

    def test_advice_returns_after_an_idle_time(self) -> None:
        """An engine at rest gets no advice, and what stood stands again when traffic
        returns.
        """
        server = self.server()
        standing = polled(server, GOOD, 900).advice
        resting = polled(server, GOOD, 600, drafts=0)
        assert resting.activity.state is ActivityState.IDLE
        assert resting.advice.action is Action.INSUFFICIENT_DATA
        assert name_of(resting.advice.reason) == "no_advice.inactive"
        assert values_of(resting.advice.reason) == {"reason": resting.activity.reason}
        assert resting.advice.num_speculative_tokens is None

        assert polled(server, GOOD, 60).advice.action is standing.action


def evidence_of(
    survival: tuple[float, ...],
    costs: tuple[float, ...],
    *,
    payoff: Payoff,
    settled: bool,
) -> Evidence:
    """Ten million drafts with these ratios, and a step's cost for each K from 0 on."""
    accepted = tuple(1e7 * ratio for ratio in survival)
    return Evidence(
        survival=survival,
        drafts=1e7,
        counters=Counters(drafts=1e7, accepted_tokens_per_position=accepted),
        cost=lambda k: costs[k],
        settled=settled,
        varying=False,
        only_smaller=False,
        payoff=payoff,
        thresholds=Thresholds(),
    )


@pytest.mark.parametrize(
    ("costs", "held", "advised"),
    [
        # K=1 reads 0.994, and may have 1.033: worth a trial, where 1.022 would not be.
        ((1.0, 1.78, 2.6, 3.4, 4.2), 4, 1),
        ((1.0, 1.8, 2.6, 3.4, 4.2), 4, 0),
        # A lower bound that is better is enough; K=4 must be better than the most that
        # K=1 may have.
        ((1.0, 1.0, 2.0, 2.3, 2.6), 4, 1),
        ((1.0, 1.27, 2.0, 2.3, 2.15), 1, 1),
        ((1.0, 1.27, 2.0, 2.3, 1.9), 1, 4),
        # A larger K is no better than the present one is, if a smaller one may be
        # better than both.
        ((1.0, 1.2123, 2.0, 2.3, 2.1, 2.2), 4, 4),
        ((1.0, 1.3, 2.0, 2.3, 2.1, 2.2), 4, 5),
    ],
)
def test_a_smaller_k_counts_as_a_lower_bound(
    costs: tuple[float, ...], held: int, advised: int
) -> None:
    """With K=4, K=1 reads 1.77 tokens a draft and may have 1.84."""
    evidence = evidence_of(
        (0.77, 0.55, 0.42, 0.33),
        (*costs, *(9.0,) * 4),
        payoff=Payoff(PayoffVerdict.HARMFUL, loss_probability=1.0),
        settled=True,
    )
    standing = HysteresisState(AdvisedK(held), PendingChange(0.0, 0.0, (0.0,) * 4))
    assert apply_hysteresis(evidence, standing, 600.0, 300.0).advised == AdvisedK(
        advised
    )


@pytest.mark.parametrize(
    ("costs", "held", "advised"),
    [
        # K=6 gains 1.5 % on the running K=5, and K=3 loses: 5 is kept. The reported
        # case: DFlash2 on an H20, of which 3 was advised before the context was known.
        ((1.0, 1.07, 1.07, 1.08, 1.08, 1.10, 1.11), 3, 5),
        ((1.0, 1.07, 1.07, 1.08, 1.08, 1.10, 1.11), 5, 5),
        # It gains 10 %, and is worth a trial.
        ((1.0, 1.07, 1.07, 1.08, 1.08, 1.10, 1.02), 3, 6),
        # What K=6 gains has shrunk from 3 % to less than 1 %: worth no restart.
        ((1.0, 1.07, 1.07, 1.08, 1.08, 1.10, 1.12), 6, 5),
        ((1.0, 1.07, 1.07, 1.08, 1.08, 1.10, 1.11), 6, 6),
        # What runs needs no gain over an advised K that was never tried.
        ((1.0, 1.6, 1.6, 1.6, 1.08, 1.10, 1.3), 4, 5),
    ],
)
def test_another_k_is_held_against_the_k_that_runs(
    costs: tuple[float, ...], held: int, advised: int
) -> None:
    """Not against the one that was advised before: only the former takes no restart."""
    evidence = evidence_of(
        (0.67, 0.4315, 0.2781, 0.1792, 0.1156),
        (*costs, *(9.0,) * 5),
        payoff=Payoff(
            verdict=PayoffVerdict.BENEFICIAL, speedup=2.4, loss_probability=0.0
        ),
        settled=False,
    )
    state = HysteresisState(AdvisedK(held))
    assert apply_hysteresis(evidence, state, 0.0, 300.0).advised.k == advised


class TestMethod:
    @pytest.mark.parametrize(
        ("method", "usual", "switched"),
        [
            ("eagle", 1.4, False),
            ("eagle", 1.0, False),
            ("", 1.4, False),
            ("", 1.9, True),
        ],
    )
    def test_the_operators_usual_length(
        self, method: str, usual: float, switched: bool
    ) -> None:
        """What a method is asked to reach can be moved, also for one of which nothing
        usual is published.
        """
        advised = advice(
            0.4, 0.3, 0.3, batch=16, method=method, usual_mean_acceptance_length=usual
        )

        assert (advised.action is Action.SWITCH_METHOD) is switched
        if switched:
            values = values_of(advised.reason)
            assert name_of(values["method"]) == "advice.unnamed_method"
            assert values["usual"] == usual

    @pytest.mark.parametrize("acceptance", [0.6, 0.9])
    @pytest.mark.parametrize("batch", [64.0, 256.0, 1024.0])
    @pytest.mark.parametrize("method", ["eagle", "eagle3"])
    def test_k_1_is_not_held_against_the_method(
        self, method: str, batch: float, acceptance: float
    ) -> None:
        """A draft of one token emits two at most: that it emits fewer says nothing of
        the method.
        """
        advised = advice(
            acceptance, batch=batch, profile=for_method(method), method=method
        )
        assert advised.action is not Action.SWITCH_METHOD


def test_the_positions_that_cost_more_than_they_give_are_named() -> None:
    because = values_of(advice(0.8, 0.8, 0.05, 0.05).reason)["because"]
    assert (name_of(because), values_of(because)) == ("advice.too_deep", {"k": 2})


def test_a_schedule_where_only_the_load_is_too_high() -> None:
    """A drafter that pays for few requests at a time is not condemned, but sent to a
    schedule.
    """
    lookup = advice(
        *(0.12,) * 4,
        drafts=50_000,
        batch=512,
        profile=for_method("ngram"),
        method="ngram",
    )

    assert lookup.action is Action.DISABLE
    assert name_of(values_of(lookup.reason)["because"]) == "advice.pays_when_few"
    ks = [row.num_speculative_tokens for row in lookup.schedule]
    assert ks[-1] == 0
    assert json.loads(lookup.schedule_config)["num_speculative_tokens"] == max(ks)

    model = advice(
        *(0.12,) * 4,
        drafts=50_000,
        batch=512,
        profile=for_method("ngram"),
        method="eagle3",
    )
    assert model.action == Action.DISABLE
    assert model.schedule == ()
    assert model.schedule_config == ""
    assert values_of(model.reason)["because"] == ""
    assert name_of(model.schedule_note) == "no_schedule.first_pass"


class TestPaste:
    def test_the_config_is_kept_but_for_k(self) -> None:
        """What is to be pasted is the operator's own JSON with another K."""
        document = {
            "method": "eagle3",
            "model": "some/draft",
            "num_speculative_tokens": 3,
            "quantization": "fp8",
        }
        speculation = Speculation(
            True,
            "eagle3",
            draft_model="some/draft",
            num_speculative_tokens=3,
            document=json.dumps(document),
        )

        assert json.loads(speculation.with_k(5)) == {
            **document,
            "num_speculative_tokens": 5,
        }
        assert json.loads(
            speculation.with_k(2, [ScheduleRow(1, 8, 2), ScheduleRow(9, 1024, 0)])
        ) == {
            **document,
            "num_speculative_tokens": 2,
            "num_speculative_tokens_per_batch_size": [[1, 8, 2], [9, 1024, 0]],
        }

        # A schedule that is in the config would override the new K, so it goes.
        old = {
            "num_speculative_tokens": 3,
            "num_speculative_tokens_per_batch_size": [[1, 1024, 3]],
        }
        speculation = Speculation(
            True, "", draft_model="", num_speculative_tokens=3, document=json.dumps(old)
        )
        assert json.loads(speculation.with_k(4)) == {"num_speculative_tokens": 4}
        assert json.loads(Speculation(True).with_k(4)) == {"num_speculative_tokens": 4}

    def test_nothing_to_paste_without_another_k(self) -> None:
        """Switched off or kept, there is no other K to paste."""
        for conditional in ((0.05,) * 3, (0.8, 0.7, 0.5)):
            advised = advice(*conditional, batch=1.0, profile=STEEP, method="x")
            assert advised.action in (Action.DISABLE, Action.KEEP), conditional
            assert advised.speculative_config == "", conditional
