"""The recipes that lead to pods: what each is for, and what of it is meant to
differ.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recipes.stacks import (
    Pod,
    dynamo,
    inference_service,
    leader_worker_set,
    llm_d,
    llm_inference_service,
    production_stack,
    vllm_chart,
    workload,
)


@dataclass(frozen=True)
class Recipe:
    """A file of the examples that leads to pods."""

    path: str  # under helm/examples
    #: What the stack makes of it.
    pods: Callable[[Sequence[Mapping[str, Any]]], list[Pod]]
    upstream: tuple[str, ...] = ("http://127.0.0.1:8000",)  # what the sidecar must poll
    #: The facts that say what the stack accepts; empty for Kubernetes' own objects.
    stack: str = ""
    #: What, besides args, is meant to be unlike the chart's sidecar.
    differs: frozenset[str] = frozenset()
    quality: str = "Guaranteed"  # the quality of service that the pods keep


RECIPES = (
    Recipe("deployment.yaml", workload),
    Recipe(
        "deployment-with-tap.yaml", workload, differs=frozenset({"ports", "resources"})
    ),
    Recipe("job.yaml", workload),
    Recipe("data-parallel/one-port.yaml", workload),
    Recipe(
        "data-parallel/port-per-rank.yaml",
        workload,
        ("http://127.0.0.1:8000", "http://127.0.0.1:8001"),
    ),
    Recipe("vllm-chart/values.yaml", vllm_chart, stack="vllm-chart"),
    Recipe("production-stack/values.yaml", production_stack, stack="production-stack"),
    # The guide requests half of its limits.
    Recipe("llm-d/kustomization.yaml", llm_d, stack="llm-d", quality="Burstable"),
    # The storage initializer requests less than its limits.
    Recipe(
        "kserve/inferenceservice.yaml",
        inference_service,
        ("http://127.0.0.1:8080",),
        stack="kserve-inferenceservice",
        quality="Burstable",
    ),
    Recipe(
        "kserve/llminferenceservice.yaml",
        llm_inference_service,
        stack="kserve-llminferenceservice",
    ),
    Recipe("sglang.yaml", workload, ("http://127.0.0.1:30000",), stack="sglang"),
    Recipe("dynamo.yaml", dynamo, ("http://127.0.0.1:9090",), stack="dynamo"),
    Recipe(
        "leaderworkerset.yaml",
        leader_worker_set,
        stack="leaderworkerset",
        differs=frozenset({"livenessProbe"}),
    ),
)
