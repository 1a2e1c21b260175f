"""Cases of activity.yml: is speculation doing what it was set up to do?"""

from __future__ import annotations

from dataclasses import replace

from .case import Case
from .sweeps import replica
from .world import Phase, World, idle

# --- worlds

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
COLLAPSED = Phase(40, acceptance=(0.04, 0.002, 0.0), speedup=1.1)


def bypassed() -> World:
    """One of two pods drafts nothing from minute 20 to 79."""
    world = World()
    replica(world, 1, Phase(20), BYPASSED, Phase(40))
    replica(world, 2, Phase(120))
    return world


def bypassed_by_schedule() -> World:
    """The schedule has K = 0 from minute 20 to 69; the server has no pod."""
    world = World()
    off = replace(BYPASSED, minutes=50, scheduled_k=0, running=80)
    world.engine(Phase(20, scheduled_k=3), off, Phase(30, scheduled_k=3))
    return world


def nearly_idle() -> World:
    """A few tokens an hour, none of them drafted."""
    world = World()
    replica(world, 1, replace(BYPASSED, minutes=90, plain_tokens=10))
    return world


def bypassed_shortly() -> World:
    """Nothing is drafted for 25 minutes."""
    world = World()
    replica(world, 1, Phase(20), replace(BYPASSED, minutes=25), Phase(40))
    return world


def bypassed_after_idleness() -> World:
    """Nothing is drafted for the first twelve minutes after an idle hour."""
    world = World()
    replica(world, 1, idle(60), replace(BYPASSED, minutes=12), Phase(30))
    return world


def bypassed_at_first() -> World:
    """Nothing is drafted for the first twelve minutes of a new engine."""
    world = World()
    replica(world, 1, replace(BYPASSED, minutes=12), Phase(30))
    return world


def data_parallel() -> World:
    """A server of two engines has a schedule until minute 29."""
    world = World()
    for engine in ("0", "1"):
        phases = (Phase(30, scheduled_k=3), Phase(40))
        pod = {"pod": "vllm-1"}
        world.engine(*phases, engine=engine, labels=pod, exporter=engine == "0")
    return world


def two_servers() -> World:
    """Two servers of one engine each have a schedule."""
    world = World()
    for index in (1, 2):
        replica(world, index, Phase(30, scheduled_k=3))
    return world


def collapsed() -> World:
    """Hardly anything is accepted on two replicas from minute 60 to 99."""
    world = World()
    for index in (1, 2):
        replica(world, index, Phase(60), COLLAPSED, Phase(40))
    return world


def collapsed_on_one() -> World:
    """Hardly anything is accepted on one of four replicas, and nobody knows what that costs."""
    world = World()
    for index in range(1, 5):
        replica(world, index, replace(COLLAPSED, speedup=None) if index == 1 else Phase(40))
    return world


def collapsed_without_a_name() -> World:
    """A server that names neither model nor engine accepts hardly anything."""
    world = World()
    world.engine(COLLAPSED, model="", engine="")
    return world


def collapsed_shortly() -> World:
    """Hardly anything is accepted for four minutes."""
    world = World()
    replica(world, 1, Phase(60), replace(COLLAPSED, minutes=4), Phase(40))
    return world


def collapsed_and_beneficial() -> World:
    """Hardly anything is accepted, and the baseline says that it is faster all the same."""
    world = World()
    replica(world, 1, replace(COLLAPSED, speedup=1.3, basis="measured"))
    return world


def collapsed_with_few_drafts() -> World:
    """Hardly anything is accepted, of 450 drafts in five minutes."""
    world = World()
    replica(world, 1, replace(COLLAPSED, drafts=90))
    return world


# --- what fires


# --- cases

CASES: tuple[Case, ...] = (
    Case(
        "drafted-again",
        "Bypassed",
        bypassed,
        {48: "", 60: "warning engine @1", 92: "warning engine @1", 100: ""},
    ),
    Case("bypassed-by-schedule", "Bypassed", bypassed_by_schedule, {69: ""}),
    Case("a-few-tokens-undrafted", "Bypassed", nearly_idle, {89: ""}),
    Case("undrafted-for-25-minutes", "Bypassed", bypassed_shortly, {60: ""}),
    Case("undrafted-after-an-idle-hour", "Bypassed", bypassed_after_idleness, {71: ""}),
    Case("undrafted-at-first", "Bypassed", bypassed_at_first, {11: ""}),
    Case(
        "on-by-schedule",
        "DisabledBySchedule",
        bypassed_by_schedule,
        {28: "", 40: "info engine @1", 77: "info engine @1", 85: ""},
    ),
    Case("bypassed-without-schedule", "DisabledBySchedule", bypassed, {60: ""}),
    Case("a-schedule-that-drafts", "DisabledBySchedule", two_servers, {29: ""}),
    Case(
        "schedule-taken-out",
        "ScheduleIgnored",
        data_parallel,
        {8: "", 20: "warning instance @1", 38: "warning instance @1", 50: ""},
    ),
    Case("schedule-on-every-server", "ScheduleIgnored", two_servers, {29: ""}),
    Case(
        "acceptance-collapsed-and-back",
        "Collapsed",
        collapsed,
        {
            66: "",
            72: "warning model",
            80: ["warning engine @1", "warning engine @2", "warning model"],
            112: ["warning engine @1", "warning engine @2", "warning model"],
            125: "",
        },
    ),
    Case("acceptance-collapsed-on-one-of-four", "Collapsed", collapsed_on_one, {30: "warning engine @1"}),
    Case(
        "acceptance-collapsed-without-a-name",
        "Collapsed",
        collapsed_without_a_name,
        {30: ["warning engine @1", "warning model"]},
    ),
    Case("acceptance-collapsed-for-4-minutes", "Collapsed", collapsed_shortly, {70: ""}),
    Case("acceptance-collapsed-and-beneficial", "Collapsed", collapsed_and_beneficial, {39: ""}),
    Case("acceptance-collapsed-of-few-drafts", "Collapsed", collapsed_with_few_drafts, {39: ""}),
)
