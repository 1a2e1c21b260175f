"""The report of `check`: a result as text for a terminal. Pure.

Lines are wrapped at 100 columns, except those to paste, which stay whole.
"""

from collections.abc import Iterator, Mapping

from ..economics.statistics import times
from ..judgement.advice import Advice
from ..judgement.payoff import PayoffVerdict
from ..judgement.quality import QualityLevel
from ..measures.measures import Measures
from ..observe.result import EngineResult, ExporterResult, TargetResult
from . import request_report
from . import wording as w
from .request_report import Costs

_BAR_WIDTH = 30
#: Likely causes of a failed poll, by its reason.
_CAUSES = {
    "refused": (
        "Is the server running, and is this its port? A vLLM that is loading refuses "
        "for minutes."
    ),
    "timeout": (
        "The server may be overloaded, or the address may belong to something else."
    ),
    "http_status": (
        "Is this the address of the server's /metrics, and does it need a token?"
    ),
    "unrecognized": "Is this the address of the server's /metrics?",
    "tls": "See --vllm.ca-file, --vllm.server-name and --vllm.cert-file.",
}
_NO_ADVICE = Advice()


def render(
    result: ExporterResult,
    *,
    colour: bool = False,
    costs: Mapping[str, Costs] | None = None,
) -> str:
    """Return the report on `result`; `costs` by model are for single requests.

    Colours add no information.
    """
    paint = w.painter(colour=colour)
    lines: list[str] = []
    for target in result.targets:
        lines += ["", *_target(target, paint)] if lines else _target(target, paint)
    if result.requests is not None:
        lines += ["", paint("single requests", w.BOLD)] if lines else []
        lines += request_report.render(result.requests, paint, costs)
    return "\n".join(line.rstrip() for line in lines)


def _target(target: TargetResult, paint: w.Paint) -> Iterator[str]:
    if not target.up:
        yield paint(f"{w.printable(target.target)} cannot be judged", w.RED)
        if target.failure is not None:
            yield from w.paragraph(
                f"{target.failure.reason}: {target.failure.message}", 4, "  "
            )
            if target.failure.reason in _CAUSES:
                yield f"    {_CAUSES[target.failure.reason]}"
        return
    yield paint(w.printable(target.target), w.BOLD)
    for engine in target.engines:
        yield from _verdict(engine, paint)
    for engine in target.engines:
        yield ""
        yield from _engine(engine, paint)


def _verdict(engine: EngineResult, paint: w.Paint) -> Iterator[str]:
    unjudged = engine.quality.level or engine.activity.state or "unknown"
    word = w.headline(engine.payoff) or unjudged.upper()
    measures = engine.window(engine.judged_window)
    words = engine.activity.reason
    if engine.quality.level is not None and measures is not None:
        words = (
            f"{w.shown(measures.acceptance_ratio, w.PERCENT)} of the drafted tokens "
            "accepted, "
            f"{w.shown(measures.mean_acceptance_length, w.LENGTH)} tokens a draft"
        )
    if engine.payoff.speedup is not None:
        speed = f"{engine.payoff.speedup:.2f} times as fast as without speculation"
        words = f"{speed} ({engine.payoff.basis}), {words}"
    elif engine.payoff.basis is not None:
        words = f"{engine.payoff.basis}, {words}"
    lines = w.paragraph(f"{word}  {_name(engine)}: {words}", 4, "  ")
    yield from w.emphasised(lines, word, paint, _style(engine))


def _name(engine: EngineResult) -> str:
    labels = (engine.model_name, f"engine {engine.engine}" if engine.engine else "")
    return (
        w.printable(", ".join(label for label in labels if label)) or "the only engine"
    )


def _engine(engine: EngineResult, paint: w.Paint) -> Iterator[str]:
    deployment = engine.deployment
    known = {
        "dialect": deployment.dialect,
        "version": deployment.upstream_version,
        "method": deployment.method,
        "K": str(engine.num_speculative_tokens or ""),
    }
    facts = ", ".join(f"{name} {value}" for name, value in known.items() if value)
    yield from w.emphasised(
        w.paragraph(f"{_name(engine)} ({facts})", 4, "  "), _name(engine), paint, w.BOLD
    )
    yield ""
    activity = f"{engine.activity.state or 'unknown'} ({engine.activity.reason})"
    yield from w.paragraph(activity, 14, "    activity  ")
    if engine.quality.level is not None:
        quality = f"{engine.quality.level} ({'; '.join(engine.quality.reasons)})"
        yield from w.paragraph(quality, 14, "    quality   ")
        payoff = (
            f"{w.verdict_words(engine.payoff) or 'unknown'} "
            f"({'; '.join(engine.payoff.reasons)})"
        )
        yield from w.paragraph(payoff, 14, "    payoff    ")
        yield from _advice(engine)
    yield ""
    for measures in engine.windows:
        if (
            measures.acceptance_ratio is not None
            or measures.generation_tokens_per_second is not None
        ):
            yield from _measures(engine, measures)
            yield ""
    for finding in engine.findings:
        yield from w.finding_lines(finding, f"    {finding.severity}: ", 6, paint)


def _advice(engine: EngineResult) -> Iterator[str]:
    """Yield the advice on K, the results of the rules of thumb, and the configuration
    to paste.
    """
    advice = engine.advice
    yield from w.paragraph(
        f"{w.to_do(engine)} ({w.reason_words(advice)})", 14, "    advice    "
    )
    label = "rules"
    for rule in advice.rules:
        yield from w.paragraph(
            f"{w.SAYS.get(rule.says, rule.says)}: {rule.text}", 16, f"    {label:<10}"
        )
        label = ""
    if advice.rules:
        words = (
            "Rules of thumb look at acceptance alone; advice weighs it against the "
            "time a step takes."
        )
        yield from w.paragraph(words, 14)
    if advice.speculative_config:
        yield f"    to paste  {w.to_paste(advice.speculative_config)}"
    if advice.schedule_config:
        rows = "; ".join(
            f"{row.first} to {row.last} requests K={row.num_speculative_tokens}"
            for row in advice.schedule
        )
        yield from w.paragraph(f"best K by batch size: {rows}", 14, "    schedule  ")
        yield f"              {w.to_paste(advice.schedule_config)}"
        yield from w.paragraph(w.seen_words(advice), 14)
    if advice.schedule_note:
        yield from w.paragraph(f"none: {advice.schedule_note}", 14, "    schedule  ")
    if (advice.speculative_config or advice.schedule_config) and w.only_changes(engine):
        yield from w.paragraph(w.ONLY_CHANGES, 14)


def _style(engine: EngineResult) -> str:
    if engine.payoff.harmful:
        return w.RED
    if engine.payoff.verdict is not None:
        if engine.payoff.verdict is PayoffVerdict.BENEFICIAL:
            return w.GREEN
        return w.YELLOW
    if engine.activity.unexplained or engine.quality.level is QualityLevel.POOR:
        return w.RED
    if engine.quality.level in (QualityLevel.HEALTHY, QualityLevel.OPTIMAL):
        return w.GREEN
    return w.YELLOW


def _measures(engine: EngineResult, measures: Measures) -> Iterator[str]:
    if measures.span_seconds is None:
        span = ""
    else:
        span = f", real span {measures.span_seconds:.1f} s"
    latencies = (
        (f"{w.LATENCIES[item.name]}, mean", item.mean_seconds)
        for item in measures.latencies
    )
    rows = [
        ("window", f"{measures.window}{span}"),
        ("drafts", _count(measures.drafts)),
        ("acceptance ratio", w.shown(measures.acceptance_ratio, w.PERCENT)),
        ("mean acceptance length", w.shown(measures.mean_acceptance_length, w.LENGTH)),
        ("mean draft length", w.shown(measures.mean_draft_length, w.LENGTH)),
        ("tokens out of drafts", w.shown(measures.coverage_ratio, w.PERCENT)),
        ("position decay", w.shown(measures.position_decay_ratio, w.PERCENT)),
        ("generated tokens/s", _count(measures.generation_tokens_per_second)),
        ("accepted tokens/s", _count(measures.accepted_tokens_per_second)),
        *_gains(measures),
        *((name, f"{1000 * seconds:,.1f} ms") for name, seconds in latencies),
        ("requests running", _count(engine.load.requests_running)),
        ("requests waiting", _count(engine.load.requests_waiting)),
    ]
    for name, value in rows:
        yield f"    {name:<24}{value}"
    if measures.position_acceptance_ratio:
        yield ""
        # The speedups of the advice are those of the judged window.
        judged = measures.window == engine.judged_window
        yield from _positions(measures, engine.advice if judged else _NO_ADVICE)


def _gains(measures: Measures) -> Iterator[tuple[str, str]]:
    estimate = measures.estimate
    measured = measures.measured
    if estimate.speedup is not None:
        interval = (
            f"{times(estimate.speedup_low or 0.0)}x to "
            f"{times(estimate.speedup_high or 0.0)}x"
        )
        yield "estimated speedup", f"{w.shown(estimate.speedup, w.TIMES)} ({interval})"
        yield (
            "break-even length",
            w.shown(estimate.break_even_acceptance_length, w.LENGTH),
        )
        yield (
            "break-even acceptance",
            w.shown(estimate.break_even_acceptance_ratio, w.PERCENT),
        )
        yield "requests in the batch", _count(estimate.batch_size)
    if measured.speedup is not None:
        interval = (
            f"{times(measured.speedup_low or 0.0)}x to "
            f"{times(measured.speedup_high or 0.0)}x"
        )
        words = f"{interval}, {_count(measured.requests)} requests"
        yield "measured speedup", f"{w.shown(measured.speedup, w.TIMES)} ({words})"
    for name, words in w.LATENCIES.items():
        ratios = [item for item in measured.latency_ratios if item.latency == name]
        if ratios:
            listed = ", ".join(
                f"P{100 * item.quantile:g} {w.shown(item.ratio, w.TIMES)}"
                for item in ratios
            )
            yield f"{words}, time", f"{listed} of the baseline's"
    if measures.returns.return_ratio is not None:
        yield "return on speculation", w.shown(measures.returns.return_ratio, w.LENGTH)


def _positions(measures: Measures, advice: Advice) -> Iterator[str]:
    speedups = {
        option.num_speculative_tokens: option.speedup for option in advice.options
    }
    heads = (
        "position  accepted  of those before  with K up to here, at least: mean length"
    )
    yield f"    {heads}{', speedup' if speedups else ''}"
    positions = zip(
        measures.position_acceptance_ratio,
        measures.position_conditional_acceptance_ratio,
        measures.mean_acceptance_length_at,
        strict=True,
    )
    for position, (ratio, conditional, length) in enumerate(positions):
        bar = "█" * round(ratio * _BAR_WIDTH)
        if speedups:
            speedup = f"{w.shown(speedups.get(position + 1), w.TIMES):<7}"
        else:
            speedup = ""
        cells = (
            f"{ratio:>8.1%}  {w.shown(conditional, w.PERCENT):>15}  "
            f"{length:<6.2f}{speedup}"
        )
        yield f"    {position:>8}  {cells}{bar}"
    for option in advice.options:
        k = option.num_speculative_tokens
        if option.extrapolated and k <= (advice.num_speculative_tokens or 0):
            cells = f"{w.DASH:>8}  {w.DASH:>15}  {option.mean_acceptance_length:<6.2f}"
            yield (
                f"    {k - 1:>8}  "
                f"{cells}{w.shown(option.speedup, w.TIMES):<7}extrapolated"
            )


def _count(value: float | None) -> str:
    if value is None:
        return w.DASH
    if value == int(value) or value >= 10:
        return f"{value:,.0f}"
    return f"{value:.2f}"
