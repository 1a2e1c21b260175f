"""Decisions: what an alert asks for, or why it is not acted upon. Pure.

Whatever is in a label came from outside. Nothing but a value that was checked here gets into a command.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .payload import Alert


#: The longest label value that is passed on, in characters.
LONGEST = 1024

_LONGER = "another alert of the same payload asks for the same, and has done so for longer"

#: How many of the different things that are asked for a reason names.
_SHOWN = 5

_K = re.compile(r"[1-9][0-9]{0,2}")


class Action(StrEnum):
    """What an alert can ask for, in its label `action`."""

    DISABLE = "disable"
    ENABLE = "enable"
    INCREASE_K = "increase_k"
    DECREASE_K = "decrease_k"
    SWITCH_METHOD = "switch_method"
    MEASURE = "measure"


#: The actions that come with a K.
WITH_K = frozenset({Action.ENABLE, Action.INCREASE_K, Action.DECREASE_K})


class EventKind(StrEnum):
    """What became of an alert."""

    WOULD_ACT = "would_act"
    ACTED = "acted"
    FAILED = "failed"
    SKIPPED = "skipped"
    RESOLVED = "resolved"
    REJECTED = "rejected"


class Model(NamedTuple):
    """The model that a decision is about. Each part may be empty."""

    cluster: str
    namespace: str
    model_name: str


class Key(NamedTuple):
    """What makes two decisions the same one: an alert that fires anew has another key."""

    cluster: str
    namespace: str
    model_name: str
    action: str
    recommended_k: str
    starts_at: str

    @property
    def model(self) -> Model:
        """The model that it is about."""
        return Model(self.cluster, self.namespace, self.model_name)


@dataclass(frozen=True, slots=True)
class Decision:
    """What an alert asks for, checked.

    Attributes:
        action: what to do.
        recommended_k: the K to have, 0 for `disable`; ``None`` for `switch_method` and `measure`.
        model: the model that it is about.
        alertname: the alert's name.
        starts_at: when the alert began to fire, RFC 3339 in UTC.
        body: the whole alert as JSON.
    """

    action: Action
    recommended_k: int | None
    model: Model
    alertname: str
    starts_at: str
    body: bytes

    @property
    def k_text(self) -> str:
        """K as text, empty without one."""
        return "" if self.recommended_k is None else str(self.recommended_k)

    @property
    def key(self) -> Key:
        """What makes it the same decision as another one."""
        return Key(*self.model, self.action, self.k_text, self.starts_at)


@dataclass(frozen=True, slots=True)
class Note:
    """Why nothing is done: what becomes of the alert, and the reason in words."""

    kind: EventKind
    why: str


@dataclass(frozen=True, slots=True)
class Request:
    """One alert as it was understood.

    Attributes:
        alert: what came in.
        decision: what it asks for, or asked for until it was resolved; ``None`` where that cannot be told.
        note: why it is not acted upon; ``None`` where it is to be acted upon.
        same_as: the decision of another alert that asks for the same, and is acted upon in place of this one.
    """

    alert: Alert
    decision: Decision | None
    note: Note | None
    same_as: Key | None = None


def read(alerts: Iterable[Alert]) -> tuple[Request, ...]:
    """Return what the alerts of one payload ask for, each with why it is not acted upon.

    Firing alerts that contradict each other (about one model, another action or K) leave only `disable`; the
    hint to measure contradicts nothing, and gives way. Of those that ask for the same, the one that has fired
    for longest is acted upon; the others come behind it.
    """
    return _without_repeats(_without_contradictions([_read(alert) for alert in alerts]))


def decide(alert: Alert) -> Decision | Note:
    """Return what an alert asks for, whether it fires or not, or why that cannot be told."""
    text = alert.label("action")
    if not text:
        return Note(EventKind.SKIPPED, "the alert has no label action")
    if text not in list(Action):
        return Note(EventKind.SKIPPED, f"unknown action {shown(text)}; known: {', '.join(Action)}")
    action = Action(text)
    for name in ("model_name", "namespace", "cluster", "alertname"):
        if problem := problem_of(alert.label(name)):
            return Note(EventKind.REJECTED, f"label {name} {shown(alert.label(name))} {problem}")
    try:
        k = _recommended_k(action, alert.label("recommended_k"))
        starts_at = _utc(alert.starts_at)
    except ValueError as error:
        return Note(EventKind.REJECTED, str(error))
    model = Model(alert.label("cluster"), alert.label("namespace"), alert.label("model_name"))
    return Decision(action, k, model, alert.label("alertname"), starts_at, alert.body)


def problem_of(value: str) -> str:
    """Say why a value is not passed to any command; empty where it may be."""
    if value.startswith("-"):
        return "begins with -, as an option does"
    if not value.isprintable():
        return "holds control characters, or others that cannot be printed"
    if len(value) > LONGEST:
        return f"is longer than {LONGEST} characters"
    return ""


def shown(text: str) -> str:
    """Return a value as messages show it: quoted, in ASCII, and not longer than a line takes."""
    return ascii(text if len(text) <= 80 else f"{text[:80]}...")


def _read(alert: Alert) -> Request:
    found = decide(alert)
    decision = found if isinstance(found, Decision) else None
    if not alert.firing:
        return Request(alert, decision, Note(EventKind.RESOLVED, "the alert no longer fires"))
    return Request(alert, decision, None if isinstance(found, Decision) else found)


def _recommended_k(action: Action, text: str) -> int | None:
    if action in WITH_K:
        if not _K.fullmatch(text):
            raise ValueError(
                f"label recommended_k {shown(text)}: {action} needs a whole number from 1 to 999"
            )
        return int(text)
    if action is Action.DISABLE:
        if text not in ("", "0"):
            raise ValueError(f"label recommended_k {shown(text)}: with disable it is 0")
        return 0
    if text:
        raise ValueError(f"label recommended_k {shown(text)}: {action} has none")
    return None


def _utc(text: str) -> str:
    """Return a moment in one spelling, whatever time zone it was written in."""
    try:
        moment = msgspec.convert(text, datetime).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"startsAt {shown(text)} is no RFC 3339 time") from error
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _without_contradictions(requests: list[Request]) -> list[Request]:
    asked: defaultdict[Model, set[tuple[Action, int | None]]] = defaultdict(set)
    for request in requests:
        if request.decision is not None and request.note is None:
            asked[request.decision.model].add((request.decision.action, request.decision.recommended_k))
    return [_settled(request, asked) for request in requests]


def _settled(request: Request, asked: dict[Model, set[tuple[Action, int | None]]]) -> Request:
    decision = request.decision
    if decision is None or request.note is not None or len(asked[decision.model]) == 1:
        return request
    changes = {(action, k) for action, k in asked[decision.model] if action is not Action.MEASURE}
    if decision.action is Action.DISABLE or (
        len(changes) == 1 and (decision.action, decision.recommended_k) in changes
    ):
        return request
    different = sorted(f"{action} (K {k})" if k else action for action, k in asked[decision.model])
    words = ", ".join(different[:_SHOWN]) + (", ..." if len(different) > _SHOWN else "")
    disable = any(action is Action.DISABLE for action, _ in changes)
    outcome = "disable wins" if disable else "none of them is acted upon"
    if len(changes) == 1 and not disable:
        outcome = "to measure is not needed first"
    why = f"one payload asks for {words} for the same model: {outcome}"
    return replace(request, note=Note(EventKind.SKIPPED, why))


def _without_repeats(requests: list[Request]) -> tuple[Request, ...]:
    """Leave one request for what several alerts ask for: the same action has several reasons at times."""
    firing = [r.decision for r in requests if r.decision is not None and r.note is None]
    longest: dict[tuple[str, ...], Decision] = {}
    for each in sorted(firing, key=lambda decision: decision.starts_at):
        longest.setdefault(each.key[:-1], each)
    kept, repeats = [], []
    for request in requests:
        decision = request.decision
        if decision is None or request.note is not None or longest[decision.key[:-1]] is decision:
            kept.append(request)
        else:
            same_as = longest[decision.key[:-1]].key
            repeats.append(replace(request, note=Note(EventKind.SKIPPED, _LONGER), same_as=same_as))
    return (*kept, *repeats)


#: The labels of the alert that a line shows.
_LABELS = ("action", "recommended_k", "model_name", "namespace", "cluster", "alertname")


@dataclass(frozen=True, slots=True)
class ActEvent:
    """What became of one alert.

    Attributes:
        kind: in one word.
        why: in a sentence.
        request: the alert, as it was understood.
        command: the argument list that was or would be run; ``None`` where there is none.
        exit_code: how the command ended; minus the signal's number if by one, ``None`` where it did not run.
        output: the end of what it printed.
    """

    kind: EventKind
    why: str
    request: Request
    command: tuple[str, ...] | None = None
    exit_code: int | None = None
    output: str = ""

    @property
    def action(self) -> str:
        """The action as a label of bounded values: ``none`` without one, ``unknown`` for any other."""
        text = self.request.alert.label("action")
        return text if text in list(Action) else "unknown" if text else "none"

    def line(self, now: float) -> str:
        """Return the event as one line of JSON, in ASCII, without a line's end.

        Args:
            now: Unix seconds.
        """
        alert, decision = self.request.alert, self.request.decision
        time = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        document = {
            "time": time,
            "event": str(self.kind),
            "why": self.why,
            **{name: alert.label(name)[:LONGEST] for name in _LABELS},
            "starts_at": decision.starts_at if decision else alert.starts_at[:LONGEST],
            "command": self.command,
            "exit_code": self.exit_code,
            "output": self.output,
        }
        return json.dumps(document)
