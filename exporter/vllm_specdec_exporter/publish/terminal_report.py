"""The report of `check`: a result as text for a terminal. Pure.

Lines are wrapped at 100 columns, but for those that are there to be pasted: they stay whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..economics.speedup import of_all
from ..judgement.activity import ActivityState
from ..judgement.advice import Advice
from ..judgement.findings import Severity
from ..judgement.payoff import Basis, PayoffVerdict
from ..judgement.quality import QualityLevel
from . import request_report as per_request
from .wording import (
    ONLY_CHANGES,
    SAYS,
    action_words,
    only_changes,
    printable,
    reason_words,
    seen_words,
    to_paste,
    wrap,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..measures.measures import Measures
    from ..observe.result import EngineResult, ExporterResult, TargetResult

_BOLD, _RED, _YELLOW, _GREEN = "1", "31", "33", "32"
_BAR_WIDTH = 30
_WIDTH = 100
_NONE = "–"
#: What stands for a blank that no line may be broken at.
_GLUE = "\0"
_PASTE = re.compile(r"--speculative-config '.*'")

#: What may be the matter when a server cannot be polled, by the reason of the failure.
_ADVICE = {
    "refused": "Is the server running, and is this its port? A vLLM that is loading refuses for minutes.",
    "timeout": "The server may be overloaded, or the address may belong to something else.",
    "http_status": "Is this the address of the server's /metrics, and does it need a token?",
    "unrecognized": "Is this the address of the server's /metrics?",
    "tls": "See --vllm.ca-file, --vllm.server-name and --vllm.cert-file.",
}
_NO_ADVICE = Advice()
_LATENCIES = {
    "time_to_first_token": "first token",
    "time_per_output_token": "output token",
    "end_to_end": "whole request",
}


class _Plain:
    """Leaves words as they are."""

    def __call__(self, text: str, _style: str) -> str:
        return text


class _Colours(_Plain):
    """Emphasises with terminal colours."""

    def __call__(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m"


def render(
    result: ExporterResult, *, colour: bool = False, costs: Mapping[str, per_request.Costs] | None = None
) -> str:
    """Return the report on `result`.

    Args:
        result: what to report.
        colour: whether to emphasise with terminal colours; the words say everything without them.
        costs: by model, what steps are taken to cost beyond what the result says of single requests.
    """
    paint = _Colours() if colour else _Plain()
    lines: list[str] = []
    for target in result.targets:
        lines += ["", *_target(target, paint)] if lines else _target(target, paint)
    if result.requests is not None:
        lines += ["", paint("single requests", _BOLD)] if lines else []
        lines += per_request.render(result.requests, paint, costs)
    return "\n".join(line.rstrip() for line in lines)


def _target(target: TargetResult, paint: _Plain) -> Iterator[str]:
    if not target.up:
        yield paint(f"{printable(target.target)} cannot be judged", _RED)
        if target.failure is not None:
            yield from _wrap(f"{target.failure.reason}: {target.failure.message}", "  ", 4)
            if target.failure.reason in _ADVICE:
                yield f"    {_ADVICE[target.failure.reason]}"
        return
    yield paint(printable(target.target), _BOLD)
    for engine in target.engines:
        yield from _verdict(engine, paint)
    for engine in target.engines:
        yield ""
        yield from _engine(engine, paint)


def _verdict(engine: EngineResult, paint: _Plain) -> Iterator[str]:
    """Yield the answer in one line, or in two where names are long."""
    word = str(engine.payoff.verdict or engine.quality.level or engine.activity.state or "unknown")
    measures = engine.window(engine.judged_window)
    told = engine.activity.reason
    if engine.quality.level is not None and measures is not None:
        told = (
            f"{_percent(measures.acceptance_ratio)} of the drafted tokens accepted, "
            f"{_length(measures.mean_acceptance_length)} tokens a draft"
        )
    if engine.payoff.speedup is not None:
        speed = f"{engine.payoff.speedup:.2f} times as fast as without speculation"
        told = f"{speed} ({engine.payoff.basis}{_range(engine)}), {told}"
    first, *rest = _wrap(f"{word.upper()}  {_name(engine)}: {told}", "  ", 4)
    yield first.replace(word.upper(), paint(word.upper(), _style(engine)), 1)
    yield from rest


def _range(engine: EngineResult) -> str:
    """Say between what the speedup lies where that crosses the line between gain and loss."""
    measures = engine.window(engine.judged_window)
    if measures is None:
        return ""
    found = measures.measured if engine.payoff.basis is Basis.MEASURED else measures.estimate
    if found.speedup_low is None or found.speedup_high is None:
        return ""
    if not found.speedup_low < 1 < found.speedup_high:
        return ""
    low, high = found.speedup_low, found.speedup_high
    if engine.payoff.basis is Basis.ESTIMATED:
        low, high = of_all(low, measures.coverage_ratio), of_all(high, measures.coverage_ratio)
    return f", uncertain: {low:.2f} to {high:.2f}"


def _name(engine: EngineResult) -> str:
    labels = (engine.model_name, f"engine {engine.engine}" if engine.engine else "")
    return ", ".join(label for label in labels if label) or "the only engine"


def _engine(engine: EngineResult, paint: _Plain) -> Iterator[str]:
    deployment = engine.deployment
    known = {
        "dialect": deployment.dialect,
        "version": deployment.upstream_version,
        "method": deployment.method,
        "K": str(engine.num_speculative_tokens or ""),
    }
    facts = ", ".join(f"{name} {value}" for name, value in known.items() if value)
    first, *rest = _wrap(f"{_name(engine)} ({facts})", "  ", 4)
    yield first.replace(_name(engine), paint(_name(engine), _BOLD), 1)
    yield from rest
    yield ""
    reason = f"{engine.activity.state or 'unknown'} ({engine.activity.reason})"
    yield from _wrap(reason, "    activity  ", 14)
    if engine.quality.level is not None:
        yield from _wrap(
            f"{engine.quality.level} ({'; '.join(engine.quality.reasons)})", "    quality   ", 14
        )
        verdict = engine.payoff.verdict or "unknown"
        yield from _wrap(f"{verdict} ({'; '.join(engine.payoff.reasons)})", "    payoff    ", 14)
        yield from _advice(engine)
    yield ""
    for measures in engine.windows:
        if measures.acceptance_ratio is not None or measures.generation_tokens_per_second is not None:
            yield from _measures(engine, measures)
            yield ""
    for finding in engine.findings:
        problem = finding.severity is Severity.PROBLEM
        first, *rest = _wrap(f"{finding.severity}: {finding.text}", "    ", 6)
        yield paint(first, _RED if problem else _YELLOW)
        yield from rest
        yield from _wrap(finding.action, "      ", 6)


def _advice(engine: EngineResult) -> Iterator[str]:
    """Yield what to do about K, what the rules of thumb say, and what to paste."""
    advice = engine.advice
    yield from _wrap(f"{action_words(advice)} ({reason_words(advice)})", "    advice    ", 14)
    label = "rules"
    for rule in advice.rules:
        yield from _wrap(f"{SAYS.get(rule.says, rule.says)}: {rule.text}", f"    {label:<10}", 16)
        label = ""
    if advice.rules:
        told = "Rules of thumb look at acceptance alone; advice weighs it against the time a step takes."
        yield from _wrap(told, " " * 14, 14)
    if advice.speculative_config:
        yield f"    to paste  {to_paste(advice.speculative_config)}"
    if advice.schedule_config:
        rows = "; ".join(
            f"{row.first} to {row.last} requests K={row.num_speculative_tokens}" for row in advice.schedule
        )
        yield from _wrap(f"best K by batch size: {rows}", "    schedule  ", 14)
        yield f"              {to_paste(advice.schedule_config)}"
        yield from _wrap(seen_words(advice), " " * 14, 14)
    if advice.schedule_note:
        yield from _wrap(f"none: {advice.schedule_note}", "    schedule  ", 14)
    if (advice.speculative_config or advice.schedule_config) and only_changes(engine):
        yield from _wrap(ONLY_CHANGES, " " * 14, 14)


def _style(engine: EngineResult) -> str:
    if engine.payoff.verdict is PayoffVerdict.HARMFUL:
        return _RED
    if engine.payoff.verdict is not None:
        return _GREEN if engine.payoff.verdict is PayoffVerdict.BENEFICIAL else _YELLOW
    if engine.activity.state is ActivityState.BYPASSED or engine.quality.level is QualityLevel.POOR:
        return _RED
    if engine.quality.level in (QualityLevel.HEALTHY, QualityLevel.OPTIMAL):
        return _GREEN
    return _YELLOW


def _measures(engine: EngineResult, measures: Measures) -> Iterator[str]:
    span = "" if measures.span_seconds is None else f", real span {measures.span_seconds:.1f} s"
    rows = [
        ("window", f"{measures.window}{span}"),
        ("drafts", _count(measures.drafts)),
        ("acceptance ratio", _percent(measures.acceptance_ratio)),
        ("mean acceptance length", _length(measures.mean_acceptance_length)),
        ("mean draft length", _length(measures.mean_draft_length)),
        ("tokens out of drafts", _percent(measures.coverage_ratio)),
        ("position decay", _percent(measures.position_decay_ratio)),
        ("generated tokens/s", _count(measures.generation_tokens_per_second)),
        ("accepted tokens/s", _count(measures.accepted_tokens_per_second)),
        *_gains(measures),
        *(
            (f"{_LATENCIES[item.name]}, mean", _milliseconds(item.mean_seconds))
            for item in measures.latencies
        ),
        ("requests running", _count(engine.load.requests_running)),
        ("requests waiting", _count(engine.load.requests_waiting)),
    ]
    for name, value in rows:
        yield f"    {name:<24}{value}"
    if measures.position_acceptance_ratio:
        yield ""
        # Speedups are told of the judged window alone, so they stand beside no other.
        judged = measures.window == engine.judged_window
        yield from _positions(measures, engine.advice if judged else _NO_ADVICE)


def _gains(measures: Measures) -> Iterator[tuple[str, str]]:
    """Yield what speculation gains, as far as it is known."""
    estimate, measured = measures.estimate, measures.measured
    if estimate.speedup is not None:
        low, high = estimate.speedup_low, estimate.speedup_high
        yield "estimated speedup", f"{_times(estimate.speedup)} ({_times(low)} to {_times(high)})"
        yield "break-even length", _length(estimate.break_even_acceptance_length)
        yield "break-even acceptance", _percent(estimate.break_even_acceptance_ratio)
        yield "requests in the batch", _count(estimate.batch_size)
    if measured.speedup is not None:
        low, high = measured.speedup_low, measured.speedup_high
        told = f"{_times(low)} to {_times(high)}, {_count(measured.requests)} requests"
        yield "measured speedup", f"{_times(measured.speedup)} ({told})"
    for name, words in _LATENCIES.items():
        ratios = [item for item in measured.latency_ratios if item.latency == name]
        if ratios:
            told = ", ".join(f"P{100 * item.quantile:g} {_times(item.ratio)}" for item in ratios)
            yield f"{words}, time", f"{told} of the baseline's"
    if measures.returns.return_ratio is not None:
        yield "return on speculation", _length(measures.returns.return_ratio)


def _positions(measures: Measures, advice: Advice) -> Iterator[str]:
    speedups = {option.num_speculative_tokens: option.speedup for option in advice.options}
    heads = "position  accepted  of those before  with K up to here: mean length"
    yield f"    {heads}{', speedup' if speedups else ''}"
    positions = zip(
        measures.position_acceptance_ratio,
        measures.position_conditional_acceptance_ratio,
        measures.mean_acceptance_length_at,
        strict=True,
    )
    for position, (ratio, conditional, length) in enumerate(positions):
        bar = "█" * round(ratio * _BAR_WIDTH)
        speedup = f"{_times(speedups.get(position + 1)):<7}" if speedups else ""
        cells = f"{_percent(ratio):>8}  {_percent(conditional):>15}  {length:<6.2f}{speedup}"
        yield f"    {position:>8}  {cells}{bar}"
    for option in advice.options:
        k = option.num_speculative_tokens
        if option.extrapolated and k <= (advice.num_speculative_tokens or 0):
            cells = f"{_NONE:>8}  {_NONE:>15}  {option.mean_acceptance_length:<6.2f}"
            yield f"    {k - 1:>8}  {cells}{_times(option.speedup):<7}extrapolated"


def _wrap(text: str, indent: str, hang: int) -> list[str]:
    lines = wrap(
        _PASTE.sub(lambda found: found[0].replace(" ", _GLUE), printable(text)), indent, hang, _WIDTH
    )
    return [line.replace(_GLUE, " ") for line in lines]


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{value:.1%}"


def _times(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}x"


def _milliseconds(value: float) -> str:
    return f"{1000 * value:,.1f} ms"


def _length(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}"


def _count(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:,.0f}" if value == int(value) or value >= 10 else f"{value:.2f}"
