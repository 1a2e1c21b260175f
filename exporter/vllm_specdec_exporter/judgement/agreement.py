"""Agreement: findings on payoff and advice, and why they may say something else than quality.

Quality looks at acceptance, payoff at the time it saves, advice at what another K would save. They answer
different questions, so they can differ; whoever reads them must not have to guess why.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ..speculation import names_drafter
from .advice import Action, Advice
from .finding import Finding, Severity
from .payoff import Basis, Payoff, PayoffVerdict
from .quality import Quality, QualityLevel

if TYPE_CHECKING:
    from ..measures import Measures


def of_payoff(payoff: Payoff, quality: Quality, advice: Advice, measures: Measures) -> list[Finding]:
    """Return the findings on payoff and advice, and those that explain an apparent contradiction."""
    if payoff.verdict is None:
        return []
    found = []
    if payoff.verdict is PayoffVerdict.HARMFUL:
        found.append(
            Finding(
                Severity.PROBLEM,
                f"speculation costs more than it gains: {payoff.reasons[0]}",
                _against_harm(payoff, advice),
            )
        )
    elif advice.action in (Action.INCREASE_K, Action.DECREASE_K):
        found.append(Finding(Severity.HINT, f"another K would pay better: {advice.reason}", _paste(advice)))
    elif advice.action is Action.SWITCH_METHOD:
        found.append(
            Finding(
                Severity.HINT,
                f"another method may pay better: {advice.reason}",
                "Start a second server with another, send it the same traffic, and run "
                "vllm-specdec-exporter compare on both.",
            )
        )
    elif advice.action is Action.DISABLE:
        found.append(
            Finding(Severity.HINT, f"speculation may not pay: {advice.reason}", _against_harm(payoff, advice))
        )
    return found + _contradiction(payoff, quality, measures)


def _against_harm(payoff: Payoff, advice: Advice) -> str:
    measured = payoff.basis is Basis.MEASURED
    if advice.action is Action.DISABLE:
        words = "Start the server without speculation (vLLM: without --speculative-config)"
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
    return f"{advice.reason[0].upper()}{advice.reason[1:]}. {_paste(advice)}"


def _paste(advice: Advice) -> str:
    if not advice.speculative_config:
        return f"Start the server with {advice.num_speculative_tokens} as the most tokens to draft."
    return f"Start vLLM {_flag(advice.speculative_config)}."


def _flag(config: str) -> str:
    """Say which JSON to start vLLM with; without --spec.config only what changes in it is known."""
    if names_drafter(config):
        return f"with --speculative-config {shlex.quote(config)}"
    return f"with {config} in the JSON of its --speculative-config"


def _contradiction(payoff: Payoff, quality: Quality, measures: Measures) -> list[Finding]:
    estimate = measures.estimate
    if quality.level is QualityLevel.POOR and payoff.verdict is not PayoffVerdict.HARMFUL:
        return [
            Finding(
                Severity.HINT,
                f"acceptance is poor by the thresholds ({', '.join(quality.reasons)}), "
                f"and speculation does not lose: {payoff.basis} {payoff.speedup:.2f} times as fast",
                "Both hold: the thresholds look at acceptance alone, payoff at the time it saves. Go by "
                "payoff; poor acceptance says that there is more to gain.",
            )
        ]
    good = quality.level in (QualityLevel.HEALTHY, QualityLevel.OPTIMAL)
    if good and payoff.verdict is PayoffVerdict.HARMFUL:
        why = (
            f"a step with drafts takes the time of {estimate.step_cost:.2f} plain ones at "
            f"{estimate.batch_size:.1f} requests a batch"
            if estimate.step_cost is not None and payoff.basis is Basis.ESTIMATED
            else "verifying costs more than the cost profile says"
        )
        return [
            Finding(
                Severity.HINT,
                f"acceptance is {quality.level}, and speculation loses all the same: {why}",
                "Both hold: acceptance is good, and drafting and verifying cost more than it saves here. "
                "Go by payoff.",
            )
        ]
    return []
