"""The runner: a bounded queue of decisions, whose commands run one at a time within the
limits.

No shell is involved. An untrusted value is always one whole argument, and was validated
by `decision`.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from ...config.options import ENVIRONMENT_PREFIX
from ...config.values import format_duration, format_time
from ...runtime.daemon_threads import in_daemon_thread
from . import history
from .decision import MAX_LABEL_LENGTH, Decision, EventKind
from .history import ActionHistory

#: Queued alerts: five decision alerts of twenty models.
MAX_QUEUED = 100
#: Seconds that a running command may delay the shutdown: with what follows, less than
#: ten, a third of Kubernetes' default grace period.
MAX_SHUTDOWN_SECONDS = 8.0

#: The labels that an event contains.
_LABELS = ("action", "recommended_k", "model_name", "namespace", "cluster", "alertname")

#: Environment variables that a command gets: what a shell needs, and kubectl in a pod
#: or with a kubeconfig.
_PASSED = {
    "PATH",
    "HOME",
    "LANG",
    "KUBECONFIG",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
}
#: It also gets those with this prefix, but not the exporter's, which may hold
#: credentials.
_PASSED_PREFIX = "VLLM_SPECDEC_"

#: Bytes at the end of the output that are kept: some lines of an error.
KEPT_OUTPUT = 2048
#: Seconds by which the clock may be off without being set anew: an adjustment by NTP
#: takes longer for more.
_MAX_SLEW = 1.0
#: Seconds between SIGTERM and SIGKILL: a tenth of what a command may delay the shutdown
#: of `act`.
_GRACE = 1.0


class ActionResult(NamedTuple):
    """The result of an alert; its last fields are those of the command that ran, or
    would run.
    """

    kind: EventKind  # the result in one word
    why: str  # the reason in a sentence
    #: Program and arguments; ``None`` without a command.
    argv: tuple[str, ...] | None = None
    #: Negative for a signal; ``None`` if it did not start or end.
    exit_code: int | None = None
    output: str = ""  # the last `KEPT_OUTPUT` bytes of its standard output and error


class RunnerSettings(Struct, frozen=True):
    """The configuration of the runner."""

    execute: bool = False  # whether commands are run; otherwise it is a dry run
    script: str = ""  # the absolute path of the program; empty only in a dry run
    timeout: float = 60.0  # seconds that a command may take
    #: Minimum seconds between two commands for one model, up to 30 days.
    per_model: float = history.HOUR
    per_hour: int = 4  # maximum number of commands in any hour, over all models
    #: The file that keeps the history across restarts; ``None`` for none.
    state_file: Path | None = None


class Runner:
    """Handles alerts in the order in which they were queued.

    Args:
        settings: the configuration.
        past: the history of earlier processes.
        on_event: called with every event in another thread; must not raise.
        on_warning: called with a line about a state file that cannot be written.
    """

    def __init__(
        self,
        settings: RunnerSettings,
        past: ActionHistory,
        on_event: Callable[[Mapping[str, object]], None],
        on_warning: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._history = past
        self._on_event = on_event
        self._on_warning = on_warning
        self._queue: deque[Decision] = deque()
        self._changed = asyncio.Event()
        self._stopping = False
        self._is_executing = False
        self._clock_offset = time.time() - time.monotonic()  # seconds

    def offer(self, decisions: tuple[Decision, ...]) -> bool:
        """Queue the decisions of one payload, all or none, and return whether they were
        queued.

        A payload larger than the queue is accepted if the queue is empty. An alert that
        resolves cancels its queued decision.
        """
        if self._stopping or (
            self._queue and len(self._queue) + len(decisions) > MAX_QUEUED
        ):
            return False
        resolved = {
            each.identity for each in decisions if each.no_action is EventKind.RESOLVED
        }
        why = "the alert resolved while it waited"
        for index, waiting in enumerate(self._queue):
            if waiting.no_action is None and waiting.identity in resolved:
                self._queue[index] = waiting.without_action(EventKind.SKIPPED, why)
        self._queue.extend(decisions)
        self._changed.set()
        return True

    async def run(self) -> None:
        """Handle alerts until `stop`."""
        while not self._stopping:
            if not self._queue:
                self._changed.clear()
                await self._changed.wait()
                continue
            decision = self._queue.popleft()
            await self._report(decision, await self._handle(decision))
        stopping = ActionResult(EventKind.SKIPPED, "act is stopping")
        while self._queue:
            await self._report(self._queue.popleft(), stopping)

    async def stop(self, running: asyncio.Future[None]) -> None:
        """Refuse further alerts and end `run`, and a command that takes too long."""
        self._stopping = True
        self._changed.set()
        timeout = 1.5 * _GRACE
        if self._is_executing:
            timeout = min(self._settings.timeout, MAX_SHUTDOWN_SECONDS)
        await asyncio.wait({running}, timeout=timeout)
        running.cancel()
        # What became of its command is reported, if somebody reads that.
        await asyncio.wait({running}, timeout=1.5 * _GRACE)
        running.cancel()
        await asyncio.wait({running})

    async def _handle(self, decision: Decision) -> ActionResult:
        """Act upon a decision, or return why not."""
        now = await self._now()
        settings = self._settings
        if decision.no_action is not None:
            if decision.no_action is EventKind.RESOLVED:
                await self._keep(self._history.saw(decision, now, firing=False))
            return ActionResult(decision.no_action, decision.why)
        argv = arguments(settings.script, decision) if settings.script else None
        past = self._history.prune(now).saw(decision, now, firing=True)
        why = past.reason_against(decision, now, settings.per_model, settings.per_hour)
        if why:
            await self._keep(past)
            return ActionResult(EventKind.SKIPPED, why, argv)
        begun = past.begin(decision, now)
        if argv is None or not settings.execute:
            self._history = begun.succeed(decision)
            why = "dry-run: nothing is executed"
            return ActionResult(EventKind.WOULD_ACT, why, argv)
        # Kept before the command starts: it must not run again if this process ends.
        if not await self._keep(begun):
            self._history = past
            why = "nothing is executed that --state.file could not remember"
            return ActionResult(EventKind.SKIPPED, why, argv)
        self._is_executing = True
        try:
            result = await run_command(argv, decision.body, settings.timeout)
        except asyncio.CancelledError:
            why = "it still ran when act was stopped, and was killed"
            return ActionResult(EventKind.FAILED, why, argv)
        finally:
            self._is_executing = False
        if result.kind is EventKind.ACTED:
            await self._keep(self._history.succeed(decision))
        return result

    async def _now(self) -> float:
        """Return the time, Unix seconds. If the clock was set, the history is moved
        with it.

        So limits count the time that passed; while `act` does not run, they count that
        of the clock.
        """
        offset = time.time() - time.monotonic()
        moved = offset - self._clock_offset
        if abs(moved) > _MAX_SLEW:
            self._clock_offset = offset
            await self._keep(self._history.shift(moved))
        return time.time()

    async def _keep(self, new: ActionHistory) -> bool:
        """Set the history and return whether it was saved, if a state file is
        configured.

        A dry run begins with what was done, and saves nothing.
        """
        changed = new != self._history
        self._history = new
        file = self._settings.state_file
        if file is None or not changed or not self._settings.execute:
            return True
        try:
            await asyncio.to_thread(history.save, file, new)
        except OSError as error:
            why = error.strerror or error
            self._on_warning(f"--state.file {file}: cannot be written: {why}")
            return False
        return True

    async def _report(self, decision: Decision, result: ActionResult) -> None:
        starts_at = ""
        if decision.starts_at is not None:
            starts_at = format_time(decision.starts_at, "microseconds")
        labels = [*_LABELS]
        if decision.label("method"):
            labels.append("method")
        event = {
            "time": format_time(time.time(), "milliseconds"),
            "event": str(result.kind),
            "why": result.why,
            **{name: decision.label(name)[:MAX_LABEL_LENGTH] for name in labels},
            "starts_at": starts_at,
            "command": result.argv,
            "exit_code": result.exit_code,
            "output": result.output,
        }
        # A thread that nothing waits for: the reader of the events may have stopped.
        await in_daemon_thread(self._on_event, event)


def arguments(script: str, decision: Decision) -> tuple[str, ...]:
    """Return the argument list of the user's program; it reads the alert as JSON on
    standard input.

    ``ACTION MODEL_NAME RECOMMENDED_K NAMESPACE CLUSTER``, empty if absent, is an
    interface: the order stays. Of a model with several methods ``METHOD`` follows.
    """
    words = (
        script,
        decision.label("action"),
        decision.label("model_name"),
        decision.recommended_k,
        decision.label("namespace"),
        decision.label("cluster"),
    )
    method = decision.label("method")
    return (*words, method) if method else words


async def run_command(
    argv: tuple[str, ...], stdin: bytes, seconds: float
) -> ActionResult:
    """Run a command in its own process group, without a shell.

    After `seconds`, or when this coroutine is cancelled, the group gets SIGTERM, and
    SIGKILL a second later. Background processes of a command that ends by itself are
    not stopped.
    """
    try:
        # Files, not pipes: writing never blocks, and a process that the command left
        # running delays nothing.
        with tempfile.TemporaryFile() as body, tempfile.TemporaryFile() as output:
            body.write(stdin)
            body.seek(0)
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=body,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                env=_environment(),
                start_new_session=True,
            )
            in_time = await _ends_within(process, seconds)
            size = os.fstat(output.fileno()).st_size
            kept = os.pread(output.fileno(), KEPT_OUTPUT, max(0, size - KEPT_OUTPUT))
    except (OSError, ValueError) as error:  # ValueError: a null byte in an argument
        why = f"it cannot be run: {getattr(error, 'strerror', None) or error}"
        return ActionResult(EventKind.FAILED, why, argv)
    code = process.returncode
    why = f"the command ended with {code}"
    if not in_time:
        why = f"it took longer than {format_duration(seconds)} and was killed"
    return ActionResult(
        kind=EventKind.ACTED if in_time and code == 0 else EventKind.FAILED,
        why=why,
        argv=argv,
        exit_code=code,
        output=kept.decode("utf-8", "replace"),
    )


def _environment() -> dict[str, str]:
    """Return the variables that a command gets."""
    passed = {}
    for name, value in os.environ.items():
        shared = name.startswith(_PASSED_PREFIX)
        if name in _PASSED or (shared and not name.startswith(ENVIRONMENT_PREFIX)):
            passed[name] = value
    return passed


async def _ends_within(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Wait until a process ends; stop it after `seconds`, and if cancelled."""
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            await _end(process)
    return True


async def _end(process: asyncio.subprocess.Process) -> None:
    """Stop the process group: SIGTERM, then SIGKILL."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _GRACE)
        finally:  # also if this coroutine is cancelled
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
