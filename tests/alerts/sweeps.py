"""Worlds in which hardly an alert of the whole bundle may fire, at any minute: one run
checks many of them.

Idle nights, crashes, lost scrapes and deployments are in the healthy days of
`tests/replay`, rollouts with another K and schedules in its histories of readers.

Each world is a namespace, in the cluster of its sweep.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from .histories import replica
from .per_request import RequestPhase
from .promtool import Query
from .world import Phase, World

#: Adds to what Prometheus has scraped, in a namespace.
Part = Callable[[World, str], None]


HOUR = 60

#: As bad as can be: hardly anything accepted, far slower than without, and the exporter
#: says so.
TERRIBLE = Phase(
    HOUR,
    acceptance=(0.02, 0.001, 0.0),
    speedup=0.5,
    action="disable",
    recommended_k=0,
    waiting=5,
    kv_cache=0.97,
)
#: The same of single requests, through a tap that does not get its connections.
TERRIBLE_REQUESTS = RequestPhase(
    HOUR,
    {"chat": {0.8: 10.0}, "summary": {0.1: 8.0}},
    rejected=5,
    passed=18,
    failed={"refused": 10, "timeout": 2},
    unobserved={"connection": 5.0, "encoded": 15.0},
)
#: A few requests lose, and all get through; some are ended early or refused, and one is
#: too large to look at.
GOOD_REQUESTS = RequestPhase(
    HOUR,
    {"chat": {0.8: 9.6, 0.3: 0.4}, "summary": {0.7: 5.0}},
    passed=24,
    unobserved={"aborted": 5.0, "refused": 3.0, "too_large": 1.0},
)
#: Whether an exporter without a server of its own is silent is asked with these gone.
GAUGES = frozenset(
    f"vllm_specdec_{name}"
    for name in (
        "activity", "kv_cache_usage_ratio", "num_speculative_tokens", "payoff", (
            "recommendation"
        ),
        "recommended_num_speculative_tokens", "requests_running", "requests_waiting", (
            "speedup"
        ),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Sweep:
    """A history in which nothing fires but what is named."""

    name: str  # what is stated, in kebab-case
    minutes: int  # how long it is watched, from its beginning on
    parts: Mapping[str, Part]  # what builds each namespace
    #: Alerts that fire at some minute, by namespace, each with its level; the watchdog
    #: does besides.
    fires: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)

    def world(self) -> World:
        """Return what Prometheus has scraped."""
        world = World()
        for namespace, part in self.parts.items():
            part(world, namespace)
        return world

    def query(self) -> Query:
        """Return the query for what has fired at any minute, but for what its cluster a
        deserves.
        """
        firing = f'ALERTS{{alertstate="firing", cluster=~"|{self.name}(/b)?"}}'
        ever = f"count_over_time({firing}[{self.minutes}m])"
        samples = {'{alertname="VLLMSpecDecodeWatchdog"}': 1.0}
        for namespace, alerts in self.fires.items():
            for alert, level in alerts:
                labels = (
                    f'alertname="VLLMSpecDecode{alert}", level="{level}", '
                    f'namespace="{namespace}"'
                )
                samples[f"{{{labels}}}"] = 1.0
        return Query(
            self.minutes - 1,
            f"group by (alertname, level, namespace) ({ever})",
            samples,
        )


def pair(*phases: Phase, requests: tuple[RequestPhase, ...] = ()) -> Part:
    """Return what adds two replicas that live the same, with vLLM."""

    def add(world: World, namespace: str) -> None:
        server = sum(phase.minutes for phase in phases)
        for index in (1, 2):
            replica(
                world,
                index,
                *phases,
                server=server,
                requests=requests,
                namespace=namespace,
            )

    return add


def without(names: frozenset[str], part: Part) -> Part:
    """Return what adds a part without some metrics."""

    def add(world: World, namespace: str) -> None:
        world.without = names
        part(world, namespace)
        world.without = frozenset()

    return add


# --- as every day

#: As bad as can be, on a few drafts and a few requests.
LOW_TRAFFIC = pair(
    replace(TERRIBLE, minutes=3 * HOUR, drafts=4),
    requests=(
        RequestPhase(
            3 * HOUR, {"chat": {0.8: 0.4}, "summary": {0.1: 0.4}}, {"none": 0.1}
        ),
    ),
)

#: A model that has just started: few drafts, badly accepted, and nothing that judges
#: them.
WARMING_UP = pair(
    Phase(
        20,
        drafts=20,
        acceptance=(0.3, 0.05, 0.0),
        speedup=None,
        activity="warming_up",
        action="insufficient_data",
        recommended_k=None,
        running=1,
    ),
    Phase(160),
)

#: A minute of everything bad, every half hour.
BLIP = pair(
    Phase(HOUR),
    *(replace(TERRIBLE, minutes=1), Phase(29)) * 2,
    requests=(
        GOOD_REQUESTS,
        *(replace(TERRIBLE_REQUESTS, minutes=1), replace(GOOD_REQUESTS, minutes=29))
        * 2,
    ),
)


# --- other ways to watch, and series that are not there


def central_exporter(world: World, namespace: str) -> None:
    """One exporter, in a pod of its own, watches three servers."""
    for index in (1, 2, 3):
        labels = {"pod": "watcher", "target": f"vllm-{index}:8000"}
        world.engine(
            Phase(HOUR),
            instance="10.0.0.9:9850",
            labels=labels,
            exporter=index == 1,
            namespace=namespace,
        )
        address = f"10.0.0.{index}:8000"
        pod = {"pod": f"vllm-{index}"}
        world.server(HOUR, instance=address, labels=pod, namespace=namespace)


def bare_targets(world: World, _: str) -> None:
    """No label of namespace, cluster or pod, as outside of Kubernetes."""
    world.engine(Phase(2 * HOUR), namespace="")
    world.server(2 * HOUR, namespace="")


def llamacpp(world: World, namespace: str) -> None:
    """A server that names neither model nor engine."""
    world.engine(Phase(2 * HOUR), model="", engine="", namespace=namespace)


ALL_TERRIBLE = pair(
    replace(TERRIBLE, minutes=2 * HOUR),
    requests=(replace(TERRIBLE_REQUESTS, minutes=2 * HOUR, rejected=0),),
)
NO_INFO = without(frozenset({"vllm_specdec_info"}), pair(replace(TERRIBLE, minutes=90)))
COUNTERS = frozenset(
    f"vllm_specdec_{name}_total"
    for name in (
        "drafts",
        "draft_tokens",
        "accepted_tokens",
        "accepted_tokens_per_position",
        "generation_tokens",
    )
)

# --- something is bad elsewhere


def one_of_ten(world: World, namespace: str) -> None:
    """One replica of ten is as bad as can be."""
    bad = replace(TERRIBLE, minutes=150, waiting=0, kv_cache=0.4)
    for index in range(1, 11):
        replica(
            world,
            index,
            bad if index == 1 else Phase(150),
            server=150,
            namespace=namespace,
        )


def two_clusters(world: World, namespace: str) -> None:
    """Cluster a is as bad as can be and then gone, cluster b is well; the addresses are
    the same.
    """
    replica(
        world,
        1,
        replace(TERRIBLE, minutes=100),
        Phase(30, gone=True),
        server=100,
        requests=(replace(TERRIBLE_REQUESTS, minutes=100),),
        labels={"cluster": "a"},
        namespace=namespace,
    )
    replica(
        world,
        1,
        Phase(130),
        server=130,
        requests=(replace(GOOD_REQUESTS, minutes=130),),
        labels={"cluster": "b"},
        namespace=namespace,
    )


def by_two_exporters(world: World, namespace: str) -> None:
    """Two exporters read each of two engines."""
    for index in (1, 2, 101, 102):
        replica(world, index, Phase(2 * HOUR), namespace=namespace)
    for index in (1, 2):
        world.server(2 * HOUR, instance=f"10.0.0.{index}:8000", namespace=namespace)


def by_a_pair(world: World, namespace: str) -> None:
    """A pair of Prometheus servers scrapes everything, and each has a label of its
    own.
    """
    for index in (1, 2):
        for sender in ("a", "b"):
            replica(
                world,
                index,
                Phase(2 * HOUR),
                server=2 * HOUR,
                requests=(replace(GOOD_REQUESTS, minutes=2 * HOUR),),
                labels={"replica": sender},
                namespace=namespace,
            )


BLIND = frozenset({("RulesBlind", "instance")})
#: Its drafts are a tenth of all, which is more than the objective allows.
BAD_REPLICA = frozenset({("EngineOutlier", "engine"), ("ObjectiveBurning", "model")})

LONG: tuple[Sweep, ...] = (
    Sweep(
        "quiet-hours", 3 * HOUR, {"few-drafts": LOW_TRAFFIC, "new-model": WARMING_UP}
    ),
    Sweep(
        "unusual-targets",
        2 * HOUR,
        {"central-exporter": central_exporter, "": bare_targets, "llamacpp": llamacpp},
    ),
    Sweep(
        "missing-series",
        2 * HOUR,
        {
            "no-thresholds": without(
                frozenset({"vllm_specdec_threshold"}), ALL_TERRIBLE
            ),
            "no-info": NO_INFO,
            "no-gauges": without(GAUGES, pair(Phase(2 * HOUR))),
            "no-counters": without(COUNTERS, pair(replace(TERRIBLE, minutes=2 * HOUR))),
        },
        dict.fromkeys(("no-thresholds", "no-info", "no-counters"), BLIND),
    ),
    Sweep(
        "everything-twice",
        2 * HOUR,
        {"two-exporters": by_two_exporters, "pair": by_a_pair},
    ),
    Sweep("one-bad-replica", 150, {"chat": one_of_ten}, {"chat": BAD_REPLICA}),
    Sweep("other-cluster", 130, {"chat": two_clusters}),
)
SHORT = Sweep("too-short", 135, {"blip": BLIP})
#: By how often rules are evaluated.
SWEEPS: Mapping[str, tuple[Sweep, ...]] = {"3m": LONG, "1m": (SHORT,)}
