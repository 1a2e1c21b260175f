"""Commands: from a decision to the argument list that carries it out, and how it is run.

No shell is involved. An untrusted value is always one whole argument, or the part of one behind a fixed name,
and was validated by `decision`.
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
from typing import TYPE_CHECKING, BinaryIO

from ...config.options import ENVIRONMENT_PREFIX
from ...config.values import format_duration
from .decision import ACTIONS_WITH_K, AlertAction, Decision, EventKind, ModelKey, NoAction, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Prefix of the annotations.
DOMAIN = "vllm-specdec-exporter"

#: Environment variables that a command gets, besides those with `PASSED_PREFIX`.
PASSED = ("PATH", "HOME", "LANG")
PASSED_PREFIX = "VLLM_SPECDEC_"  # without those of the exporter, which may hold its credentials

#: What kubectl needs in addition: the API server, from a pod or a kubeconfig, and a proxy.
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

#: The actions that a rollout can apply: the others have no K.
_ROLLED_OUT = ACTIONS_WITH_K | {AlertAction.DISABLE}


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command to run."""

    argv: tuple[str, ...]  # program and arguments
    stdin: bytes = b""  # its standard input
    #: Names of the environment variables that it gets, besides those with `PASSED_PREFIX`.
    passed: tuple[str, ...] = PASSED

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the command, selected from `variables`."""
        return {
            name: value
            for name, value in variables.items()
            if name in self.passed
            or (name.startswith(PASSED_PREFIX) and not name.startswith(ENVIRONMENT_PREFIX))
        }


@dataclass(frozen=True, slots=True)
class Script:
    """The user's program, run with the alert as JSON on standard input.

    Its arguments are ``ACTION MODEL_NAME RECOMMENDED_K NAMESPACE CLUSTER``, an interface: their order stays.
    An absent value is empty.
    """

    path: str  # the absolute path of the program

    def invocation(self, decision: Decision) -> Invocation:
        """Return the command for a decision."""
        cluster, namespace, model_name = decision.model
        argv = (self.path, str(decision.action), model_name, decision.k_text, namespace, cluster)
        return Invocation(argv, decision.body)


@dataclass(frozen=True, slots=True)
class Workload:
    """A Kubernetes workload that serves a model; `kind` is ``deployment`` or ``statefulset``.

    `cluster` is the label of its alerts; empty if they have none.
    """

    namespace: str
    kind: str
    name: str
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """Annotations on workloads, written by kubectl."""

    workloads: Mapping[str, Workload] = field(default_factory=dict)  # by model name
    context: str = ""  # the context of the kubeconfig; empty for its current one
    #: Whether to annotate the pod template, which starts a rollout. Actions without a K always annotate the
    #: workload.
    restart: bool = False

    def target_of(self, model: ModelKey) -> ModelKey:
        """Return the workload of a model, or the model itself if it is of none."""
        found = self._workload(model)
        if isinstance(found, NoAction):
            return model
        # Without the cluster: kubectl has one context, whatever cluster the alerts are of.
        return ModelKey("", found.namespace, f"{found.kind}/{found.name}")

    def invocation(self, decision: Decision) -> Invocation | NoAction:
        """Return the command for a decision, or why there is none."""
        workload = self._workload(decision.model)
        if isinstance(workload, NoAction):
            return workload
        context = ("--context", self.context) if self.context else ()
        place = f"{workload.kind}/{workload.name}"
        rolled_out = self.restart and decision.action in _ROLLED_OUT
        arguments = _patch(place, decision) if rolled_out else _annotate(place, decision)
        argv = ("kubectl", *context, "--namespace", workload.namespace, *arguments)
        return Invocation(argv, passed=_PASSED_TO_KUBECTL)

    def _workload(self, model: ModelKey) -> Workload | NoAction:
        workload = self.workloads.get(model.model_name)
        if workload is None:
            why = f"no --kubernetes.workload is given for model {quoted(model.model_name)}"
            return NoAction(EventKind.SKIPPED, why)
        # An alert without a namespace may be of any.
        namespace = model.namespace or workload.namespace
        for name, found, own in (
            ("cluster", model.cluster, workload.cluster),
            ("namespace", namespace, workload.namespace),
        ):
            if found != own:
                why = f"the alert is of {name} {quoted(found)}"
                why += f", and --kubernetes.workload has {quoted(own)} for this model"
                return NoAction(EventKind.REJECTED, why)
        return workload


def annotations_of(decision: Decision) -> dict[str, str | None]:
    """Return the annotations of a decision; ``None`` removes that of an earlier decision.

    `decided-at` is when the alert began to fire, so that writing a decision twice changes nothing.
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


#: Bytes at the end of the output that are kept.
KEPT_OUTPUT = 2048

#: Seconds between SIGTERM and SIGKILL.
_GRACE = 1.0
#: Interval at which the process is polled, in seconds.
_POLL_INTERVAL = 0.02
_CHUNK = 64 * 1024
#: Maximum number of reads after a command ended; a process that it left running may write forever.
_LAST_READS = 32


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command."""

    exit_code: int | None  # negative for a signal; ``None`` if it did not start
    output: str  # the last `KEPT_OUTPUT` bytes of its standard output and error
    problem: str  # why it failed; empty for exit code 0


async def run(invocation: Invocation, seconds: float, variables: Mapping[str, str]) -> CommandResult:
    """Run a command in its own process group, without a shell; its environment is selected from `variables`.

    After `seconds`, or when this coroutine is cancelled, the group gets SIGTERM, and SIGKILL a second later.
    Background processes of a command that ends by itself are not stopped.
    """
    tail = _Tail()
    try:
        try:
            process = _start(invocation, variables, tail.write_end)
        except (OSError, ValueError) as error:  # ValueError: a null byte in an argument
            return CommandResult(None, "", f"it cannot be run: {getattr(error, 'strerror', None) or error}")
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
        return CommandResult(code, output, f"it took longer than {format_duration(seconds)} and was killed")
    return CommandResult(code, output, f"it ended with {code}" if code else "")


def _start(invocation: Invocation, variables: Mapping[str, str], output: BinaryIO) -> subprocess.Popen[bytes]:
    # A file, not a pipe: writing it never blocks.
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
    while process.poll() is None:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(_POLL_INTERVAL)


async def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop the process group: SIGTERM, then SIGKILL."""
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
    """Keeps the end of what is written to a pipe."""

    def __init__(self) -> None:
        self._read_end, write_end = os.pipe()
        self.write_end = os.fdopen(write_end, "wb")
        os.set_blocking(self._read_end, False)
        self._kept = bytearray()
        self._loop = asyncio.get_running_loop()

    def follow(self) -> None:
        """Begin to read, after the command was started with `write_end`."""
        self.write_end.close()
        self._loop.add_reader(self._read_end, self._read)

    def finish(self) -> str:
        """Return the end of what has been written so far."""
        for _ in range(_LAST_READS):
            if not self._read():
                break
        return self._kept.decode("utf-8", "replace")

    def close(self) -> None:
        """Close the pipe."""
        self._loop.remove_reader(self._read_end)
        self.write_end.close()
        os.close(self._read_end)

    def _read(self) -> bool:
        """Read once and return whether there was any data."""
        try:
            chunk = os.read(self._read_end, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._loop.remove_reader(self._read_end)
        self._kept += chunk
        del self._kept[:-KEPT_OUTPUT]
        return bool(chunk)
