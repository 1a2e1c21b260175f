"""Log events: state changes between two results, and periodic aggregate lines.

A line is written when something changes. In a configured interval, one aggregate line
is written for each engine and for each model with observations of single requests.
There is never a line per poll.
"""

import logging
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct, field

from ..judgement.activity import ActivityState
from ..judgement.advice import Action, Advice
from ..judgement.messages import name_of
from ..judgement.payoff import Payoff
from ..observe.result import EngineResult, ExporterResult, TargetResult
from ..per_request.summary import ModelRequests
from .wording import NOT_POLLED

#: Failures that are part of a server's normal life: not a warning.
_NORMAL_FAILURES = frozenset({"refused"})

#: The measures in an aggregate line, beside those by position.
_MEASURES = (
    "acceptance_ratio",
    "mean_acceptance_length",
    "mean_draft_length",
    "coverage_ratio",
    "undelivered_ratio",
    "drafts_per_second",
    "draft_tokens_per_second",
    "accepted_tokens_per_second",
    "generation_tokens_per_second",
)

#: Lines of one poll: three for each of eight engines. More changes get one line.
_MAX_LINES = 24


#: Findings on what the operator configured, which are told once in the log too.
_CONFIGURATION = frozenset(
    f"finding.{name}.text"
    for name in (
        "one_for_several",
        "not_looked_up",
        "not_drafted",
        "positions_differ",
        "unknown_settings",
    )
)


class Event(Struct, frozen=True):
    """One log line: a level of `logging`, a message, and key-value fields."""

    level: int
    message: str
    fields: dict[str, object] = field(default_factory=dict)


def changes(
    previous: TargetResult,
    current: TargetResult,
    explained: Callable[[EngineResult], EngineResult],
) -> Iterator[Event]:
    """Yield an event for each change between two successive results of a target.

    `explained` adds the reasons to an engine's result; it is asked only for engines
    that changed, as hardly any does.
    """
    target: dict[str, object] = {"target": current.target}
    yield from _reachability(previous, current, target)
    engines = {engine.key: engine for engine in previous.engines}
    events = 0
    changed: list[tuple[EngineResult | None, EngineResult]] = []
    configured: list[str] = []
    for engine in current.engines:
        earlier = engines.get(engine.key)
        configured += _configuration_changes(earlier, engine)
        if number := sum(1 for _ in _engine_changes(earlier, engine, target)):
            events += number
            changed.append((earlier, engine))
    # Engines of one server are configured alike.
    for text in dict.fromkeys(configured):
        fields = {**target, "finding": text}
        yield Event(logging.WARNING, "configuration does not fit", fields)
    # A restart of a large server must not flood the log.
    if events > _MAX_LINES:
        yield _info("many engines changed", target, changes=events)
        return
    for earlier, engine in changed:
        yield from _engine_changes(earlier, explained(engine), target)


def _configuration_changes(
    previous: EngineResult | None, current: EngineResult
) -> list[str]:
    """Return the findings on the configuration that the result before did not have."""
    told = set()
    if previous is not None:
        told = {name_of(finding.text) for finding in previous.findings}
    return [
        str(finding.text)
        for finding in current.findings
        if (name := name_of(finding.text)) in _CONFIGURATION and name not in told
    ]


def _info(message: str, fields: Mapping[str, object], **more: object) -> Event:
    return Event(logging.INFO, message, {**fields, **more})


def _reachability(
    previous: TargetResult, current: TargetResult, target: Mapping[str, object]
) -> Iterator[Event]:
    """Yield that a server is up, is down, or is down for another reason."""
    if current.up and not previous.up:
        dialects = sorted({engine.deployment.dialect for engine in current.engines})
        yield _info(
            "server is up",
            target,
            dialect=",".join(dialects),
            engines=len(current.engines),
        )
    failure = current.failure
    if current.up or failure is None:
        return
    if (
        not previous.up
        and previous.failure is not None
        and previous.failure.reason == failure.reason
    ):
        return
    fields = {**target, "reason": failure.reason, "error": failure.message}
    # A server that loads its model refuses connections for minutes.
    if failure.reason in _NORMAL_FAILURES and not previous.up:
        yield _info("waiting for the server", fields)
    else:
        yield Event(logging.WARNING, "server is down", fields)


def _engine_changes(
    previous: EngineResult | None, current: EngineResult, target: Mapping[str, object]
) -> Iterator[Event]:
    fields = {**target, **_identity(current)}
    # Of an engine that is new, every judgement is a change.
    former = previous or EngineResult(current.model_name, current.engine)
    if previous is None or former.activity.state is not current.activity.state:
        state = current.activity.state or "unknown"
        yield _info("activity", fields, state=state, why=current.activity.reason)
    level = current.quality.level
    if level is not None and level is not former.quality.level:
        why = "; ".join(current.quality.reasons)
        yield _info("quality", fields, quality=level, why=why)
    payoff = current.payoff
    if payoff.verdict is not None and payoff.verdict is not former.payoff.verdict:
        why = "; ".join(payoff.reasons)
        yield _info("payoff", fields, **_present(_payoff(payoff)), why=why)
    # This does not flap: advice changes only after another K was better for a whole
    # window.
    has_advice = current.advice.action is not Action.INSUFFICIENT_DATA
    if has_advice and _advised(current) != _advised(former):
        why = current.advice.reason
        yield _info("recommendation", fields, **_advice(current.advice), why=why)
    if previous is None:
        return
    if current.engine_resets_total > previous.engine_resets_total:
        yield _info("counters reset", fields)
    k = current.num_speculative_tokens
    if k is not None and k != previous.num_speculative_tokens:
        change = _present({"before": previous.num_speculative_tokens, "now": k})
        yield _info("num_speculative_tokens changed", fields, **change)


def aggregate(result: ExporterResult) -> Iterator[Event]:
    """Yield a line for each target that is down, each engine by its judged window, and
    each model.
    """
    for target in result.targets:
        target_fields: dict[str, object] = {"target": target.target}
        if not target.up:
            why = {"reason": NOT_POLLED}
            if target.failure:
                why = {"reason": target.failure.reason, "error": target.failure.message}
            yield _info("no metrics", target_fields, **why)
        for engine in target.engines:
            fields = {**target_fields, **_identity(engine)}
            yield _info("aggregate", fields, **_values(engine))
    if result.requests is None:
        return
    for model in result.requests.models:
        if model.window_requests:
            yield _info("requests", _request_values(model))


def _request_values(model: ModelRequests) -> dict[str, object]:
    return _present(
        {
            "model_name": model.model_name or None,
            "window": model.window,
            "window_requests": model.window_requests,
            "request_acceptance_ratio_p10": model.acceptance_quantiles.get("0.1"),
            "request_losing_ratio": model.losing_requests_ratio,
            "request_gaining_ratio": model.gaining_requests_ratio,
            "request_workload_mixed": _whole(model.mixed),
        }
    )


def _identity(engine: EngineResult) -> dict[str, object]:
    labels = {"model_name": engine.model_name, "engine": engine.engine}
    return {name: value for name, value in labels.items() if value}


def _values(engine: EngineResult) -> dict[str, object]:
    fields: dict[str, object] = {
        "activity": engine.activity.state or "unknown",
        "quality": engine.quality.level,
    }
    if engine.payoff.verdict is not None:
        fields |= _payoff(engine.payoff)
    if engine.activity.state is ActivityState.ACTIVE:
        fields |= _advice(engine.advice)
    fields["num_speculative_tokens"] = engine.num_speculative_tokens
    measures = engine.window(engine.judged_window)
    if measures is not None:
        fields["window"] = measures.window
        fields["drafts"] = _whole(measures.drafts)
        for name in _MEASURES:
            fields[name] = getattr(measures, name)
        for position, ratio in enumerate(measures.position_acceptance_ratio):
            fields[f"position_{position}_acceptance_ratio"] = ratio
    fields["requests_running"] = _whole(engine.load.requests_running)
    fields["requests_waiting"] = _whole(engine.load.requests_waiting)
    return _present(fields)


def _present(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that have a value, rounded to four decimals."""
    present = {}
    for name, value in fields.items():
        if value is not None:
            present[name] = round(value, 4) if isinstance(value, float) else value
    return present


def _payoff(payoff: Payoff) -> dict[str, object]:
    speedup = payoff.speedup
    if speedup is not None:
        speedup = round(speedup, 2)
    return {
        "payoff": payoff.verdict,
        "payoff_likely": payoff.likely,
        "speedup": speedup,
        "speedup_basis": payoff.basis,
    }


def _advised(engine: EngineResult) -> tuple[Action, int | None]:
    return engine.advice.action, engine.advice.num_speculative_tokens


def _advice(advice: Advice) -> dict[str, object]:
    fields: dict[str, object] = {"recommendation": advice.action}
    if advice.num_speculative_tokens is not None:
        fields["recommended_num_speculative_tokens"] = advice.num_speculative_tokens
    return fields


def _whole(value: float | None) -> int | None:
    if value is None:
        return None
    return round(value)
