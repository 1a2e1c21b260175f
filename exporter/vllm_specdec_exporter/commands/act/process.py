"""Command lines: from a decision to the argument list that carries it out. Pure; nothing is run here.

There is no shell anywhere. A value from outside is always one whole argument, or a part of one behind a fixed
name, and was checked by `decision`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ...config.values import format_duration
from .decision import WITH_K, Action, Decision, EventKind, Note, shown

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Prefix of the annotations.
DOMAIN = "vllm-specdec-exporter"

#: What a command sees of the environment, beside what begins with `PASSED_PREFIX`.
PASSED = ("PATH", "HOME", "LANG")
PASSED_PREFIX = "VLLM_SPECDEC_"

#: What kubectl needs beside that: where the cluster is, in a pod or by a kubeconfig, or behind a proxy.
_PASSED_TO_KUBECTL = (
    *PASSED,
    "KUBECONFIG",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
    "no_proxy",
)

#: The actions that a rollout can apply: the others name no K.
_ROLLED_OUT = WITH_K | {Action.DISABLE}


@dataclass(frozen=True, slots=True)
class Invocation:
    """What to run.

    Attributes:
        argv: program and arguments.
        stdin: what it gets on standard input.
        passed: names of environment variables that it sees, beside those with `PASSED_PREFIX`.
    """

    argv: tuple[str, ...]
    stdin: bytes = b""
    passed: tuple[str, ...] = PASSED

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return what it sees of these variables."""
        return {
            name: value
            for name, value in variables.items()
            if name in self.passed or name.startswith(PASSED_PREFIX)
        }


class Executor(Protocol):
    """Whatever turns decisions into command lines."""

    def invocation(self, decision: Decision) -> Invocation | Note:
        """Return what to run for a decision, or why nothing is run."""
        ...


@dataclass(frozen=True, slots=True)
class Script:
    """The operator's own program: ``PATH ACTION MODEL_NAME RECOMMENDED_K NAMESPACE CLUSTER``.

    What is absent is an empty argument. The alert comes as JSON on standard input.

    Attributes:
        path: the program, absolute.
    """

    path: str

    def invocation(self, decision: Decision) -> Invocation | Note:
        """Return what to run for a decision."""
        cluster, namespace, model_name = decision.model
        argv = (self.path, str(decision.action), model_name, decision.k_text, namespace, cluster)
        return Invocation(argv, decision.body)


@dataclass(frozen=True, slots=True)
class Workload:
    """A Kubernetes workload that serves a model.

    Attributes:
        namespace: its namespace.
        kind: ``deployment`` or ``statefulset``.
        name: its name.
    """

    namespace: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """Annotations on workloads, written by kubectl.

    Attributes:
        workloads: by model name.
        context: the context of the kubeconfig, empty for its current one.
        restart: whether the pod template is annotated instead, which makes a rollout. Actions that name no K
            have nothing to roll out: they annotate the workload all the same.
    """

    workloads: Mapping[str, Workload] = field(default_factory=dict)
    context: str = ""
    restart: bool = False

    def invocation(self, decision: Decision) -> Invocation | Note:
        """Return what to run for a decision, or why nothing is run."""
        model, namespace = decision.model.model_name, decision.model.namespace
        workload = self.workloads.get(model)
        if workload is None:
            return Note(EventKind.SKIPPED, f"no --kubernetes.workload is given for model {shown(model)}")
        if namespace and namespace != workload.namespace:
            why = (
                f"the alert is of namespace {shown(namespace)}, and --kubernetes.workload has "
                f"{workload.namespace} for this model"
            )
            return Note(EventKind.REJECTED, why)
        context = ("--context", self.context) if self.context else ()
        place = f"{workload.kind}/{workload.name}"
        rolled_out = self.restart and decision.action in _ROLLED_OUT
        arguments = _patch(place, decision) if rolled_out else _annotate(place, decision)
        argv = ("kubectl", *context, "--namespace", workload.namespace, *arguments)
        return Invocation(argv, passed=_PASSED_TO_KUBECTL)


def annotations_of(decision: Decision) -> dict[str, str | None]:
    """Return the annotations of a decision; ``None`` takes one away that an earlier decision left.

    `decided-at` is when the alert began to fire: to write the same decision twice changes nothing.
    """
    return {
        f"{DOMAIN}/action": str(decision.action),
        f"{DOMAIN}/recommended-num-speculative-tokens": decision.k_text or None,
        f"{DOMAIN}/alert": decision.alertname,
        f"{DOMAIN}/decided-at": decision.starts_at,
    }


def _annotate(place: str, decision: Decision) -> tuple[str, ...]:
    # kubectl takes `name-` for "remove this annotation".
    pairs = (
        f"{name}-" if value is None else f"{name}={value}" for name, value in annotations_of(decision).items()
    )
    return ("annotate", "--overwrite", place, *pairs)


def _patch(place: str, decision: Decision) -> tuple[str, ...]:
    template = {"metadata": {"annotations": annotations_of(decision)}}
    patch = json.dumps({"spec": {"template": template}}, separators=(",", ":"))
    return ("patch", place, "--type", "strategic", "--patch", patch)


#: How much of the end of the output is kept, in bytes.
KEPT = 2048

#: Seconds between asking a command to end and killing it.
_GRACE = 1.0
#: Seconds between two looks whether a command has ended.
_BEAT = 0.02
_CHUNK = 64 * 1024
#: Reads behind a command's end; what it left running may write for ever.
_LAST_READS = 32


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How a command ended.

    Attributes:
        exit_code: minus the signal's number if by one; ``None`` where it did not start.
        output: the end of what it printed, to both of its outputs.
        problem: why it failed; empty where it ended with 0.
    """

    exit_code: int | None
    output: str
    problem: str


async def run(invocation: Invocation, seconds: float, variables: Mapping[str, str]) -> CommandOutcome:
    """Run a command in a process group of its own, without a shell.

    After `seconds`, or when this is cancelled, the group is asked to end, and killed a second later. What a
    command leaves running when it ends by itself is left alone.

    Args:
        invocation: what to run.
        seconds: how long it may take.
        variables: the environment to choose from.
    """
    tail = _Tail()
    try:
        try:
            process = _start(invocation, variables, tail.write_end)
        except (OSError, ValueError) as error:  # the latter for what no argument can hold
            return CommandOutcome(None, "", f"it cannot be run: {getattr(error, 'strerror', None) or error}")
        tail.follow()
        late = False
        try:
            async with asyncio.timeout(seconds):
                await _exit(process)
        except TimeoutError:
            late = True
        finally:
            if process.poll() is None:
                await asyncio.shield(_end(process))
        output = tail.finish()
    finally:
        tail.close()
    code = process.returncode
    if late:
        return CommandOutcome(code, output, f"it took longer than {format_duration(seconds)} and was killed")
    return CommandOutcome(code, output, f"it ended with {code}" if code else "")


def _start(invocation: Invocation, variables: Mapping[str, str], output: int) -> subprocess.Popen[bytes]:
    # A file, not a pipe: nobody has to read it for the command to go on.
    with tempfile.TemporaryFile() as stdin:
        stdin.write(invocation.stdin)
        stdin.seek(0)
        return subprocess.Popen(  # noqa: S603 - an argument list, from checked values
            invocation.argv,
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=invocation.environment(variables),
            start_new_session=True,
        )


async def _exit(process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:  # noqa: ASYNC110 - the system tells nobody else
        await asyncio.sleep(_BEAT)


async def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the whole group to end, and kill what is left of it a second later."""
    _signal(process.pid, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GRACE):
            await _exit(process)
    _signal(process.pid, signal.SIGKILL)
    await _exit(process)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class _Tail:
    """The end of what is written to a pipe."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._kept = bytearray()
        self._loop = asyncio.get_running_loop()

    def follow(self) -> None:
        """Begin to read, once the command has the other end."""
        self._close_write_end()
        self._loop.add_reader(self._read_end, self._read)

    def finish(self) -> str:
        """Return the end of what was written by now."""
        for _ in range(_LAST_READS):
            if not self._read():
                break
        return self._kept.decode("utf-8", "replace")

    def close(self) -> None:
        """Close the pipe."""
        self._loop.remove_reader(self._read_end)
        self._close_write_end()
        os.close(self._read_end)

    def _read(self) -> bool:
        """Read a part; tell whether there was any."""
        try:
            chunk = os.read(self._read_end, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._loop.remove_reader(self._read_end)
        self._kept += chunk
        del self._kept[:-KEPT]
        return bool(chunk)

    def _close_write_end(self) -> None:
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1
