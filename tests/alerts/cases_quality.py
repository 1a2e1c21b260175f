"""Cases of quality.yml: is what is drafted accepted, as it should be and as it was?"""

from __future__ import annotations

from dataclasses import replace

from .case import Case
from .sweeps import replica
from .world import Phase, ServerPhase, World

# --- worlds

HOUR = 60
#: Mean acceptance length 1.221, acceptance 7.4 %, position 0 20 %; only just worth it.
POOR = Phase(HOUR, acceptance=(0.2, 0.02, 0.001), speedup=1.1)
#: Mean acceptance length 1.9, acceptance 30 %.
DROPPED = Phase(HOUR, acceptance=(0.5, 0.3, 0.1), speedup=1.1)


def poor() -> World:
    """Everything about acceptance is poor on both replicas, until it becomes known to pay at minute 60."""
    world = World()
    for index in (1, 2):
        replica(world, index, POOR, replace(POOR, speedup=1.3))
    return world


def poor_on_one() -> World:
    """Everything about acceptance is poor on one of four replicas, and nobody knows what that costs."""
    world = World()
    for index in range(1, 5):
        replica(world, index, replace(POOR, speedup=None) if index == 1 else Phase(HOUR))
    return world


def poor_and_beneficial() -> World:
    """Everything about acceptance is poor, and yet it pays."""
    world = World()
    replica(world, 1, replace(POOR, speedup=1.3))
    return world


def poor_with_few_drafts() -> World:
    """Everything about acceptance is poor, of 450 drafts in half an hour."""
    world = World()
    replica(world, 1, replace(POOR, drafts=15))
    return world


def short_drafts() -> World:
    """Drafts are shorter than K, so that the last positions are seldom reached."""
    world = World()
    replica(world, 1, Phase(HOUR, acceptance=(0.8, 0.3, 0.02), draft_length=1.5, speedup=1.1))
    return world


def dropped() -> World:
    """Acceptance drops on both replicas at minute 120."""
    world = World()
    for index in (1, 2):
        replica(world, index, Phase(2 * HOUR), DROPPED, Phase(HOUR))
    return world


def dropped_and_back() -> World:
    """Acceptance drops on both replicas for a quarter of an hour."""
    world = World()
    for index in (1, 2):
        replica(world, index, Phase(2 * HOUR), replace(DROPPED, minutes=15), Phase(90))
    return world


def dropped_since_yesterday() -> World:
    """Acceptance drops at hour 25, after a day of the same load."""
    world = World()
    replica(world, 1, Phase(25 * HOUR), DROPPED)
    return world


def as_yesterday() -> World:
    """Acceptance drops at hour 25, to what it was at that time of the day before."""
    world = World()
    replica(world, 1, replace(DROPPED, minutes=7 * HOUR), Phase(18 * HOUR), DROPPED)
    return world


def every_morning() -> World:
    """Acceptance drops at 8 in the morning and rises at midnight, on the second day as on the first."""
    world = World()
    night, day = Phase(8 * HOUR), replace(DROPPED, minutes=16 * HOUR)
    replica(world, 1, night, day, night, replace(DROPPED, minutes=HOUR))
    return world


def dropped_a_little() -> World:
    """Mean acceptance length drops from 3.1 to 2.75, by 11 %."""
    world = World()
    replica(world, 1, Phase(2 * HOUR), Phase(HOUR, acceptance=(0.8, 0.55, 0.4), speedup=1.4))
    return world


def swinging() -> World:
    """Mean acceptance length swings between 3.4 and 2.2 every quarter of an hour, as it always has."""
    high, low = Phase(15, acceptance=(0.95, 0.8, 0.65)), Phase(15, acceptance=(0.7, 0.35, 0.15), speedup=1.3)
    world = World()
    replica(world, 1, *(high, low) * 8)
    return world


def repetitive() -> World:
    """Nearly everything is accepted until minute 59."""
    world = World()
    replica(world, 1, Phase(HOUR, acceptance=(1.0, 0.995, 0.99), speedup=2.5), Phase(90))
    return world


def ended_as_repetition() -> World:
    """VLLM ends one answer in six for repeating itself, until minute 39."""
    loops, none = {"stop": 50.0, "repetition": 10.0}, {"stop": 60.0, "repetition": 0.0}
    world = World()
    replica(world, 1, Phase(130), server=(ServerPhase(40, finished=loops), ServerPhase(90, finished=none)))
    return world


def seldom_ended_as_repetition() -> World:
    """VLLM ends one answer in thirty for repeating itself."""
    world = World()
    finished = {"stop": 58.0, "repetition": 2.0}
    replica(world, 1, Phase(HOUR), server=(ServerPhase(HOUR, finished=finished),))
    return world


def outlier() -> World:
    """One of two engines accepts half of what the other does, until minute 59."""
    world = World()
    replica(world, 1, Phase(HOUR, acceptance=(0.5, 0.3, 0.2), speedup=1.3), Phase(2 * HOUR))
    replica(world, 2, Phase(3 * HOUR))
    return world


def outlier_without_peers() -> World:
    """One of two engines accepts half of what the other does, which has hardly any traffic."""
    world = World()
    replica(world, 1, Phase(90, acceptance=(0.5, 0.3, 0.2), speedup=1.3))
    replica(world, 2, Phase(90, drafts=60))
    return world


def outlier_by_its_k() -> World:
    """One of two engines has K = 1."""
    world = World()
    replica(world, 1, Phase(90, acceptance=(0.9,), speedup=1.3))
    replica(world, 2, Phase(90))
    return world


#: Acceptance 61.3 %, 8.7 points lower than before.
QUANTIZED = Phase(5 * HOUR, acceptance=(0.8, 0.62, 0.42), speedup=1.5)


def step() -> World:
    """The engine restarts at minute 180, and accepts 8.7 points less from then on."""
    world = World()
    replica(world, 1, Phase(3 * HOUR), Phase(6, unreachable=True), replace(QUANTIZED, restart=True))
    return world


def step_with_new_pods() -> World:
    """New pods take the place of the old ones at minute 180, and accept 8.7 points less."""
    world = World()
    for index in (1, 2):
        replica(world, index, Phase(3 * HOUR))
        replica(world, 10 + index, replace(QUANTIZED, minutes=2 * HOUR), start=3 * HOUR)
    return world


def step_of_traffic() -> World:
    """Acceptance falls by 8.7 points, and nothing was restarted."""
    world = World()
    replica(world, 1, Phase(3 * HOUR), QUANTIZED)
    return world


def half_a_step() -> World:
    """The engine restarts, and accepts 3 points less."""
    world = World()
    after = Phase(2 * HOUR, acceptance=(0.88, 0.67, 0.46), speedup=1.5, restart=True)
    replica(world, 1, Phase(3 * HOUR), Phase(6, unreachable=True), after)
    return world


# --- what fires


# --- cases

CASES: tuple[Case, ...] = (
    Case("length-poor-on-one-of-four", "MeanAcceptanceLengthLow", poor_on_one, {50: "warning engine @1"}),
    Case(
        "length-poor-until-it-pays",
        "MeanAcceptanceLengthLow",
        poor,
        {
            12: "",
            45: ["warning engine @1", "warning engine @2", "warning model"],
            82: ["warning engine @1", "warning engine @2", "warning model"],
            96: "",
        },
    ),
    Case("length-poor-and-beneficial", "MeanAcceptanceLengthLow", poor_and_beneficial, {59: ""}),
    Case("length-poor-of-few-drafts", "MeanAcceptanceLengthLow", poor_with_few_drafts, {59: ""}),
    Case("acceptance-poor-on-one-of-four", "AcceptanceLow", poor_on_one, {50: "warning engine @1"}),
    Case(
        "acceptance-poor-until-it-pays",
        "AcceptanceLow",
        poor,
        {
            12: "",
            45: ["warning engine @1", "warning engine @2", "warning model"],
            82: ["warning engine @1", "warning engine @2", "warning model"],
            96: "",
        },
    ),
    Case("acceptance-poor-and-beneficial", "AcceptanceLow", poor_and_beneficial, {59: ""}),
    Case("acceptance-poor-of-few-drafts", "AcceptanceLow", poor_with_few_drafts, {59: ""}),
    Case("position-0-poor-on-one-of-four", "Position0Low", poor_on_one, {50: "warning engine @1"}),
    Case(
        "position-0-poor-until-it-pays",
        "Position0Low",
        poor,
        {
            12: "",
            45: ["warning engine @1", "warning engine @2", "warning model"],
            82: ["warning engine @1", "warning engine @2", "warning model"],
            96: "",
        },
    ),
    Case("position-0-poor-and-beneficial", "Position0Low", poor_and_beneficial, {59: ""}),
    Case("position-0-poor-of-few-drafts", "Position0Low", poor_with_few_drafts, {59: ""}),
    Case("decline-poor-on-one-of-four", "RapidDecline", poor_on_one, {50: "warning engine @1"}),
    Case(
        "decline-poor-until-it-pays",
        "RapidDecline",
        poor,
        {
            12: "",
            45: ["warning engine @1", "warning engine @2", "warning model"],
            82: ["warning engine @1", "warning engine @2", "warning model"],
            96: "",
        },
    ),
    Case("decline-poor-and-beneficial", "RapidDecline", poor_and_beneficial, {59: ""}),
    Case("decline-poor-of-few-drafts", "RapidDecline", poor_with_few_drafts, {59: ""}),
    Case("decline-of-short-drafts", "RapidDecline", short_drafts, {59: ""}),
    Case(
        "dropped-and-kept",
        "AcceptanceDropped",
        dropped,
        {124: "", 132: "warning model", 175: "warning model"},
    ),
    Case("dropped-below-yesterday", "AcceptanceDropped", dropped_since_yesterday, {1512: "warning model"}),
    Case("dropped-and-back", "AcceptanceDropped", dropped_and_back, {132: "warning model", 210: ""}),
    Case("dropped-as-yesterday", "AcceptanceDropped", as_yesterday, {1512: ""}),
    Case("dropped-as-every-morning", "AcceptanceDropped", every_morning, {1932: ""}),
    Case("dropped-a-little", "AcceptanceDropped", dropped_a_little, {132: ""}),
    Case(
        "swings-as-ever",
        "AcceptanceDropped",
        swinging,
        {200: "", 205: "", 210: "", 215: "", 220: "", 225: "", 230: "", 235: ""},
    ),
    Case(
        "nearly-all-accepted-no-more",
        "AcceptanceAbnormallyHigh",
        repetitive,
        {8: "", 50: "warning model reason=acceptance", 80: "warning model reason=acceptance", 100: ""},
    ),
    Case(
        "answers-repeat-themselves-no-more",
        "AcceptanceAbnormallyHigh",
        ended_as_repetition,
        {35: "warning model reason=repetition", 80: "warning model reason=repetition", 110: ""},
    ),
    Case("few-answers-repeat-themselves", "AcceptanceAbnormallyHigh", seldom_ended_as_repetition, {59: ""}),
    Case(
        "no-outlier-any-more",
        "EngineOutlier",
        outlier,
        {28: "", 50: "warning engine @1", 130: "warning engine @1", 170: ""},
    ),
    Case("peers-with-few-drafts", "EngineOutlier", outlier_without_peers, {80: ""}),
    Case("an-outlier-by-its-k", "EngineOutlier", outlier_by_its_k, {80: ""}),
    Case("a-step-with-new-pods", "AcceptanceStep", step_with_new_pods, {260: "warning model"}),
    Case(
        "a-step-long-ago",
        "AcceptanceStep",
        step,
        {225: "", 260: "warning model", 400: "warning model", 440: ""},
    ),
    Case("a-fall-without-restart", "AcceptanceStep", step_of_traffic, {260: ""}),
    Case("half-a-step-after-a-restart", "AcceptanceStep", half_a_step, {280: ""}),
)
