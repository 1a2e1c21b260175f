"""Cases of activity.yml: is speculation doing what it was set up to do?"""

from dataclasses import replace

from .case import Table, Worlds, cases, never, silent
from .cases_harm import ab_test
from .histories import engines, models, pods
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
SHORTLY = replace(BYPASSED, minutes=15)
SCHEDULED = Phase(30, scheduled_k=3)
OFF_BY_SCHEDULE = replace(BYPASSED, minutes=50, scheduled_k=0, running=80)

#: A server without counters of speculation, whose exporter was told that it speculates.
PLAIN = replace(BYPASSED, minutes=120, uncounted=True)
#: One of which nobody was told: all states are 0.
NOT_SHOWN = replace(PLAIN, minutes=90, activity="")
#: Every answer is one token long, which needs no draft.
FIRST_TOKENS = replace(BYPASSED, minutes=90, activity="idle")

bypassed = pods((Phase(20), BYPASSED, Phase(40)), (Phase(120),))
bypassed_by_schedule = engines((replace(SCHEDULED, minutes=20), OFF_BY_SCHEDULE, SCHEDULED))

COLLAPSED = Phase(40, acceptance=(0.04, 0.002, 0.0), speedup=1.1)


def nameless() -> World:
    """A server that names neither model nor engine accepts hardly anything."""
    world = World()
    world.engine(COLLAPSED, model="", engine="")
    return world


BYPASSED_CASES: Table = {
    "drafted-again": (bypassed, {48: "", 60: "warning engine @1", 92: "warning engine @1", 100: ""}),
    "bypassed-by-schedule": (bypassed_by_schedule, {69: ""}),
    "a-few-tokens-undrafted": (pods((replace(BYPASSED, minutes=90, plain_tokens=10),)), {89: ""}),
    "undrafted-for-25-minutes": (
        pods((Phase(20), replace(BYPASSED, minutes=25), Phase(40))),
        {45: "", 60: ""},
    ),
    "off-on-purpose-beside-a-replica-that-drafts": (pods((Phase(120),), (PLAIN,)), {118: ""}),
    "configured-and-off-on-all-replicas": (
        models((PLAIN,), (replace(PLAIN, plain_tokens=40, minutes=90),), (replace(PLAIN, plain_tokens=900),)),
        {
            118: [
                "warning engine @1",
                "warning engine model_name=poet @2",
                "warning engine model_name=judge @3",
            ]
        },
    ),
    "undrafted-after-an-idle-hour": (pods((idle(60), SHORTLY)), {74: ""}),
    "activity-that-is-not-shown": (pods((NOT_SHOWN,)), {89: ""}),
    "idle-but-for-first-tokens": (pods((FIRST_TOKENS,)), {89: ""}),
}
COLLAPSED_CASES: Table = {
    # The sum of both methods accepts too little as well, and is not judged.
    "acceptance-of-one-method-of-two-collapsed": (
        ab_test(gaining=1, losing=20),
        {55: "warning model method=eagle3"},
    ),
    "acceptance-collapsed-and-back": (
        pods(*[(Phase(60), COLLAPSED, Phase(80))] * 2),
        {66: "", 78: "warning model", 105: "warning model", 120: ""},
    ),
    "acceptance-collapsed-without-a-name": (nameless, {30: "warning model"}),
    "acceptance-collapsed-for-ten-minutes": (
        pods((Phase(20), *(replace(COLLAPSED, minutes=10), Phase(30)) * 2)),
        silent(20, 99),
    ),
}
COLLAPSED_NEVER: Worlds = {
    "acceptance-collapsed-and-beneficial": pods((replace(COLLAPSED, speedup=1.3, basis="measured"),)),
    "acceptance-collapsed-of-few-drafts": pods((replace(COLLAPSED, drafts=90),)),
}

CASES = (
    *cases("Bypassed", BYPASSED_CASES),
    *cases("Collapsed", COLLAPSED_CASES),
    *never("Collapsed", 39, COLLAPSED_NEVER),
)
