"""Command lines: from a decision to the argument list that carries it out. Pure; nothing is run here.

There is no shell anywhere. A value from outside is always one whole argument, or a part of one behind a fixed
name, and was checked by `decision`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

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
