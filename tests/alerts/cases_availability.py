"""Cases of availability.yml: is speculation being watched at all?"""

from __future__ import annotations

from .case import Case
from .sweeps import replica
from .world import JOB, Phase, ServerPhase, World

DASHBOARD = "https://grafana.example.com/d/vllm-specdec-exporter?from=now-6h"

# --- worlds


def all_down() -> World:
    """Both exporters are gone from minute 20 to 39."""
    world = World()
    for index in (1, 2):
        replica(world, index, Phase(20), Phase(20, gone=True), Phase(20))
    return world


def all_down_shortly() -> World:
    """Both exporters are gone for four minutes."""
    world = World()
    for index in (1, 2):
        replica(world, index, Phase(20), Phase(4, gone=True), Phase(20))
    return world


def bare_down() -> World:
    """The only exporter is gone; an operator named its job, and there is no namespace."""
    world = World()
    job = {"job": "monitoring/vllm-specdec-exporter"}
    world.engine(Phase(20), Phase(20, gone=True), namespace="", labels=job)
    return world


def one_down() -> World:
    """One of two exporters is gone from minute 20 to 39."""
    world = World()
    replica(world, 1, Phase(20), Phase(20, gone=True), Phase(20))
    replica(world, 2, Phase(60))
    return world


def vanished() -> World:
    """The exporter is no target any more from minute 60 to 99; that of another namespace is."""
    world = World()
    replica(world, 1, Phase(60), server=(ServerPhase(120),))
    replica(world, 1, Phase(20), start=100)
    replica(world, 2, Phase(120), server=(ServerPhase(120),), namespace="code")
    return world


def never_watched() -> World:
    """VLLM speculates in a namespace that never had an exporter, and in one that has."""
    world = World()
    world.server(ServerPhase(120), namespace="batch", labels={"pod": "vllm-9"})
    replica(world, 2, Phase(120), server=(ServerPhase(120),), namespace="code")
    return world


def scaled_to_nothing() -> World:
    """The only pod ends at minute 10, with its exporter; there is one again from minute 100 on."""
    world = World()
    replica(world, 1, Phase(10), server=(ServerPhase(10),))
    replica(world, 2, Phase(20), server=(ServerPhase(20),), start=100)
    return world


def loading() -> World:
    """Two pods load a large model for 25 minutes: nothing listens yet."""
    world = World()
    for index in (1, 2):
        replica(world, index, Phase(25, unreachable=True), Phase(20))
    return world


def all_unreachable() -> World:
    """Neither exporter gets an answer from its vLLM from minute 20 to 39."""
    world = World()
    for index in (1, 2):
        replica(world, index, Phase(20), Phase(20, unreachable=True, errors={"timeout": 12}), Phase(20))
    return world


def all_unreachable_and_one_ends() -> World:
    """No exporter gets an answer from minute 20 on, and one of the pods ends seven minutes later."""
    world = World()
    for index, minutes in ((1, 40), (2, 40), (3, 7)):
        replica(world, index, Phase(20), Phase(minutes, unreachable=True, errors={"timeout": 12}))
    return world


def one_unreachable() -> World:
    """One of two exporters cannot read its vLLM from minute 20 to 59."""
    world = World()
    target = {"target": "localhost:8000"}
    replica(world, 1, Phase(20), Phase(40, unreachable=True, errors={"tls": 12}), Phase(20), labels=target)
    replica(world, 2, Phase(80))
    return world


def stale() -> World:
    """The exporter says that its vLLM is up, and answers with minute 10's data until minute 29."""
    world = World()
    replica(world, 1, Phase(10), Phase(20, stale=True), Phase(20))
    return world


def unrecognized() -> World:
    """The exporter reads metrics of no server that it knows from minute 10 to 29."""
    world = World()
    replica(world, 1, Phase(10), Phase(20, unreachable=True, errors={"unrecognized": 12}), Phase(40))
    return world


def no_sidecar() -> World:
    """One of two pods has no exporter until minute 40."""
    world = World()
    replica(world, 1, Phase(60), server=(ServerPhase(60),))
    world.server(ServerPhase(60), instance="10.0.0.2:8000", labels={"pod": "vllm-2"})
    replica(world, 2, Phase(20), start=40)
    return world


def outside_of_kubernetes() -> World:
    """Nothing has a pod or a namespace."""
    world = World()
    world.engine(Phase(60), namespace="")
    world.server(ServerPhase(60), namespace="")
    world.server(ServerPhase(60), namespace="", instance="10.0.0.2:8000")
    return world


def blind() -> World:
    """The exporter publishes one threshold until minute 40, and all from then on."""
    world = World(without=frozenset({"vllm_specdec_threshold"}))
    replica(world, 1, Phase(60))
    world.without = frozenset()
    target = {"job": JOB, "instance": "10.0.0.1:9850", "namespace": "chat", "pod": "vllm-1"}
    for name, value in world.thresholds.items():
        start = 0 if name == "harmful_speedup" else 40
        world.put("vllm_specdec_threshold", {**target, "name": name}, start, [value] * (60 - start))
    return world


def no_info() -> World:
    """The exporter's info has gone astray."""
    world = World(without=frozenset({"vllm_specdec_info"}))
    replica(world, 1, Phase(60))
    return world


def reload_failed() -> World:
    """The exporter cannot read its new configuration from minute 10 to 29."""
    world = World()
    replica(world, 1, Phase(10), Phase(20, reload_failed=True), Phase(20))
    return world


# --- what fires


# --- cases

CASES: tuple[Case, ...] = (
    Case("the-only-exporter-down-without-labels", "ExporterDown", bare_down, {26: "critical"}),
    Case("all-exporters-back", "ExporterDown", all_down, {24: "", 26: "critical", 43: "critical", 46: ""}),
    Case("all-exporters-down-for-4-minutes", "ExporterDown", all_down_shortly, {27: ""}),
    Case(
        "one-exporter-down-does-not-page",
        "ExporterDown",
        one_down,
        {29: "", 31: "warning instance @1", 43: "warning instance @1", 46: ""},
    ),
    Case("pods-scaled-to-nothing-are-not-down", "ExporterDown", scaled_to_nothing, {60: ""}),
    Case(
        "exporters-there-again",
        "ExporterAbsent",
        vanished,
        {70: "", 80: "critical", 103: "critical", 110: ""},
    ),
    Case("a-namespace-that-never-had-exporters", "ExporterAbsent", never_watched, {100: ""}),
    Case(
        "scaled-to-nothing-does-not-page",
        "ExporterAbsent",
        scaled_to_nothing,
        {60: "", 70: "", 80: "warning", 103: "warning", 110: ""},
    ),
    Case("exporters-down-are-not-absent", "ExporterAbsent", all_down, {39: ""}),
    Case(
        "no-exporter-reads-while-a-pod-ends",
        "UpstreamUnreachable",
        all_unreachable_and_one_ends,
        {35: "critical"},
    ),
    Case(
        "all-exporters-read-again",
        "UpstreamUnreachable",
        all_unreachable,
        {28: "", 35: "critical", 43: "critical", 50: ""},
    ),
    Case("a-large-model-loads", "UpstreamUnreachable", loading, {24: ""}),
    Case(
        "one-exporter-that-cannot-read-does-not-page",
        "UpstreamUnreachable",
        one_unreachable,
        {
            48: "",
            55: "warning instance target=localhost:8000 @1",
            63: "warning instance target=localhost:8000 @1",
            68: "",
        },
    ),
    Case(
        "new-data-again",
        "DataStale",
        stale,
        {18: "", 25: "warning instance @1", 32: "warning instance @1", 40: ""},
    ),
    Case("an-unreachable-server-is-not-old-data", "DataStale", all_unreachable, {39: ""}),
    Case("a-server-that-is-back-is-not-old-data", "DataStale", one_unreachable, {61: ""}),
    Case(
        "known-metrics-again",
        "DialectUnknown",
        unrecognized,
        {
            18: "",
            25: "warning instance reason=unrecognized @1",
            40: "warning instance reason=unrecognized @1",
            60: "",
        },
    ),
    Case("a-timeout-is-no-dialect", "DialectUnknown", all_unreachable, {39: ""}),
    Case(
        "a-pod-that-got-its-sidecar",
        "SidecarMissing",
        no_sidecar,
        {13: "", 20: "warning", 42: "warning", 50: ""},
    ),
    Case("servers-without-pods", "SidecarMissing", outside_of_kubernetes, {59: ""}),
    Case("a-namespace-without-exporters", "SidecarMissing", never_watched, {100: ""}),
    Case("no-info", "RulesBlind", no_info, {20: "warning instance @1"}),
    Case(
        "thresholds-again",
        "RulesBlind",
        blind,
        {13: "", 20: "warning instance @1", 42: "warning instance @1", 50: ""},
    ),
    Case("an-exporter-that-is-down-has-none", "RulesBlind", all_down, {39: ""}),
    Case(
        "reload-succeeded-later",
        "ConfigReloadFailed",
        reload_failed,
        {18: "", 25: "warning instance @1", 32: "warning instance @1", 40: ""},
    ),
    Case("reloads-succeed", "ConfigReloadFailed", all_down, {18: ""}),
    Case("always", "Watchdog", all_down, {0: "none", 30: "none"}),
)
