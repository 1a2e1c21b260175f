"""Cases of availability.yml: is speculation being watched at all?"""

from __future__ import annotations

from .case import Case
from .promtool import Check, Expected
from .sweeps import replica
from .world import JOB, Phase, ServerPhase, World

RUNBOOKS = "https://example.com/vllm-specdec-exporter/runbooks/VLLMSpecDecode"
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

ALL_DOWN = Expected(
    labels={
        "namespace": "chat",
        "severity": "critical",
        "subject": "monitoring",
    },
    annotations={
        "summary": "No exporter of a namespace answers.",
        "description": (
            "None of the exporters in chat has answered Prometheus for 5 minutes: nobody watches "
            "whether speculation hurts users there."
        ),
        "action": "Look at the exporter's container or unit and its log; restore the scrape target.",
        "runbook_url": RUNBOOKS + "ExporterDown.md",
        "dashboard_url": DASHBOARD + "&var-namespace=chat",
    },
)

ONE_DOWN = Expected(
    labels={
        "instance": "10.0.0.1:9850",
        "job": "vllm-specdec-exporter",
        "level": "instance",
        "namespace": "chat",
        "pod": "vllm-1",
        "severity": "warning",
        "subject": "monitoring",
    },
    annotations={
        "summary": "An exporter does not answer.",
        "description": (
            "The exporter at vllm-1 in chat has not answered Prometheus for 10 minutes; others there do."
        ),
        "action": "Look at the exporter's container or unit and its log; restore the scrape target.",
        "runbook_url": RUNBOOKS + "ExporterDown.md",
        "dashboard_url": DASHBOARD + "&var-instance=10.0.0.1%3A9850",
    },
)

VANISHED = Expected(
    labels={
        "namespace": "chat",
        "severity": "critical",
        "subject": "monitoring",
    },
    annotations={
        "summary": "The exporters of a namespace have vanished while vLLM speculates on.",
        "description": (
            "3 speculative series of vLLM are scraped in chat, but the exporters that were there "
            "within the last week are no longer even scrape targets."
        ),
        "action": (
            "Restore the exporter's scrape job (PodMonitor, ServiceMonitor or static target), or "
            "remove these rules."
        ),
        "runbook_url": RUNBOOKS + "ExporterAbsent.md",
        "dashboard_url": DASHBOARD + "&var-namespace=chat",
    },
)

NONE_AT_ALL = Expected(
    labels={
        "severity": "warning",
        "subject": "monitoring",
    },
    annotations={
        "summary": "Prometheus knows no exporter at all.",
        "description": (
            "No scrape target whose job is called vllm-specdec-exporter has been there for an hour."
            " Either every server was scaled to nothing, or the scrape job is gone or has another "
            "name."
        ),
        "action": (
            "Restore the exporter's scrape job (PodMonitor, ServiceMonitor or static target), or "
            "remove these rules."
        ),
        "runbook_url": RUNBOOKS + "ExporterAbsent.md",
        "dashboard_url": DASHBOARD,
    },
)

NONE_READS = Expected(
    labels={
        "namespace": "chat",
        "severity": "critical",
        "subject": "monitoring",
    },
    annotations={
        "summary": "No exporter of a namespace can read its vLLM.",
        "description": (
            "Every exporter in chat has failed to read its vLLM for 10 minutes, and not only "
            "because there is nothing to connect to: nobody watches whether speculation hurts users there."
        ),
        "action": (
            "Read vllm_specdec_poll_errors_total by reason and the exporter's log; check the "
            "address, TLS, credentials and that vLLM answers /metrics."
        ),
        "runbook_url": RUNBOOKS + "UpstreamUnreachable.md",
        "dashboard_url": DASHBOARD + "&var-namespace=chat",
    },
)

ONE_CANNOT_READ = Expected(
    labels={
        "instance": "10.0.0.1:9850",
        "job": "vllm-specdec-exporter",
        "level": "instance",
        "namespace": "chat",
        "pod": "vllm-1",
        "severity": "warning",
        "subject": "monitoring",
        "target": "localhost:8000",
    },
    annotations={
        "summary": "An exporter cannot read its vLLM.",
        "description": "The exporter at vllm-1 in chat has failed to read localhost:8000 for 30 minutes.",
        "action": (
            "Read vllm_specdec_poll_errors_total by reason and the exporter's log; check the "
            "address, TLS, credentials and that vLLM answers /metrics."
        ),
        "runbook_url": RUNBOOKS + "UpstreamUnreachable.md",
        "dashboard_url": DASHBOARD + "&var-instance=10.0.0.1%3A9850",
    },
)

STALE = Expected(
    labels={
        "instance": "10.0.0.1:9850",
        "job": "vllm-specdec-exporter",
        "level": "instance",
        "namespace": "chat",
        "pod": "vllm-1",
        "severity": "warning",
        "subject": "monitoring",
    },
    annotations={
        "summary": "An exporter serves old data.",
        "description": (
            "The last successful poll of the exporter at vllm-1 in chat was 15m 0s ago, though it "
            "says that its vLLM is up."
        ),
        "action": (
            "Compare the clocks of exporter and Prometheus; look for a cache in between; restart "
            "the exporter."
        ),
        "value": "15m 0s old",
        "threshold": "5 minutes",
        "runbook_url": RUNBOOKS + "DataStale.md",
        "dashboard_url": DASHBOARD + "&var-instance=10.0.0.1%3A9850",
    },
)

STALE_AT_LAST = Expected(
    labels={
        "instance": "10.0.0.1:9850",
        "job": "vllm-specdec-exporter",
        "level": "instance",
        "namespace": "chat",
        "pod": "vllm-1",
        "severity": "warning",
        "subject": "monitoring",
    },
    annotations={
        "summary": "An exporter serves old data.",
        "description": (
            "The last successful poll of the exporter at vllm-1 in chat was 19m 0s ago, though it "
            "says that its vLLM is up."
        ),
        "action": (
            "Compare the clocks of exporter and Prometheus; look for a cache in between; restart "
            "the exporter."
        ),
        "value": "19m 0s old",
        "threshold": "5 minutes",
        "runbook_url": RUNBOOKS + "DataStale.md",
        "dashboard_url": DASHBOARD + "&var-instance=10.0.0.1%3A9850",
    },
)

UNKNOWN = Expected(
    labels={
        "instance": "10.0.0.1:9850",
        "job": "vllm-specdec-exporter",
        "level": "instance",
        "namespace": "chat",
        "pod": "vllm-1",
        "reason": "unrecognized",
        "severity": "warning",
        "subject": "monitoring",
    },
    annotations={
        "summary": "A server's metrics are of no dialect that the exporter knows.",
        "description": (
            "The exporter at vllm-1 in chat gets metrics from its server, but of no server that it knows."
        ),
        "action": (
            "Check that the address is vLLM's and that it runs without --disable-log-stats; after "
            "an upgrade of vLLM, upgrade the exporter."
        ),
        "runbook_url": RUNBOOKS + "DialectUnknown.md",
        "dashboard_url": DASHBOARD + "&var-instance=10.0.0.1%3A9850",
    },
)

NO_SIDECAR = Expected(
    labels={
        "model_name": "meta-llama/Llama-3.1-8B-Instruct",
        "namespace": "chat",
        "pod": "vllm-2",
        "severity": "warning",
        "subject": "monitoring",
    },
    annotations={
        "summary": "A vLLM speculates without an exporter beside it.",
        "description": (
            "vLLM in pod vllm-2 in chat serves meta-llama/Llama-3.1-8B-Instruct with speculation, "
            "but no exporter is scraped there, though its neighbours have one."
        ),
        "action": "Add the sidecar to the pod template, or its port to the scrape job.",
        "runbook_url": RUNBOOKS + "SidecarMissing.md",
        "dashboard_url": DASHBOARD + "&var-namespace=chat",
    },
)

BLIND = Expected(
    labels={
        "instance": "10.0.0.1:9850",
        "job": "vllm-specdec-exporter",
        "level": "instance",
        "namespace": "chat",
        "severity": "warning",
        "subject": "monitoring",
    },
    annotations={
        "summary": "The rules lack thresholds to compare with.",
        "description": (
            "The exporter at 10.0.0.1:9850 in chat is scraped, but Prometheus lacks some of its "
            "vllm_specdec_threshold series, or vllm_specdec_info. Alerts that need them cannot "
            "fire."
        ),
        "action": (
            "Let both series through metric relabelling, or bring exporter and rules to the same version."
        ),
        "runbook_url": RUNBOOKS + "RulesBlind.md",
        "dashboard_url": DASHBOARD + "&var-instance=10.0.0.1%3A9850",
    },
)

OLD_CONFIGURATION = Expected(
    labels={
        "instance": "10.0.0.1:9850",
        "job": "vllm-specdec-exporter",
        "level": "instance",
        "namespace": "chat",
        "pod": "vllm-1",
        "severity": "warning",
        "subject": "monitoring",
    },
    annotations={
        "summary": "An exporter cannot use its newest configuration.",
        "description": (
            "The exporter at vllm-1 in chat could not read its newest configuration and goes on "
            "with the one before; a sidecar that has none before it watches nothing."
        ),
        "action": "Mend what the exporter's log names, and reload; flags need a new pod.",
        "runbook_url": RUNBOOKS + "ConfigReloadFailed.md",
        "dashboard_url": DASHBOARD + "&var-instance=10.0.0.1%3A9850",
    },
)

WATCHDOG = Expected(
    labels={
        "severity": "none",
        "subject": "monitoring",
    },
    annotations={
        "summary": "Rules are evaluated and notifications arrive.",
        "description": (
            "This alert always fires. Have the receiver of the watchdog raise an alarm when it "
            "stops coming: then Prometheus, Alertmanager or the way to the receiver is broken."
        ),
        "action": "Nothing while it fires. When it stops, look at Prometheus and Alertmanager.",
        "runbook_url": RUNBOOKS + "Watchdog.md",
        "dashboard_url": DASHBOARD,
    },
)

BARE_DOWN = Expected(
    labels={
        "severity": "critical",
        "subject": "monitoring",
    },
    annotations={
        "summary": "No exporter of a namespace answers.",
        "description": (
            "None of the exporters has answered Prometheus for 5 minutes: nobody watches whether "
            "speculation hurts users there."
        ),
        "action": "Look at the exporter's container or unit and its log; restore the scrape target.",
        "runbook_url": RUNBOOKS + "ExporterDown.md",
        "dashboard_url": DASHBOARD,
    },
)

# --- cases

CASES: tuple[Case, ...] = (
    Case(
        "all-exporters-down", "ExporterDown", "fires", all_down, 26, (ALL_DOWN,), (Check(24, "ExporterDown"),)
    ),
    Case("the-only-exporter-down-without-labels", "ExporterDown", "fires", bare_down, 26, (BARE_DOWN,)),
    Case(
        "all-exporters-back",
        "ExporterDown",
        "recovers",
        all_down,
        46,
        (),
        (
            Check(26, "ExporterDown", (ALL_DOWN,)),
            Check(43, "ExporterDown", (ALL_DOWN,)),
        ),
    ),
    Case(
        "all-exporters-down-for-4-minutes", "ExporterDown", "silent", all_down_shortly, 27, topic="too-short"
    ),
    Case(
        "one-exporter-down", "ExporterDown", "fires", one_down, 31, (ONE_DOWN,), (Check(29, "ExporterDown"),)
    ),
    Case(
        "one-exporter-back",
        "ExporterDown",
        "recovers",
        one_down,
        46,
        (),
        (
            Check(31, "ExporterDown", (ONE_DOWN,)),
            Check(43, "ExporterDown", (ONE_DOWN,)),
        ),
    ),
    Case("one-exporter-down-does-not-page", "ExporterDown", "silent", one_down, 29, topic="one-of-many"),
    Case(
        "pods-scaled-to-nothing-are-not-down", "ExporterDown", "silent", scaled_to_nothing, 60, topic="idle"
    ),
    Case(
        "exporters-vanished",
        "ExporterAbsent",
        "fires",
        vanished,
        80,
        (VANISHED,),
        (Check(70, "ExporterAbsent"),),
    ),
    Case(
        "exporters-there-again",
        "ExporterAbsent",
        "recovers",
        vanished,
        110,
        (),
        (
            Check(80, "ExporterAbsent", (VANISHED,)),
            Check(103, "ExporterAbsent", (VANISHED,)),
        ),
    ),
    Case(
        "a-namespace-that-never-had-exporters", "ExporterAbsent", "silent", never_watched, 100, topic="other"
    ),
    Case(
        "no-exporter-at-all",
        "ExporterAbsent",
        "fires",
        scaled_to_nothing,
        80,
        (NONE_AT_ALL,),
        (Check(70, "ExporterAbsent"),),
    ),
    Case(
        "exporters-after-nothing",
        "ExporterAbsent",
        "recovers",
        scaled_to_nothing,
        110,
        (),
        (
            Check(80, "ExporterAbsent", (NONE_AT_ALL,)),
            Check(103, "ExporterAbsent", (NONE_AT_ALL,)),
        ),
    ),
    Case("scaled-to-nothing-does-not-page", "ExporterAbsent", "silent", scaled_to_nothing, 60, topic="idle"),
    Case("exporters-down-are-not-absent", "ExporterAbsent", "silent", all_down, 39, topic="other"),
    Case(
        "no-exporter-reads",
        "UpstreamUnreachable",
        "fires",
        all_unreachable,
        35,
        (NONE_READS,),
        (Check(28, "UpstreamUnreachable"),),
    ),
    Case(
        "no-exporter-reads-while-a-pod-ends",
        "UpstreamUnreachable",
        "fires",
        all_unreachable_and_one_ends,
        35,
        (NONE_READS,),
    ),
    Case(
        "all-exporters-read-again",
        "UpstreamUnreachable",
        "recovers",
        all_unreachable,
        50,
        (),
        (
            Check(35, "UpstreamUnreachable", (NONE_READS,)),
            Check(43, "UpstreamUnreachable", (NONE_READS,)),
        ),
    ),
    Case(
        "one-exporter-cannot-read",
        "UpstreamUnreachable",
        "fires",
        one_unreachable,
        55,
        (ONE_CANNOT_READ,),
        (Check(48, "UpstreamUnreachable"),),
    ),
    Case(
        "one-exporter-reads-again",
        "UpstreamUnreachable",
        "recovers",
        one_unreachable,
        68,
        (),
        (
            Check(55, "UpstreamUnreachable", (ONE_CANNOT_READ,)),
            Check(63, "UpstreamUnreachable", (ONE_CANNOT_READ,)),
        ),
    ),
    Case("a-large-model-loads", "UpstreamUnreachable", "silent", loading, 24, topic="warming-up"),
    Case(
        "one-exporter-that-cannot-read-does-not-page",
        "UpstreamUnreachable",
        "silent",
        one_unreachable,
        48,
        topic="one-of-many",
    ),
    Case("old-data", "DataStale", "fires", stale, 25, (STALE,), (Check(18, "DataStale"),)),
    Case(
        "new-data-again",
        "DataStale",
        "recovers",
        stale,
        40,
        (),
        (
            Check(25, "DataStale", (STALE,)),
            Check(32, "DataStale", (STALE_AT_LAST,)),
        ),
    ),
    Case("an-unreachable-server-is-not-old-data", "DataStale", "silent", all_unreachable, 39, topic="other"),
    Case(
        "a-server-that-is-back-is-not-old-data", "DataStale", "silent", one_unreachable, 61, topic="restart"
    ),
    Case(
        "unknown-metrics",
        "DialectUnknown",
        "fires",
        unrecognized,
        25,
        (UNKNOWN,),
        (Check(18, "DialectUnknown"),),
    ),
    Case(
        "known-metrics-again",
        "DialectUnknown",
        "recovers",
        unrecognized,
        60,
        (),
        (
            Check(25, "DialectUnknown", (UNKNOWN,)),
            Check(40, "DialectUnknown", (UNKNOWN,)),
        ),
    ),
    Case("a-timeout-is-no-dialect", "DialectUnknown", "silent", all_unreachable, 39, topic="other"),
    Case(
        "a-pod-without-sidecar",
        "SidecarMissing",
        "fires",
        no_sidecar,
        20,
        (NO_SIDECAR,),
        (Check(13, "SidecarMissing"),),
    ),
    Case(
        "a-pod-that-got-its-sidecar",
        "SidecarMissing",
        "recovers",
        no_sidecar,
        50,
        (),
        (
            Check(20, "SidecarMissing", (NO_SIDECAR,)),
            Check(42, "SidecarMissing", (NO_SIDECAR,)),
        ),
    ),
    Case("servers-without-pods", "SidecarMissing", "silent", outside_of_kubernetes, 59, topic="other"),
    Case("a-namespace-without-exporters", "SidecarMissing", "silent", never_watched, 100, topic="other"),
    Case("no-thresholds", "RulesBlind", "fires", blind, 20, (BLIND,), (Check(13, "RulesBlind"),)),
    Case("no-info", "RulesBlind", "fires", no_info, 20, (BLIND,)),
    Case(
        "thresholds-again",
        "RulesBlind",
        "recovers",
        blind,
        50,
        (),
        (
            Check(20, "RulesBlind", (BLIND,)),
            Check(42, "RulesBlind", (BLIND,)),
        ),
    ),
    Case("an-exporter-that-is-down-has-none", "RulesBlind", "silent", all_down, 39, topic="missing-series"),
    Case(
        "reload-failed",
        "ConfigReloadFailed",
        "fires",
        reload_failed,
        25,
        (OLD_CONFIGURATION,),
        (Check(18, "ConfigReloadFailed"),),
    ),
    Case(
        "reload-succeeded-later",
        "ConfigReloadFailed",
        "recovers",
        reload_failed,
        40,
        (),
        (
            Check(25, "ConfigReloadFailed", (OLD_CONFIGURATION,)),
            Check(32, "ConfigReloadFailed", (OLD_CONFIGURATION,)),
        ),
    ),
    Case("reloads-succeed", "ConfigReloadFailed", "silent", all_down, 18, topic="healthy"),
    Case("always", "Watchdog", "fires", all_down, 30, (WATCHDOG,), (Check(0, "Watchdog", (WATCHDOG,)),)),
)
