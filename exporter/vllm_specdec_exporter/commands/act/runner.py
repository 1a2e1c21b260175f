"""The runner: a bounded queue of alerts, handled one at a time."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from . import process
from .decision import MAX_LABEL_LENGTH, AlertAction, EvaluatedAlert, EventKind, NoAction
from .history import Limits, save_state
from .process import CommandResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from .decision import DecisionKey
    from .history import ActionHistory, State
    from .process import Invocation, Kubernetes, Script

#: Maximum number of queued alerts.
MAX_QUEUED = 100
#: Seconds that a running command may delay the shutdown.
MAX_SHUTDOWN_SECONDS = 10.0

#: The labels that an event contains.
_LABELS = ("action", "recommended_k", "model_name", "namespace", "cluster", "alertname")


@dataclass(frozen=True, slots=True)
class ActEvent:
    """The result of one alert."""

    kind: EventKind  # the result in one word
    why: str  # the reason in a sentence
    evaluated: EvaluatedAlert  # the alert
    #: The argument list that was or would be run; ``None`` without one.
    command: tuple[str, ...] | None = None
    exit_code: int | None = None  # of the command; negative for a signal, ``None`` if it did not run
    output: str = ""  # the end of its output

    @property
    def action(self) -> str:
        """The action as a label with bounded values: ``none`` without one, ``unknown`` for any other."""
        text = self.evaluated.alert.label("action")
        return text if text in list(AlertAction) else "unknown" if text else "none"

    def line(self, now: float) -> str:
        """Return the event as one line of JSON, in ASCII, without a newline; `now` is in Unix seconds."""
        alert, decision = self.evaluated.alert, self.evaluated.decision
        moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        document = {
            "time": moment.replace("+00:00", "Z"),
            "event": str(self.kind),
            "why": self.why,
            **{name: alert.label(name)[:MAX_LABEL_LENGTH] for name in _LABELS},
            "starts_at": decision.starts_at if decision else alert.starts_at[:MAX_LABEL_LENGTH],
            "command": self.command,
            "exit_code": self.exit_code,
            "output": self.output,
        }
        return json.dumps(document)


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """The configuration of the runner."""

    execute: bool = False  # whether commands are run; otherwise it is a dry run
    #: Returns the command of a decision; ``None`` only in a dry run.
    executor: Script | Kubernetes | None = None
    timeout: float = 60.0  # seconds that a command may take
    limits: Limits = Limits()  # how often commands may run
    state_file: Path | None = None  # the file that keeps the state across restarts; ``None`` for none


class Runner:
    """Handles alerts in the order in which they were queued.

    `on_event` is called with every event in another thread, and must not raise; `on_warning` with a line
    about a state file that cannot be written.
    """

    def __init__(
        self,
        settings: RunnerSettings,
        state: State,
        on_event: Callable[[ActEvent], None],
        on_warning: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._state = replace(state, acted=state.acted.recover(), rehearsed=state.rehearsed.recover())
        self._on_event = on_event
        self._on_warning = on_warning
        self._queue: deque[EvaluatedAlert] = deque()
        self._changed = asyncio.Event()
        self._stopping = False
        self._command: asyncio.Future[CommandResult] | None = None
        self._unsaved = False

    def offer(self, alerts: Iterable[EvaluatedAlert]) -> bool:
        """Queue the alerts of one payload, all or none, and return whether they were queued.

        A payload larger than the queue is accepted if the queue is empty. An alert that resolves cancels its
        queued decision.
        """
        new = tuple(alerts)
        if self._stopping or (self._queue and len(self._queue) + len(new) > MAX_QUEUED):
            return False
        resolved = {key for key in map(_resolved_key, new) if key is not None}
        if resolved:
            self._queue = deque(_cancelled(queued, resolved) for queued in self._queue)
        self._queue.extend(new)
        self._changed.set()
        return True

    async def run(self) -> None:
        """Handle alerts until `stop`."""
        while not self._stopping:
            while self._queue and not self._stopping:
                await self._handle(self._queue.popleft())
            if self._unsaved:
                await self._save()
            self._changed.clear()
            if not self._stopping:
                await self._changed.wait()
        while self._queue:
            await self._report(ActEvent(EventKind.SKIPPED, "act is stopping", self._queue.popleft()))

    async def stop(self) -> None:
        """Refuse further alerts, end `run`, and kill the running command if it takes too long."""
        self._stopping = True
        self._changed.set()
        command = self._command
        if command is not None and not command.done():
            await asyncio.wait({command}, timeout=min(self._settings.timeout, MAX_SHUTDOWN_SECONDS))
            command.cancel()

    async def _handle(self, evaluated: EvaluatedAlert) -> None:
        decision, no_action = evaluated.decision, evaluated.no_action
        if no_action is not None:
            resolved = _resolved_key(evaluated)
            if resolved is not None:
                await self._keep(self._history.resolve(resolved, time.time()))
            if decision is not None and evaluated.same_as is not None:
                self._set(self._history.copy_success(decision.key, evaluated.same_as))  # saved once for all
            await self._report(ActEvent(no_action.kind, no_action.why, evaluated))
            return
        assert decision is not None  # otherwise no_action is set
        found = self._settings.executor.invocation(decision) if self._settings.executor else None
        if isinstance(found, NoAction):
            await self._report(ActEvent(found.kind, found.why, evaluated))
            return
        now = time.time()
        history = self._history.prune(now).saw(decision.key, now).resume(decision.key, now)
        why = history.reason_against(decision.key, now, self._settings.limits)
        if why:
            await self._keep(history)
            argv = found.argv if found else None
            await self._report(ActEvent(EventKind.SKIPPED, why, evaluated, argv))
        else:
            await self._act(evaluated, decision.key, found, history.begin(decision.key, now))

    async def _act(
        self,
        evaluated: EvaluatedAlert,
        key: DecisionKey,
        invocation: Invocation | None,
        history: ActionHistory,
    ) -> None:
        """Run the command, or report what would be run. The history, with its begin, is saved first."""
        argv = invocation.argv if invocation else None
        if not self._settings.execute or invocation is None:
            await self._keep(history.finish(key, succeeded=True))
            why = "dry-run: nothing is executed"
            await self._report(ActEvent(EventKind.WOULD_ACT, why, evaluated, argv))
            return
        before = self._state
        if not await self._keep(history):
            self._state = before
            why = "nothing is executed that --state.file could not remember"
            await self._report(ActEvent(EventKind.SKIPPED, why, evaluated, argv))
            return
        result = await self._run(invocation)
        await self._keep(self._history.finish(key, succeeded=not result.problem))
        kind = EventKind.FAILED if result.problem else EventKind.ACTED
        why = result.problem or "the command ended with 0"
        await self._report(ActEvent(kind, why, evaluated, argv, result.exit_code, result.output))

    async def _run(self, invocation: Invocation) -> CommandResult:
        if self._stopping:
            return CommandResult(None, "", "act was stopped before it ran")
        running = process.run(invocation, self._settings.timeout, os.environ)
        self._command = asyncio.ensure_future(running)
        try:
            return await self._command
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            return CommandResult(None, "", "it still ran when act was stopped, and was killed")
        finally:
            self._command = None

    @property
    def _history(self) -> ActionHistory:
        return self._state.acted if self._settings.execute else self._state.rehearsed

    async def _keep(self, history: ActionHistory) -> bool:
        """Set the history and return whether it was saved, if a state file is configured."""
        if history == self._history:
            return True
        self._set(history)
        return await self._save()

    def _set(self, history: ActionHistory) -> None:
        mine = {"acted": history} if self._settings.execute else {"rehearsed": history}
        self._state, self._unsaved = replace(self._state, **mine), True

    async def _save(self) -> bool:
        file, self._unsaved = self._settings.state_file, False
        if file is None:
            return True
        try:
            await asyncio.to_thread(save_state, file, self._state)
        except OSError as error:
            self._on_warning(f"--state.file {file}: cannot be written: {error.strerror or error}")
            return False
        return True

    async def _report(self, event: ActEvent) -> None:
        await asyncio.to_thread(self._on_event, event)


def _resolved_key(evaluated: EvaluatedAlert) -> DecisionKey | None:
    resolved = evaluated.no_action is not None and evaluated.no_action.kind is EventKind.RESOLVED
    return evaluated.decision.key if resolved and evaluated.decision else None


def _cancelled(queued: EvaluatedAlert, resolved: set[DecisionKey]) -> EvaluatedAlert:
    """Return a queued alert, without action if it has resolved."""
    if queued.no_action is not None or queued.decision is None or queued.decision.key not in resolved:
        return queued
    return replace(queued, no_action=NoAction(EventKind.SKIPPED, "the alert resolved while it waited"))
