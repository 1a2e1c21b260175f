from typing import Any

import pytest

from support.builders import increase
from support.copies import replace
from support.messages import name_of, values_of
from vllm_specdec_exporter.config.thresholds import Thresholds
from vllm_specdec_exporter.economics.profiles import for_method
from vllm_specdec_exporter.economics.speculative_config import parse_speculation
from vllm_specdec_exporter.engines import ENGINE_OF
from vllm_specdec_exporter.engines.reading import Counters
from vllm_specdec_exporter.judgement.activity import (
    Activity,
    ActivityState,
    with_schedule,
)
from vllm_specdec_exporter.judgement.advice import Action, Advice
from vllm_specdec_exporter.judgement.case import Case
from vllm_specdec_exporter.judgement.explanation import explain_quality
from vllm_specdec_exporter.judgement.findings import Finding, Severity, Verdicts, find
from vllm_specdec_exporter.judgement.payoff import Payoff, PayoffVerdict
from vllm_specdec_exporter.judgement.quality import judge_quality
from vllm_specdec_exporter.measures.measures import DraftShape, Measures, derive

ACTIVE = Activity(ActivityState.ACTIVE, "1000 drafts in the last 5m")
PROBLEM, HINT = Severity
VLLM = ENGINE_OF["vllm-v1"]


def measured(
    *positions: float,
    draft_tokens: float | None = None,
    generation: float | None = None,
) -> Measures:
    """An active engine with 1000 drafts in its window."""
    # Ten times what a level needs, so that no finding is missing for too few drafts.
    return derive(
        "5m",
        increase(1000, positions, draft_tokens=draft_tokens, generation=generation),
    )


def case_of(activity: Activity, measures: Measures | None = None) -> Case:
    """An engine of an unknown method, of which the server gives no counters."""
    return Case(
        activity,
        measures,
        counters=Counters(),
        k=None,
        method="",
        profile=for_method(""),
        thresholds=Thresholds(),
        engine=VLLM,
    )


def names(
    measures: Measures, *, defects: tuple[str, ...] = (), **limits: float
) -> list[tuple[Severity, str]]:
    """The findings on an active engine, without what to do about them."""
    thresholds = Thresholds().with_values(limits)
    judged = judge_quality(measures, [], thresholds)
    quality = replace(judged, reasons=explain_quality(judged, measures, thresholds))
    case = replace(case_of(ACTIVE, measures), thresholds=thresholds, defects=defects)
    return [(f.severity, short_name(f)) for f in find(case, Verdicts(quality))]


def short_name(finding: Finding) -> str:
    """The name of a finding."""
    return name_of(finding.text).removeprefix("finding.").removesuffix(".text")


def activity(
    state: ActivityState | None, measures: Measures | None = None
) -> tuple[Finding, ...]:
    """The findings on an engine in this state, of which there is no level."""
    return find(case_of(Activity(state, "why"), measures))


def test_every_state_but_active_says_why_nothing_more_is_known() -> None:
    """Too few drafts to judge are too few to complain about.

    No finding leaves its reader alone.
    """
    states = {
        ActivityState.OFF: [(HINT, "off", ".")],
        ActivityState.BYPASSED: [(PROBLEM, "bypassed", ".")],
        None: [(HINT, "unknown", ".")],
        ActivityState.IDLE: [(HINT, "idle", ".")],
        ActivityState.WARMING_UP: [(HINT, "warming_up", ".")],
        ActivityState.ACTIVE: [],
    }
    findings = {
        state: [(f.severity, short_name(f), f.action[-1:]) for f in activity(state)]
        for state in states
    }
    assert findings == states
    assert activity(ActivityState.WARMING_UP, measured(10, 1)) == activity(
        ActivityState.WARMING_UP
    )


def test_a_k_schedule_with_k_0_is_no_problem_and_has_a_price_beside_a_model() -> None:
    """The reason names the schedule, by the batch sizes of the window."""
    schedule = parse_speculation(
        '{"num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 64, 0]]}'
    )
    bypassed = Activity(ActivityState.BYPASSED, "why")
    assert with_schedule(bypassed, schedule, (1, 4)) == bypassed
    assert with_schedule(ACTIVE, schedule, (3, 20)) == ACTIVE
    scheduled = with_schedule(bypassed, schedule, (3, 20))
    assert name_of(scheduled.reason) == "activity.scheduled"
    assert values_of(scheduled.reason) == {"reason": "why", "batch": 20}
    assert not scheduled.unexplained
    case = replace(case_of(scheduled), speculation=schedule, batch_sizes=(3, 20))
    model, lookup = (
        find(replace(case, method=method))[0] for method in ("eagle3", "ngram")
    )
    assert (model.severity, lookup.severity) == (HINT, HINT)
    assert values_of(model.text)["cost"] == case.profile.idle_cost(20)
    assert name_of(lookup.action) == "finding.scheduled_off.action"
    loses = Payoff(PayoffVerdict.HARMFUL, 0.8, reasons=("why",))
    keep = Advice(Action.KEEP)
    case = replace(
        case_of(ACTIVE, measured(800)), profile=replace(case.profile, idles=True)
    )
    quality = judge_quality(measured(800), [], Thresholds())
    harmful = find(case, Verdicts(quality, loses, keep))[0]
    assert name_of(values_of(harmful.action)["action"]) == "remedy.keep_idle"


def test_a_router_whose_models_polls_may_keep_awake_is_told() -> None:
    (finding,) = find(replace(case_of(ACTIVE), routed=True))
    assert (finding.severity, name_of(finding.text)) == (HINT, "finding.routed.text")


def test_what_a_newer_vllm_may_have_is_told_and_taken() -> None:
    """Another number is no misspelling."""
    case = replace(
        case_of(ACTIVE),
        speculation=parse_speculation('{"method": "eagle4", "tree_width": 2}'),
    )

    (finding,) = find(case)
    assert name_of(finding.text) == "finding.unknown_settings.text"
    assert values_of(finding.text) == {"unknown": "tree_width, eagle4"}


def test_nobody_is_told_to_switch_on_what_a_diffusion_model_does_not_have() -> None:
    """Or to upgrade for it."""
    for state in (ActivityState.OFF, None):
        case = case_of(Activity(state, "a diffusion model"), measured())
        findings = find(replace(case, speculative=False))
        assert [name_of(each.text) for each in findings] == [
            "finding.no_speculation.text"
        ], state


class TestAcceptance:
    def test_what_is_found(self) -> None:
        """One cause is named once: the first position before the decline, and both
        before the totals.
        """
        without_positions = replace(
            measured(), acceptance_ratio=0.3, mean_acceptance_length=2.2
        )
        for measures, expected in (
            (measured(800, 500, 300), []),
            (measured(400, 40, 4), [(PROBLEM, "first_position")]),
            (measured(900, 300, 90), [(PROBLEM, "decay")]),
            (measured(700, 350, 175, 110), [(PROBLEM, "poor")]),
            (measured(700, 350, 175, 90), [(PROBLEM, "last_positions")]),
            (without_positions, [(PROBLEM, "poor")]),
            (measured(800, 100, 50, draft_tokens=1200), [(HINT, "drafts_vary")]),
            (measured(950, 850, 750, generation=8000), [(HINT, "low_coverage")]),
        ):
            assert names(measures) == expected, expected

    @pytest.mark.parametrize("dialect", ["vllm-v1", "llamacpp"])
    def test_a_setting_is_named_before_the_drafter(self, dialect: str) -> None:
        """At temperature 1 a real vLLM accepted 14 of 15,784 tokens of a drafter that
        is identical to its target, and with probabilistic drafts all of them;
        llama.cpp 0.31 and 0.88.
        """
        engine = ENGINE_OF[dialect]
        setting = {
            "vllm-v1": '"draft_sample_method": "probabilistic"',
            "llamacpp": "--spec-draft-sampling probabilistic",
        }[dialect]
        measures = measured(3, 1, 0, 0)
        quality = judge_quality(measures, [], Thresholds())
        loss = Payoff(PayoffVerdict.HARMFUL, reasons=("measured",))
        switch_off = Advice(Action.DISABLE, reason="no K pays")
        case = replace(case_of(ACTIVE, measures), method="draft_model", engine=engine)

        def actions(sampled: bool | None, **changes: Any) -> dict[str, str]:
            shape = DraftShape(1000, (1.0,) * 4, sampled=sampled)
            findings = find(
                replace(case, shape=shape, **changes),
                Verdicts(quality, loss, switch_off),
            )
            return {short_name(finding): finding.action for finding in findings}

        for sampled in (True, None):
            said = actions(sampled)
            first = "Requests run above" if sampled else "If requests run above"
            for name, then in (
                ("harmful", "without speculation"),
                ("first_position", "does not fit"),
            ):
                assert said[name].startswith(first), (name, sampled)
                assert said[name].index(setting) < said[name].index(then), name
        # At temperature 0, and where it is set or no drafter samples, it is no cause.
        sampling = parse_speculation(
            '{"method": "draft_model", "draft_sample_method": "probabilistic"}'
        )
        for said in (
            actions(sampled=False),
            actions(sampled=True, speculation=sampling),
            actions(sampled=True, method="ngram"),
            actions(sampled=True, engine=ENGINE_OF["sglang"]),
            actions(sampled=True, version="0.9.2", engine=VLLM),
        ):
            assert setting not in "".join(said.values())
            assert said["first_position"].startswith("The drafter does not fit")

    def test_trees_have_findings_without_a_level(self) -> None:
        """Their acceptance ratio is not known; what the other measures say is said."""
        trees = replace(measured(950, generation=35000), acceptance_ratio=None)
        assert judge_quality(trees, [], Thresholds()).level is None
        assert names(trees) == [(HINT, "low_coverage")]

    def test_limits(self) -> None:
        """Low coverage and abnormal acceptance go by the operator's limits, as the
        alerts do.
        """
        for accepted, generation, limits, expected in (
            ((950, 850, 750), 7101, {}, ["low_coverage"]),
            ((950, 850, 750), 7100, {}, []),
            ((950, 850, 750), 7100, {"low_coverage_ratio": 0.51}, ["low_coverage"]),
            ((950, 850, 750), 35500, {"low_coverage_ratio": 0.1}, []),
            ((980, 980, 980), None, {}, []),
            ((981, 981, 981), None, {}, ["abnormal"]),
            ((981, 981, 981), None, {"abnormal_acceptance_ratio": 0.99}, []),
            ((901, 901, 901), None, {"abnormal_acceptance_ratio": 0.9}, ["abnormal"]),
        ):
            findings = names(measured(*accepted, generation=generation), **limits)
            limited = [
                name for _, name in findings if name in ("low_coverage", "abnormal")
            ]
            assert limited == expected, (accepted, limits)


def test_a_torn_answer_is_one_hint_that_says_all_that_is_torn_in_it() -> None:
    (finding,) = find(replace(case_of(ACTIVE), defects=("this", "that")))

    assert (finding.severity, short_name(finding)) == (HINT, "inconsistent")
    assert values_of(finding.text) == {"defects": "this; that"}
    assert finding.action.endswith(".")


def test_problems_come_before_hints() -> None:
    """Whatever they are about."""
    findings = names(
        measured(400, 300, 200, draft_tokens=1500, generation=9000), defects=("torn",)
    )

    assert [severity for severity, _ in findings] == [PROBLEM, HINT, HINT, HINT]
