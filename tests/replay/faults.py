"""Faults, each in a service of its own that was healthy before: what happens, and which
alert must tell.

A service is a namespace; its fault begins at `START`, a day later where it is compared
with yesterday.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from replay.scrape import Replica, Storage, settings
from replay.traffic import Conditions, healthy, shifted, wandering
from vllm_specdec_exporter.economics.hardware import parse_machine
from vllm_specdec_exporter.economics.profiles import Hardware
from vllm_specdec_exporter.observe.settings import Settings

MODEL = "meta-llama/Llama-3.3-70B-Instruct"
#: Minute at which the fault begins, in the short and in the long world, and minutes
#: that it lasts.
START = {"short": 80, "long": 1500}
LASTS = {"short": 122, "long": 240}
#: Minutes from scrape to scrape, and from evaluation to evaluation.
SCRAPED = {"short": 1, "long": 2}
EVALUATED = {"short": 1, "long": 4}
#: So that it begins in the morning.
_CLOCK = {"short": 10 * 60 - 80, "long": 9 * 60}

#: Conditions now, minutes since the fault began (from 0 up), and the number of the
#: replica.
Change = Callable[[Conditions, int, int], Conditions | None]


@dataclass(frozen=True)
class Fault:
    """A fault, and the alert that must find it."""

    name: str  # in a few words; the namespace as well
    alert: str  # the alert that must fire, without prefix
    severity: str  # of that alert
    change: Change  # what happens to a healthy minute
    within: int  # minutes in which it must be found
    world: str = "short"  # `short`, or `long` where yesterday counts
    replicas: int = 2  # how many pods
    settings: Settings = settings()  # of the exporters
    begins: int | None = None  # minute at which it begins, where that is not `START`


def _all(**changes: object) -> Change:
    """Return a change that is the same for all replicas, from the first minute on."""
    return lambda conditions, _since, _replica: replace(conditions, **changes)  # type: ignore[arg-type]


def _first(**changes: object) -> Change:
    """Return a change of the first replica only."""

    def change(conditions: Conditions, _since: int, replica: int) -> Conditions:
        if replica > 0:
            return conditions
        return replace(conditions, **changes)  # type: ignore[arg-type]

    return change


def _acceptance(by: float, replicas: int = 9) -> Change:
    """Return a change of the acceptance of the first replicas."""

    def change(conditions: Conditions, _since: int, replica: int) -> Conditions:
        if replica >= replicas:
            return conditions
        return replace(conditions, acceptance=shifted(conditions.acceptance, by))

    return change


def _slowly(by: float, minutes: float) -> Change:
    """Return a change of acceptance by a little every minute, so that no moment stands
    out.
    """
    return lambda conditions, since, _replica: replace(
        conditions,
        acceptance=shifted(conditions.acceptance, by * min(1.0, since / minutes)),
    )


def _quantized(conditions: Conditions, since: int, replica: int) -> Conditions:
    """A rollout of a quantized target: acceptance is a step lower ever after."""
    if since < 6 * (replica + 1):
        return replace(conditions, serving="refused", running=0.0)
    started = since == 6 * (replica + 1)
    return replace(
        conditions,
        acceptance=shifted(conditions.acceptance, -0.09),
        restart=started,
        version="0.33.0",
    )


def _seldom(conditions: Conditions, since: int, _replica: int) -> Conditions:
    """Losing a little for most of the time, never for long enough for anything else to
    last.

    Only a precise calibration can tell.
    """
    if since % 20 < 12:
        return replace(conditions, acceptance=(0.46, 0.25, 0.1))
    return conditions


def _with_k(acceptance: tuple[float, ...]) -> Change:
    """Return a restart with another K."""
    return lambda conditions, since, _replica: replace(
        conditions, acceptance=acceptance, restart=since == 0
    )


def _others(**changes: object) -> Change:
    """Return a change of all replicas but the first."""

    def change(conditions: Conditions, _since: int, replica: int) -> Conditions:
        if replica == 0:
            return conditions
        return replace(conditions, **changes)  # type: ignore[arg-type]

    return change


_DRAFT_MODEL = settings("draft_model", 3)
_NGRAM = settings("ngram", 3)
#: Default installs: the time of a step is modelled, or the server's own.
_MODELLED, _OBSERVED = (
    settings(hardware=Hardware(*parse_machine("4xh100"))) for _ in range(2)
)
_COLLAPSE, _POOR, _BAD, _LOOPS = (
    _all(acceptance=ratios)
    for ratios in (
        (0.02, 0.01, 0.01),
        (0.45, 0.4, 0.4),
        (0.15, 0.1, 0.1),
        (0.995, 0.995, 0.995),
    )
)
_LARGE_BATCH = _all(running=250.0, acceptance=(0.30, 0.40, 0.35))

FAULTS: tuple[Fault, ...] = (
    Fault(
        "collapse",
        "Harmful",
        severity="critical",
        change=_COLLAPSE,
        within=9,
        settings=_DRAFT_MODEL,
    ),
    Fault(
        "collapse-by-a-modelled-step",
        "Harmful",
        severity="critical",
        change=_COLLAPSE,
        within=9,
        settings=_MODELLED,
    ),
    Fault(
        "collapse-by-an-observed-step",
        "Harmful",
        severity="critical",
        change=_COLLAPSE,
        within=9,
        settings=_OBSERVED,
    ),
    Fault(
        "collapse-of-a-cheap-drafter",
        "Collapsed",
        severity="warning",
        change=_COLLAPSE,
        within=12,
        settings=_NGRAM,
    ),
    Fault(
        "sudden-drop",
        "AcceptanceDropped",
        severity="warning",
        change=_acceptance(-0.3),
        within=10,
    ),
    Fault(
        "slow-decay",
        "Harmful",
        severity="critical",
        change=_slowly(-0.75, 120),
        within=120,
    ),
    Fault(
        "poor-draft-model",
        "AcceptanceLow",
        severity="warning",
        change=_POOR,
        within=50,
        settings=_DRAFT_MODEL,
    ),
    Fault(
        "disable-by-the-rule",
        "Disable",
        severity="warning",
        change=_BAD,
        within=25,
        settings=_DRAFT_MODEL,
    ),
    Fault(
        "no-k-pays-in-large-batches",
        "Disable",
        severity="warning",
        change=_LARGE_BATCH,
        within=60,
    ),
    Fault(
        "repetition-loops",
        "AcceptanceAbnormallyHigh",
        severity="warning",
        change=_LOOPS,
        within=50,
    ),
    Fault(
        "one-replica-worse",
        "EngineOutlier",
        severity="warning",
        change=_acceptance(-0.3, 1),
        within=110,
        replicas=3,
    ),
    Fault(
        "exporters-die",
        "MonitoringLost",
        severity="critical",
        change=_all(scraped=False),
        within=7,
    ),
    Fault(
        "one-exporter-dies",
        "ExporterDown",
        severity="warning",
        change=_first(scraped=False),
        within=12,
    ),
    Fault(
        "exporters-vanish",
        "MonitoringLost",
        severity="critical",
        change=_all(target=False),
        within=17,
    ),
    Fault(
        "servers-time-out",
        "MonitoringLost",
        severity="critical",
        change=_all(serving="timeout"),
        within=15,
    ),
    Fault(
        "one-server-refuses",
        "UpstreamUnreachable",
        severity="warning",
        change=_first(serving="refused"),
        within=50,
    ),
    Fault(
        "unknown-metrics",
        "MonitoringLost",
        severity="critical",
        change=_all(serving="unrecognized"),
        within=15,
    ),
    Fault(
        "polls-hang",
        "MonitoringLost",
        severity="critical",
        change=_all(current=False),
        within=20,
    ),
    Fault(
        "polls-of-one-hang",
        "UpstreamUnreachable",
        severity="warning",
        change=_first(current=False),
        within=20,
    ),
    Fault(
        "thresholds-lost",
        "RulesBlind",
        severity="warning",
        change=_all(thresholds=False),
        within=25,
    ),
    Fault(
        "bad-configuration",
        "ConfigReloadFailed",
        severity="warning",
        change=_all(configured=False),
        within=12,
    ),
    Fault(
        "one-sidecar-missing",
        "SidecarMissing",
        severity="warning",
        change=_others(target=False),
        within=20,
    ),
    Fault(
        "drafting-stops",
        "Bypassed",
        severity="warning",
        change=_all(drafted=0.0),
        within=40,
    ),
    Fault(
        "k-too-large",
        "KChangeAdvised",
        severity="warning",
        change=_with_k((0.80, 0.72, 0.66, 0.1, 0.05, 0.05, 0.05)),
        within=1500,
        world="long",
        settings=settings(k=7),
        begins=80,
    ),
    Fault(
        "k-too-small",
        "KChangeAdvised",
        severity="warning",
        change=_with_k((0.80,)),
        within=1500,
        world="long",
        begins=80,
    ),
    Fault(
        "losing-now-and-then",
        "ObjectiveBurning",
        severity="warning",
        change=_seldom,
        within=120,
        settings=settings(error=0.04),
    ),
    Fault(
        "quantized-rollout",
        "AcceptanceDropped",
        severity="warning",
        change=_quantized,
        within=110,
        world="long",
    ),
    Fault(
        "erosion",
        "SpeedupRegressed",
        severity="warning",
        change=_slowly(-0.25, 90),
        within=200,
        world="long",
    ),
)


@cache
def play(world: str) -> Storage:
    """Return what Prometheus has of all services of a world."""
    storage = Storage(SCRAPED[world])
    start = START[world]
    minutes = START[world] + LASTS[world]
    for number, fault in enumerate(f for f in FAULTS if f.world == world):
        slow = list(wandering(np.random.default_rng(number), minutes, 0.01, 6.0))
        for replica in range(fault.replicas):

            def story(
                minute: int,
                fault: Fault = fault,
                slow: list[float] = slow,
                replica: int = replica,
            ) -> Conditions | None:
                base = _before(fault)
                conditions = healthy(minute + _CLOCK[world], slow[minute], base)
                begins = start
                if fault.begins is not None:
                    begins = fault.begins
                if minute < begins:
                    return conditions
                return fault.change(conditions, minute - begins, replica)

            Replica(
                MODEL,
                fault.name,
                f"{fault.name}-{replica}",
                fault.settings,
                seed=100 * number + replica,
            ).play(storage, story, range(minutes))
    return storage


def _before(fault: Fault) -> Conditions:
    """Return what is healthy for a fault's settings."""
    if fault.settings is _DRAFT_MODEL:
        return Conditions(acceptance=(0.84, 0.70, 0.55))
    if fault.settings is _NGRAM:
        return Conditions(acceptance=(0.60, 0.50, 0.30))
    if fault.settings is _OBSERVED:
        # Reading the weights takes 10.4 ms of it.
        return Conditions(step_seconds=0.0225)
    return Conditions()
