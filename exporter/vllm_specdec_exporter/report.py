"""The report of `check`: a result as text for a terminal. Pure."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from .judgement.activity import ActivityState
from .judgement.findings import Severity
from .judgement.quality import QualityLevel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .result import EngineResult, ExporterResult, TargetResult

_BOLD, _RED, _YELLOW, _GREEN = "1", "31", "33", "32"
_BAR_WIDTH = 30
_WIDTH = 100
_NONE = "–"


def render(result: ExporterResult, *, colour: bool = False) -> str:
    """Return the report on `result`.

    Args:
        result: what to report.
        colour: whether to emphasise with terminal colours; the words say everything without them.
    """
    paint = _paint if colour else _plain
    lines: list[str] = []
    for target in result.targets:
        lines += _target(target, paint)
    return "\n".join(lines)


class _Plain:
    def __call__(self, text: str, _style: str) -> str:
        return text


class _Colours(_Plain):
    def __call__(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m"


_plain, _paint = _Plain(), _Colours()


def _target(target: TargetResult, paint: _Plain) -> Iterator[str]:
    if not target.up:
        yield paint(f"{target.target} cannot be judged", _RED)
        if target.failure is not None:
            yield f"  {target.failure.reason}: {target.failure.message}"
        return
    for engine in target.engines:
        yield from _engine(target, engine, paint)


def _engine(target: TargetResult, engine: EngineResult, paint: _Plain) -> Iterator[str]:
    deployment = engine.deployment
    labels = {
        "model": engine.model_name,
        "engine": engine.engine,
        "dialect": deployment.dialect,
        "version": deployment.upstream_version,
        "method": deployment.method,
        "K": str(engine.num_speculative_tokens or ""),
    }
    yield paint(target.target, _BOLD)
    yield "  " + ", ".join(f"{name} {value}" for name, value in labels.items() if value)
    yield ""
    state = paint(engine.activity.state or "unknown", _style(engine))
    yield from _wrap(f"activity  {state} ({engine.activity.reason})", "  ", 12)
    if engine.quality.level is not None:
        level = paint(engine.quality.level, _style(engine))
        yield from _wrap(f"quality   {level} ({'; '.join(engine.quality.reasons)})", "  ", 12)
    yield ""
    yield from _measures(engine)
    for finding in engine.findings:
        mark = paint("problem", _RED) if finding.severity is Severity.PROBLEM else paint("hint", _YELLOW)
        yield from _wrap(f"{mark}: {finding.text}", "  ", 4)
        yield from _wrap(finding.action, "    ", 4)


def _style(engine: EngineResult) -> str:
    if engine.activity.state is ActivityState.BYPASSED or engine.quality.level is QualityLevel.POOR:
        return _RED
    if engine.quality.level in (QualityLevel.HEALTHY, QualityLevel.OPTIMAL):
        return _GREEN
    return _YELLOW


def _measures(engine: EngineResult) -> Iterator[str]:
    for measures in engine.windows:
        rows = [
            ("window", f"{measures.window}, real span {_number(measures.span_seconds)} s"),
            ("drafts", _number(measures.drafts)),
            ("acceptance ratio", _percent(measures.acceptance_ratio)),
            ("mean acceptance length", _number(measures.mean_acceptance_length)),
            ("mean draft length", _number(measures.mean_draft_length)),
            ("tokens out of drafts", _percent(measures.coverage_ratio)),
            ("position decay", _percent(measures.position_decay_ratio)),
            ("generated tokens/s", _number(measures.generation_tokens_per_second)),
            ("accepted tokens/s", _number(measures.accepted_tokens_per_second)),
            ("requests running", _number(engine.load.requests_running)),
            ("requests waiting", _number(engine.load.requests_waiting)),
        ]
        for name, value in rows:
            yield f"  {name:<24}{value}"
        yield ""
        if measures.position_acceptance_ratio:
            yield "  position  accepted  of those before  mean length with K up to here"
        positions = zip(
            measures.position_acceptance_ratio,
            measures.position_conditional_acceptance_ratio,
            measures.mean_acceptance_length_at,
            strict=True,
        )
        for position, (ratio, conditional, length) in enumerate(positions):
            bar = "█" * round(ratio * _BAR_WIDTH)
            yield f"  {position:>8}  {_percent(ratio):>8}  {_percent(conditional):>15}  {length:<6.2f}{bar}"
        if measures.position_acceptance_ratio:
            yield ""


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


def _number(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.2f}"
