"""Findings: problems and hints, each with what to do about it."""

from __future__ import annotations

import shlex
from enum import StrEnum

from msgspec import Struct

from ..config.thresholds import Thresholds
from ..economics.cost import Basis
from ..economics.known_problems import Setup, known_problems
from ..economics.speculative_config import names_drafter
from ..engines.reading import SGLANG, VLLM, Server
from ..measures.measures import Measures
from ..measures.uptime import Uptime
from .activity import Activity, ActivityState
from .advice import Action, Advice, for_sglang
from .case import Case
from .payoff import Payoff, PayoffVerdict, until_known
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


def hint(text: str, action: str) -> list[Finding]:
    """Return a hint."""
    return [Finding(Severity.HINT, text, action)]


def problem(text: str, action: str) -> list[Finding]:
    """Return a problem."""
    return [Finding(Severity.PROBLEM, text, action)]


_NOT_JUDGED, _UNKNOWN, _NONE = Quality(), Payoff(), Advice()


def of_payoff(
    case: Case, payoff: Payoff, quality: Quality, advice: Advice, measures: Measures
) -> list[Finding]:
    """Return the findings on payoff and advice, and those that explain an apparent contradiction."""
    if payoff.verdict is None:
        return []
    findings = _undecided(case, payoff) if payoff.verdict is PayoffVerdict.UNKNOWN else []
    if payoff.verdict is PayoffVerdict.HARMFUL:
        findings += problem(
            f"speculation costs more than it gains: {payoff.reasons[0]}", _against_harm(case, payoff, advice)
        )
    elif advice.action in (Action.INCREASE_K, Action.DECREASE_K):
        findings += hint(f"another K would pay better: {advice.reason}", _paste(case, advice))
    elif advice.action is Action.SWITCH_METHOD:
        findings += hint(
            f"another method may pay better: {advice.reason}",
            "Start a second server with another, send it the same traffic, and run "
            "vllm-specdec-exporter compare on both.",
        )
    elif advice.action is Action.DISABLE:
        findings += hint(f"speculation may not pay: {advice.reason}", _against_harm(case, payoff, advice))
    return findings + _contradiction(payoff, quality, measures)


def _undecided(case: Case, payoff: Payoff) -> list[Finding]:
    interval = f"{payoff.speedup_low:.2f} to {payoff.speedup_high:.2f} times as fast, {payoff.basis}"
    how = until_known(case.profile, payoff)
    how = f"{how[0].upper()}{how[1:]}."
    if payoff.likely is PayoffVerdict.HARMFUL:
        return problem(
            f"speculation is likely harmful: {interval}, and it loses with a probability of "
            f"{payoff.loss_probability:.0%}",
            how,
        )
    if payoff.likely is PayoffVerdict.BENEFICIAL:
        return hint(f"speculation is likely beneficial, but that is not certain: {interval}", how)
    return hint(f"it is not known whether speculation pays: {interval}", how)


def _against_harm(case: Case, payoff: Payoff, advice: Advice) -> str:
    measured = payoff.basis is Basis.MEASURED
    if advice.action is Action.DISABLE:
        words = f"Start the server without speculation ({case.server.name}: without {case.server.option})"
        if advice.schedule_config:
            return f"{words}, or, to keep it for small batches, {_flag(advice.schedule_config)}."
        return f"{words}."
    if advice.doubted:
        return f"Look again soon: {advice.reason}."
    if advice.action is Action.KEEP and measured:
        return "No other K is sure to gain more. Try a smaller one, another method, or none."
    if advice.action is Action.KEEP:
        return (
            "No other K is sure to gain more. Measure it: record a server without speculation with "
            "vllm-specdec-exporter baseline, and give the exporter the file."
        )
    if advice.action is Action.INSUFFICIENT_DATA and measured:
        return f"Try a smaller K, another method, or none: it was measured at this load ({advice.reason})."
    if advice.action is Action.INSUFFICIENT_DATA:
        return f"Compare with a server without speculation, at real load ({advice.reason})."
    return f"{advice.reason[0].upper()}{advice.reason[1:]}. {_paste(case, advice)}"


def _paste(case: Case, advice: Advice) -> str:
    if case.server == SGLANG:
        return for_sglang(case, advice)
    if not advice.speculative_config:
        return f"Start the server with {advice.num_speculative_tokens} as the most tokens to draft."
    return f"Start {case.server.name} {_flag(advice.speculative_config)}."


def _flag(config: str) -> str:
    """Return the flag to start the server with; without --spec.config, the keys of its JSON to change."""
    if names_drafter(config):
        return f"with --speculative-config {shlex.quote(config)}"
    return f"with {config} in the JSON of its --speculative-config"


def _contradiction(payoff: Payoff, quality: Quality, measures: Measures) -> list[Finding]:
    estimate = measures.estimate
    if (
        quality.level is QualityLevel.POOR
        and payoff.speedup is not None
        and payoff.verdict is not PayoffVerdict.HARMFUL
    ):
        return hint(
            f"acceptance is poor by the thresholds ({', '.join(quality.reasons)}), "
            f"and speculation does not lose: {payoff.basis} {payoff.speedup:.2f} times as fast",
            "Both hold: the thresholds look at acceptance alone, payoff at the time it saves. Go by "
            "payoff; poor acceptance says that there is more to gain.",
        )
    good = quality.level in (QualityLevel.HEALTHY, QualityLevel.OPTIMAL)
    if good and payoff.verdict is PayoffVerdict.HARMFUL:
        why = (
            f"a step with drafts takes the time of {estimate.step_cost:.2f} plain ones at "
            f"{estimate.batch_size:.1f} requests a batch"
            if estimate.step_cost is not None and payoff.basis is not Basis.MEASURED
            else "verifying costs more than the cost profile says"
        )
        return hint(
            f"acceptance is {quality.level}, and speculation loses all the same: {why}",
            "Both hold: acceptance is good, and drafting and verifying cost more than it saves here. "
            "Go by payoff.",
        )
    return []


def find(
    case: Case, quality: Quality = _NOT_JUDGED, payoff: Payoff = _UNKNOWN, advice: Advice = _NONE
) -> tuple[Finding, ...]:
    """Return the findings on one engine, problems first."""
    activity, measures = case.activity, case.measures
    findings = (
        _of_activity(activity, case.server)
        if case.speculative
        else hint(activity.reason, "Nothing is to be done: no acceptance can be derived.")
    )
    if measures is not None and quality.level is not None:
        findings += of_payoff(case, payoff, quality, advice, measures)
        findings += _of_acceptance(quality, measures, case.thresholds, payoff, advice)
        if case.profile.name == "unknown" and not case.method and payoff.basis is Basis.MODELLED:
            findings += hint(
                "the method is not known, and the costs of a draft model of 1:9 are assumed",
                f"{_how_to_know_method(case.server)}, or a profile by name as --cost.profile.",
            )
    setup = Setup(
        case.method,
        case.model_name,
        case.version,
        case.speculation.schedule,
        case.batch_sizes,
        case.engines,
        case.speculation.tree,
    )
    for known in known_problems(setup) if case.vllm else ():
        findings += hint(known.text, f"{known.action} ({known.reference}.)")
    if case.speculation.document and (unknown := ", ".join(case.speculation.unknown)):
        findings += hint(
            f"--spec.config has what is not known here: {unknown}",
            "Costs and advice do not consider it. Check the spelling; a newer vLLM may have it.",
        )
    if case.routed:
        findings += hint(
            "the URL names a model of a router: polls may keep the model awake, and its GPU memory in use",
            "Polls have autoload=false, so that llama.cpp's router loads no model for them. If it is to "
            "sleep (--sleep-idle-seconds), give a longer --poll.interval.",
        )
    if case.mismatch:
        findings += hint(case.mismatch, "Until then, speedup is estimated instead of measured.")
    positions = len(case.counters.accepted_tokens_per_position)
    configured_k = case.speculation.num_speculative_tokens
    if positions and configured_k is not None and configured_k != positions:
        findings += hint(
            f"the server counts {positions} positions, but --spec.config says K={configured_k}",
            "Give the exporter the JSON that the server was started with; if that is so already, look "
            "for counters of an earlier server in PROMETHEUS_MULTIPROC_DIR.",
        )
    if case.defects:
        findings += hint(
            f"inconsistent sample: {'; '.join(case.defects)}",
            "A single one is harmless: counters were read at different times. If they go on, "
            "compare the server's /metrics with its version.",
        )
    if activity.state is ActivityState.ACTIVE:
        findings += _of_uptime(case.uptime)
    return tuple(sorted(findings, key=lambda f: f.severity is not Severity.PROBLEM))


def _how_to_know_method(server: Server) -> str:
    if server == SGLANG:
        return "Set --spec.server-info true, which reads the method from SGLang's /server_info"
    if server.option == VLLM.option:
        return f"Give the JSON of {server.name}'s --speculative-config as --spec.config"
    return 'Give the method as --spec.config, as in {"method": "draft_model"}'


def _of_activity(activity: Activity, server: Server) -> list[Finding]:
    if activity.state is ActivityState.OFF:
        use = f"Start {server.name} with {server.option} to use it; if it is meant to be on, "
        where = (
            "give the exporter the same JSON as --spec.config and look for errors in vLLM's log."
            if server == VLLM
            else "look for errors in the server's log."
        )
        return hint(f"speculation is off: {activity.reason}", use + where)
    if activity.state is ActivityState.BYPASSED:
        schedule = "a K schedule whose row for this batch size is 0"
        drafting = "n-gram or suffix drafting that finds nothing to repeat"
        if server == SGLANG:
            schedule = "a batch size for which --speculative-adaptive has 0 steps"
            drafting = "n-gram drafting that finds nothing to repeat"
        return problem(
            f"speculation is bypassed: {activity.reason}",
            f"Look for {schedule}, for {drafting}, for requests that exclude speculation "
            "(structured output, logprobs), and for a draft model that failed to load.",
        )
    if activity.state is ActivityState.IDLE:
        return hint(activity.reason, "Acceptance can be judged only while requests are served.")
    if activity.state is ActivityState.WARMING_UP:
        return hint(
            f"too little to judge by: {activity.reason}",
            "Wait for more traffic, or judge over a longer window.",
        )
    if activity.state is None:
        how = (
            "Upgrade to a vLLM with the V1 engine (0.8.5 or later, VLLM_USE_V1=1) for windowed values."
            if server == VLLM
            else "Acceptance can be judged once the server counts drafts (docs/reference/dialects.md)."
        )
        return hint(activity.reason, how)
    return []


def _of_acceptance(
    quality: Quality, measures: Measures, thresholds: Thresholds, payoff: Payoff, advice: Advice
) -> list[Finding]:
    findings: list[Finding] = []
    pays = payoff.verdict in (PayoffVerdict.MARGINAL, PayoffVerdict.BENEFICIAL)
    report = hint if pays else problem
    # Advice on K rests on more than the decline over positions.
    advised = advice.action is not Action.INSUFFICIENT_DATA
    met = {c.measure for c in quality.criteria if c.level is QualityLevel.POOR and c.met}
    positions = measures.position_acceptance_ratio
    if "position_0_acceptance_ratio" in met:
        findings += report(
            f"the first drafted token is rejected in {1 - positions[0]:.0%} of the drafts",
            "The drafter does not fit the target or the traffic: check that both share family, "
            "tokenizer and revision, whether the target was quantized or changed, and at which "
            "temperature requests run; then consider another method.",
        )
    elif "position_decay_ratio" in met and not advised:
        findings += report(
            "acceptance falls off steeply behind the first position",
            f"The last of the K={len(positions)} positions rarely pay: try a smaller num_speculative_tokens.",
        )
    rarely = thresholds.lower_k_last_position_acceptance_ratio
    worthwhile = sum(ratio >= rarely for ratio in positions)
    if met == {"acceptance_ratio"} and 0 < worthwhile < len(positions) and not advised:
        findings += report(
            f"the last {len(positions) - worthwhile} of K={len(positions)} positions are accepted in "
            f"fewer than {100 * rarely:.3g}% of the drafts",
            f"Try num_speculative_tokens={worthwhile}: it would have given at least "
            f"{measures.mean_acceptance_length_at[worthwhile - 1]:.2f} of the present "
            f"{measures.mean_acceptance_length_at[-1]:.2f} tokens a draft.",
        )
    elif met & {"mean_acceptance_length", "acceptance_ratio"} and not findings and payoff.speedup is None:
        findings += problem(
            f"acceptance is poor: {', '.join(quality.reasons)}",
            "Compare the time per output token with speculation switched off, at real load, "
            "before keeping it on.",
        )
    ratio, covered = measures.acceptance_ratio, measures.coverage_ratio
    if ratio is not None and ratio > thresholds.abnormal_acceptance_ratio:
        findings += hint(
            f"{ratio:.1%} of the drafted tokens are accepted, abnormally many",
            "Look whether answers repeat themselves (finish reason repetition, answers cut at their "
            "longest): loops are easy to draft, and say nothing of other traffic.",
        )
    if measures.drafts_vary:
        findings += hint(
            f"drafts hold {measures.mean_draft_length:.1f} of K={len(positions)} tokens on average",
            "Position ratios divide by all drafts and so understate the deep positions: do not choose K "
            "by the last of them. The lengths for smaller K stay lower bounds.",
        )
    # Low coverage limits the gain, whatever the acceptance.
    if covered is not None and covered < thresholds.low_coverage_ratio:
        findings += hint(
            f"only {covered:.0%} of the generated tokens came out of drafts",
            "The rest was decoded plainly: drafting finds nothing, a K schedule switches it off "
            "at times, or answers are very short.",
        )
    return findings


def _of_uptime(uptime: Uptime) -> list[Finding]:
    if uptime.lengths is None or not uptime.decayed:
        return []
    before, now = uptime.lengths
    return hint(
        f"the acceptance length fell little by little from {before:.2f} in the first hours that the exporter "
        f"saw of this run to {now:.2f}, with draft length, batch size and context alike",
        "Restart the server at a quiet time. If the length returns, it decays with uptime (reported in "
        "vLLM issue 41838 and SGLang issue 37326, both open); if not, the traffic has changed.",
    )
