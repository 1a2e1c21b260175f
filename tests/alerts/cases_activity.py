"""Cases of activity.yml: is speculation doing what it was set up to do?"""

from __future__ import annotations

from dataclasses import replace

from .case import Case, cases, never
from .histories import engines, pods
from .world import Phase, World, idle

#: Tokens, and not a single draft.
BYPASSED = Phase(
    60,
    drafts=0,
    plain_tokens=500,
    speedup=None,
    activity="bypassed",
    action="insufficient_data",
    recommended_k=None,
)
SHORTLY = replace(BYPASSED, minutes=12)
SCHEDULED = Phase(30, scheduled_k=3)
OFF_BY_SCHEDULE = replace(BYPASSED, minutes=50, scheduled_k=0, running=80)

bypassed = pods((Phase(20), BYPASSED, Phase(40)), (Phase(120),))
bypassed_by_schedule = engines((replace(SCHEDULED, minutes=20), OFF_BY_SCHEDULE, SCHEDULED))

COLLAPSED = Phase(40, acceptance=(0.04, 0.002, 0.0), speedup=1.1)
#: Both engines, and the model as a whole.
ALL = ["warning engine @1", "warning engine @2", "warning model"]


def data_parallel() -> World:
    """A server of two engines has a schedule until minute 29."""
    world = World()
    for engine in ("0", "1"):
        first = engine == "0"
        world.engine(SCHEDULED, Phase(40), engine=engine, labels={"pod": "vllm-1"}, exporter=first)
    return world


def nameless() -> World:
    """A server that names neither model nor engine accepts hardly anything."""
    world = World()
    world.engine(COLLAPSED, model="", engine="")
    return world


CASES: tuple[Case, ...] = (
    *cases(
        "Bypassed",
        {
            "drafted-again": (bypassed, {48: "", 60: "warning engine @1", 92: "warning engine @1", 100: ""}),
            "bypassed-by-schedule": (bypassed_by_schedule, {69: ""}),
            "a-few-tokens-undrafted": (pods((replace(BYPASSED, minutes=90, plain_tokens=10),)), {89: ""}),
            "undrafted-for-25-minutes": (
                pods((Phase(20), replace(BYPASSED, minutes=25), Phase(40))),
                {45: "", 60: ""},
            ),
            "undrafted-after-an-idle-hour": (pods((idle(60), SHORTLY)), {71: ""}),
        },
    ),
    *cases(
        "DisabledBySchedule",
        {
            "on-by-schedule": (
                bypassed_by_schedule,
                {28: "", 40: "info engine @1", 77: "info engine @1", 85: ""},
            ),
            "bypassed-without-schedule": (bypassed, {60: ""}),
            "a-schedule-that-drafts": (pods((SCHEDULED,)), {29: ""}),
        },
    ),
    Case(
        "schedule-taken-out",
        "ScheduleIgnored",
        data_parallel,
        {8: "", 20: "warning instance @1", 38: "warning instance @1", 50: ""},
    ),
    Case("schedule-on-every-server", "ScheduleIgnored", pods((SCHEDULED,), (SCHEDULED,)), {29: ""}),
    *cases(
        "Collapsed",
        {
            "acceptance-collapsed-and-back": (
                pods(*[(Phase(60), COLLAPSED, Phase(40))] * 2),
                {66: "", 72: "warning model", 80: ALL, 112: ALL, 125: ""},
            ),
            "acceptance-collapsed-on-one-of-four": (
                pods((replace(COLLAPSED, speedup=None),), *[(Phase(40),)] * 3),
                {30: "warning engine @1"},
            ),
            "acceptance-collapsed-without-a-name": (nameless, {30: ["warning engine @1", "warning model"]}),
            "acceptance-collapsed-for-4-minutes": (
                pods((Phase(20), replace(COLLAPSED, minutes=4), Phase(40))),
                {30: ""},
            ),
        },
    ),
    *never(
        "Collapsed",
        39,
        {
            "acceptance-collapsed-and-beneficial": pods((replace(COLLAPSED, speedup=1.3, basis="measured"),)),
            "acceptance-collapsed-of-few-drafts": pods((replace(COLLAPSED, drafts=90),)),
        },
    ),
)
