"""The report of `check`: a result as text for a terminal. Pure."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from .judgement.activity import ActivityState
from .judgement.advice import Action
from .judgement.finding import Severity
from .judgement.payoff import PayoffVerdict
from .judgement.quality import QualityLevel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .judgement.advice import Advice
    from .measures import Measures
    from .result import EngineResult, ExporterResult, TargetResult

_BOLD, _RED, _YELLOW, _GREEN = "1", "31", "33", "32"
_BAR_WIDTH = 30
_WIDTH = 100
_NONE = "–"

#: What may be the matter when a server cannot be polled, by the reason of the failure.
_ADVICE = {
    "refused": "Is the server running, and is this its port? A vLLM that is loading refuses for minutes.",
    "timeout": "The server may be overloaded, or the address may belong to something else.",
    "http_status": "Is this the address of the server's /metrics, and does it need a token?",
    "unrecognized": "Is this the address of the server's /metrics?",
    "tls": "See --vllm.ca-file, --vllm.server-name and --vllm.cert-file.",
}


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


def render(result: ExporterResult, *, colour: bool = False) -> str:
    """Return the report on `result`.

    Args:
        result: what to report.
        colour: whether to emphasise with terminal colours; the words say everything without them.
    """
    paint = _Colours() if colour else _Plain()
    lines: list[str] = []
    for target in result.targets:
        lines += ["", *_target(target, paint)] if lines else _target(target, paint)
    return "\n".join(line.rstrip() for line in lines)


def _target(target: TargetResult, paint: _Plain) -> Iterator[str]:
    if not target.up:
        yield paint(f"{target.target} cannot be judged", _RED)
        if target.failure is not None:
            yield from _wrap(f"{target.failure.reason}: {target.failure.message}", "  ", 4)
            if target.failure.reason in _ADVICE:
                yield f"    {_ADVICE[target.failure.reason]}"
        return
    yield paint(target.target, _BOLD)
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
        told = f"{engine.payoff.speedup:.2f} times as fast as without speculation ({engine.payoff.basis}), {told}"
    first, *rest = _wrap(f"{word.upper()}  {_name(engine)}: {told}", "  ", 4)
    yield first.replace(word.upper(), paint(word.upper(), _style(engine)), 1)
    yield from rest


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
        yield from _advice(engine.advice)
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


def _advice(advice: Advice) -> Iterator[str]:
    """Yield what to do about K, what the rules of thumb say, and what to paste."""
    words = str(advice.action)
    if advice.num_speculative_tokens and advice.action is not Action.KEEP:
        words += f", K={advice.num_speculative_tokens}"
    yield from _wrap(f"{words} ({advice.reason})", "    advice    ", 14)
    if advice.rules:
        told = "; ".join(f"{rule.text}: {rule.says or 'nothing to do'}" for rule in advice.rules)
        yield from _wrap(f"{told}. They look at acceptance; advice goes by time.", "    rules     ", 14)
    if advice.speculative_config:
        yield f"    to paste  --speculative-config '{advice.speculative_config}'"
    if advice.schedule_config:
        rows = "; ".join(
            f"{row.first} to {row.last} requests K={row.num_speculative_tokens}" for row in advice.schedule
        )
        yield from _wrap(f"by batch size: {rows}", "    schedule  ", 14)
        yield f"              --speculative-config '{advice.schedule_config}'"


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
        ("estimated speedup", _times(measures.estimate.speedup)),
        ("break-even acceptance", _percent(measures.estimate.break_even_acceptance_ratio)),
        *(
            (f"{_LATENCIES[item.name]}, mean", _milliseconds(item.mean_seconds))
            for item in measures.latencies
        ),
        ("requests in the batch", _count(measures.estimate.batch_size)),
        ("requests running", _count(engine.load.requests_running)),
        ("requests waiting", _count(engine.load.requests_waiting)),
    ]
    for name, value in rows:
        yield f"    {name:<24}{value}"
    if not measures.position_acceptance_ratio:
        return
    yield ""
    speedups = {option.num_speculative_tokens: option.speedup for option in engine.advice.options}
    yield "    position  accepted  of those before  with K up to here: mean length, speedup"
    positions = zip(
        measures.position_acceptance_ratio,
        measures.position_conditional_acceptance_ratio,
        measures.mean_acceptance_length_at,
        strict=True,
    )
    for position, (ratio, conditional, length) in enumerate(positions):
        bar = "█" * round(ratio * _BAR_WIDTH)
        speedup = _times(speedups.get(position + 1))
        cells = f"{_percent(ratio):>8}  {_percent(conditional):>15}  {length:<6.2f}{speedup:<6}"
        yield f"    {position:>8}  {cells}{bar}"


def _wrap(text: str, indent: str, hang: int) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


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
