"""The worlds of most cases: pods of one model, or a single engine outside of
Kubernetes.
"""

from collections.abc import Callable, Mapping, Sequence

from vllm_specdec_exporter.config.thresholds import Thresholds

from .per_request import RequestPhase, observe
from .world import MODEL, Phase, World

#: Phases, one after another.
Life = Sequence[Phase]


def replica(
    world: World,
    index: int,
    *phases: Phase,
    server: int = 0,
    requests: Sequence[RequestPhase] = (),
    labels: Mapping[str, str] | None = None,
    start: int = 0,
    namespace: str = "chat",
    prefix: str = "vllm:",
) -> None:
    """Add a pod: its exporter, what it sees of requests, and vLLM if it is scraped for
    some minutes.
    """
    pod = {"pod": f"vllm-{index}", **(labels or {})}
    address = f"10.0.0.{index}"
    world.engine(
        *phases,
        instance=f"{address}:9850",
        labels=pod,
        start=start,
        namespace=namespace,
    )
    if server:
        world.server(
            server,
            instance=f"{address}:8000",
            labels=pod,
            start=start,
            namespace=namespace,
            prefix=prefix,
        )
    observe(
        world,
        *requests,
        instance=f"{address}:9850",
        labels=pod,
        start=start,
        namespace=namespace,
    )


def pods(*lives: Life) -> Callable[[], World]:
    """Return what builds a pod for each life."""

    def build() -> World:
        world = World()
        for index, life in enumerate(lives, 1):
            replica(world, index, *life)
        return world

    return build


def models(*lives: Life) -> Callable[[], World]:
    """Return what builds an engine and its exporter for each life, of up to three
    models.
    """
    return named(dict(zip((MODEL, "poet", "judge"), lives, strict=False)))


def engines(*lives: Life, thresholds: Thresholds | None = None) -> Callable[[], World]:
    """Return what builds an engine and its exporter for each life, outside of pods."""

    def build() -> World:
        world = World(thresholds or Thresholds())
        for index, life in enumerate(lives, 1):
            world.engine(*life, instance=f"10.0.0.{index}:9850")
        return world

    return build


def named(lives: Mapping[str, Life]) -> Callable[[], World]:
    """Return what builds an engine and its exporter for each life, of the model of that
    name.
    """

    def build() -> World:
        world = World()
        for index, (model, life) in enumerate(lives.items(), 1):
            world.engine(*life, model=model, instance=f"10.0.0.{index}:9850")
        return world

    return build
