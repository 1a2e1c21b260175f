"""The runner: takes requests into a bounded queue, and carries them out one at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from . import ledger as statefile
from . import process
from .decision import ActEvent, Decision, EventKind, Note
from .ledger import Limits
from .process import CommandOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from .decision import Key, Request
    from .ledger import Ledger, State
    from .process import Executor, Invocation

#: Alerts that may wait.
MOST_WAITING = 100
#: Seconds that a running command may hold up the end.
MOST_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the runner is told.

    Attributes:
        execute: whether commands are run; else it is a rehearsal.
        executor: what makes command lines of decisions; ``None`` only for a rehearsal.
        timeout: seconds that a command may take.
        limits: how often something may be done.
        state_file: where the state outlives the process; ``None`` for nowhere.
    """

    execute: bool = False
    executor: Executor | None = None
    timeout: float = 60.0
    limits: Limits = Limits()
    state_file: Path | None = None


class Runner:
    """Carries requests out, in the order in which they came.

    Args:
        settings: what it is told.
        state: what outlived the last process.
        tell: gets every event, in another thread: it may block, but raises nothing.
        complain: gets a line about trouble that is no event.
        clock: Unix seconds.
        variables: the environment that commands may see a part of.
    """

    def __init__(
        self,
        settings: Settings,
        state: State,
        *,
        tell: Callable[[ActEvent], None],
        complain: Callable[[str], None],
        clock: Callable[[], float],
        variables: Mapping[str, str],
    ) -> None:
        self._settings = settings
        self._state = replace(state, acted=state.acted.recover(), rehearsed=state.rehearsed.recover())
        self._tell = tell
        self._complain = complain
        self._clock = clock
        self._variables = variables
        self._waiting: deque[Request] = deque()
        self._more = asyncio.Event()
        self._stopping = False
        self._command: asyncio.Future[CommandOutcome] | None = None

    def offer(self, requests: Iterable[Request]) -> bool:
        """Take the requests of one payload, all or none; tell whether they were taken.

        A payload larger than the queue is taken when nothing waits. An alert that resolves takes back what
        still waits for it.
        """
        new = tuple(requests)
        if self._stopping or (self._waiting and len(self._waiting) + len(new) > MOST_WAITING):
            return False
        resolved = {key for key in map(_resolved_key, new) if key is not None}
        if resolved:
            self._waiting = deque(_taken_back(request, resolved) for request in self._waiting)
        self._waiting.extend(new)
        self._more.set()
        return True

    async def run(self) -> None:
        """Carry requests out until `stop`."""
        while not self._stopping:
            while self._waiting and not self._stopping:
                await self._handle(self._waiting.popleft())
            self._more.clear()
            if not self._stopping:
                await self._more.wait()
        while self._waiting:
            await self._note(self._waiting.popleft(), EventKind.SKIPPED, "act is stopping")

    async def stop(self) -> None:
        """Take nothing more, let `run` end, and kill the running command if it takes too long."""
        self._stopping = True
        self._more.set()
        command = self._command
        if command is not None and not command.done():
            await asyncio.wait({command}, timeout=min(self._settings.timeout, MOST_PATIENCE))
            command.cancel()

    async def _handle(self, request: Request) -> None:
        if request.note is not None:
            resolved = _resolved_key(request)
            if resolved is not None:
                await self._keep(self._ledger.resolve(resolved))
            if request.decision is not None and request.same_as is not None:
                await self._keep(self._ledger.adopt(request.decision.key, request.same_as))
            await self._note(request, request.note.kind, request.note.why)
            return
        decision = request.decision
        assert decision is not None  # else the note says why
        found = self._settings.executor.invocation(decision) if self._settings.executor else None
        if isinstance(found, Note):
            await self._note(request, found.kind, found.why)
            return
        now = self._clock()
        ledger = self._ledger.tidy(now).saw(decision.key, now)
        why = ledger.why_not(decision.key, now, self._settings.limits)
        if why:
            await self._keep(ledger)
            await self._note(request, EventKind.SKIPPED, why, found)
        else:
            await self._act(request, decision, found, ledger.begin(decision.key, now))

    async def _act(
        self, request: Request, decision: Decision, invocation: Invocation | None, ledger: Ledger
    ) -> None:
        """Do it, or say what would be done. The ledger, in which it has begun, is kept first."""
        if not self._settings.execute or invocation is None:
            await self._keep(ledger.finish(decision.key, succeeded=True))
            await self._note(request, EventKind.WOULD_ACT, "dry-run: nothing is executed", invocation)
            return
        before = self._state
        if not await self._keep(ledger):
            self._state = before
            why = "nothing is executed that --state.file could not remember"
            await self._note(request, EventKind.SKIPPED, why, invocation)
            return
        ending = await self._run(invocation)
        await self._keep(self._ledger.finish(decision.key, succeeded=not ending.problem))
        kind = EventKind.FAILED if ending.problem else EventKind.ACTED
        why = ending.problem or "the command ended with 0"
        await self._write(ActEvent(kind, why, request, invocation.argv, ending.exit_code, ending.output))

    async def _run(self, invocation: Invocation) -> CommandOutcome:
        if self._stopping:
            return CommandOutcome(None, "", "act was stopped before it ran")
        running = process.run(invocation, self._settings.timeout, self._variables)
        self._command = asyncio.ensure_future(running)
        try:
            return await self._command
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            return CommandOutcome(None, "", "it still ran when act was stopped, and was killed")
        finally:
            self._command = None

    @property
    def _ledger(self) -> Ledger:
        return self._state.acted if self._settings.execute else self._state.rehearsed

    async def _keep(self, ledger: Ledger) -> bool:
        """Remember a ledger; tell whether it is where it has to be."""
        if ledger == self._ledger:
            return True
        mine = {"acted": ledger} if self._settings.execute else {"rehearsed": ledger}
        self._state = replace(self._state, **mine)
        file = self._settings.state_file
        if file is None:
            return True
        try:
            await asyncio.to_thread(statefile.save, file, self._state)
        except OSError as error:
            self._complain(f"--state.file {file}: cannot be written: {error.strerror or error}")
            return False
        return True

    async def _note(
        self, request: Request, kind: EventKind, why: str, invocation: Invocation | None = None
    ) -> None:
        await self._write(ActEvent(kind, why, request, invocation.argv if invocation else None))

    async def _write(self, event: ActEvent) -> None:
        await asyncio.to_thread(self._tell, event)


def _resolved_key(request: Request) -> Key | None:
    resolved = request.note is not None and request.note.kind is EventKind.RESOLVED
    return request.decision.key if resolved and request.decision else None


def _taken_back(request: Request, resolved: set[Key]) -> Request:
    if request.note is not None or request.decision is None or request.decision.key not in resolved:
        return request
    return replace(request, note=Note(EventKind.SKIPPED, "the alert resolved while it waited"))
