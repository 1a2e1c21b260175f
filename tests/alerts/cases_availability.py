"""Cases of availability.yml: is speculation being watched at all?"""

from collections.abc import Callable

from .case import Table, cases, silent
from .histories import pods, replica
from .world import JOB, MODEL, Phase, World

WELL = Phase(20)
GONE = Phase(20, gone=True)
#: VLLM gives no answer in time.
MUTE = Phase(20, unreachable=True, errors={"timeout": 12})


def served(*lives: tuple[Phase, ...], minutes: int = 90) -> Callable[[], World]:
    """Return what builds a pod for each life, whose vLLM is scraped and serves all the
    time.
    """

    def build() -> World:
        world = World()
        for index, life in enumerate(lives, 1):
            replica(world, index, *life, server=minutes)
        return world

    return build


all_down = served(*[(WELL, GONE, WELL)] * 2)
all_mute = pods(*[(WELL, MUTE, WELL)] * 2)


restarting = served((WELL, *(Phase(5, gone=True), Phase(1)) * 10))
#: Two minutes of five without an answer, and two minutes of four without vLLM.
two_of_five = pods((WELL, *(Phase(2, gone=True), Phase(3)) * 12))
crash_loop = pods((WELL, *(Phase(2, unreachable=True), Phase(2)) * 15))


def host_off() -> World:
    """The host is off: neither the exporter nor vLLM answers."""
    world = World()
    replica(world, 1, WELL, Phase(60, gone=True), server=20)
    return world


def whole_cluster() -> World:
    """Scraping of all exporters of three clusters fails; vLLM is known to serve in one
    namespace of each.
    """
    world = World()
    for cluster, namespaces in (("", 3), ("a", 2), ("b", 4)):
        for index, namespace in enumerate(
            ("chat", "code", "docs", "ask")[:namespaces], 1
        ):
            place = {"namespace": namespace, "labels": {"cluster": cluster}}
            replica(world, index, WELL, GONE, WELL, server=60 * (index == 1), **place)
    return world


def elsewhere(
    *life: Phase, namespace: str = "monitoring", server: int = 90
) -> Callable[[], World]:
    """Return what builds an exporter in a namespace of its own, and vLLM that serves in
    another.
    """

    def build() -> World:
        world = World()
        world.engine(*life, namespace=namespace, labels={"target": "vllm.chat:8000"})
        world.server(server)
        return world

    return build


def staging_off() -> World:
    """A host is off whose model also serves in another namespace, watched by an
    exporter there.
    """
    world = host_off()
    replica(world, 2, Phase(80), server=80, namespace="production")
    return world


def off_and_tried() -> World:
    """A host is off whose model also serves in a namespace without exporters."""
    world = host_off()
    world.server(80, namespace="dev", instance="10.0.0.8:8000", labels={"pod": "dev-1"})
    return world


def off_beside_another_team() -> World:
    """A host without a scraped vLLM is off; another team serves a model of that name,
    without exporters.
    """
    world = World()
    replica(world, 1, WELL, Phase(60, gone=True))
    world.server(80, namespace="team-b", instance="10.0.0.8:8000")
    return world


def nothing_beside_another_team() -> World:
    """As its only pod ends, with its exporter."""
    world = World()
    replica(world, 1, Phase(10), server=10)
    world.server(120, namespace="team-b", instance="10.0.0.8:8000")
    return world


def by_address() -> World:
    """The exporter in a namespace of its own finds its servers by their addresses."""
    world = World()
    world.engine(WELL, GONE, namespace="monitoring", labels={"target": "10.0.0.7:8000"})
    world.server(60, instance="10.0.0.7:8000")
    world.server(60, instance="10.0.0.8:8000", namespace="team-b")
    return world


def by_address_twice() -> World:
    """Two exporters in a namespace of their own read the same server."""
    world = by_address()
    target = {"target": "10.0.0.7:8000"}
    world.engine(
        WELL, GONE, namespace="monitoring", instance="10.0.0.2:9850", labels=target
    )
    return world


def loads_beside_another() -> World:
    """A pod loads its model, and another model, which nobody watches, serves in the
    same namespace.
    """
    world = World()
    replica(world, 1, WELL, Phase(50, unreachable=True))
    world.server(80, instance="10.0.0.9:8000", model="other", labels={"pod": "other-1"})
    return world


def bare_down() -> World:
    """The only exporter is gone; an operator named its job; there is no namespace."""
    world = World()
    world.engine(
        WELL, GONE, namespace="", labels={"job": "monitoring/vllm-specdec-exporter"}
    )
    world.server(40, namespace="")
    return world


def vanished() -> World:
    """The exporter is no target any more from minute 60 to 99; that of another
    namespace is.
    """
    world = World()
    replica(world, 1, Phase(60), server=120)
    replica(world, 1, WELL, start=100)
    replica(world, 2, Phase(120), server=120, namespace="code")
    return world


def never_watched() -> World:
    """VLLM speculates in a namespace that never had an exporter, and in one with."""
    world = World()
    world.server(120, namespace="batch", labels={"pod": "vllm-9"})
    replica(world, 2, Phase(120), server=120, namespace="code")
    return world


def scaled_to_nothing() -> World:
    """The only pod ends at minute 10, with its exporter; there is one again from minute
    100 on.
    """
    world = World()
    replica(world, 1, Phase(10), server=10)
    replica(world, 2, WELL, server=20, start=100)
    return world


def one_unreachable() -> World:
    """One of two exporters cannot read its vLLM from minute 20 to 59."""
    world = World()
    target = {"target": "localhost:8000"}
    replica(
        world,
        1,
        WELL,
        Phase(40, unreachable=True, errors={"tls": 12}),
        WELL,
        labels=target,
    )
    replica(world, 2, Phase(80))
    return world


def unresolved() -> World:
    """The name of one exporter's servers has no answer from minute 10 to 69; their
    series end with it.
    """
    world = World()
    target = {"job": JOB, "instance": "10.0.0.1:9850", "namespace": "chat"}
    replica(world, 1, Phase(10))
    world.put("up", target, 10, [1] * 80)
    name = {**target, "dns_name": "dns+http://vllm.chat.svc:8000"}
    world.put("vllm_specdec_discovery_up", name, 0, [1] * 10 + [0] * 60 + [1] * 20)
    return world


def no_sidecar() -> World:
    """One of two pods has no exporter until minute 40."""
    world = World()
    replica(world, 1, Phase(60), server=60)
    world.server(60, instance="10.0.0.2:8000", labels={"pod": "vllm-2"})
    replica(world, 2, WELL, start=40)
    return world


def outside_of_kubernetes() -> World:
    """Nothing has a pod or a namespace."""
    world = World()
    world.engine(Phase(60), namespace="")
    world.server(60, namespace="")
    world.server(60, namespace="", instance="10.0.0.2:8000")
    return world


def blind() -> World:
    """The exporter publishes one threshold until minute 40, and all from then on."""
    return _with_thresholds(60, lambda name: 0 if name == "harmful_speedup" else 40)


def blind_to_requests() -> World:
    """The exporter publishes all thresholds but one of those of single requests."""
    return _with_thresholds(
        40, lambda name: 40 if name == "unrecorded_requests_ratio" else 0
    )


def _with_thresholds(minutes: int, since: Callable[[str], int]) -> World:
    """A world whose exporter publishes each threshold since a minute of its own."""
    world = World(without=frozenset({"vllm_specdec_threshold"}))
    replica(world, 1, Phase(minutes))
    world.without = frozenset()
    target = {
        "job": JOB,
        "instance": "10.0.0.1:9850",
        "namespace": "chat",
        "pod": "vllm-1",
    }
    for name, value in world.thresholds.items():
        if (start := since(name)) < minutes:
            labels = {**target, "threshold": name}
            world.put(
                "vllm_specdec_threshold", labels, start, [value] * (minutes - start)
            )
    return world


def nameless() -> World:
    """A pod whose vLLM names no model, either."""
    world = World()
    pod = {"pod": "vllm-1"}
    world.engine(Phase(40), model="", labels=pod)
    world.server(40, model="", labels=pod)
    return world


def renamed() -> World:
    """The target has a label `state`, so Prometheus renames the exporter's own, until
    minute 40.
    """
    world = World()
    replica(world, 1, Phase(60))
    own = {
        "job": JOB,
        "instance": "10.0.0.1:9850",
        "namespace": "chat",
        "exported_state": "active",
    }
    world.put("vllm_specdec_activity", {**own, "state": "blue"}, 10, [1.0] * 30)
    return world


def no_info() -> World:
    """The exporter's info has gone astray."""
    world = World(without=frozenset({"vllm_specdec_info"}))
    replica(world, 1, Phase(60))
    return world


def labelled_by_type() -> World:
    """From minute 10 on gauges have one more label, which the rules do not know: as
    Prometheus adds the type of a series where it is told to.
    """
    world = World()
    replica(world, 1, Phase(10), Phase(30, speedup=None), Phase(20))
    for basis in ("judged_speedup", "guessed_speedup"):
        world.put(
            f"vllm_specdec_{basis}",
            {
                "job": JOB,
                "instance": "10.0.0.1:9850",
                "namespace": "chat",
                "pod": "vllm-1",
                "model_name": MODEL,
                "engine": "0",
                "kind": "gauge",
            },
            10,
            [0.5] * 30,
        )
    return world


UNREAD = "warning instance reason=no_answer target=localhost:8000 @1"
NAMELESS = "warning instance reason=refused target=dns+http://vllm.chat.svc:8000 @1"
FLAPS = "warning instance reason=flapping @1"
CLUSTER, LOST, GONE_AWAY, MUTED = (
    f"critical reason={reason}"
    for reason in ("cluster", "down", "absent", "unreachable")
)

MONITORING_LOST_CASES: Table = {
    "the-only-exporter-down-without-labels": (bare_down, {26: LOST}),
    "all-exporters-back": (all_down, {24: "", 26: LOST, 43: LOST, 66: ""}),
    "all-exporters-down-for-an-hour-and-back": (
        served(*[(WELL, Phase(60, gone=True), WELL, WELL)] * 2, minutes=150),
        {79: LOST, 95: "", 110: ""},
    ),
    # Off, or scaled to nothing: nobody can be harmed, and ExporterDown is a ticket.
    "a-host-that-is-off-does-not-page": (host_off, {30: "", 50: "", 75: ""}),
    "nor-does-it-while-its-model-serves-elsewhere": (
        staging_off,
        {30: "", 50: "", 75: ""},
    ),
    "nor-where-nobody-watches-it": (off_and_tried, {30: "", 50: "", 75: ""}),
    "a-host-is-off-and-another-team-serves-the-same-name": (
        off_beside_another_team,
        {30: "", 50: "", 75: ""},
    ),
    "scaled-to-nothing-while-another-team-serves-the-same-name": (
        nothing_beside_another_team,
        {30: "", 60: "", 90: "warning reason=absent"},
    ),
    "exporters-in-another-namespace-that-read-addresses-die": (
        by_address,
        {24: "", 26: LOST},
    ),
    "exporters-that-read-the-same-address-die": (
        by_address_twice,
        {24: "", 26: LOST},
    ),
    "exporters-in-another-namespace-die": (
        elsewhere(WELL, Phase(60, gone=True)),
        {24: "", 26: LOST},
    ),
    "exporters-in-another-namespace-are-gone": (
        elsewhere(WELL, server=1700),
        {30: "", 40: GONE_AWAY, 1600: GONE_AWAY},
    ),
    # Its start is not an outage.
    "a-new-exporter-is-down-for-4-minutes": (
        served((Phase(4, gone=True), WELL)),
        silent(0, 23),
    ),
    "all-polls-are-refused-though-vllm-serves": (
        served(*[(WELL, Phase(30, unreachable=True))] * 2),
        {28: "", 35: MUTED},
    ),
    "a-model-loads-beside-one-that-nobody-watches": (
        loads_beside_another,
        {35: "", 45: ""},
    ),
    "an-exporter-without-a-namespace-cannot-read": (
        elsewhere(WELL, MUTE, MUTE, namespace=""),
        {35: MUTED},
    ),
    "an-exporter-elsewhere-is-refused-though-vllm-serves": (
        elsewhere(WELL, Phase(30, unreachable=True)),
        {35: MUTED},
    ),
    "scraping-of-a-whole-cluster-fails": (
        whole_cluster,
        {
            24: "",
            26: [CLUSTER, LOST]
            + [f"{one} cluster={name}" for name in "ab" for one in (CLUSTER, LOST)],
        },
    ),
    "all-exporters-down-for-4-minutes": (
        served(*[(WELL, Phase(4, gone=True), WELL)] * 2),
        {27: ""},
    ),
    # Out of memory again and again: five of six minutes down, so that `up` resets every
    # `for`.
    "an-exporter-that-restarts-again-and-again": (restarting, {19: "", 60: LOST}),
    "exporters-there-again": (
        vanished,
        {70: "", 80: GONE_AWAY, 103: GONE_AWAY, 110: ""},
    ),
    "a-namespace-that-never-had-exporters": (never_watched, {100: ""}),
    "exporters-and-servers-gone-are-a-ticket": (
        scaled_to_nothing,
        {60: "", 80: "warning reason=absent", 103: "warning reason=absent", 110: ""},
    ),
    "no-exporter-reads-while-a-pod-ends": (
        pods(
            *[(WELL, MUTE, MUTE)] * 2,
            (WELL, Phase(7, unreachable=True, errors={"timeout": 12})),
        ),
        {35: MUTED},
    ),
    # The other may load a model, but this one serves.
    "one-server-refuses-while-the-other-times-out": (
        pods((WELL, MUTE, MUTE), (WELL, Phase(40, unreachable=True))),
        {28: "", 35: MUTED},
    ),
    "all-exporters-read-again": (all_mute, {28: "", 35: MUTED, 43: MUTED, 50: ""}),
    "all-polls-hang-though-exporters-say-they-are-up": (
        pods(*[(Phase(10), Phase(30, stale=True), WELL)] * 2),
        {22: "", 28: MUTED, 50: ""},
    ),
    "all-polls-hang-and-exporters-say-so-without-an-error": (
        pods((Phase(10), Phase(30, unreachable=True, errors={}), WELL)),
        {18: "", 22: MUTED, 50: ""},
    ),
    "polls-every-ten-minutes-do-not-hang": (
        pods(*[(Phase(60, polled_every=10),)] * 2),
        {19: "", 29: "", 39: "", 59: ""},
    ),
    "a-large-model-loads": (pods(*[(Phase(25, unreachable=True), WELL)] * 2), {24: ""}),
    "one-exporter-down-does-not-page": (
        pods((WELL, GONE, WELL), (Phase(60),)),
        {39: ""},
    ),
}
EXPORTER_DOWN_CASES: Table = {
    "one-exporter-down-and-back": (
        pods((WELL, GONE, Phase(60)), (Phase(100),)),
        {29: "", 33: "warning instance @1", 43: "warning instance @1", 66: ""},
    ),
    "down-two-minutes-of-five": (two_of_five, {24: "", 70: "warning instance @1"}),
    "pods-scaled-to-nothing-are-not-down": (scaled_to_nothing, {60: ""}),
}
UPSTREAM_UNREACHABLE_CASES: Table = {
    "one-exporter-that-cannot-read": (
        one_unreachable,
        {28: "", 30: UNREAD, 63: UNREAD, 70: ""},
    ),
    "old-data-though-it-is-up": (
        pods((Phase(10), Phase(45, stale=True), WELL)),
        {20: "", 26: "warning instance reason=no_answer @1", 70: ""},
    ),
    "an-answer-in-no-known-dialect": (
        pods((WELL, Phase(20, unreachable=True, errors={"unrecognized": 12}))),
        {35: "warning instance reason=no_answer @1"},
    ),
    "a-name-without-an-answer": (
        unresolved,
        {54: "", 60: NAMELESS, 72: NAMELESS, 82: ""},
    ),
    "it-polls-every-ten-minutes": (
        pods((Phase(60, polled_every=10),)),
        {39: "", 59: ""},
    ),
    "while-a-model-loads": (
        pods((Phase(42, unreachable=True), Phase(40))),
        silent(10, 80),
    ),
    "refused-for-an-hour": (
        pods((WELL, Phase(60, unreachable=True), Phase(20))),
        {64: "", 75: "warning instance reason=refused @1", 98: ""},
    ),
    "a-server-in-a-crash-loop": (crash_loop, {30: "", 60: FLAPS, 79: FLAPS}),
}
SIDECAR_MISSING_CASES: Table = {
    "a-pod-that-got-its-sidecar": (
        no_sidecar,
        {13: "", 20: "warning", 42: "warning", 50: ""},
    ),
    "servers-without-pods": (outside_of_kubernetes, {59: ""}),
    "a-namespace-without-exporters": (never_watched, {100: ""}),
}
RULES_BLIND_CASES: Table = {
    "no-info": (no_info, {20: "warning instance @1"}),
    "a-label-is-renamed": (renamed, {9: "", 21: "warning instance @1", 54: ""}),
    "thresholds-again": (
        blind,
        {3: "", 12: "warning instance @1", 42: "warning instance @1", 50: ""},
    ),
    "a-threshold-of-single-requests-is-missing": (
        blind_to_requests,
        {20: "warning instance @1"},
    ),
    "a-record-is-empty": (
        labelled_by_type,
        {9: "", 22: "warning instance @1", 55: ""},
    ),
    "vllm-names-no-model-either": (nameless, {39: ""}),
    "an-exporter-that-is-down-has-none": (all_down, {39: ""}),
}
CONFIG_RELOAD_FAILED_CASES: Table = {
    "reload-succeeded-later": (
        pods((Phase(10), Phase(20, reload_failed=True), WELL)),
        {18: "", 25: "warning instance @1", 32: "warning instance @1", 40: ""},
    ),
    "reloads-succeed": (all_down, {18: ""}),
}
WATCHDOG_CASES: Table = {"always": (all_down, {0: "none", 30: "none"})}

CASES = (
    *cases("MonitoringLost", MONITORING_LOST_CASES),
    *cases("ExporterDown", EXPORTER_DOWN_CASES),
    *cases("UpstreamUnreachable", UPSTREAM_UNREACHABLE_CASES),
    *cases("SidecarMissing", SIDECAR_MISSING_CASES),
    *cases("RulesBlind", RULES_BLIND_CASES),
    *cases("ConfigReloadFailed", CONFIG_RELOAD_FAILED_CASES),
    *cases("Watchdog", WATCHDOG_CASES),
)
