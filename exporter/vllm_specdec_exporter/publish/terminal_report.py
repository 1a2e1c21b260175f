"""The report of `check`: a result as text for a terminal. Pure.

Lines are wrapped at 100 columns, except those to paste, which stay whole.
"""

from collections.abc import Iterator, Mapping, Sequence

from ..economics.baseline_match import Measured
from ..economics.speedup import Estimate
from ..economics.statistics import Interval, format_ratio
from ..judgement.activity import ActivityState
from ..judgement.advice import Advice
from ..judgement.payoff import PayoffVerdict
from ..judgement.published_rules import Rule
from ..judgement.quality import QualityLevel
from ..measures.measures import Measures
from ..observe.result import EngineResult, ExporterResult, TargetResult
from . import request_report, terminal, wording
from .request_report import Costs

#: Characters of a bar for a ratio of 1: what the table of positions leaves of a line.
_BAR_WIDTH = 30
#: Column of the texts beside labels: the longest label, and the indent.
_TEXT_COLUMN = 14
#: Of the rules of thumb, which may say something else than the verdict.
_RULES_NOTE = "published rules of thumb, which look at acceptance alone, not at time"
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
#: For windows that the advice does not rest on.
_NO_ADVICE = Advice()


def render(
    result: ExporterResult,
    *,
    colour: bool = False,
    costs: Mapping[str, Costs] | None = None,
    rules: bool = False,
) -> str:
    """Return the report on `result`; `costs` by model are for single requests.

    Colours add no information. With `rules`, the rules of thumb are a table instead of
    one line.
    """
    paint = terminal.painter(colour=colour)
    lines: list[str] = []
    for target in result.targets:
        if lines:
            lines.append("")
        lines += _target(target, paint, rules=rules)
    if result.requests is not None:
        if lines:
            lines += ["", paint("single requests", terminal.BOLD)]
        lines += request_report.render(result.requests, paint, costs)
    return "\n".join(line.rstrip() for line in lines)


def _target(
    target: TargetResult, paint: terminal.Paint, *, rules: bool
) -> Iterator[str]:
    if not target.up:
        yield from _down(target, paint)
        return
    yield paint(terminal.printable(target.target), terminal.BOLD)
    for engine in target.engines:
        yield from _verdict(engine, paint)
        yield from _to_do(engine)
    for engine in target.engines:
        yield ""
        yield from _engine(engine, paint, rules=rules)


def _down(target: TargetResult, paint: terminal.Paint) -> Iterator[str]:
    yield paint(f"{terminal.printable(target.target)} cannot be judged", terminal.RED)
    failure = target.failure
    if failure is None:
        return
    yield from terminal.paragraph(f"{failure.reason}: {failure.message}", 4, "  ")
    if failure.reason in _CAUSES:
        yield f"    {_CAUSES[failure.reason]}"


def _verdict(engine: EngineResult, paint: terminal.Paint) -> Iterator[str]:
    payoff = engine.payoff
    verdict = wording.leaning_words(payoff) or engine.activity.state or "unknown"
    if verdict == ActivityState.ACTIVE:
        verdict = "unknown"
    verdict = verdict.upper()
    measures = engine.window(engine.judged_window)
    reason = engine.activity.reason
    if engine.quality.level is not None and measures is not None:
        ratio = terminal.percent(measures.acceptance_ratio)
        length = terminal.length(measures.mean_acceptance_length)
        reason = f"{ratio} of the drafted tokens accepted, {length} tokens a draft"
    if payoff.speedup is not None:
        speed = f"{payoff.speedup:.2f} {wording.TIMES_AS_FAST}"
        reason = f"{speed} ({payoff.basis}), {reason}"
    elif payoff.basis is not None:
        low = f"{payoff.speedup_low:.2f}"
        high = f"{payoff.speedup_high:.2f}"
        speed = f"{low} to {high} {wording.TIMES_AS_FAST}"
        reason = f"{speed} (95 % interval, {payoff.basis}), {reason}"
    lines = terminal.paragraph(f"{verdict}  {_name(engine)}: {reason}", 4, "  ")
    yield from terminal.emphasised(lines, verdict, paint, _style(engine))


def _to_do(engine: EngineResult) -> Iterator[str]:
    """Yield the one thing to do: by the verdict, or what the first finding says where
    nothing is judged.
    """
    if engine.activity.state is ActivityState.ACTIVE:
        text = f"{wording.to_do(engine)} ({wording.reason_words(engine.advice)})"
    elif engine.findings:
        text = engine.findings[0].action
    else:
        return
    yield from _labelled("to do", text)


def _name(engine: EngineResult) -> str:
    labels = []
    if engine.model_name:
        labels.append(engine.model_name)
    if engine.engine:
        labels.append(f"engine {engine.engine}")
    return terminal.printable(", ".join(labels)) or "the only engine"


def _engine(
    engine: EngineResult, paint: terminal.Paint, *, rules: bool
) -> Iterator[str]:
    deployment = engine.deployment
    facts = {
        "dialect": deployment.dialect,
        "version": deployment.upstream_version,
        "method": deployment.method,
        "K": str(engine.num_speculative_tokens or ""),
    }
    listed = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
    name = _name(engine)
    title = terminal.paragraph(f"{name} ({listed})", 4, "  ")
    yield from terminal.emphasised(title, name, paint, terminal.BOLD)
    yield ""
    yield from _judgement(engine)
    yield from _rules(engine.advice.rules, in_full=rules)
    yield ""
    for measures in engine.windows:
        # An engine that does nothing would fill the screen with dashes.
        if (
            measures.acceptance_ratio is not None
            or measures.generation_tokens_per_second is not None
        ):
            yield from _measures(engine, measures)
            yield ""
    for finding in engine.findings:
        yield from terminal.finding_lines(
            finding, f"    {finding.severity}: ", 6, paint
        )


def _judgement(engine: EngineResult) -> Iterator[str]:
    activity = engine.activity.state or "unknown"
    yield from _labelled("activity", f"{activity} ({engine.activity.reason})")
    if engine.quality.level is None and engine.payoff.verdict is None:
        return
    level = engine.quality.level or "not judged"
    reasons = "; ".join(engine.quality.reasons)
    yield from _labelled("quality", f"{level} ({reasons})")
    verdict = wording.verdict_words(engine.payoff) or "unknown"
    reasons = "; ".join(engine.payoff.reasons)
    yield from _labelled("payoff", f"{verdict} ({reasons})")
    yield from _configurations(engine)


def _labelled(label: str, text: str) -> list[str]:
    """Return a paragraph with its label beside its first line."""
    return terminal.paragraph(text, _TEXT_COLUMN, f"    {label:<{_TEXT_COLUMN - 4}}")


def _rules(rules: Sequence[Rule], *, in_full: bool) -> Iterator[str]:
    """Yield how many rules of thumb there are, or what each says."""
    if not rules:
        return
    if not in_full:
        folded = f"{len(rules)} {_RULES_NOTE} (--rules shows them)"
        yield from _labelled("rules", folded)
        return
    yield from _labelled("rules", _RULES_NOTE)
    for rule in rules:
        text = f"{wording.SAYS.get(rule.says, rule.says):<22}  {rule.text}"
        yield from terminal.paragraph(text, _TEXT_COLUMN + 24, " " * _TEXT_COLUMN)


def _configurations(engine: EngineResult) -> Iterator[str]:
    """Yield the configuration to paste, and the K schedule."""
    advice = engine.advice
    if advice.speculative_config:
        yield f"    to paste  {wording.to_paste(engine, advice.speculative_config)}"
    if advice.schedule_config:
        rows = "; ".join(
            f"{row.first} to {row.last} requests K={row.num_speculative_tokens}"
            for row in advice.schedule
        )
        yield from _labelled("schedule", f"best K by batch size: {rows}")
        yield f"{' ' * _TEXT_COLUMN}{wording.to_paste(engine, advice.schedule_config)}"
        yield from terminal.paragraph(wording.seen_words(advice), _TEXT_COLUMN)
    if advice.schedule_note:
        yield from _labelled("schedule", f"none: {advice.schedule_note}")
    if (advice.speculative_config or advice.schedule_config) and wording.only_changes(
        engine
    ):
        yield from terminal.paragraph(wording.ONLY_CHANGES, _TEXT_COLUMN)


def _style(engine: EngineResult) -> str:
    payoff = engine.payoff
    level = engine.quality.level
    if payoff.harmful:
        return terminal.RED
    if payoff.verdict is not None:
        beneficial = payoff.verdict is PayoffVerdict.BENEFICIAL
        return terminal.GREEN if beneficial else terminal.YELLOW
    if engine.activity.unexplained or level is QualityLevel.POOR:
        return terminal.RED
    if level in (QualityLevel.HEALTHY, QualityLevel.OPTIMAL):
        return terminal.GREEN
    return terminal.YELLOW


def _measures(engine: EngineResult, measures: Measures) -> Iterator[str]:
    window = measures.window
    if measures.span_seconds is not None:
        window += f", real span {measures.span_seconds:.1f} s"
    rows = [
        ("window", window),
        ("drafts", _count(measures.drafts)),
        ("acceptance ratio", terminal.percent(measures.acceptance_ratio)),
        ("mean acceptance length", terminal.length(measures.mean_acceptance_length)),
        ("mean draft length", terminal.length(measures.mean_draft_length)),
        ("tokens out of drafts", terminal.percent(measures.coverage_ratio)),
        ("position decay", terminal.percent(measures.position_decay_ratio)),
        ("generated tokens/s", _count(measures.generation_tokens_per_second)),
        ("accepted tokens/s", _count(measures.accepted_tokens_per_second)),
        *_estimated(measures.estimate),
        *_measured(measures.measured),
    ]
    if measures.undelivered_ratio:
        rows.append(("reached no answer", terminal.percent(measures.undelivered_ratio)))
    if measures.returns.return_ratio is not None:
        ratio = terminal.length(measures.returns.return_ratio)
        rows.append(("return on speculation", ratio))
    for latency in measures.latencies:
        name = f"{wording.LATENCIES[latency.name]}, mean"
        rows.append((name, f"{1000 * latency.mean_seconds:,.1f} ms"))
    rows.append(("requests running", _count(engine.load.requests_running)))
    rows.append(("requests waiting", _count(engine.load.requests_waiting)))
    for name, value in rows:
        yield f"    {name:<24}{value}"
    if measures.position_acceptance_ratio:
        yield ""
        # The speedups of the advice are those of the judged window.
        judged = measures.window == engine.judged_window
        yield from _positions(measures, engine.advice if judged else _NO_ADVICE)


def _estimated(estimate: Estimate) -> Iterator[tuple[str, str]]:
    if estimate.interval is None:
        return
    interval = _interval(estimate.interval)
    speedup = terminal.factor(estimate.interval.value)
    yield "speedup of drafts", f"{speedup} (95 %: {interval}, {estimate.basis})"
    length = estimate.break_even_acceptance_length
    yield "break-even length", terminal.length(length)
    yield "break-even acceptance", _break_even(estimate.break_even_acceptance_ratio)
    yield "requests in the batch", _count(estimate.batch_size)


def _break_even(ratio: float | None) -> str:
    shown = terminal.percent(ratio)
    if ratio is not None and ratio > 1:
        return f"out of reach ({shown})"
    return shown


def _measured(measured: Measured) -> Iterator[tuple[str, str]]:
    if measured.interval is not None:
        interval = _interval(measured.interval)
        speedup = terminal.factor(measured.interval.value)
        requests = f"{_count(measured.requests)} requests"
        basis = f"95 %: {interval}, measured, {requests}"
        yield "speedup of all tokens", f"{speedup} ({basis})"
    for name, latency in wording.LATENCIES.items():
        ratios = [
            f"P{100 * item.quantile:g} {terminal.factor(item.ratio)}"
            for item in measured.latency_ratios
            if item.latency == name
        ]
        if ratios:
            yield f"{latency}, time", f"{', '.join(ratios)} of the baseline's"


def _interval(speedup: Interval) -> str:
    low, high = speedup.ends
    return f"{format_ratio(low)}x to {format_ratio(high)}x"


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
        speedup = ""
        if speedups:
            speedup = f"{terminal.factor(speedups.get(position + 1)):<7}"
        conditional_text = terminal.percent(conditional)
        bar = "█" * round(ratio * _BAR_WIDTH)
        yield (
            f"    {position:>8}  {ratio:>8.1%}  {conditional_text:>15}  "
            f"{length:<6.2f}{speedup}{bar}"
        )
    # Beyond the present K nothing was drafted, so there is only what was measured when
    # it ran, or the extrapolation; that of no more than what is advised.
    for option in advice.options[len(measures.position_acceptance_ratio) + 1 :]:
        k = option.num_speculative_tokens
        source = "extrapolated"
        if option.tried:
            source = "measured when it ran"
        elif k > (advice.num_speculative_tokens or 0):
            continue
        speedup = terminal.factor(option.speedup)
        yield (
            f"    {k - 1:>8}  {terminal.DASH:>8}  {terminal.DASH:>15}  "
            f"{option.mean_acceptance_length:<6.2f}{speedup:<7}{source}"
        )


def _count(value: float | None) -> str:
    if value is None:
        return terminal.DASH
    # Counters are floats, though they count; rates below 10 need their decimals.
    if value == int(value) or value >= 10:
        return f"{value:,.0f}"
    return f"{value:.2f}"
