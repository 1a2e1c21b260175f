"""Findings: problems and hints, each with what to do about it.

A finding is a pair of messages, ``finding.NAME.text`` and ``finding.NAME.action``.
"""

import shlex
from enum import StrEnum

from msgspec import Struct

from ..economics.cost import Basis
from ..economics.known_problems import DeploymentFacts, known_problems
from ..economics.speculative_config import drafts_without_model, names_drafter
from ..engines.engine import Engine
from ..measures.measures import Measures
from .activity import SLOW_STEP, ActivityState
from .advice import Action, Advice, how_to_start
from .case import Case
from .explanation import how_to_know
from .messages import Message, message
from .payoff import Payoff, PayoffVerdict
from .quality import Quality, QualityLevel

#: Drafts from which their lengths say how they were made.
_DRAFTS_TO_CONTRADICT = 1000.0
#: Share of the output out of drafts from which every step had one.
_ALWAYS = 0.99
#: Methods that look text up. `ngram_gpu` pads its drafts to K.
_LOOKUPS = frozenset({"ngram", "suffix"})
#: Methods whose model drafts K tokens in every step.
_FULL_DRAFTS = frozenset({"eagle", "eagle3", "mtp", "medusa", "mlp_speculator"})


class Verdicts(Struct, frozen=True):
    """What was judged of an engine, and its findings explain."""

    quality: Quality = Quality()
    payoff: Payoff = Payoff()
    advice: Advice = Advice()


class Severity(StrEnum):
    """How much a finding matters."""

    PROBLEM = "problem"
    HINT = "hint"


class Finding(Struct, frozen=True):
    """A problem or hint (`text`), and what to do about it (`action`)."""

    severity: Severity
    text: str
    action: str


def hint(name: str, engine: Engine | None = None, **values: object) -> list[Finding]:
    """Return the hint of this name, with these values.

    What to do is in the words of `engine`, where it has its own.
    """
    return [_finding(Severity.HINT, name, engine, values)]


def problem(name: str, engine: Engine | None = None, **values: object) -> list[Finding]:
    """Return the problem of this name, as `hint` does."""
    return [_finding(Severity.PROBLEM, name, engine, values)]


def _finding(
    severity: Severity, name: str, engine: Engine | None, values: dict[str, object]
) -> Finding:
    action = ""
    if engine is not None:
        values["engine"] = engine
        action = engine.actions.get(name, "")
    return Finding(
        severity,
        message(f"finding.{name}.text", **values),
        message(f"finding.{name}.action", action, **values),
    )


NOTHING_JUDGED = Verdicts()


def of_payoff(case: Case, verdicts: Verdicts) -> list[Finding]:
    """Return the findings on payoff and advice, and those that explain an apparent
    contradiction.
    """
    payoff = verdicts.payoff
    advice = verdicts.advice
    if payoff.verdict is None:
        return []
    findings: list[Finding] = []
    reason = advice.reason
    if payoff.undecided:
        findings += _undecided(case, verdicts)
    if payoff.verdict is PayoffVerdict.HARMFUL:
        remedy = _after_setting(case, verdicts, _against_harm(case, payoff, advice))
        findings += problem("harmful", reason=payoff.reasons[0], action=remedy)
    elif advice.action in (Action.INCREASE_K, Action.DECREASE_K):
        findings += hint("another_k", reason=reason, action=_paste(case, advice))
    elif advice.action is Action.SWITCH_METHOD:
        remedy = _after_setting(
            case, verdicts, message("remedy.compare_another_method")
        )
        findings += hint("another_method", reason=reason, action=remedy)
    elif advice.action is Action.DISABLE:
        remedy = _after_setting(case, verdicts, _against_harm(case, payoff, advice))
        findings += hint("may_not_pay", reason=reason, action=remedy)
    return findings + _contradiction(case, verdicts)


def _undecided(case: Case, verdicts: Verdicts) -> list[Finding]:
    payoff = verdicts.payoff
    advice = verdicts.advice
    how = how_to_know(payoff.basis or Basis.MODELLED, case.profile, case.engine)
    if payoff.likely is PayoffVerdict.HARMFUL:
        off = advice.changes_nothing or advice.action is Action.DISABLE
        remedy = message("remedy.switch_off" if off else "remedy.follow_advice")
        first = _after_setting(case, verdicts, remedy)
        return problem("likely_harmful", payoff=payoff, first=first, how=how)
    name = "undecided"
    if payoff.likely is PayoffVerdict.BENEFICIAL:
        name = "likely_beneficial"
    return hint(name, payoff=payoff, how=_capitalised(how))


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


def _against_harm(case: Case, payoff: Payoff, advice: Advice) -> str:
    """Return what to do where speculation is harmful, or may not pay."""
    reason = advice.reason
    measured = ""
    if payoff.basis is Basis.MEASURED:
        measured = "_measured"
    if advice.action is Action.DISABLE:
        if not advice.schedule_config:
            return message("remedy.without", engine=case.engine)
        flag = _flag(case.engine, advice.schedule_config)
        return message("remedy.without_or_schedule", engine=case.engine, flag=flag)
    if advice.doubted:
        return message("remedy.doubted", reason=reason)
    if advice.action is Action.KEEP and case.profile.idles:
        return message("remedy.keep_idle")
    if advice.action is Action.KEEP:
        return message(f"remedy.keep{measured}")
    if advice.action is Action.INSUFFICIENT_DATA:
        return message(f"remedy.insufficient{measured}", reason=reason)
    return message(
        "remedy.another_k", reason=_capitalised(reason), start=_paste(case, advice)
    )


def _paste(case: Case, advice: Advice) -> str:
    engine = case.engine
    if not engine.takes_config:
        return how_to_start(case, advice)
    if not advice.speculative_config:
        return message("remedy.start_with_k", k=advice.num_speculative_tokens)
    flag = _flag(engine, advice.speculative_config)
    return message("remedy.start", engine=engine, flag=flag)


def _flag(engine: Engine, config: str) -> Message:
    """Return the flag to start the server with; without --spec.config, the keys of its
    JSON to change.
    """
    option = engine.speculation_option
    if names_drafter(config):
        return message("remedy.flag", option=option, config=shlex.quote(config))
    return message("remedy.keys", option=option, config=config)


def _contradiction(case: Case, verdicts: Verdicts) -> list[Finding]:
    payoff = verdicts.payoff
    quality = verdicts.quality
    harmful = payoff.verdict is PayoffVerdict.HARMFUL
    if quality.level is QualityLevel.POOR and payoff.speedup is not None:
        if harmful:
            return []  # a poor level beside a loss contradicts nothing
        reasons = ", ".join(quality.reasons)
        return hint("poor_but_pays", reasons=reasons, payoff=payoff)
    good = quality.level in (QualityLevel.HEALTHY, QualityLevel.OPTIMAL)
    if not (good and harmful):
        return []
    why = message("finding.good_but_loses.cost_unknown")
    estimate = case.measures.estimate if case.measures else None
    if estimate and estimate.step_cost and payoff.basis is not Basis.MEASURED:
        why = message("finding.good_but_loses.cost", estimate=estimate)
    return hint("good_but_loses", level=quality.level, why=why)


def find(case: Case, verdicts: Verdicts = NOTHING_JUDGED) -> tuple[Finding, ...]:
    """Return the findings on one engine, problems first."""
    measures = case.measures
    active = case.activity.state is ActivityState.ACTIVE
    if case.speculative:
        findings = _of_activity(case)
    else:
        findings = hint("no_speculation", reason=case.activity.reason)
    if measures is not None:
        findings += _of_speed(case, measures)
        findings += of_payoff(case, verdicts)
        # Also without a level, as of trees, whose acceptance ratio is not known.
        if active and (measures.drafts or 0.0) >= case.thresholds.minimum_drafts:
            findings += _of_acceptance(case, measures, verdicts)
    findings += _of_deployment(case)
    if case.defects:
        findings += hint("inconsistent", defects="; ".join(case.defects))
    decayed = case.uptime.decayed and case.uptime.lengths
    if decayed and active:
        first, present = decayed
        findings += hint("decays_with_uptime", first=first, present=present)
    return tuple(sorted(findings, key=lambda f: f.severity is not Severity.PROBLEM))


def _of_deployment(case: Case) -> list[Finding]:
    """Return the findings on how the engine is deployed."""
    findings: list[Finding] = []
    speculation = case.speculation
    if case.engine.has_known_problems:
        facts = DeploymentFacts(
            method=case.method,
            model=case.model_name,
            version=case.version,
            schedule=speculation.schedule,
            batch_sizes=case.batch_sizes,
            engines=case.engines,
            tree=speculation.tree,
            document=speculation.document,
            running=True,
            prefix_cache_hit_ratio=case.prefix_cache_hit_ratio,
            sampled=case.sampled,
            validated=True,  # what is measured here has findings of its own
        )
        for known_problem in known_problems(facts):
            findings += hint("known_problem", known=known_problem)
    findings += _of_speculation(case)
    if case.routed:
        findings += hint("routed")
    if case.prefix_caches:
        findings += hint("prefix_cache_differs", caches=case.prefix_caches)
    if case.mismatch:
        findings += hint("mismatch", reason=case.mismatch)
    return findings + _of_positions(case)


def misconfigured(case: Case) -> list[Finding]:
    """Return the findings on a configuration that does not fit the engine."""
    return _of_speculation(case) + _of_positions(case)


def _of_speculation(case: Case) -> list[Finding]:
    """Return that ``--spec.config`` is not that of the engine, or not understood."""
    findings: list[Finding] = []
    speculation = case.speculation
    if case.ambiguous:
        models = ", ".join(case.ambiguous)
        findings += hint("one_for_several", models=models)
    findings += _of_method(case)
    if speculation.document and speculation.unknown:
        findings += hint("unknown_settings", unknown=", ".join(speculation.unknown))
    return findings


def _of_positions(case: Case) -> list[Finding]:
    """Return that another K is configured than the engine has positions."""
    positions = len(case.counters.accepted_tokens_per_position)
    configured_k = case.speculation.num_speculative_tokens
    if not positions or configured_k is None or configured_k == positions:
        return []
    return hint("positions_differ", positions=positions, configured_k=configured_k)


def _of_method(case: Case) -> list[Finding]:
    """Return that drafts have not the lengths that the configured method gives them.

    A model drafts K tokens for each request and step. Looking text up finds no
    continuation most of the time, or a shorter one.
    """
    measures = case.measures
    schedule = case.speculation.schedule
    if measures is None or schedule or not case.speculation.method:
        return []
    drafted = measures.mean_draft_length
    k = len(measures.position_acceptance_ratio)
    enough = (measures.drafts or 0.0) >= _DRAFTS_TO_CONTRADICT
    if drafted is None or not enough or not k:
        return []
    name = ""
    always = (measures.coverage_ratio or 0.0) >= _ALWAYS and drafted == k
    if case.method in _LOOKUPS and always:
        name = "not_looked_up"
    elif measures.drafts_vary and case.method in _FULL_DRAFTS:
        name = "not_drafted"
    if not name:
        return []
    return hint(name, method=case.method, drafted=drafted, k=k)


def _how_to_know_method(case: Case) -> Message:
    if case.speculation.configured:
        return message("remedy.add_method")
    action = case.engine.actions.get("method_unknown", "")
    return message("remedy.give_method", action)


def _of_activity(case: Case) -> list[Finding]:
    activity = case.activity
    reason = activity.reason
    engine = case.engine
    if activity.state is ActivityState.OFF:
        return hint("off", engine, reason=reason)
    if activity.scheduled and case.batch_sizes is not None:
        if drafts_without_model(case.method):
            return hint("scheduled_off", reason=reason)
        cost = case.profile.idle_cost(max(1.0, case.batch_sizes[1]))
        return hint("scheduled_off_beside_model", reason=reason, cost=cost)
    if activity.state is ActivityState.BYPASSED:
        return problem("bypassed", engine, reason=reason)
    if activity.state is None:
        return hint("unknown", engine, reason=reason)
    if activity.state in (ActivityState.IDLE, ActivityState.WARMING_UP):
        return hint(activity.state, reason=reason)
    return []


def _of_speed(case: Case, measures: Measures) -> list[Finding]:
    """Return the findings on requests that run while little comes out."""
    if not case.busy:
        return []
    if case.activity.state is ActivityState.IDLE:
        if measures.generation_tokens_per_second == 0:
            return problem("nothing_comes_out", window=measures.window)
        return []
    seconds = measures.step_seconds
    if seconds is None or seconds < SLOW_STEP:
        return []
    generated = measures.generation_tokens_per_second or 0.0
    return problem(
        "slow_steps", window=measures.window, seconds=seconds, generated=generated
    )


def _of_acceptance(case: Case, measures: Measures, verdicts: Verdicts) -> list[Finding]:
    findings = _of_poor_acceptance(case, measures, verdicts)
    thresholds = case.thresholds
    ratio = measures.acceptance_ratio
    covered = measures.coverage_ratio
    if ratio is not None and ratio > thresholds.abnormal_acceptance_ratio:
        findings += hint("abnormal", ratio=ratio)
    if measures.drafts_vary:
        findings += hint(
            "drafts_vary",
            drafted=measures.mean_draft_length,
            k=len(measures.position_acceptance_ratio),
        )
    if measures.cut_short:
        findings += hint(
            "undelivered",
            share=measures.undelivered_ratio,
            length=measures.mean_acceptance_length,
        )
    # Low coverage limits the gain, whatever the acceptance.
    if covered is not None and covered < thresholds.low_coverage_ratio:
        findings += hint("low_coverage", covered=covered)
    assumed = case.profile.name == "unknown" and not case.method
    if assumed and verdicts.payoff.basis is Basis.MODELLED:
        findings += hint("costs_assumed", how=_how_to_know_method(case))
    return findings


def _poor_measures(quality: Quality) -> set[str]:
    """Return the measures that make acceptance poor."""
    return {
        criterion.measure
        for criterion in quality.criteria
        if criterion.level is QualityLevel.POOR and criterion.met
    }


def _cause(case: Case) -> Message:
    """Return why first positions are rejected, a setting before the drafter."""
    if case.should_sample_drafts:
        return message(
            "finding.first_position.greedy_drafts", sample_drafts=_sample_drafts(case)
        )
    return message("finding.first_position.misfit")


def _sample_drafts(case: Case) -> Message:
    if case.sampled:
        return message("remedy.sample_drafts", engine=case.engine)
    return message("remedy.sample_drafts_if_sampled", engine=case.engine)


def _after_setting(case: Case, verdicts: Verdicts, remedy: str) -> str:
    """Return a remedy behind a setting that may explain rejected drafts, if there is
    one.
    """
    rejected = "position_0_acceptance_ratio" in _poor_measures(verdicts.quality)
    if not rejected or not case.should_sample_drafts:
        return remedy
    return message("remedy.otherwise", first=_sample_drafts(case), remedy=remedy)


def _of_poor_acceptance(
    case: Case, measures: Measures, verdicts: Verdicts
) -> list[Finding]:
    """Return the findings on criteria of poor acceptance that are met: one cause is
    named once.
    """
    findings: list[Finding] = []
    # Whether it loses is judged by the payoff alone, so beside an unknown verdict poor
    # acceptance is no second one.
    report = problem
    if verdicts.payoff.verdict is not None and not verdicts.payoff.harmful:
        report = hint
    # Advice on K rests on more than the decline over positions. While it is not known
    # whether speculation pays, that is to be found out first.
    advised = (
        verdicts.advice.action is not Action.INSUFFICIENT_DATA
        or verdicts.payoff.undecided
    )
    met = _poor_measures(verdicts.quality)
    positions = measures.position_acceptance_ratio
    k = len(positions)
    if measures.acceptance_ratio == 0:
        name = "nothing_accepted"
        if drafts_without_model(case.method):
            name = "nothing_found"
        drafted = (measures.drafts or 0.0) * (measures.mean_draft_length or 0.0)
        return problem(name, case.engine, drafted=drafted)
    if "position_0_acceptance_ratio" in met:
        findings += report(
            "first_position", rejected=1 - positions[0], cause=_cause(case)
        )
    elif "position_decay_ratio" in met and not advised:
        findings += report("decay", k=k)
    rarely = case.thresholds.lower_k_last_position_acceptance_ratio
    worthwhile = sum(ratio >= rarely for ratio in positions)
    totals = met & {"mean_acceptance_length", "acceptance_ratio"}
    if met == {"acceptance_ratio"} and 0 < worthwhile < k and not advised:
        findings += report(
            "last_positions",
            k=k,
            percent=100 * rarely,
            worthwhile=worthwhile,
            length=measures.mean_acceptance_length_at[worthwhile - 1],
            present=measures.mean_acceptance_length_at[-1],
        )
    elif totals and not findings and verdicts.payoff.speedup is None:
        findings += report("poor", reasons=", ".join(verdicts.quality.reasons))
    return findings
