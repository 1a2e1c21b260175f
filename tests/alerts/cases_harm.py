"""Cases of harm.yml: does speculation hurt users, or does something that it is part of?"""

from collections.abc import Callable
from dataclasses import replace

from vllm_specdec_exporter.economics.cost import Basis

from .case import Table, Worlds, cases, never, silent
from .histories import engines, replica
from .world import MODEL, Phase, World, idle

DAY = 24 * 60

# --- Harmful


def models_that_lose_in_one_cluster_of_two() -> World:
    """The same model loses in cluster a and gains in cluster b."""
    world = World()
    for cluster, index, speedup in (("a", 1, 0.95), ("b", 2, 1.6)):
        replica(world, index, Phase(50, speedup=speedup, basis="measured"), labels={"cluster": cluster})
    return world


def ab_test(gaining: int, losing: int, thin: int = 0, removed: int = 0) -> Callable[[], World]:
    """Return what builds one model with two methods on so many replicas; one collapses, gets thin or ends."""

    def build() -> World:
        world = World()
        for index in range(gaining):
            replica(world, 1 + index, Phase(80, info={"method": "ngram"}, speedup=1.5))
        collapsed = Phase(
            50 - thin - removed, acceptance=(0.02, 0.01, 0.0), speedup=0.7, info={"method": "eagle3"}
        )
        after = replace(collapsed, minutes=thin, drafts=8, speedup=None)
        for index in range(losing):
            replica(world, 11 + index, Phase(30, info={"method": "eagle3"}), collapsed, after)
        return world

    return build


SEVERE = Phase(12, speedup=0.8, running=64)
LOSING = Phase(50, speedup=0.95, running=64)
TICKET = "warning model"
THIN, BUSY = (Phase(20, drafts=8, speedup=None), Phase(12, speedup=0.8, running=64))
GUESSED = {"cost_profile": "unknown"}
SWITCHED_OFF = Phase(
    40, drafts=0, acceptance=(), plain_tokens=1000, speedup=None, activity="off", recommended_k=None
)
UNDECIDED = Phase(60, speedup=None, guess=0.8, interval=(0.6, 1.08), loss=0.94, basis="measured", running=64)

HARMFUL_CASES: Table = {
    "far-slower-than-plain-pages-within-minutes": (
        engines((Phase(30), SEVERE, Phase(30, running=64))),
        {33: "", 40: "critical model", 50: "critical model", 55: ""},
    ),
    "slower-than-plain-for-long-is-a-ticket-for-model-and-engine": (
        engines((Phase(60), LOSING, Phase(90, running=64))),
        {84: "", 107: TICKET, 165: TICKET, 195: ""},
    ),
    "a-page-gives-way-to-a-ticket": (
        engines((Phase(30), replace(SEVERE, minutes=30), LOSING)),
        {55: "critical model", 66: "critical model", 76: TICKET, 109: TICKET},
    ),
    "a-page-that-gives-way-to-a-gain-leaves-no-ticket": (
        engines((Phase(30), replace(SEVERE, minutes=30), Phase(50, running=64))),
        {55: "critical model", 66: "critical model", 72: "", 90: "", 109: ""},
    ),
    # Night: enough drafts in one window of five minutes, and too few in the next.
    "one-page-while-thin-traffic-cannot-tell": (
        engines((Phase(30), SEVERE, *(THIN, BUSY) * 3, Phase(40))),
        {38: "critical model", **dict.fromkeys(range(40, 140, 5), "critical model"), 165: ""},
    ),
    "three-runs-of-ten-minutes-page-once": (
        engines((Phase(60), *(replace(SEVERE, minutes=10), Phase(40, running=64)) * 3)),
        {59: "", 69: "critical model", 90: "", **silent(110, 200)},
    ),
    "three-runs-of-ten-minutes-from-idle": (
        engines((idle(60), *(replace(SEVERE, minutes=10), idle(40)) * 3)),
        silent(60, 200),
    ),
    "a-page-ends-when-speculation-is-off": (
        engines((Phase(30), replace(SEVERE, minutes=20), SWITCHED_OFF)),
        {45: "critical model", 75: ""},
    ),
    # With enough drafts it is not thin traffic that makes it unknown.
    "a-page-ends-when-the-interval-includes-1": (
        engines((Phase(30), replace(SEVERE, minutes=20, basis="measured"), UNDECIDED)),
        {45: "critical model", 58: "critical model", **dict.fromkeys(range(68, 110, 5), "")},
    ),
    **{
        f"no-harm-while-the-interval-includes-1-{basis}": (
            engines((Phase(20), replace(UNDECIDED, minutes=90, basis=basis))),
            silent(20, 109),
        )
        for basis in Basis
    },
    # Its interval touches 1, but hardly anything is accepted.
    "a-probable-loss-pages": (
        engines((Phase(30), replace(UNDECIDED, minutes=30, loss=0.96), Phase(30))),
        {33: "", 40: "critical model", 59: "critical model", 75: ""},
    ),
    "one-method-of-two-collapses": (
        ab_test(gaining=3, losing=1),
        {29: "", 33: "", 39: "critical model method=eagle3", 78: "critical model method=eagle3"},
    ),
    "one-page-while-thin-traffic-of-a-method-cannot-tell": (
        ab_test(gaining=3, losing=1, thin=38),
        dict.fromkeys(range(39, 79), "critical model method=eagle3"),
    ),
    # What is not there any more cannot be thin.
    "a-page-on-a-method-ends-when-it-is-removed": (
        ab_test(gaining=3, losing=1, removed=30),
        {39: "critical model method=eagle3", 49: "critical model method=eagle3", 72: "", 78: ""},
    ),
    # The sum of both loses as well, and is not judged.
    "one-method-of-two-collapses-on-most-replicas": (
        ab_test(gaining=1, losing=8),
        {39: "critical model method=eagle3", 78: "critical model method=eagle3"},
    ),
    "cluster-and-pod-are-named": (models_that_lose_in_one_cluster_of_two, {45: "warning model cluster=a"}),
    "four-minutes-of-harm-are-nobodys-page": (
        engines((Phase(30), Phase(4, speedup=0.3), Phase(40))),
        {34: "", 36: "", 40: "", 70: ""},
    ),
    "minutes-of-harm-before-an-idle-hour-are-no-ticket": (
        engines((idle(30), Phase(4, speedup=0.95), idle(60))),
        {52: "", 55: "", 60: ""},
    ),
    "a-measurement-pages-whatever-the-drafter": (
        engines((Phase(30), Phase(20, speedup=0.8, running=64, basis="measured", info=GUESSED))),
        {42: "critical model"},
    ),
}
HARMFUL_NEVER: Worlds = {
    "harm-of-few-drafts-beside-many-that-are-not-judged": engines(
        (Phase(80, drafts=15, speedup=0.5),), (Phase(80, speedup=None),)
    ),
    "as-fast-as-plain-is-no-harm": engines((Phase(80, speedup=1.0),)),
    "harm-on-a-few-drafts-is-not-judged": engines((Phase(80, drafts=15, speedup=0.5),)),
    "without-a-speedup-there-is-no-harm": engines((Phase(80, acceptance=(0.02, 0.0, 0.0), speedup=None),)),
}

# --- against yesterday

#: Two hours and a half of yesterday, scaled to nothing over night, and today's.
NIGHT = Phase(DAY - 150, gone=True)
SLOWER = Phase(70, speedup=1.2)
#: After a fix there is ten times the traffic, so that the hour behind forgets quickly.
FASTER = Phase(95, drafts=6000)


def _days(world: World, model: str, yesterday: Phase | None, today: Phase, *more: Phase) -> None:
    before = (Phase(DAY, gone=True),) if yesterday is None else (replace(yesterday, minutes=150), NIGHT)
    # Every model has an address of its own.
    address = f"10.0.0.{sum(map(ord, model)) % 200 + 10}:9850" if model != MODEL else "10.0.0.1:9850"
    world.engine(*before, today, *more, model=model, instance=address)


def one_of_ten_regresses() -> World:
    """Models are slower than yesterday, one for 70 minutes; the others cannot be compared."""
    world = World()
    _days(world, MODEL, Phase(1), SLOWER, FASTER)
    _days(
        world,
        "measured",
        Phase(1, speedup=1.4, basis="measured"),
        replace(SLOWER, speedup=1.1, basis="measured"),
    )
    _days(world, "another-k", Phase(1), replace(SLOWER, acceptance=(0.9, 0.7)))
    _days(world, "more-load", Phase(1), replace(SLOWER, running=12))
    _days(world, "few-drafts", Phase(1), replace(SLOWER, drafts=80))
    _days(world, "few-drafts-yesterday", Phase(1, drafts=80), SLOWER)
    _days(world, "new", None, SLOWER)
    _days(world, "measured-today", Phase(1), replace(SLOWER, basis="measured"))
    _days(world, "observed-today", Phase(1), replace(SLOWER, basis="observed"))
    _days(world, "measured-yesterday", Phase(1, basis="measured"), SLOWER)
    _days(world, "another-profile", Phase(1, info={"cost_profile": "eagle3"}), SLOWER)
    _days(world, "hardly-slower", Phase(1), replace(SLOWER, speedup=1.4))
    return world


def regression_under_load() -> World:
    """A model is slower than yesterday for 70 minutes; then its load rises, so that it cannot be compared."""
    world = World()
    _days(world, MODEL, Phase(1, speedup=1.8), SLOWER, replace(SLOWER, minutes=95, running=12))
    return world


SPEEDUP_REGRESSED_CASES: Table = {
    "a-fall-against-yesterday-at-the-same-load-and-k": (
        one_of_ten_regresses,
        {1460: "", 1507: ["warning model", "warning model model_name=measured"], 1595: ""},
    ),
    "a-fall-is-told-though-the-load-has-risen-since": (
        regression_under_load,
        {1507: "warning model", 1580: "warning model"},
    ),
    "without-a-yesterday-there-is-no-fall": (engines((Phase(60), Phase(60, speedup=1.0))), {118: ""}),
}

CASES = (
    *cases("Harmful", HARMFUL_CASES),
    *never("Harmful", 78, HARMFUL_NEVER),
    *cases("SpeedupRegressed", SPEEDUP_REGRESSED_CASES),
)
