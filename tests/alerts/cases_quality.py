"""Cases of quality.yml: is what is drafted accepted, as it should be and as it was?"""

from __future__ import annotations

from dataclasses import replace

from .case import Case, cases, never
from .histories import pods, replica
from .world import Phase, ServerPhase, World

HOUR = 60
WELL = Phase(HOUR)

# --- everything is poor

#: Mean acceptance length 1.221, acceptance 7.4 %, position 0 20 %; only just worth it.
POOR = Phase(HOUR, acceptance=(0.2, 0.02, 0.001), speedup=1.1)
#: What names the cases of each alert on poor acceptance.
POOR_ALERTS = {
    "length": "MeanAcceptanceLengthLow",
    "acceptance": "AcceptanceLow",
    "position-0": "Position0Low",
    "decline": "RapidDecline",
}
#: Both engines, and the model as a whole.
ALL = ["warning engine @1", "warning engine @2", "warning model"]

EVERYTHING_POOR = tuple(
    case
    for name, alert in POOR_ALERTS.items()
    for case in (
        Case(
            f"{name}-poor-until-it-pays",
            alert,
            pods(*[(POOR, replace(POOR, speedup=1.3))] * 2),
            {12: "", 45: ALL, 82: ALL, 96: ""},
        ),
        Case(
            f"{name}-poor-on-one-of-four",
            alert,
            pods((replace(POOR, speedup=None),), *[(WELL,)] * 3),
            {50: "warning engine @1"},
        ),
        *never(
            alert,
            59,
            {
                f"{name}-poor-and-beneficial": pods((replace(POOR, speedup=1.3),)),
                f"{name}-poor-of-few-drafts": pods((replace(POOR, drafts=15),)),
            },
        ),
    )
)

#: Drafts are shorter than K, so that the last positions are seldom reached.
SHORT_DRAFTS = Phase(HOUR, acceptance=(0.8, 0.3, 0.02), draft_length=1.5, speedup=1.1)

# --- it is worse than before

#: Mean acceptance length 1.9, acceptance 30 %.
DROPPED = Phase(HOUR, acceptance=(0.5, 0.3, 0.1), speedup=1.1)
NIGHT, WORKDAY = Phase(8 * HOUR), replace(DROPPED, minutes=16 * HOUR)
HIGH, LOW = Phase(15, acceptance=(0.95, 0.8, 0.65)), Phase(15, acceptance=(0.7, 0.35, 0.15), speedup=1.3)

DROPS = (
    *cases(
        "AcceptanceDropped",
        {
            "dropped-and-kept": (
                pods(*[(Phase(2 * HOUR), DROPPED)] * 2),
                {124: "", 132: "warning model", 175: "warning model"},
            ),
            "dropped-and-back": (
                pods(*[(Phase(2 * HOUR), replace(DROPPED, minutes=15), Phase(90))] * 2),
                {132: "warning model", 210: ""},
            ),
            "dropped-below-yesterday": (pods((Phase(25 * HOUR), DROPPED)), {1512: "warning model"}),
            "dropped-as-every-morning": (pods((NIGHT, WORKDAY, NIGHT, DROPPED)), {1932: ""}),
            "dropped-a-little-by-11-percent": (
                pods((Phase(2 * HOUR), Phase(HOUR, acceptance=(0.8, 0.55, 0.4), speedup=1.4))),
                {132: ""},
            ),
            "swings-as-ever": (pods((HIGH, LOW) * 8), dict.fromkeys(range(200, 240, 5), "")),
        },
    ),
)

# --- it is too good, or another than that of its peers


def ended_as_repetition(minutes: int, rate: float) -> ServerPhase:
    """Return how many of 60 requests a minute vLLM ends for repeating themselves."""
    return ServerPhase(minutes, finished={"stop": 60.0 - rate, "repetition": rate})


#: The outlier accepts half of what others do.
OUTLIER = Phase(HOUR, acceptance=(0.5, 0.3, 0.2), speedup=1.3)
HIGHLY, REPETITIVE = (f"warning model reason={reason}" for reason in ("acceptance", "repetition"))

UNUSUAL = (
    Case("decline-of-short-drafts", "RapidDecline", pods((SHORT_DRAFTS,)), {59: ""}),
    *cases(
        "AcceptanceAbnormallyHigh",
        {
            "nearly-all-accepted-no-more": (
                pods((Phase(HOUR, acceptance=(1.0, 0.995, 0.99), speedup=2.5), Phase(90))),
                {8: "", 50: HIGHLY, 80: HIGHLY, 100: ""},
            ),
            "answers-repeat-themselves-no-more": (
                pods((Phase(130),), server=(ended_as_repetition(40, 10.0), ended_as_repetition(90, 0.0))),
                {35: REPETITIVE, 80: REPETITIVE, 110: ""},
            ),
            "few-answers-repeat-themselves": (
                pods((WELL,), server=(ended_as_repetition(HOUR, 2.0),)),
                {59: ""},
            ),
        },
    ),
    Case(
        "no-outlier-any-more",
        "EngineOutlier",
        pods((OUTLIER, Phase(2 * HOUR)), (Phase(3 * HOUR),)),
        {28: "", 50: "warning engine @1", 130: "warning engine @1", 170: ""},
    ),
    *never(
        "EngineOutlier",
        80,
        {
            "peers-with-few-drafts": pods((replace(OUTLIER, minutes=90),), (Phase(90, drafts=60),)),
            "an-outlier-by-its-k": pods((Phase(90, acceptance=(0.9,), speedup=1.3),), (Phase(90),)),
        },
    ),
)

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


STEPS = (
    *cases(
        "AcceptanceStep",
        {
            "a-step-with-new-pods": (step_with_new_pods, {260: "warning model"}),
            "a-step-long-ago": (
                pods((BEFORE, LOADING, replace(QUANTIZED, restart=True))),
                {225: "", 260: "warning model", 400: "warning model", 440: ""},
            ),
            "a-fall-without-restart": (pods((BEFORE, QUANTIZED)), {260: ""}),
            "half-a-step-after-a-restart": (pods((BEFORE, LOADING, HARDLY_LOWER)), {280: ""}),
        },
    ),
)

CASES: tuple[Case, ...] = (*EVERYTHING_POOR, *DROPS, *UNUSUAL, *STEPS)
