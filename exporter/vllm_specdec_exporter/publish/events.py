"""Log events: state changes between two results, and periodic aggregate lines.

A line is written when something changes. In a configured interval, one aggregate line
is written for each engine and for each model with observations of single requests.
There is never a line per poll.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..judgement.activity import ActivityState
from ..judgement.advice import Action
from ..observe.result import EngineResult, ExporterResult, TargetResult
from ..per_request.summary import ModelRequests

#: Failures that are part of a server's normal life: not a warning.
_NORMAL_FAILURES = frozenset({"refused"})

#: The measures in an aggregate line, beside those by position.
_MEASURES = (
    "acceptance_ratio",
    "mean_acceptance_length",
    "mean_draft_length",
    "coverage_ratio",
    "drafts_per_second",
    "draft_tokens_per_second",
    "accepted_tokens_per_second",
    "generation_tokens_per_second",
)

#: Of one poll, three for each of eight engines; more changes are reported in one line.
_MAX_LINES = 24


@dataclass(frozen=True, slots=True)
class Event:
    """One log line: a level of `logging`, a message, and key-value fields."""

    level: int
    message: str
    fields: dict[str, object] = field(default_factory=dict)


def changes(before: TargetResult, after: TargetResult) -> Iterator[Event]:
    """Yield an event for each change between two successive results of a target."""
    target: dict[str, object] = {"target": after.target}
    if after.up and not before.up:
        dialects = sorted({engine.deployment.dialect for engine in after.engines})
        about = {"dialect": ",".join(dialects), "engines": len(after.engines)}
        yield Event(logging.INFO, "server is up", {**target, **about})
    if not after.up and after.failure is not None:
        reason = after.failure.reason
        if before.up or before.failure is None or before.failure.reason != reason:
            normal = reason in _NORMAL_FAILURES and not before.up
            level = logging.INFO if normal else logging.WARNING
            message = "waiting for the server" if normal else "server is down"
            yield Event(
                level,
                message,
                {**target, "reason": reason, "error": after.failure.message},
            )
    known = {engine.key: engine for engine in before.engines}
    events = [
        e
        for engine in after.engines
        for e in _engine_changes(known.get(engine.key), engine, target)
    ]
    if len(events) > _MAX_LINES:
        events = [
            Event(
                logging.INFO, "many engines changed", {**target, "changes": len(events)}
            )
        ]
    yield from events


def _engine_changes(
    before: EngineResult | None, after: EngineResult, target: dict[str, object]
) -> Iterator[Event]:
    fields = {**target, **_identity(after)}
    if before is None or before.activity.state is not after.activity.state:
        state = after.activity.state or "unknown"
        yield Event(
            logging.INFO,
            "activity",
            {**fields, "state": state, "why": after.activity.reason},
        )
    level = after.quality.level
    if level is not None and (before is None or before.quality.level is not level):
        why = "; ".join(after.quality.reasons)
        yield Event(logging.INFO, "quality", {**fields, "quality": level, "why": why})
    verdict = after.payoff.verdict
    if verdict is not None and (before is None or before.payoff.verdict is not verdict):
        why = "; ".join(after.payoff.reasons)
        yield Event(
            logging.INFO, "payoff", {**fields, **_present(_payoff(after)), "why": why}
        )
    if _has_new_advice(before, after):
        yield Event(
            logging.INFO,
            "recommendation",
            {**fields, **_advice(after), "why": after.advice.reason},
        )
    if before is None:
        return
    if after.engine_resets_total > before.engine_resets_total:
        yield Event(logging.INFO, "counters reset", fields)
    if before.num_speculative_tokens != after.num_speculative_tokens is not None:
        k = {
            "before": before.num_speculative_tokens,
            "now": after.num_speculative_tokens,
        }
        yield Event(
            logging.INFO, "num_speculative_tokens changed", {**fields, **_present(k)}
        )


def _has_new_advice(before: EngineResult | None, after: EngineResult) -> bool:
    # This does not flap: advice changes only after another K was better for a whole
    # window.
    advice = after.advice
    if advice.action is Action.INSUFFICIENT_DATA:
        return False
    if before is None:
        known = None
    else:
        known = (before.advice.action, before.advice.num_speculative_tokens)
    return known != (advice.action, advice.num_speculative_tokens)


def aggregate(result: ExporterResult) -> Iterator[Event]:
    """Yield a line for each target that is down, each engine by its judged window, and
    each model.
    """
    for target in result.targets:
        where: dict[str, object] = {"target": target.target}
        if not target.up:
            why = {"reason": "not polled yet"}
            if target.failure:
                why = {"reason": target.failure.reason, "error": target.failure.message}
            yield Event(logging.INFO, "no metrics", {**where, **why})
        for engine in target.engines:
            yield Event(
                logging.INFO,
                "aggregate",
                {**where, **_identity(engine), **_values(engine)},
            )
    for model in result.requests.models if result.requests else ():
        if model.window_requests:
            yield Event(logging.INFO, "requests", _request_values(model))


def _request_values(model: ModelRequests) -> dict[str, object]:
    return _present(
        {
            "model_name": model.model_name or None,
            "window": model.window,
            "window_requests": model.window_requests,
            "request_acceptance_ratio_p10": model.acceptance_quantiles.get("0.1"),
            "request_losing_ratio": model.losing_requests_ratio,
            "request_gaining_ratio": model.gaining_requests_ratio,
            "request_workload_mixed": None if model.mixed is None else int(model.mixed),
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
        fields |= _payoff(engine)
    if engine.activity.state is ActivityState.ACTIVE:
        fields |= _advice(engine)
    fields["num_speculative_tokens"] = engine.num_speculative_tokens
    measures = engine.window(engine.judged_window)
    if measures is not None:
        fields |= {
            "window": measures.window,
            "drafts": _whole(measures.drafts),
            **{name: getattr(measures, name) for name in _MEASURES},
        }
        for position, ratio in enumerate(measures.position_acceptance_ratio):
            fields[f"position_{position}_acceptance_ratio"] = ratio
    fields["requests_running"] = _whole(engine.load.requests_running)
    fields["requests_waiting"] = _whole(engine.load.requests_waiting)
    return _present(fields)


def _present(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that have a value, rounded to four decimals."""
    return {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in fields.items()
        if value is not None
    }


def _payoff(engine: EngineResult) -> dict[str, object]:
    payoff = engine.payoff
    speedup = None if payoff.speedup is None else round(payoff.speedup, 2)
    verdict = {"payoff": payoff.verdict, "payoff_likely": payoff.likely}
    return {**verdict, "speedup": speedup, "speedup_basis": payoff.basis}


def _advice(engine: EngineResult) -> dict[str, object]:
    advice = engine.advice
    fields: dict[str, object] = {"recommendation": advice.action}
    if advice.num_speculative_tokens is not None:
        fields["recommended_num_speculative_tokens"] = advice.num_speculative_tokens
    return fields


def _whole(value: float | None) -> int | None:
    if value is None:
        return None
    return round(value)
