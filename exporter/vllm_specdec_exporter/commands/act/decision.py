"""Decisions: from a webhook payload to the action that each alert requests, or why it
is not taken. Pure.

The payload is that of `webhook_config` in Alertmanager's documentation, version 4.
Labels are untrusted input: only values that were validated here become part of a
command.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

#: Alerts in a payload: five decision alerts of a hundred models.
MAX_ALERTS = 500
#: Characters of a label value that becomes a command argument: names of models have at
#: most some hundred.
MAX_LABEL_LENGTH = 1024
#: Characters of a label value in a message, which is one line of a log.
_MAX_QUOTED = 80


class AlertAction(StrEnum):
    """The values of the label `action`."""

    DISABLE = "disable"
    ENABLE = "enable"
    INCREASE_K = "increase_k"
    DECREASE_K = "decrease_k"
    SWITCH_METHOD = "switch_method"
    MEASURE = "measure"


#: The actions with a label `recommended_k`.
ACTIONS_WITH_K = frozenset(
    {AlertAction.ENABLE, AlertAction.INCREASE_K, AlertAction.DECREASE_K}
)

#: The alerts that may request an action, and which ones each may.
ALERT_ACTIONS: Mapping[str, frozenset[AlertAction]] = {
    "VLLMSpecDecodeDisable": frozenset({AlertAction.DISABLE, AlertAction.MEASURE}),
    "VLLMSpecDecodeReenable": frozenset({AlertAction.ENABLE}),
    "VLLMSpecDecodeKChangeAdvised": frozenset(
        {AlertAction.INCREASE_K, AlertAction.DECREASE_K}
    ),
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


class _Payload(msgspec.Struct):
    version: Literal["4"]  # Alertmanager has sent no other since 0.5
    alerts: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=MAX_ALERTS)]


class _Alert(msgspec.Struct, rename="camel"):
    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    starts_at: str


class Decision(Struct, frozen=True):
    """What an alert requests, or why nothing is done for it."""

    labels: Mapping[str, str]  # of the alert
    body: bytes  # the whole alert as JSON, on one line
    #: When it began to fire, Unix seconds; ``None`` if that is not valid.
    starts_at: float | None
    #: The result without a command; ``None`` if one should run. With that and RESOLVED
    #: the labels are valid.
    no_action: EventKind | None = None
    why: str = ""  # the reason for `no_action`

    def label(self, name: str) -> str:
        """Return a label's value; empty if absent, as in Prometheus."""
        return self.labels.get(name, "")

    @property
    def model(self) -> str:
        """The labels that identify a model, or one method of a model with several, as
        JSON: no two have the same text.
        """
        names = ["cluster", "namespace", "model_name"]
        if self.label("method"):
            names.append("method")
        return json.dumps(list(map(self.label, names)))

    @property
    def recommended_k(self) -> str:
        """The recommended K: 0 for `disable`, empty for actions without one."""
        if self.label("action") == AlertAction.DISABLE:
            return "0"
        return self.label("recommended_k")

    @property
    def request(self) -> str:
        """The action, with K if it has one: what a model's history is kept by."""
        action = self.label("action")
        if action in ACTIONS_WITH_K:
            return f"{action} {self.recommended_k}"
        return action

    @property
    def identity(self) -> tuple[str, str, float | None]:
        """What identifies the alert; one that fires again has another identity."""
        return self.model, self.request, self.starts_at

    def without_action(self, kind: EventKind, why: str) -> Decision:
        """Return the decision without a command."""
        return replace(self, no_action=kind, why=why)


def decide(body: bytes) -> tuple[Decision, ...]:
    """Return the decisions of a payload, in the order of its alerts; ValueError if it
    is none.

    If firing alerts request different actions or K for one model, only `disable` is
    carried out; `measure` contradicts nothing and gives way. If several request the
    same, the first one is acted upon.
    """
    try:
        decisions = tuple(map(_decide, msgspec.json.decode(body, type=_Payload).alerts))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a webhook payload of Alertmanager: {error}") from error
    requests: defaultdict[str, dict[str, Decision]] = defaultdict(dict)
    for decision in decisions:
        if decision.no_action is None:
            requests[decision.model].setdefault(decision.request, decision)
    return tuple(
        _beside(requests[each.model], each) if each.no_action is None else each
        for each in decisions
    )


def _beside(requests: Mapping[str, Decision], decision: Decision) -> Decision:
    """Return a decision, without action if others of its payload for the same model are
    in its way.
    """
    changes = requests.keys() - {AlertAction.MEASURE}
    chosen = changes & {AlertAction.DISABLE} or changes or requests.keys()
    if len(chosen) > 1:
        why = (
            f"the payload requests {', '.join(sorted(chosen)[:5])} for one model: none "
            "is carried out"
        )
    elif decision.request not in chosen:
        why = f"the payload requests {min(chosen)} for the same model"
    elif requests[decision.request] is not decision:
        why = "another alert of the payload requests the same"
    else:
        return decision
    return decision.without_action(EventKind.SKIPPED, why)


def _decide(document: dict[str, Any]) -> Decision:
    alert = msgspec.convert(document, _Alert)
    try:
        begin = msgspec.convert(alert.starts_at, datetime)
        starts_at = begin.astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        starts_at = None
    # Encoded from the decoded document: if the input repeats a key, the script reads
    # the validated value.
    decision = Decision(alert.labels, msgspec.json.encode(document), starts_at)
    kind, why = _invalid(decision)
    if not why and starts_at is None:
        kind = EventKind.REJECTED
        why = f"startsAt {quoted(alert.starts_at)} is no RFC 3339 time"
    if not why and alert.status == "resolved":
        kind = EventKind.RESOLVED
        why = "the alert no longer fires"
    if why:
        return decision.without_action(kind, why)
    return decision


def _invalid(decision: Decision) -> tuple[EventKind, str]:
    """Return the result of an alert whose labels are not valid, and why; an empty
    reason if they are.
    """
    action = decision.label("action")
    if not action:
        return EventKind.SKIPPED, "the alert has no label action"
    if action not in list(AlertAction):
        actions = ", ".join(AlertAction)
        return EventKind.SKIPPED, f"unknown action {quoted(action)}; known: {actions}"
    if not decision.label("model_name").strip():
        return EventKind.REJECTED, "the alert names no model"
    for name in ("model_name", "namespace", "cluster", "method", "alertname"):
        value = decision.label(name)
        if not _is_safe(value):
            why = f"label {name} {quoted(value)}: allowed: {_SAFE}"
            return EventKind.REJECTED, why
    alertname = decision.label("alertname")
    if action not in ALERT_ACTIONS.get(alertname, ()):
        why = f"the alert {quoted(alertname)} may not request {action}"
        return EventKind.REJECTED, why
    pattern, allowed = _allowed_k(action)
    k = decision.label("recommended_k")
    if not re.fullmatch(pattern, k):
        why = f"label recommended_k {quoted(k)}: allowed with {action}: {allowed}"
        return EventKind.REJECTED, why
    return EventKind.SKIPPED, ""


_SAFE = (
    f"at most {MAX_LABEL_LENGTH} printable characters, no - at the begin, no space at "
    "an end"
)


def _is_safe(value: str) -> bool:
    """Whether a program takes a label as one argument, and never as an option."""
    return (
        len(value) <= MAX_LABEL_LENGTH
        and value.isprintable()
        and not value.startswith("-")
        and value == value.strip()
    )


def _allowed_k(action: str) -> tuple[str, str]:
    """Return which K an action may have, as a pattern and in words."""
    if action in ACTIONS_WITH_K:
        return "[1-9][0-9]{0,2}", "a whole number from 1 to 999"
    if action == AlertAction.DISABLE:
        return "0?", "0 or none"
    return "", "none"


def quoted(text: str) -> str:
    """Return a value for a message: quoted, in ASCII, at most its first characters."""
    return ascii(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}...")
