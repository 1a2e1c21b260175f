"""Engines that differ in everything, and the world that they live in, to try the
recording rules on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .per_request import RequestPhase, observe
from .world import JOB, Phase, World, idle

#: When everything is looked at; a multiple of the 3 minutes at which long windows are
#: recorded.
END = 96
#: Since when engines are judged, in minutes.
JUDGED = 30


@dataclass(frozen=True)
class Engine:
    """An engine that does the same all through."""

    labels: Mapping[str, str]  # all that it has
    phase: Phase  # what it does

    @property
    def speedup(self) -> float | None:
        """What the rules take: against the replica without speculation, else as
        published.
        """
        phase = self.phase
        if phase.step_seconds is None:
            return phase.speedup
        steps_for_a_token = (
            phase.coverage / (1 + sum(phase.acceptance)) + 1 - phase.coverage
        )
        plain = PLAIN_STEP[0] + PLAIN_STEP[1] * phase.running
        return plain / (phase.step_seconds * steps_for_a_token)


def _target(instance: str, **labels: str) -> dict[str, str]:
    return {"job": JOB, "instance": instance, **labels}


LLAMA_1 = _target(
    "10.0.0.1:9850", cluster="east", namespace="chat", pod="vllm-1", model_name="llama"
)
LLAMA_2 = _target(
    "10.0.0.2:9850", cluster="east", namespace="chat", pod="vllm-2", model_name="llama"
)
#: Outside of Kubernetes: neither cluster nor namespace.
QWEN_1 = _target("host-1:9850", model_name="qwen")
QWEN_2 = _target("host-2:9850", model_name="qwen")
TINY = _target("host-3:9850", model_name="tiny")

#: The line of a step without speculation: fixed, and for each request.
PLAIN_STEP = (0.02, 0.001)
PROFILE = {"cost_profile": "h100"}
ENGINES = (
    # Two engines of one server, with ten times as many drafts on the one that accepts
    # more.
    Engine(
        {**LLAMA_1, "engine": "0"},
        Phase(
            1,
            600,
            (0.9, 0.7, 0.5),
            plain_tokens=1860,
            speedup=1.7,
            info=PROFILE,
            step_seconds=0.03,
        ),
    ),
    Engine(
        {**LLAMA_1, "engine": "1"},
        Phase(
            1,
            drafts=60,
            acceptance=(0.4, 0.2, 0.1),
            draft_length=2.5,
            speedup=0.8,
            basis="measured",
            action="disable",
            recommended_k=0,
            running=32,
            info=PROFILE,
        ),
    ),
    # A replica without speculation.
    Engine({**LLAMA_2, "engine": "0"}, idle(1, activity="off", step_fit=PLAIN_STEP)),
    Engine(
        {**QWEN_1, "engine": "0"},
        Phase(
            1,
            drafts=100,
            acceptance=(0.6, 0.3),
            speedup=0.7,
            action="increase_k",
            recommended_k=4,
        ),
    ),
    # One that drafts, and whose speedup nobody knows.
    Engine(
        {**QWEN_2, "engine": "0"},
        Phase(
            1,
            drafts=500,
            acceptance=(0.5, 0.1),
            speedup=None,
            action="increase_k",
            recommended_k=3,
        ),
    ),
    # One that has no peers, and no position behind the first.
    Engine(
        {**TINY, "engine": "0"},
        Phase(1, drafts=12, acceptance=(0.75,), speedup=1.25, recommended_k=1),
    ),
)
#: What exporters see of single requests: two of one model, one of another, and one of
#: an adapter, which vLLM does not name in its metrics.
REQUESTS = (
    (
        LLAMA_1,
        RequestPhase(
            END + 1,
            {"chat": {0.8: 6.0, 0.55: 2.0, 0.2: 1.0}, "summary": {0.15: 3.0, 0.9: 1.0}},
        ),
    ),
    (
        LLAMA_2,
        RequestPhase(
            END + 1,
            {"chat": {0.95: 4.0, 0.35: 2.0}},
            {"none": 1.0},
            passed=12,
            unobserved={
                "busy": 0.5,
                "encoded": 1.5,
                "aborted": 2.0,
                "refused": 1.0,
                "internal": 0.25,
            },
        ),
    ),
    (QWEN_1, RequestPhase(END + 1, {"chat": {0.04: 0.5}})),
    (
        {**TINY, "model_name": "adapter"},
        RequestPhase(END + 1, {"chat": {0.25: 1.0, 1.0: 9.0}}),
    ),
)


def build() -> World:
    """Return the world of all engines."""
    world = World()
    exporters = set()
    for engine in ENGINES:
        labels = dict(engine.labels)
        instance, model, number = (
            labels.pop(name) for name in ("instance", "model_name", "engine")
        )
        namespace = labels.pop("namespace", "")
        del labels["job"]
        world.engine(
            replace(engine.phase, minutes=JUDGED, speedup=None, step_seconds=None),
            replace(engine.phase, minutes=END + 1 - JUDGED),
            model=model,
            namespace=namespace,
            instance=instance,
            engine=number,
            labels=labels,
            exporter=instance not in exporters,
        )
        exporters.add(instance)
    for own, seen in REQUESTS:
        labels = {
            name: value for name, value in own.items() if name in ("cluster", "pod")
        }
        model = own["model_name"]
        namespace = own.get("namespace", "")
        instance = own["instance"]
        observe(
            world,
            seen,
            model=model,
            namespace=namespace,
            instance=instance,
            labels=labels,
        )
    return world
