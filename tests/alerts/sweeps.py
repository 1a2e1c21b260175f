"""Worlds in which hardly an alert of the whole bundle may fire, at any minute: one run checks them all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .per_request import RequestPhase, observe
from .promtool import Query
from .world import Phase, ServerPhase, World, idle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Fired = frozenset[tuple[str, str]]

HOUR, DAY = 60, 24 * 60
WATCHDOG = ("VLLMSpecDecodeWatchdog", "")

#: As bad as can be: hardly anything accepted, far slower than without, and the exporter says so.
TERRIBLE = Phase(
    HOUR,
    acceptance=(0.02, 0.001, 0.0),
    speedup=0.5,
    action="disable",
    recommended_k=0,
    waiting=5,
    kv_cache=0.97,
)
#: The same of vLLM's own series.
TERRIBLE_SERVER = ServerPhase(
    HOUR,
    finished={"stop": 30.0, "length": 0.0, "abort": 0.0, "error": 20.0, "repetition": 10.0},
    first_token={10.0: 1.0},
    per_output_token={0.05: 0.9, 1.0: 0.1},
    preemptions=10,
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
#: A few requests lose, and all get through; some are ended early or refused, and one is too large to look at.
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
        "activity", "kv_cache_usage_ratio", "num_speculative_tokens", "payoff", "recommendation",
        "recommended_num_speculative_tokens", "requests_running", "requests_waiting", "speedup",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Sweep:
    """A run in which nothing fires but what is named.

    Attributes:
        name: what is stated, in kebab-case.
        topic: as that of a silent case.
        world: builds what Prometheus has scraped.
        minutes: how long it is watched, from its beginning on.
        fires: alerts that fire at some minute, by full name and level; the watchdog does besides.
        where: matchers of the alerts that are meant; all of them unless given.
        interval: how often rules are evaluated: a long day need not be looked at every minute.
    """

    name: str
    topic: str
    world: Callable[[], World]
    minutes: int
    fires: Fired = frozenset()
    where: str = ""
    interval: str = "1m"

    def query(self) -> Query:
        """Return the query for what has fired at any minute."""
        matchers = ", ".join(part for part in ('alertstate="firing"', self.where) if part)
        expr = f"group by (alertname, level) (count_over_time(ALERTS{{{matchers}}}[{self.minutes}m]))"
        expected = self.fires if self.where else self.fires | {WATCHDOG}
        samples = {}
        for alert, level in expected:
            more = f', level="{level}"' if level else ""
            samples[f'{{alertname="{alert}"{more}}}'] = 1.0
        return Query(self.minutes - 1, expr, samples)


def fired(**levels: str) -> Fired:
    """Return alerts by name without prefix, each with its levels, such as `Harmful="model engine"`."""
    return frozenset(
        (f"VLLMSpecDecode{name}", level.replace("none", ""))
        for name, text in levels.items()
        for level in text.split()
    )


def replica(
    world: World,
    index: int,
    *phases: Phase,
    server: tuple[ServerPhase, ...] = (),
    requests: tuple[RequestPhase, ...] = (),
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


def healthy_day() -> World:
    """27 hours of the same load on two replicas, vLLM scraped as well."""
    world = World()
    for index in (1, 2):
        requests = (replace(GOOD_REQUESTS, minutes=27 * HOUR),)
        replica(world, index, Phase(27 * HOUR), server=(ServerPhase(27 * HOUR),), requests=requests)
    return world


def idle_night() -> World:
    """An hour of load, three without any, and an hour of load."""
    quiet = ServerPhase(3 * HOUR, finished={}, positions=(0, 0, 0))
    world = World()
    for index in (1, 2):
        phases = (Phase(HOUR), idle(3 * HOUR), Phase(HOUR))
        replica(
            world,
            index,
            *phases,
            server=(ServerPhase(HOUR), quiet, ServerPhase(HOUR)),
            requests=(GOOD_REQUESTS, RequestPhase(3 * HOUR, passed=0), GOOD_REQUESTS),
        )
    return world


def low_traffic() -> World:
    """As bad as can be, on a few drafts and a few requests."""
    finished = {reason: rate / 60 for reason, rate in TERRIBLE_SERVER.finished.items()}
    world = World()
    for index in (1, 2):
        replica(
            world,
            index,
            replace(TERRIBLE, minutes=3 * HOUR, drafts=4),
            server=(replace(TERRIBLE_SERVER, minutes=3 * HOUR, finished=finished),),
            requests=(RequestPhase(3 * HOUR, {"chat": {0.8: 0.4}, "summary": {0.1: 0.4}}, {"none": 0.1}),),
        )
    return world


def warming_up() -> World:
    """A model that has just started: few drafts, badly accepted, and nothing that judges them."""
    world = World()
    start = Phase(
        20,
        drafts=20,
        acceptance=(0.3, 0.05, 0.0),
        speedup=None,
        activity="warming_up",
        action="insufficient_data",
        recommended_k=None,
        running=1,
    )
    few = ServerPhase(20, finished={"stop": 1.0, "error": 0.0, "repetition": 0.0})
    replica(world, 1, start, Phase(HOUR), server=(few, replace(ServerPhase(HOUR), finished={"stop": 60.0})))
    return world


def restarts() -> World:
    """Two replicas of a healthy service restart one after another, and load for some minutes."""
    world = World()
    for index, before in ((1, 3 * HOUR), (2, 3 * HOUR + 20)):
        after = 3 * HOUR
        phases = (Phase(before), Phase(8, unreachable=True), Phase(after, restart=True))
        server = (ServerPhase(before), ServerPhase(8, gone=True), ServerPhase(after, restart=True))
        requests = (
            replace(GOOD_REQUESTS, minutes=before),
            RequestPhase(8, passed=0, failed={"refused": 15}),
            replace(GOOD_REQUESTS, minutes=after),
        )
        replica(world, index, *phases, server=server, requests=requests)
    return world


def _rollout(before: Phase, after: Phase, *, apart: int) -> World:
    """Return two replicas that new pods take the place of, one after another, from hour 3 on."""
    world = World()
    for index in (1, 2):
        change = 3 * HOUR + apart * (index - 1)
        rest = 6 * HOUR + 30 - change
        old, new = replace(before, minutes=change), replace(after, minutes=rest)
        for number, phase, start in ((index, old, 0), (10 + index, new, change)):
            replica(
                world,
                number,
                phase,
                server=(ServerPhase(phase.minutes),),
                requests=(replace(GOOD_REQUESTS, minutes=phase.minutes),),
                start=start,
            )
    return world


def new_pods() -> World:
    """New pods take the place of the old ones, with the same acceptance."""
    return _rollout(Phase(1), Phase(1), apart=10)


def another_version() -> World:
    """Another version of vLLM, hardly different."""
    before = Phase(1, info={"upstream_version": "0.12.0"})
    after = Phase(1, info={"upstream_version": "0.13.0"}, acceptance=(0.88, 0.68, 0.48), speedup=1.57)
    return _rollout(before, after, apart=10)


def better_drafter() -> World:
    """A drafter that is far better than the one before, at the same K."""
    before = Phase(1, acceptance=(0.7, 0.45, 0.3), speedup=1.25)
    return _rollout(before, Phase(1, acceptance=(0.95, 0.9, 0.86), speedup=1.9), apart=10)


#: One drafter at several K; that it is only just worth it lets the other alerts speak.
K1 = Phase(1, acceptance=(0.9,), speedup=1.15, recommended_k=1)
K2 = Phase(1, acceptance=(0.9, 0.81), speedup=1.15, recommended_k=2)
K3 = Phase(1, acceptance=(0.9, 0.81, 0.73), speedup=1.15)
K5 = Phase(1, acceptance=(0.9, 0.81, 0.73, 0.66, 0.59), speedup=1.15, recommended_k=5)
K7 = Phase(1, acceptance=(0.9, 0.81, 0.73, 0.66, 0.59, 0.53, 0.48), speedup=1.15, recommended_k=7)


def k_raised() -> World:
    """K is changed on purpose from 3 to 5 within minutes."""
    return _rollout(K3, K5, apart=10)


def k_raised_slowly() -> World:
    """K is changed on purpose from 3 to 7, one replica 40 minutes after the other."""
    return _rollout(K3, K7, apart=40)


def k_raised_from_one() -> World:
    """K is changed on purpose from 1 to 2."""
    return _rollout(K1, K2, apart=10)


def k_lowered() -> World:
    """K is changed on purpose from 5 to 3 within minutes."""
    return _rollout(K5, K3, apart=10)


def k_lowered_slowly() -> World:
    """K is changed on purpose from 7 to 2, one replica 20 minutes after the other."""
    return _rollout(K7, K2, apart=20)


def canary() -> World:
    """One replica of four tries K = 2 while the others have 1."""
    world = World()
    for index in range(1, 5):
        replica(world, index, replace(K2 if index == 1 else K1, minutes=2 * HOUR))
    return world


def schedule() -> World:
    """A schedule has K = 3, and K = 1 once the batch is larger; the server's highest position stays."""
    few = replace(K3, minutes=100, scheduled_k=3)
    many = Phase(70, acceptance=(0.9, 0.0, 0.0), draft_length=1, speedup=1.15, scheduled_k=1, running=80)
    world = World()
    for index in (1, 2):
        replica(world, index, few, many)
    return world


def central_exporter() -> World:
    """One exporter, in a pod of its own, watches three servers."""
    world = World()
    for index in (1, 2, 3):
        labels = {"pod": "watcher", "target": f"vllm-{index}:8000"}
        world.engine(Phase(HOUR), instance="10.0.0.9:9850", labels=labels, exporter=index == 1)
        world.server(ServerPhase(HOUR), instance=f"10.0.0.{index}:8000", labels={"pod": f"vllm-{index}"})
    return world


def without_info() -> World:
    """As bad as can be, and no info, which is what tells the thresholds of which model."""
    world = World(without=frozenset({"vllm_specdec_info"}))
    replica(world, 1, replace(TERRIBLE, minutes=90), server=(replace(TERRIBLE_SERVER, minutes=90),))
    return world


def without_thresholds() -> World:
    """As bad as can be, and an exporter that publishes no thresholds."""
    world = World(without=frozenset({"vllm_specdec_threshold"}))
    for index in (1, 2):
        replica(
            world,
            index,
            replace(TERRIBLE, minutes=2 * HOUR),
            server=(replace(TERRIBLE_SERVER, minutes=2 * HOUR),),
            requests=(replace(TERRIBLE_REQUESTS, minutes=2 * HOUR, rejected=0),),
        )
    return world


def without_server() -> World:
    """Only the exporter is scraped, and not vLLM itself."""
    world = World()
    for index in (1, 2):
        replica(world, index, Phase(2 * HOUR))
    return world


def without_gauges() -> World:
    """The counters alone, and poor acceptance that goes unjudged for want of a load and of a speedup."""
    world = World(without=GAUGES)
    for index in (1, 2):
        replica(world, index, Phase(2 * HOUR))
    return world


def without_counters() -> World:
    """Gauges that say that it is as bad as can be, and no counters to rest them on."""
    counters = (
        "drafts",
        "draft_tokens",
        "accepted_tokens",
        "accepted_tokens_per_position",
        "generation_tokens",
    )
    world = World(without=frozenset(f"vllm_specdec_{name}_total" for name in counters))
    for index in (1, 2):
        replica(world, index, replace(TERRIBLE, minutes=2 * HOUR))
    return world


def bare_targets() -> World:
    """No label of namespace, cluster or pod, as outside of Kubernetes."""
    world = World()
    world.engine(Phase(2 * HOUR), namespace="")
    world.server(ServerPhase(2 * HOUR), namespace="")
    return world


def llamacpp() -> World:
    """A server that names neither model nor engine."""
    world = World()
    world.engine(Phase(2 * HOUR), model="", engine="")
    return world


def one_of_many() -> World:
    """One replica of ten is as bad as can be."""
    world = World()
    for index in range(1, 11):
        bad = replace(TERRIBLE, minutes=150, waiting=0, kv_cache=0.4)
        good = replace(ServerPhase(150), finished={"stop": 60.0, "error": 0.0, "repetition": 0.0})
        replica(world, index, bad if index == 1 else Phase(150), server=(good,))
    return world


def two_clusters() -> World:
    """Cluster a is as bad as can be and then gone, cluster b is well; one server has the series of both."""
    world = World()
    gone = Phase(30, gone=True)
    for index in (1, 2):
        bad = (replace(TERRIBLE, minutes=100), gone)
        server = (replace(TERRIBLE_SERVER, minutes=100),)
        lost, well = replace(TERRIBLE_REQUESTS, minutes=100), replace(GOOD_REQUESTS, minutes=130)
        replica(world, index, *bad, server=server, requests=(lost,), labels={"cluster": "a"})
        well_server = (ServerPhase(130),)
        replica(world, index, Phase(130), server=well_server, requests=(well,), labels={"cluster": "b"})
    return world


def beneficial() -> World:
    """Poor acceptance all over, and yet speculation pays: a cheap drafter on little load."""
    world = World()
    for index in (1, 2):
        phase = Phase(3 * HOUR, acceptance=(0.3, 0.04, 0.0), speedup=1.3, waiting=3)
        replica(world, index, phase, server=(ServerPhase(3 * HOUR),))
    return world


def blip() -> World:
    """A minute of everything bad, every half hour."""
    phases: list[Phase] = [Phase(HOUR)]
    server: list[ServerPhase] = [ServerPhase(HOUR, finished=_with_errors(0))]
    requests: list[RequestPhase] = [GOOD_REQUESTS]
    for _ in range(4):
        phases += [replace(TERRIBLE, minutes=1), Phase(29)]
        server += [
            replace(TERRIBLE_SERVER, minutes=1, finished=_with_errors(1)),
            ServerPhase(29, finished=_with_errors(0)),
        ]
        requests += [replace(TERRIBLE_REQUESTS, minutes=1), replace(GOOD_REQUESTS, minutes=29)]
    world = World()
    for index in (1, 2):
        replica(world, index, *phases, server=tuple(server), requests=tuple(requests))
    return world


def _with_errors(rate: float) -> dict[str, float]:
    return {"stop": 60.0 - rate, "length": 0.0, "abort": 0.0, "error": rate, "repetition": 0.0}


def lost_scrapes() -> World:
    """Prometheus itself was away for a quarter of an hour."""
    world = World()
    for start, minutes in ((0, 90), (105, 90)):
        for index in (1, 2):
            requests = (replace(GOOD_REQUESTS, minutes=minutes),)
            server = (ServerPhase(minutes),)
            replica(world, index, Phase(minutes), server=server, requests=requests, start=start)
    return world


BAD_REPLICA = fired(
    AcceptanceLow="engine",
    Collapsed="engine",
    EngineOutlier="engine",
    Harmful="engine",
    MeanAcceptanceLengthLow="engine",
    Position0Low="engine",
    RapidDecline="engine",
)

SWEEPS: tuple[Sweep, ...] = (
    Sweep("healthy-day", "healthy", healthy_day, 27 * HOUR, interval="5m"),
    Sweep("idle-night", "idle", idle_night, 5 * HOUR),
    Sweep("few-drafts", "low-traffic", low_traffic, 3 * HOUR),
    Sweep("new-model", "warming-up", warming_up, 80),
    Sweep("engines-restart", "restart", restarts, 6 * HOUR, interval="2m"),
    Sweep("new-pods", "restart", new_pods, 6 * HOUR + 30, interval="3m"),
    Sweep("another-version", "restart", another_version, 6 * HOUR + 30, interval="3m"),
    Sweep("better-drafter", "restart", better_drafter, 6 * HOUR + 30, interval="3m"),
    Sweep("k-raised", "restart", k_raised, 6 * HOUR + 30, interval="3m"),
    Sweep("k-raised-slowly", "restart", k_raised_slowly, 6 * HOUR + 30, interval="3m"),
    Sweep("k-raised-from-one", "restart", k_raised_from_one, 6 * HOUR + 30, interval="3m"),
    Sweep("k-lowered", "restart", k_lowered, 6 * HOUR + 30, interval="3m"),
    Sweep("k-lowered-slowly", "restart", k_lowered_slowly, 6 * HOUR + 30, interval="3m"),
    Sweep("canary-with-another-k", "one-of-many", canary, 2 * HOUR),
    Sweep("no-thresholds", "missing-series", without_thresholds, 2 * HOUR, fired(RulesBlind="instance")),
    Sweep("no-info", "missing-series", without_info, 90, fired(RulesBlind="instance")),
    Sweep("no-server", "missing-series", without_server, 2 * HOUR),
    Sweep("no-gauges", "missing-series", without_gauges, 2 * HOUR),
    Sweep("no-counters", "missing-series", without_counters, 2 * HOUR),
    Sweep("schedule-drafts-less", "other", schedule, 170),
    Sweep("central-exporter", "healthy", central_exporter, HOUR),
    Sweep("bare-targets", "healthy", bare_targets, 2 * HOUR),
    Sweep("llamacpp", "healthy", llamacpp, 2 * HOUR),
    Sweep("one-bad-replica", "one-of-many", one_of_many, 150, BAD_REPLICA),
    Sweep("other-cluster", "other", two_clusters, 130, where='cluster="b"'),
    Sweep("poor-but-beneficial", "beneficial", beneficial, 3 * HOUR),
    Sweep("blip", "too-short", blip, 3 * HOUR),
    Sweep("lost-scrapes", "missing-series", lost_scrapes, 195),
)
