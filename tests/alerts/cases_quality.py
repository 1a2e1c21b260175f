"""Cases of quality.yml whose worlds take more than lives of pods."""

from collections.abc import Callable
from dataclasses import replace

from .case import Table, cases, of_models, silent
from .histories import models, replica
from .world import Phase, World

HOUR = 60

# --- it is worse than before

#: From 2.75 to 1.9 in three days, a little every six hours, after a day as it should
#: be; of three drafters.
DECAYS = tuple(
    tuple(
        Phase(
            6 * HOUR,
            acceptance=tuple(
                p * (1 - max(step, 0) / 12 * 0.85 / 1.75) for p in positions
            ),
        )
        for step in range(-4, 13)
    )
    for positions in ((0.8, 0.6, 0.35), (0.7, 0.5), (0.95, 0.9, 0.85))
)
DECAYED, AGED, SLOWLY = (
    f"warning model against={against}" for against in ("days", "uptime", "weeks")
)
#: The exporter looks once an hour: an engine on the verge of 5 %, healed by a restart
#: in the end.
DECAYING, NOT_DECAYING = (Phase(HOUR, uptime_decay=ratio) for ratio in (0.051, 0.0))
VERGE = (
    NOT_DECAYING,
    *(DECAYING, NOT_DECAYING) * 2,
    replace(NOT_DECAYING, minutes=7 * HOUR, restart=True),
)

ACCEPTANCE_DROPPED_CASES: Table = {
    "decayed-over-three-days": (
        models(*DECAYS),
        {
            2880: "",
            24 * HOUR + 78 * HOUR - 15: [
                DECAYED,
                f"{DECAYED} model_name=poet",
                f"{DECAYED} model_name=judge",
            ],
        },
    ),
    "decays-with-uptime-and-is-restarted": (
        models(
            *(
                tuple(
                    replace(one, uptime_decay=n * (one.uptime_decay or 0.0))
                    for one in VERGE
                )
                for n in (1, 2, 5)
            )
        ),
        {
            57: "",
            **{minute: of_models(AGED) for minute in (90, 150, 240, 570)},
            630: "",
        },
    ),
}

DAY = 24 * HOUR
#: A day of half the night, whose drafts are accepted less, and a better day: the same
#: every day.
NIGHT_AND_DAY = (
    Phase(6 * HOUR, acceptance=(0.5, 0.3, 0.1), drafts=150),
    Phase(18 * HOUR, drafts=600),
)
#: A schedule has K = 3 on the first days and drafts 1.5 tokens on the others.
SCHEDULED = (
    Phase(2 * DAY),
    Phase(2 * DAY, acceptance=(0.9, 0.35, 0.0), draft_length=1.5),
)
#: Of three drafters: two days, and two days two weeks later that are worse. What lies
#: between was not recorded, so that a history of two weeks is a short one.
SLOW = tuple(
    (
        Phase(2 * DAY, acceptance=positions),
        Phase(11 * DAY, gone=True),
        Phase(3 * DAY, acceptance=tuple(0.6 * p for p in positions)),
    )
    for positions in ((0.9, 0.7, 0.5), (0.9, 0.8, 0.65), (0.95, 0.9, 0.85))
)

DECAY_CASES: Table = {
    "the-same-day-since-an-install-at-midnight": (
        models(NIGHT_AND_DAY * 3),
        dict.fromkeys(range(10 * HOUR, 70 * HOUR, 3 * HOUR), ""),
    ),
    "a-schedule-drafts-less-than-days-ago": (
        models(SCHEDULED),
        dict.fromkeys(range(60 * HOUR, 96 * HOUR, 3 * HOUR), ""),
    ),
    # Not at a half hour: there Prometheus 2 has one sample more in a window of them.
    "lower-than-two-weeks-ago": (
        models(*SLOW),
        {2 * DAY: "", 14 * DAY: "", 16 * DAY - 285: of_models(SLOWLY)},
    ),
}

# --- another than its peers


def rolled_out(acceptance: tuple[float, ...], until: int) -> Callable[[], World]:
    """Return what builds two pods that go, at a minute, and two equal ones that accept
    otherwise.
    """

    def build() -> World:
        world = World()
        for index in (1, 2):
            replica(world, index, Phase(until))
            replica(
                world,
                10 + index,
                Phase(220 - until, acceptance=acceptance),
                start=until,
            )
        return world

    return build


def one_goes() -> World:
    """An outlier is gone at minute 95."""
    world = World()
    replica(world, 1, Phase(95, acceptance=(0.5, 0.3, 0.2), speedup=1.3))
    for index in (2, 3):
        replica(world, index, Phase(230))
    return world


ENGINE_OUTLIER_CASES: Table = {
    # Both live pods are equal; only those that are gone were better.
    "equal-engines-after-a-rollout": (
        rolled_out((0.3, 0.1, 0.05), 70),
        silent(100, 180),
    ),
    "an-outlier-that-is-gone": (one_goes, {90: "warning engine @1", 118: ""}),
}

# --- it is worse since a restart

#: Acceptance 61.3 %, 8.7 points lower than before.
QUANTIZED = Phase(5 * HOUR, acceptance=(0.8, 0.62, 0.42), speedup=1.5)
BEFORE = Phase(3 * HOUR)


def step_with_new_pods() -> World:
    """New pods take the place of the old ones at minute 180, and accept 8.7 points
    less.
    """
    world = World()
    for index in (1, 2):
        replica(world, index, BEFORE)
        replica(world, 10 + index, replace(QUANTIZED, minutes=2 * HOUR), start=3 * HOUR)
    return world


def autoscaled() -> World:
    """A pod is replaced every 90 minutes, and from minute 540 on it is Saturday: 8.7
    points less.
    """
    world = World()
    for index in range(8):
        start = 90 * index
        saturday = 540
        before = max(0, min(180, saturday - start))
        life = (
            replace(BEFORE, minutes=before),
            replace(QUANTIZED, minutes=180 - before),
        )
        replica(
            world, index + 1, *(phase for phase in life if phase.minutes), start=start
        )
    return world


def rolled_back() -> World:
    """New pods accept 58 points less from minute 180 on, and are rolled back at 250."""
    world = World()
    broken = Phase(70, acceptance=(0.1, 0.05, 0.01), speedup=0.95)
    for index in (1, 2):
        replica(world, index, BEFORE)
        replica(world, 10 + index, broken, start=3 * HOUR)
        replica(world, 20 + index, Phase(2 * HOUR), start=250)
    return world


STEP_CASES: Table = {
    "rolled-back-is-not-lower-any-more": (
        rolled_back,
        {
            195: "warning model against=hour",
            235: "warning model against=restart",
            248: "warning model against=restart",
            276: "",
            291: "",
            330: "",
        },
    ),
    "saturday-under-an-autoscaler": (autoscaled, {580: "", 620: "", 660: "", 700: ""}),
    "a-step-with-new-pods": (
        step_with_new_pods,
        {260: "warning model against=restart"},
    ),
}

CASES = (
    *cases("AcceptanceDropped", ACCEPTANCE_DROPPED_CASES),
    *cases("AcceptanceDropped", DECAY_CASES),
    *cases("EngineOutlier", ENGINE_OUTLIER_CASES),
    *cases("AcceptanceDropped", STEP_CASES),
)
