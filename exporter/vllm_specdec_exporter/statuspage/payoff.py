"""Payoff on the status page: does speculation pay, what is to be done, and what the baseline says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..judgement.advice import Action
from ..markup import Html, count, element, facts, join, none, percent, pill, rate, row, section, table, times
from ..markup import length as tokens
from ..wording import action_words, reason_words
from .view import View, only_active

if TYPE_CHECKING:
    from ..baseline.match import Measured
    from ..result import EngineResult

#: What the latencies are called.
_LATENCIES = {
    "time_to_first_token": "First token",
    "time_per_output_token": "Output token",
    "end_to_end": "Whole request",
}
_QUANTILES = (0.5, 0.95, 0.99)


def why_no_payoff(engine: EngineResult) -> str:
    """Return why there is no verdict."""
    return engine.payoff.reasons[0] if engine.payoff.reasons else only_active(engine)


def payoff_pill(engine: EngineResult) -> Html:
    """Return the verdict as a coloured word with the speedup, or a dash that says why there is none."""
    payoff = engine.payoff
    if payoff.verdict is None:
        return none(why_no_payoff(engine))
    shown = pill(payoff.verdict.value, payoff.verdict.value)
    return shown if payoff.speedup is None else join(shown, " ", times(payoff.speedup))


def payoff_words(view: View) -> Html:
    """Say what the speedup is of, where it breaks even, and how it comes about."""
    payoff, judged = view.engine.payoff, view.judged
    if payoff.verdict is None or payoff.basis is None or judged is None:
        return element("p", why_no_payoff(view.engine))
    words = f"times as fast as without speculation, {payoff.basis.value}, {view.window_words}"
    estimate = judged.estimate
    length, ratio = estimate.break_even_acceptance_length, estimate.break_even_acceptance_ratio
    even = Html()
    if length is not None and ratio is not None:
        words_even = (
            f"by the cost profile it breaks even at {tokens(length)} tokens per draft, or {percent(ratio)}"
        )
        even = element("p", f"{words_even} of the drafted tokens accepted")
    reasons = element("ul", *(element("li", reason) for reason in payoff.reasons))
    return join(element("p", words), even, reasons)


def advice_pill(engine: EngineResult) -> Html:
    """Return what is advised as a coloured word, or a dash that says why nothing is."""
    advice = engine.advice
    if advice.action is Action.INSUFFICIENT_DATA:
        return none(reason_words(advice) or "nothing is known yet")
    return pill(advice.action.value, action_words(advice))


def advice_words(view: View) -> Html:
    """Say why that is advised."""
    return element("p", reason_words(view.engine.advice) or "nothing is known yet")


def measured(view: View) -> Html:
    """What was measured against the baseline; left out where no window has anything of it."""
    if not any(m.measured.speedup is not None or m.measured.latency_ratios for m in view.engine.windows):
        return Html()
    title, anchor = "Against the baseline", f"{view.anchor}-baseline"
    found = view.judged.measured if view.judged else None
    if found is None or (found.speedup is None and not found.latency_ratios):
        why = "None: too few requests finished in the window at a load that the baseline has."
        return section(title, element("p", why, class_="empty"), anchor=anchor, note=view.window_words)
    note = (
        "At the same load. Times below 1 are faster, and as coarse as the server's buckets. "
        "A speedup below 1 is slower."
    )
    return section(
        title,
        facts(_speedup(found), "list"),
        _latencies(found),
        element("p", note, class_="note"),
        anchor=anchor,
        note=view.window_words,
    )


def _speedup(found: Measured) -> tuple[tuple[str, str], ...]:
    few = none("too few requests finished")
    if found.speedup is None or found.speedup_low is None or found.speedup_high is None:
        return (("Speedup per output token", few),)
    throughput = found.baseline_tokens_per_second
    return (
        ("Speedup per output token", times(found.speedup)),
        ("95 % interval", f"{tokens(found.speedup_low)} to {times(found.speedup_high)}"),
        ("Requests behind it", few if found.requests is None else count(found.requests)),
        (
            "Tokens per second of the baseline",
            none("not known") if throughput is None else rate(throughput),
        ),
    )


def _latencies(found: Measured) -> Html:
    if not found.latency_ratios:
        return Html()
    ratios = {(item.latency, item.quantile): item.ratio for item in found.latency_ratios}
    rows = (
        row(words, [_ratio(ratios.get((latency, quantile))) for quantile in _QUANTILES])
        for latency, words in _LATENCIES.items()
    )
    heads = ("Time now over the baseline's", *(f"P{100 * quantile:g}" for quantile in _QUANTILES))
    return table(heads, rows, label="Latencies against the baseline", class_="numbers")


def _ratio(value: float | None) -> str:
    return (
        none("too few requests finished, or the server does not show it") if value is None else times(value)
    )
