"""Cases of quality.yml: is what is drafted accepted, as it should be and as it was?"""

from collections.abc import Callable
from dataclasses import replace

from .case import Table, Worlds, cases, never, of_models, silent
from .histories import models, pods, replica
from .world import Phase, World

HOUR = 60
WELL = Phase(HOUR)

# --- everything is poor

#: Mean acceptance length 1.221, acceptance 7.4 %, position 0 20 %; only just worth it.
POOR = Phase(HOUR, acceptance=(0.2, 0.02, 0.001), speedup=1.1)
#: Drafts are shorter than K, so that the last positions are seldom reached.
SHORT_DRAFTS = Phase(HOUR, acceptance=(0.8, 0.3, 0.02), draft_length=1.5, speedup=1.1)
#: Only one measure is poor: the last positions, or the first.
DECLINING = Phase(HOUR, acceptance=(0.95, 0.5, 0.2), speedup=1.1)
FIRST_LOW = Phase(HOUR, acceptance=(0.65, 0.6, 0.55), speedup=1.1)

ACCEPTANCE_LOW_CASES: Table = {
    "poor-until-it-pays": (
        pods(*[(POOR, replace(POOR, minutes=2 * HOUR, speedup=1.3))] * 2),
        {12: "", 45: "warning model", 110: "warning model", 140: ""},
    ),
    "poor-by-its-decline": (pods((DECLINING,)), {50: "warning model"}),
    "poor-at-position-0": (pods((FIRST_LOW,)), {50: "warning model"}),
    "poor-and-nothing-known-of-its-payoff": (pods((replace(POOR, speedup=None),)), {50: "warning model"}),
    # The speedup is unknown at night, because each engine has too few drafts, and known by day.
    "poor-in-thin-traffic-and-beneficial-by-day": (
        pods((replace(POOR, speedup=1.3), replace(POOR, minutes=3 * HOUR, speedup=None))),
        {120: "", 200: ""},
    ),
}
ACCEPTANCE_LOW_NEVER: Worlds = {
    "poor-and-beneficial": pods((replace(POOR, speedup=1.3),)),
    "poor-of-few-drafts": pods((replace(POOR, drafts=15),)),
    "decline-of-short-drafts": pods((SHORT_DRAFTS,)),
}

# --- it is worse than before

#: Mean acceptance length 1.9, acceptance 30 %.
DROPPED = Phase(HOUR, acceptance=(0.5, 0.3, 0.1), speedup=1.1)
#: From 2.75 to 1.9 in three days, a little every six hours, after a day as it should be; of three drafters.
DECAYS = tuple(
    tuple(
        Phase(6 * HOUR, acceptance=tuple(p * (1 - max(step, 0) / 12 * 0.85 / 1.75) for p in positions))
        for step in range(-4, 13)
    )
    for positions in ((0.8, 0.6, 0.35), (0.7, 0.5), (0.95, 0.9, 0.85))
)
NIGHT, WORKDAY = Phase(8 * HOUR), replace(DROPPED, minutes=16 * HOUR)
HIGH, LOW = Phase(15, acceptance=(0.95, 0.8, 0.65)), Phase(15, acceptance=(0.7, 0.35, 0.15), speedup=1.3)

DROP, STEP, DECAYED, AGED = (
    f"warning model against={against}" for against in ("hour", "restart", "days", "uptime")
)
#: The exporter looks once an hour: an engine on the verge of 5 %, healed by a restart in the end.
DECAYING, NOT_DECAYING = (Phase(HOUR, uptime_decay=ratio) for ratio in (0.051, 0.0))
VERGE = (NOT_DECAYING, *(DECAYING, NOT_DECAYING) * 2, replace(NOT_DECAYING, minutes=7 * HOUR, restart=True))

ACCEPTANCE_DROPPED_CASES: Table = {
    "dropped-and-kept": (pods(*[(Phase(2 * HOUR), DROPPED)] * 2), {123: "", 135: DROP, 144: DROP, 175: ""}),
    "dropped-and-back": (
        pods(*[(Phase(2 * HOUR), replace(DROPPED, minutes=25), Phase(90))] * 2),
        {141: DROP, 220: ""},
    ),
    "dropped-below-yesterday": (pods((Phase(25 * HOUR), DROPPED)), {1521: DROP}),
    "a-batch-that-pays-begins": (
        pods((Phase(2 * HOUR), replace(DROPPED, drafts=2000, speedup=1.3))),
        silent(120, 179),
    ),
    # Over within the quarter of an hour for which a ticket waits, so that none is sent.
    "three-runs-of-ten-minutes": (
        pods((Phase(2 * HOUR), *(replace(DROPPED, minutes=10), Phase(40)) * 3)),
        {124: "", 135: DROP, **silent(142, 269)},
    ),
    "dropped-as-every-morning": (pods((NIGHT, WORKDAY, NIGHT, DROPPED)), {1932: ""}),
    "dropped-a-little-by-11-percent": (
        pods((Phase(2 * HOUR), Phase(HOUR, acceptance=(0.8, 0.55, 0.4), speedup=1.4))),
        {132: ""},
    ),
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
    "steady-for-three-days": (pods((Phase(80 * HOUR),)), {80 * HOUR - 15: ""}),
    "decays-with-uptime-and-is-restarted": (
        models(
            *(
                tuple(replace(one, uptime_decay=n * (one.uptime_decay or 0.0)) for one in VERGE)
                for n in (1, 2, 5)
            )
        ),
        {
            57: "",
            **{minute: of_models(AGED) for minute in (90, 150, 240, 570)},
            630: "",
        },
    ),
    "swings-as-ever": (pods((HIGH, LOW) * 8), dict.fromkeys(range(200, 240, 5), "")),
}

# --- it is too good, or another than that of its peers


#: The outlier accepts half of what others do.
OUTLIER = Phase(HOUR, acceptance=(0.5, 0.3, 0.2), speedup=1.3)

ACCEPTANCE_ABNORMALLY_HIGH_CASES: Table = {
    "nearly-all-accepted-no-more": (
        models(
            (Phase(HOUR, acceptance=(1.0, 0.995, 0.99), speedup=2.5), Phase(90)),
            (Phase(HOUR, acceptance=(1.0, 1.0), speedup=None), Phase(90)),
            (Phase(HOUR, acceptance=(0.983,), drafts=100), Phase(90)),
        ),
        {8: "", 50: of_models("warning model"), 80: of_models("warning model"), 100: ""},
    ),
    "two-thirds-accepted-repeat-nothing": (pods((WELL,)), {59: ""}),
}


def rolled_out(acceptance: tuple[float, ...], until: int) -> Callable[[], World]:
    """Return what builds two pods that go, at a minute, and two equal ones that accept otherwise."""

    def build() -> World:
        world = World()
        for index in (1, 2):
            replica(world, index, Phase(until))
            replica(world, 10 + index, Phase(220 - until, acceptance=acceptance), start=until)
        return world

    return build


def one_goes() -> World:
    """An outlier is gone at minute 95."""
    world = World()
    replica(world, 1, replace(OUTLIER, minutes=95))
    for index in (2, 3):
        replica(world, index, Phase(230))
    return world


ENGINE_OUTLIER_CASES: Table = {
    # Both live pods are equal; only those that are gone were better.
    "equal-engines-after-a-rollout": (rolled_out((0.3, 0.1, 0.05), 70), silent(100, 180)),
    "an-outlier-that-is-gone": (one_goes, {90: "warning engine @1", 118: ""}),
    "no-outlier-any-more": (
        pods((OUTLIER, Phase(2 * HOUR)), (Phase(3 * HOUR),)),
        {28: "", 51: "warning engine @1", 110: "warning engine @1", 170: ""},
    ),
}
ENGINE_OUTLIER_NEVER: Worlds = {
    "peers-with-few-drafts": pods((replace(OUTLIER, minutes=90),), (Phase(90, drafts=60),)),
    "an-outlier-by-its-k": pods((Phase(90, acceptance=(0.9,), speedup=1.3),), (Phase(90),)),
}

# --- it is worse since a restart

#: Acceptance 61.3 %, 8.7 points lower than before.
QUANTIZED = Phase(5 * HOUR, acceptance=(0.8, 0.62, 0.42), speedup=1.5)
#: Only 3 points lower.
HARDLY_LOWER = Phase(2 * HOUR, acceptance=(0.88, 0.67, 0.46), speedup=1.5, restart=True)
BEFORE, LOADING = Phase(3 * HOUR), Phase(6, unreachable=True)


def step_with_new_pods() -> World:
    """New pods take the place of the old ones at minute 180, and accept 8.7 points less."""
    world = World()
    for index in (1, 2):
        replica(world, index, BEFORE)
        replica(world, 10 + index, replace(QUANTIZED, minutes=2 * HOUR), start=3 * HOUR)
    return world


def autoscaled() -> World:
    """A pod is replaced every 90 minutes, and from minute 540 on it is Saturday: 8.7 points less."""
    world = World()
    for index in range(8):
        start, saturday = 90 * index, 540
        before = max(0, min(180, saturday - start))
        life = (replace(BEFORE, minutes=before), replace(QUANTIZED, minutes=180 - before))
        replica(world, index + 1, *(phase for phase in life if phase.minutes), start=start)
    return world


#: Deployments every two hours, the third of which are within Saturday.
DEPLOYED = (
    BEFORE,
    *(replace(BEFORE, minutes=2 * HOUR, restart=True),) * 3,
    replace(QUANTIZED, minutes=HOUR),
    replace(QUANTIZED, minutes=2 * HOUR, restart=True),
)
ACCEPTANCE_DROPPED_CASES_SATURDAYS: Table = {
    "saturday-under-an-autoscaler": (autoscaled, {580: "", 620: "", 660: "", 700: ""}),
    "saturday-with-rolling-deployments": (pods(DEPLOYED, DEPLOYED), {590: "", 640: "", 700: ""}),
}

ACCEPTANCE_DROPPED_CASES_STEPS: Table = {
    "a-step-with-new-pods": (step_with_new_pods, {260: STEP}),
    "a-step-long-ago": (
        models(
            (BEFORE, LOADING, replace(QUANTIZED, restart=True)),
            (BEFORE, LOADING, replace(QUANTIZED, acceptance=(0.8, 0.62, 0.32), restart=True)),
        ),
        {200: "", 260: of_models(STEP, 2), 400: of_models(STEP, 2), 450: ""},
    ),
    "a-fall-without-restart": (pods((BEFORE, QUANTIZED)), {260: ""}),
    "half-a-step-after-a-restart": (pods((BEFORE, LOADING, HARDLY_LOWER)), {280: ""}),
}

CASES = (
    *cases("AcceptanceLow", ACCEPTANCE_LOW_CASES),
    *never("AcceptanceLow", 59, ACCEPTANCE_LOW_NEVER),
    *cases("AcceptanceDropped", ACCEPTANCE_DROPPED_CASES),
    *cases("AcceptanceAbnormallyHigh", ACCEPTANCE_ABNORMALLY_HIGH_CASES),
    *cases("EngineOutlier", ENGINE_OUTLIER_CASES),
    *never("EngineOutlier", 80, ENGINE_OUTLIER_NEVER),
    *cases("AcceptanceDropped", ACCEPTANCE_DROPPED_CASES_SATURDAYS),
    *cases("AcceptanceDropped", ACCEPTANCE_DROPPED_CASES_STEPS),
)
