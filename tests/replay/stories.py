"""What happened in the histories of `readers`: adds replicas to what Prometheus has
scraped, in a namespace.

Fewer replicas than their readers had, and days cut to what matters.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from alerts.histories import replica
from alerts.world import JOB, Phase, World, idle

#: Adds a history to what Prometheus has scraped, in a namespace.
Story = Callable[[World, str], None]


UNADVISED = {"action": "insufficient_data", "recommended_k": None}


def same(number: int, *phases: Phase, start: int = 0) -> Story:
    """Return replicas that live the same."""

    def add(world: World, namespace: str) -> None:
        for index in range(1, number + 1):
            replica(world, index, *phases, namespace=namespace, start=start)

    return add


def lives(*each: Sequence[Phase]) -> Story:
    """Return a replica for each life."""

    def add(world: World, namespace: str) -> None:
        for index, phases in enumerate(each, 1):
            replica(world, index, *phases, namespace=namespace)

    return add


def at(*rates: float, **more: object) -> Phase:
    """Return a phase with these shares accepted at each position, whose length comes
    later.
    """
    values = {
        "acceptance": rates,
        "recommended_k": len(rates),
        "basis": "calibrated",
        **more,
    }
    return Phase(1, **values)  # type: ignore[arg-type]


def for_(minutes: int, phase: Phase, **changes: object) -> Phase:
    """Return a phase of a length."""
    return replace(phase, minutes=minutes, **changes)  # type: ignore[arg-type]


# --- load: the batch grows, and acceptance stays

DRAFT = at(0.78, 0.61, 0.47, 0.37, 0.29, speedup=1.6, basis="measured", running=14)
FULL = replace(
    DRAFT, drafts=2400, speedup=0.82, running=150, action="disable", recommended_k=0
)


def batch(full: Phase) -> Story:
    ramp = tuple(
        for_(10, DRAFT, speedup=s, running=r)
        for s, r in ((1.3, 60), (1.1, 100), (0.95, 140))
    )
    growing = (for_(80, DRAFT), *ramp)
    gap = Phase(2, gone=True)
    dip = for_(4, full, speedup=1.01)
    stays = (
        *growing,
        for_(45, full),
        gap,
        for_(50, full),
        dip,
        for_(80, full),
        for_(20, DRAFT),
    )

    def add(world: World, namespace: str) -> None:
        for index in (1, 2, 3):
            replica(world, index, *stays, namespace=namespace)
        replica(world, 4, *growing, for_(70, full), namespace=namespace)
        replica(
            world, 14, for_(107, full), for_(20, DRAFT), start=184, namespace=namespace
        )

    return add


EAGLE4 = at(0.72, 0.52, 0.36, 0.24)


def by_day(day: Phase) -> Story:
    """The end of a night, and a day with a dip at noon."""
    night = for_(80, EAGLE4, drafts=100, speedup=1.45, running=4)
    # A dip at noon is judged by the same means as the day.
    lunch = for_(20, EAGLE4, drafts=600, guess=day.guess, running=30)
    lunch = replace(lunch, speedup=1.04 if day.speedup else None)
    return same(3, night, for_(160, day), lunch, for_(60, day), for_(20, night))


BUSY = replace(
    EAGLE4, drafts=1200, speedup=0.88, running=96, action="disable", recommended_k=0
)
GUESSED = replace(BUSY, speedup=None, guess=0.88, interval=(0.74, 1.05))

CAPPED = at(0.72, 0.50, 0.34, 0.23, speedup=1.7, running=20, scheduled_k=4)
NIGHT_JOB = replace(
    CAPPED,
    drafts=0,
    plain_tokens=8000,
    speedup=None,
    activity="bypassed",
    action="insufficient_data",
    recommended_k=None,
    running=256,
    waiting=80,
    scheduled_k=0,
)
TAIL = at(
    0.2,
    0.05,
    0.0,
    0.0,
    drafts=40,
    plain_tokens=4000,
    speedup=None,
    activity="warming_up",
    running=64,
)
NIGHTS = same(
    4, for_(80, CAPPED), for_(120, NIGHT_JOB), for_(20, TAIL), for_(60, CAPPED)
)

LONG_PROMPTS = at(
    0.79, drafts=80, plain_tokens=1600, speedup=None, running=14, kv_cache=0.99
)
MTP = at(0.82, drafts=2000, speedup=1.38, basis="measured", running=48)
SCHEDULED = at(0.85, 0.66, 0.5, drafts=300, speedup=1.8, running=12, scheduled_k=3)

# --- another acceptance: a new target, a new drafter, other prompts

BF16 = at(0.74, 0.52, 0.36, speedup=1.75, running=24)
INT4 = at(0.31, 0.09, 0.02, speedup=0.94, running=24)
OLD_HEAD = at(0.41, 0.15, 0.05, speedup=0.93, basis="measured", running=40)
TWIN = at(0.74, 0.55, 0.40, speedup=1.55, basis="measured", running=40)
HOT = at(0.82, 0.62, speedup=1.45, basis="measured", running=13)


def rollout(world: World, namespace: str) -> None:
    """K = 5 gives way to K = 2, pod by pod: loading, a bad warm-up, another version."""
    old = at(
        0.75, 0.53, 0.37, 0.25, 0.17, speedup=1.62, action="decrease_k", recommended_k=2
    )
    warm = at(0.10, 0.01, drafts=400, speedup=None)
    new = at(0.75, 0.53, speedup=1.66)
    for index in range(1, 5):
        end = 80 + 30 * index
        replica(world, index, for_(end, old), idle(2), namespace=namespace)
        loads = (idle(5), for_(2, warm), for_(260 - end, new))
        replica(world, 10 + index, *loads, start=end, namespace=namespace)


def two_heads(world: World, namespace: str) -> None:
    """One model with two methods, whose share of the traffic and whose acceptance
    change.
    """
    a = at(0.75, 0.57, 0.43, speedup=1.64, basis="measured", info={"method": "eagle3"})
    b = at(
        *(0.62 - 0.05 * i for i in range(12)),
        draft_length=9.5,
        speedup=1.79,
        basis="measured",
        info={"method": "dflash"},
        action="insufficient_data",
        recommended_k=None,
    )
    json = {"acceptance": (0.83, 0.65, 0.54), "recommended_k": 4}
    creative = {"acceptance": (0.63, 0.41, 0.26), "speedup": 1.37, "recommended_k": 2}
    parts = (
        (90, 900, 100, {}),
        (40, 500, 500, {}),
        (50, 500, 500, json),
        (60, 500, 500, {}),
        (60, 500, 500, creative),
        (50, 100, 900, {}),
    )
    for index in (1, 2):
        replica(
            world,
            index,
            *(for_(t, a, drafts=d, **m) for t, d, _, m in parts),
            namespace=namespace,
        )
        second_head = (for_(t, b, drafts=d) for t, _, d, _ in parts)
        replica(world, index + 2, *second_head, namespace=namespace)


# --- monitoring and data fail

UP = for_(80, at(0.72, 0.5, 0.36, 0.24, speedup=1.55, basis="measured"))
WRONG = at(0.2, 0.08, 0.03, 0.01, speedup=0.82, basis="measured")
#: What the exporter says of a server without counters of speculation: as
#: `--spec.config` told it of them.
COUNTERLESS = replace(
    UP,
    uncounted=True,
    plain_tokens=3000,
    speedup=None,
    activity="bypassed",
    action="insufficient_data",
    recommended_k=None,
)
UNTOLD = {"info": {"method": ""}}


def crash_loops(world: World, namespace: str) -> None:
    """Exporters of four of six pods die again and again, all are scraped twice, and
    speculation harms.
    """
    for index in range(1, 7):
        loop = (Phase(5, gone=True), for_(1, WRONG, restart=True)) * 15
        following: tuple[Phase, ...] = loop
        if index < 3:
            following = (for_(90, WRONG),)
        for job, start, first in (
            (JOB, 0, UP),
            (f"monitoring/{JOB}", 85, for_(5, WRONG)),
        ):
            phases = (first, *following)
            labels = {"job": job}
            replica(
                world, index, *phases, labels=labels, start=start, namespace=namespace
            )


def gaps(world: World, namespace: str) -> None:
    """Prometheus is away for two minutes of every nine while speculation begins to
    harm.
    """
    for index in (1, 2):
        for start in range(0, 315, 9):
            phase = UP
            if start >= 99:
                phase = replace(WRONG, speedup=0.86)
            replica(world, index, for_(7, phase), start=start, namespace=namespace)


def unnamed(world: World, namespace: str) -> None:
    """The label model_name is dropped for 70 minutes; meanwhile one of two models
    begins to harm.
    """
    for index, model in enumerate(("a", "a", "b", "b"), 1):
        good = at(0.7, 0.5, speedup=1.4, basis="measured")
        bad = good
        if model == "b":
            good = at(0.7, 0.5, speedup=1.2, basis="measured")
            bad = at(0.09, 0.03, speedup=0.79, basis="measured")
        labels = {"pod": f"vllm-{index}"}
        address = f"10.0.0.{index}"
        for name, start, phases in (
            (model, 0, (for_(80, good),)),
            ("", 80, (for_(30, good), for_(40, bad))),
            (model, 150, (for_(50, bad),)),
        ):
            world.engine(
                *phases,
                model=name,
                instance=f"{address}:9850",
                labels=labels,
                start=start,
                namespace=namespace,
            )
        world.server(
            200,
            model=model,
            instance=f"{address}:8000",
            labels=labels,
            namespace=namespace,
        )


def clock(world: World, namespace: str) -> None:
    """Both pods move to a node whose clock then is 47 minutes ahead, and their polls
    hang.
    """
    good = at(0.8, 0.6, 0.4, speedup=1.25)
    hung = for_(65, good, drafts=0, stale=True)
    for index in (1, 2):
        start = 80 + 4 * index
        replica(world, index, for_(start, good), namespace=namespace)
        replica(
            world,
            10 + index,
            for_(124 - start, good),
            hung,
            for_(60, good),
            start=start + 4,
            namespace=namespace,
        )
    for name, samples in world._samples.items():
        if (
            name.startswith("vllm_specdec_last_success")
            and f'namespace="{namespace}"' in name
        ):
            ahead = slice(104, 174)
            for index, sample in enumerate(samples[ahead], ahead.start):
                if sample != "_":
                    samples[index] = str(float(sample) + 2820)


def weekend(world: World, namespace: str) -> None:
    """Hardly any traffic, no replica for two hours, a burst that says nothing, counters
    that come torn.
    """
    thin = replace(
        at(0.6, 0.4, drafts=1, speedup=None, activity="warming_up"), **UNADVISED
    )
    burst = replace(
        thin, drafts=30, acceptance=(0.08, 0.02), guess=0.71, interval=(0.48, 1.06)
    )
    torn = at(0.0, 0.0, drafts=84000, speedup=None)
    replica(world, 1, for_(80, thin), namespace=namespace)
    later = (
        Phase(5, unreachable=True),
        for_(40, thin),
        for_(6, burst),
        for_(40, thin),
        for_(1, torn),
        for_(1, at(50400.0, 33600.0, drafts=1, speedup=None)),
        for_(40, thin),
        for_(20, BF16),
    )
    replica(world, 2, *later, start=200, namespace=namespace)


def shrunk(world: World, namespace: str) -> None:
    """Three of nine pods are scaled away; then four of six cannot be scraped, and are
    targets no more.
    """
    good = at(0.40, 0.27, 0.19, 0.13, speedup=1.25, basis="measured")
    for index in range(1, 10):
        if index > 6:
            replica(world, index, for_(40, good), namespace=namespace)
        elif index > 2:
            phases = (for_(80, good), Phase(30, gone=True))
            replica(world, index, *phases, namespace=namespace)
            replica(world, index, for_(60, good), start=200, namespace=namespace)
        else:
            replica(world, index, for_(260, good), namespace=namespace)


PART = for_(80, at(0.7, 0.5, 0.36, speedup=1.4))
SMALL_BATCH = same(
    4,
    for_(80, CAPPED),
    for_(60, replace(NIGHT_JOB, running=20, scheduled_k=4)),
    for_(60, CAPPED),
)
ONE_GONE = lives((PART, Phase(120, gone=True), PART), *[(for_(280, PART),)] * 5)
ZONE_GONE = lives(
    *[(PART, Phase(50, gone=True), for_(60, PART, speedup=1.12))] * 2,
    *[(PART, for_(110, PART, drafts=900, speedup=1.12))] * 4,
)
CANARY = lives(
    (for_(80, BF16), for_(120, INT4), idle(20), for_(80, INT4)),
    *[(for_(300, BF16),)] * 6,
    (for_(220, BF16), for_(80, INT4)),
)
SLOW = replace(HOT, speedup=0.88, running=21)
MOVED = replace(HOT, speedup=0.88, drafts=200, running=7)
HOT_NODE = lives(
    (for_(80, HOT), for_(120, SLOW), for_(50, MOVED), for_(20, HOT)),
    *[(for_(270, HOT),)] * 5,
)
BAD_NODE = lives(
    (for_(80, HOT), for_(150, at(0.2, 0.03, speedup=0.88, basis="measured"))),
    *[(for_(230, HOT),)] * 5,
)
BUSY_K3 = at(0.85, 0.66, 0.5, drafts=1200, speedup=0.93, basis="measured", running=90)
NOT_LOADED = same(
    3,
    for_(80, SCHEDULED),
    for_(120, replace(BUSY_K3, action="decrease_k", recommended_k=1)),
)
HALF = (
    for_(80, TWIN),
    Phase(4, unreachable=True),
    for_(150, OLD_HEAD, restart=True),
    for_(30, TWIN, restart=True),
)
HALF_OLD = lives(*[HALF] * 3, *[(for_(264, TWIN),)] * 3)
NO_DRAFTS = replace(LONG_PROMPTS, drafts=0, activity="bypassed")
CONTEXTS = same(
    2,
    for_(80, MTP),
    for_(70, LONG_PROMPTS),
    for_(6, NO_DRAFTS),
    for_(44, LONG_PROMPTS),
    for_(80, MTP),
)
COUNTERS_GONE = same(
    5, UP, for_(120, COUNTERLESS, restart=True), for_(90, OLD_HEAD, speedup=0.91)
)
RENAMED = same(
    3,
    replace(UP, **UNTOLD),
    for_(120, COUNTERLESS, activity="off", restart=True, **UNTOLD),
    for_(90, WRONG, speedup=0.90, **UNTOLD),
)
