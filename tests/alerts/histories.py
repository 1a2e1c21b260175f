"""The worlds of most cases: pods of one model, or a single engine outside of Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_specdec_exporter.config.thresholds import Thresholds

from .per_request import RequestPhase, observe
from .world import Phase, ServerPhase, World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    #: Phases, one after another.
    Life = Sequence[Phase]


def replica(
    world: World,
    index: int,
    *phases: Phase,
    server: Sequence[ServerPhase] = (),
    requests: Sequence[RequestPhase] = (),
    labels: Mapping[str, str] | None = None,
    start: int = 0,
    namespace: str = "chat",
) -> None:
    """Add a pod with vLLM and its exporter, and what it sees of single requests."""
    pod = {"pod": f"vllm-{index}", **(labels or {})}
    address = f"10.0.0.{index}"
    world.engine(*phases, instance=f"{address}:9850", labels=pod, start=start, namespace=namespace)
    if server:
        world.server(*server, instance=f"{address}:8000", labels=pod, start=start, namespace=namespace)
    observe(world, *requests, instance=f"{address}:9850", labels=pod, start=start, namespace=namespace)


def pods(*lives: Life, server: Sequence[ServerPhase] = ()) -> Callable[[], World]:
    """Return what builds a pod for each life; their vLLM's own series are the same."""

    def build() -> World:
        world = World()
        for index, life in enumerate(lives, 1):
            replica(world, index, *life, server=server)
        return world

    return build


def engines(
    *lives: Life, server: Sequence[ServerPhase] = (), thresholds: Thresholds | None = None
) -> Callable[[], World]:
    """Return what builds an engine and its exporter for each life, outside of pods; one vLLM is scraped."""

    def build() -> World:
        world = World(thresholds or Thresholds())
        for index, life in enumerate(lives, 1):
            world.engine(*life, instance=f"10.0.0.{index}:9850")
        if server:
            world.server(*server)
        return world

    return build
