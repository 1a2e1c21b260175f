"""Decisions: from a webhook payload to the action that each alert requests, or why it is not taken. Pure.

The payload is that of `webhook_config` in Alertmanager's documentation, version 4. Labels are untrusted
input: only values that were validated here become part of a command.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

#: The supported version of the payload. Alertmanager has sent no other since 0.5.
VERSION = "4"
#: Maximum number of alerts in a payload.
MAX_ALERTS = 500
#: Maximum length of a label value that becomes a command argument, in characters.
MAX_LABEL_LENGTH = 1024

_K = re.compile(r"[1-9][0-9]{0,2}")


class PayloadError(ValueError):
    """A body that is no webhook payload. The message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert of a payload."""

    firing: bool  # whether it fires; otherwise it is resolved
    labels: Mapping[str, str]  # as in the payload
    starts_at: str  # when it began to fire, RFC 3339
    body: bytes  # the whole alert as JSON, on one line

    def label(self, name: str) -> str:
        """Return a label's value; empty if absent, as in Prometheus."""
        return self.labels.get(name, "")


class _Payload(msgspec.Struct):
    version: str
    alerts: list[dict[str, Any]]


class _Alert(msgspec.Struct, rename="camel"):
    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    starts_at: str


class AlertAction(StrEnum):
    """The values of the label `action`."""

    DISABLE = "disable"
    ENABLE = "enable"
    INCREASE_K = "increase_k"
    DECREASE_K = "decrease_k"
    SWITCH_METHOD = "switch_method"
    MEASURE = "measure"


#: The actions with a label `recommended_k`.
ACTIONS_WITH_K = frozenset({AlertAction.ENABLE, AlertAction.INCREASE_K, AlertAction.DECREASE_K})


#: The alerts that may request an action, and which ones each may.
ALERT_ACTIONS: Mapping[str, frozenset[AlertAction]] = {
    "VLLMSpecDecodeDisable": frozenset({AlertAction.DISABLE, AlertAction.MEASURE}),
    "VLLMSpecDecodeReenable": frozenset({AlertAction.ENABLE}),
    "VLLMSpecDecodeKChangeAdvised": frozenset({AlertAction.INCREASE_K, AlertAction.DECREASE_K}),
    "VLLMSpecDecodeMethodChangeAdvised": frozenset({AlertAction.SWITCH_METHOD}),
    "VLLMSpecDecodeNearBreakEven": frozenset({AlertAction.MEASURE}),
}


class EventKind(StrEnum):
    """The result of an alert."""

    WOULD_ACT = "would_act"
    ACTED = "acted"
    FAILED = "failed"
    SKIPPED = "skipped"
    RESOLVED = "resolved"
    REJECTED = "rejected"


class ModelKey(NamedTuple):
    """The labels that identify a model. Each may be empty."""

    cluster: str
    namespace: str
    model_name: str


class DecisionKey(NamedTuple):
    """The identity of a decision. An alert that fires again has another one."""

    cluster: str
    namespace: str
    model_name: str
    action: str
    recommended_k: str
    starts_at: str

    @property
    def model(self) -> ModelKey:
        """The model of the decision."""
        return ModelKey(self.cluster, self.namespace, self.model_name)


@dataclass(frozen=True, slots=True)
class Decision:
    """What an alert requests, validated."""

    action: AlertAction
    #: The recommended K, 0 for `disable`; ``None`` for `switch_method` and `measure`.
    recommended_k: int | None
    model: ModelKey
    #: To which limits and contradictions belong: the workload of the model if known, or the model.
    target: ModelKey
    alertname: str  # the alert's name
    starts_at: str  # when the alert began to fire, RFC 3339 in UTC
    body: bytes  # the whole alert as JSON

    @property
    def k_text(self) -> str:
        """K as text; empty without one."""
        return "" if self.recommended_k is None else str(self.recommended_k)

    @property
    def key(self) -> DecisionKey:
        """The identity of the decision."""
        return DecisionKey(*self.target, self.action, self.k_text, self.starts_at)


@dataclass(frozen=True, slots=True)
class NoAction:
    """Why no command runs: the result of the alert, and the reason in words."""

    kind: EventKind
    why: str


@dataclass(frozen=True, slots=True)
class EvaluatedAlert:
    """An alert and its decision."""

    alert: Alert
    #: What it requests, also after it resolved; ``None`` if its labels are not valid.
    decision: Decision | None
    no_action: NoAction | None  # why no command runs; ``None`` if one should
    #: The decision of another alert of the payload that requests the same and is acted upon.
    same_as: DecisionKey | None = None


def decode(body: bytes) -> tuple[Alert, ...]:
    """Return the alerts of a payload, in its order; PayloadError if it is none of this version."""
    try:
        payload = msgspec.json.decode(body, type=_Payload)
        if payload.version != VERSION:
            found = f"its version is {payload.version[:20]!r}"
            raise PayloadError(f"{found}, and version {VERSION} is understood")
        if len(payload.alerts) > MAX_ALERTS:
            raise PayloadError(f"it has {len(payload.alerts):,} alerts; the maximum is {MAX_ALERTS}")
        return tuple(_alert(document, index) for index, document in enumerate(payload.alerts))
    except PayloadError:
        raise
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise PayloadError(f"not a webhook payload of Alertmanager: {reason}") from error


def _alert(document: dict[str, Any], index: int) -> Alert:
    try:
        found = msgspec.convert(document, _Alert)
    except msgspec.ValidationError as error:
        raise PayloadError(f"alert {index} (from 0) is not understood: {error}") from error
    # Encoded from the decoded document: if the input repeats a key, the script reads the validated value.
    body = msgspec.json.encode(document)
    return Alert(found.status == "firing", found.labels, found.starts_at, body)


def evaluate(
    alerts: Iterable[Alert], target_of: Callable[[ModelKey], ModelKey] = lambda model: model
) -> tuple[EvaluatedAlert, ...]:
    """Return the alerts of one payload with their decisions.

    If firing alerts request different actions or K for one model, only `disable` is carried out; `measure`
    contradicts nothing and gives way. If several request the same, the one that has fired longest is acted
    upon; the others follow it in the result. `target_of` returns the workload of a model.
    """
    return _without_repeats(_without_contradictions([_evaluate(alert, target_of) for alert in alerts]))


def decide(alert: Alert) -> Decision | NoAction:
    """Return what an alert requests, firing or resolved, or why its labels are not valid."""
    text = alert.label("action")
    if not text:
        return NoAction(EventKind.SKIPPED, "the alert has no label action")
    if text not in list(AlertAction):
        why = f"unknown action {quoted(text)}; known: {', '.join(AlertAction)}"
        return NoAction(EventKind.SKIPPED, why)
    action = AlertAction(text)
    for name in ("model_name", "namespace", "cluster", "alertname"):
        if problem := argument_problem(alert.label(name)):
            return NoAction(EventKind.REJECTED, f"label {name} {quoted(alert.label(name))} {problem}")
    if action not in ALERT_ACTIONS.get(name := alert.label("alertname"), ()):
        return NoAction(EventKind.REJECTED, f"the alert {quoted(name)} may not request {action}")
    try:
        k = _recommended_k(action, alert.label("recommended_k"))
        starts_at = _utc(alert.starts_at)
    except ValueError as error:
        return NoAction(EventKind.REJECTED, str(error))
    model = ModelKey(alert.label("cluster"), alert.label("namespace"), alert.label("model_name"))
    return Decision(action, k, model, model, alert.label("alertname"), starts_at, alert.body)


def argument_problem(value: str) -> str:
    """Return why a value must not become a command argument; empty if it may."""
    if value.startswith("-"):
        return "begins with -, as an option does"
    if not value.isprintable():
        return "contains control characters or other unprintable ones"
    if len(value) > MAX_LABEL_LENGTH:
        return f"is longer than {MAX_LABEL_LENGTH} characters"
    return ""


def quoted(text: str) -> str:
    """Return a value for a message: quoted, in ASCII, at most 80 characters of it."""
    return ascii(text if len(text) <= 80 else f"{text[:80]}...")


def _evaluate(alert: Alert, target_of: Callable[[ModelKey], ModelKey]) -> EvaluatedAlert:
    found = decide(alert)
    decision = replace(found, target=target_of(found.model)) if isinstance(found, Decision) else None
    if not alert.firing:
        return EvaluatedAlert(alert, decision, NoAction(EventKind.RESOLVED, "the alert no longer fires"))
    return EvaluatedAlert(alert, decision, None if isinstance(found, Decision) else found)


def _recommended_k(action: AlertAction, text: str) -> int | None:
    if action in ACTIONS_WITH_K:
        if not _K.fullmatch(text):
            needs = f"{action} needs a whole number from 1 to 999"
            raise ValueError(f"label recommended_k {quoted(text)}: {needs}")
        return int(text)
    if action is AlertAction.DISABLE:
        if text not in ("", "0"):
            raise ValueError(f"label recommended_k {quoted(text)}: with disable it is 0")
        return 0
    if text:
        raise ValueError(f"label recommended_k {quoted(text)}: {action} has none")
    return None


def _utc(text: str) -> str:
    """Return a time in UTC, in one notation."""
    try:
        moment = msgspec.convert(text, datetime).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"startsAt {quoted(text)} is no RFC 3339 time") from error
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _without_contradictions(alerts: list[EvaluatedAlert]) -> list[EvaluatedAlert]:
    requested: defaultdict[ModelKey, set[tuple[AlertAction, int | None]]] = defaultdict(set)
    for each in alerts:
        if each.decision is not None and each.no_action is None:
            requested[each.decision.target].add((each.decision.action, each.decision.recommended_k))
    return [
        each
        if each.decision is None or each.no_action is not None
        else _without_contradiction(each, each.decision, requested[each.decision.target])
        for each in alerts
    ]


def _without_contradiction(
    evaluated: EvaluatedAlert, decision: Decision, requested: set[tuple[AlertAction, int | None]]
) -> EvaluatedAlert:
    """Return an alert, without action if it contradicts others that the payload requests for its model."""
    changes = {(action, k) for action, k in requested if action is not AlertAction.MEASURE}
    wins = changes == {(decision.action, decision.recommended_k)}
    if len(requested) == 1 or decision.action is AlertAction.DISABLE or wins:
        return evaluated
    different = sorted(f"{action} (K {k})" if k else action for action, k in requested)
    words = ", ".join(different[:5]) + (", ..." if len(different) > 5 else "")
    if any(action is AlertAction.DISABLE for action, _ in changes):
        outcome = "disable wins"
    elif len(changes) == 1:
        outcome = "to measure is not needed first"
    else:
        outcome = "none of them is acted upon"
    why = f"one payload asks for {words} for the same model: {outcome}"
    return replace(evaluated, no_action=NoAction(EventKind.SKIPPED, why))


def _without_repeats(alerts: list[EvaluatedAlert]) -> tuple[EvaluatedAlert, ...]:
    """Leave one alert of those that request the same: one action can have several reasons."""
    firing = [each.decision for each in alerts if each.decision is not None and each.no_action is None]
    longest: dict[tuple[str, ...], Decision] = {}
    for decision in sorted(firing, key=lambda decision: decision.starts_at):
        longest.setdefault(decision.key[:-1], decision)
    kept, repeats = [], []
    why = "another alert of the same payload asks for the same, and has done so for longer"
    for each in alerts:
        own = each.decision
        if own is None or each.no_action is not None or longest[own.key[:-1]] is own:
            kept.append(each)
        else:
            no_action = NoAction(EventKind.SKIPPED, why)
            repeats.append(replace(each, no_action=no_action, same_as=longest[own.key[:-1]].key))
    return (*kept, *repeats)
