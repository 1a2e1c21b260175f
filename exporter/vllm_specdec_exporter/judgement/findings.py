"""Findings: problems and hints, each with what to do about it.

Their words: `findings.toml`.
"""

import shlex
import tomllib
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from ..config.thresholds import Thresholds
from ..economics.cost import Basis
from ..economics.known_problems import Setup, known_problems
from ..economics.speculative_config import drafts_without_model, names_drafter
from ..engines.engine import Engine
from ..measures.measures import Measures
from .activity import Activity, ActivityState
from .advice import Action, Advice, how_to_start
from .case import Case
from .payoff import Payoff, PayoffVerdict, how_to_know
from .quality import Quality, QualityLevel


class Severity(StrEnum):
    """How much a finding matters."""

    PROBLEM = "problem"
    HINT = "hint"


class Finding(Struct, frozen=True):
    """A problem or hint (`text`), and what to do about it (`action`)."""

    severity: Severity
    text: str
    action: str


#: Format strings of each finding, by its name.
TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


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
    row = TEXTS[name]
    values |= {"engine": engine}
    action = row["action"]
    if engine is not None:
        action = engine.actions.get(name, action)
    return Finding(severity, row["text"].format_map(values), action.format_map(values))


_NOT_JUDGED = Quality()
_UNKNOWN = Payoff()
_NONE = Advice()


def of_payoff(
    case: Case, payoff: Payoff, quality: Quality, advice: Advice, measures: Measures
) -> list[Finding]:
    """Return the findings on payoff and advice, and those that explain an apparent
    contradiction.
    """
    if payoff.verdict is None:
        return []
    if payoff.verdict is PayoffVerdict.UNKNOWN:
        findings = _undecided(case, payoff, advice)
    else:
        findings = []
    if payoff.verdict is PayoffVerdict.HARMFUL:
        findings += problem(
            "harmful", payoff=payoff, action=_against_harm(case, payoff, advice)
        )
    elif advice.action in (Action.INCREASE_K, Action.DECREASE_K):
        findings += hint("another_k", advice=advice, action=_paste(case, advice))
    elif advice.action is Action.SWITCH_METHOD:
        findings += hint("another_method", advice=advice)
    elif advice.action is Action.DISABLE:
        findings += hint(
            "may_not_pay", advice=advice, action=_against_harm(case, payoff, advice)
        )
    return findings + _contradiction(payoff, quality, measures)


def _undecided(case: Case, payoff: Payoff, advice: Advice) -> list[Finding]:
    interval = (
        f"{payoff.speedup_low:.2f} to {payoff.speedup_high:.2f} times as fast, "
        f"{payoff.basis}"
    )
    how = how_to_know(payoff.basis or Basis.MODELLED, case.profile)
    if payoff.likely is PayoffVerdict.HARMFUL:
        off = advice.changes_nothing or advice.action is Action.DISABLE
        first = "Switch speculation off" if off else "Follow the advice"
        return problem(
            "likely_harmful", interval=interval, payoff=payoff, first=first, how=how
        )
    how = f"{how[0].upper()}{how[1:]}."
    if payoff.likely is PayoffVerdict.BENEFICIAL:
        name = "likely_beneficial"
    else:
        name = "undecided"
    return hint(name, interval=interval, action=how)


def _against_harm(case: Case, payoff: Payoff, advice: Advice) -> str:
    texts = TEXTS["against_harm"]
    suffix = "_measured" if payoff.basis is Basis.MEASURED else ""
    if advice.action is Action.DISABLE:
        words = texts["without"].format(engine=case.engine)
        if advice.schedule_config:
            return (
                f"{words}, or, to keep it for small batches, "
                f"{_flag(case.engine, advice.schedule_config)}."
            )
        return f"{words}."
    if advice.doubted:
        return str(texts["doubted"].format(advice=advice))
    if advice.action is Action.KEEP:
        return str(texts["keep_idle" if case.profile.idles else "keep" + suffix])
    if advice.action is Action.INSUFFICIENT_DATA:
        return str(texts["insufficient" + suffix].format(advice=advice))
    return f"{advice.reason[0].upper()}{advice.reason[1:]}. {_paste(case, advice)}"


def _paste(case: Case, advice: Advice) -> str:
    if not case.engine.takes_config:
        return how_to_start(case, advice)
    if not advice.speculative_config:
        return (
            f"Start the server with {advice.num_speculative_tokens} as the most tokens "
            "to draft."
        )
    return f"Start {case.engine.name} {_flag(case.engine, advice.speculative_config)}."


def _flag(engine: Engine, config: str) -> str:
    """Return the flag to start the server with; without --spec.config, the keys of its
    JSON to change.
    """
    option = engine.speculation_option
    if names_drafter(config):
        return f"with {option} {shlex.quote(config)}"
    return f"with {config} in the JSON of its {option}"


def _contradiction(
    payoff: Payoff, quality: Quality, measures: Measures
) -> list[Finding]:
    estimate = measures.estimate
    if (
        quality.level is QualityLevel.POOR
        and payoff.speedup is not None
        and payoff.verdict is not PayoffVerdict.HARMFUL
    ):
        return hint("poor_but_pays", reasons=", ".join(quality.reasons), payoff=payoff)
    good = quality.level in (QualityLevel.HEALTHY, QualityLevel.OPTIMAL)
    if good and payoff.verdict is PayoffVerdict.HARMFUL:
        if estimate.step_cost is not None and payoff.basis is not Basis.MEASURED:
            why = (
                f"a step with drafts takes the time of {estimate.step_cost:.2f} "
                "plain ones at "
                f"{estimate.batch_size:.1f} requests a batch"
            )
        else:
            why = "verifying costs more than the cost profile says"
        return hint("good_but_loses", quality=quality, why=why)
    return []


def find(
    case: Case,
    quality: Quality = _NOT_JUDGED,
    payoff: Payoff = _UNKNOWN,
    advice: Advice = _NONE,
) -> tuple[Finding, ...]:
    """Return the findings on one engine, problems first."""
    activity = case.activity
    measures = case.measures
    if case.speculative:
        findings = _of_activity(case, activity)
    else:
        findings = hint("no_speculation", reason=activity.reason)
    if measures is not None and quality.level is not None:
        findings += of_payoff(case, payoff, quality, advice, measures)
        findings += _of_acceptance(quality, measures, case.thresholds, payoff, advice)
        if (
            case.profile.name == "unknown"
            and not case.method
            and payoff.basis is Basis.MODELLED
        ):
            findings += hint("costs_assumed", how=_how_to_know_method(case))
    served = (case.method, case.model_name, case.version)
    given = case.speculation
    setup = Setup(
        *served,
        given.schedule,
        case.batch_sizes,
        case.engines,
        given.tree,
        given.document,
    )
    for known in known_problems(setup) if case.engine.has_known_problems else ():
        findings += hint("known_problem", known=known)
    if given.document and (unknown := ", ".join(given.unknown)):
        findings += hint("unknown_settings", unknown=unknown)
    if case.routed:
        findings += hint("routed")
    if case.mismatch:
        findings += hint("mismatch", case=case)
    positions = len(case.counters.accepted_tokens_per_position)
    configured_k = given.num_speculative_tokens
    if positions and configured_k is not None and configured_k != positions:
        findings += hint(
            "positions_differ", positions=positions, configured_k=configured_k
        )
    if case.defects:
        findings += hint("inconsistent", defects="; ".join(case.defects))
    if (
        activity.state is ActivityState.ACTIVE
        and case.uptime.decayed
        and case.uptime.lengths is not None
    ):
        before, now = case.uptime.lengths
        findings += hint("decays_with_uptime", before=before, now=now)
    return tuple(sorted(findings, key=lambda f: f.severity is not Severity.PROBLEM))


def _how_to_know_method(case: Case) -> str:
    if case.speculation.configured:
        return 'Add the method to --spec.config, as in {"method": "draft_model"}'
    own = case.engine.actions.get("method_unknown")
    return own or 'Give the method as --spec.config, as in {"method": "draft_model"}'


def _of_activity(case: Case, activity: Activity) -> list[Finding]:
    engine = case.engine
    reason = activity.reason
    if activity.state is ActivityState.OFF:
        return hint("off", engine, reason=reason)
    if activity.scheduled and case.batch_sizes is not None:
        plain = drafts_without_model(case.method)
        cost = case.profile.idle_cost(max(1.0, case.batch_sizes[1]))
        return hint(
            "scheduled_off" if plain else "scheduled_off_beside_model",
            reason=reason,
            cost=cost,
        )
    if activity.state is ActivityState.BYPASSED:
        return problem("bypassed", engine, reason=reason)
    if activity.state is None:
        return hint("unknown", engine, reason=reason)
    if activity.state in (ActivityState.IDLE, ActivityState.WARMING_UP):
        return hint(activity.state, reason=reason)
    return []


def _of_acceptance(
    quality: Quality,
    measures: Measures,
    thresholds: Thresholds,
    payoff: Payoff,
    advice: Advice,
) -> list[Finding]:
    findings: list[Finding] = []
    pays = payoff.verdict in (PayoffVerdict.MARGINAL, PayoffVerdict.BENEFICIAL)
    report = hint if pays else problem
    # Advice on K rests on more than the decline over positions.
    advised = advice.action is not Action.INSUFFICIENT_DATA
    met = {
        c.measure for c in quality.criteria if c.level is QualityLevel.POOR and c.met
    }
    positions = measures.position_acceptance_ratio
    if "position_0_acceptance_ratio" in met:
        findings += report("first_position", rejected=1 - positions[0])
    elif "position_decay_ratio" in met and not advised:
        findings += report("decay", k=len(positions))
    rarely = thresholds.lower_k_last_position_acceptance_ratio
    worthwhile = sum(ratio >= rarely for ratio in positions)
    if met == {"acceptance_ratio"} and 0 < worthwhile < len(positions) and not advised:
        findings += report(
            "last_positions",
            k=len(positions),
            percent=100 * rarely,
            worthwhile=worthwhile,
            length=measures.mean_acceptance_length_at[worthwhile - 1],
            present=measures.mean_acceptance_length_at[-1],
        )
    elif (
        met & {"mean_acceptance_length", "acceptance_ratio"}
        and not findings
        and payoff.speedup is None
    ):
        findings += problem("poor", reasons=", ".join(quality.reasons))
    ratio = measures.acceptance_ratio
    covered = measures.coverage_ratio
    if ratio is not None and ratio > thresholds.abnormal_acceptance_ratio:
        findings += hint("abnormal", measures=measures)
    if measures.drafts_vary:
        findings += hint("drafts_vary", measures=measures, k=len(positions))
    # Low coverage limits the gain, whatever the acceptance.
    if covered is not None and covered < thresholds.low_coverage_ratio:
        findings += hint("low_coverage", measures=measures)
    return findings
