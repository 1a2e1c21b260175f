"""Cases of harm.yml and activity.yml whose worlds take more than lives of engines."""

from collections.abc import Callable
from dataclasses import replace

from vllm_specdec_exporter.economics.cost import Basis

from .case import Table, cases, silent
from .histories import engines, replica
from .world import MODEL, Phase, World

DAY = 24 * 60

# --- Harmful


def models_that_lose_in_one_cluster_of_two() -> World:
    """The same model loses in cluster a and gains in cluster b."""
    world = World()
    for cluster, index, speedup in (("a", 1, 0.95), ("b", 2, 1.6)):
        replica(
            world,
            index,
            Phase(50, speedup=speedup, basis="measured"),
            labels={"cluster": cluster},
        )
    return world


def nameless() -> World:
    """A server that names neither model nor engine accepts hardly anything."""
    world = World()
    world.engine(
        Phase(40, acceptance=(0.04, 0.002, 0.0), speedup=1.1), model="", engine=""
    )
    return world


def ab_test(
    gaining: int, losing: int, thin: int = 0, removed: int = 0
) -> Callable[[], World]:
    """Return what builds one model with two methods on so many replicas; one collapses,
    gets thin or ends.
    """

    def build() -> World:
        world = World()
        for index in range(gaining):
            replica(world, 1 + index, Phase(80, info={"method": "ngram"}, speedup=1.5))
        collapsed = Phase(
            50 - thin - removed,
            acceptance=(0.02, 0.01, 0.0),
            speedup=0.7,
            info={"method": "eagle3"},
        )
        after = replace(collapsed, minutes=thin, drafts=8, speedup=None)
        for index in range(losing):
            replica(
                world,
                11 + index,
                Phase(30, info={"method": "eagle3"}),
                collapsed,
                after,
            )
        return world

    return build


UNDECIDED = Phase(
    90, speedup=None, guess=0.8, interval=(0.6, 1.08), loss=0.94, running=64
)

HARMFUL_CASES: Table = {
    **{
        f"no-harm-while-the-interval-includes-1-{basis}": (
            engines((Phase(20), replace(UNDECIDED, basis=basis))),
            silent(20, 109),
        )
        for basis in Basis
    },
    "one-method-of-two-collapses": (
        ab_test(gaining=3, losing=1),
        {
            29: "",
            33: "",
            39: "critical model method=eagle3",
            78: "critical model method=eagle3",
        },
    ),
    "one-page-while-thin-traffic-of-a-method-cannot-tell": (
        ab_test(gaining=3, losing=1, thin=38),
        dict.fromkeys(range(39, 79), "critical model method=eagle3"),
    ),
    # What is not there any more cannot be thin.
    "a-page-on-a-method-ends-when-it-is-removed": (
        ab_test(gaining=3, losing=1, removed=30),
        {
            39: "critical model method=eagle3",
            49: "critical model method=eagle3",
            72: "",
            78: "",
        },
    ),
    # The sum of both loses as well, and is not judged.
    "one-method-of-two-collapses-on-most-replicas": (
        ab_test(gaining=1, losing=8),
        {39: "critical model method=eagle3", 78: "critical model method=eagle3"},
    ),
    "cluster-and-pod-are-named": (
        models_that_lose_in_one_cluster_of_two,
        {45: "warning model cluster=a"},
    ),
}
COLLAPSED_CASES: Table = {
    # The sum of both methods accepts too little as well, and is not judged.
    "acceptance-of-one-method-of-two-collapsed": (
        ab_test(gaining=1, losing=20),
        {55: "warning model method=eagle3"},
    ),
    "acceptance-collapsed-without-a-name": (nameless, {30: "warning model"}),
}

# --- against yesterday

#: Two hours and a half of yesterday, scaled to nothing over night, and today's.
NIGHT = Phase(DAY - 150, gone=True)
SLOWER = Phase(70, speedup=1.2)
#: After a fix there is ten times the traffic, so that the hour behind forgets quickly.
FASTER = Phase(95, drafts=6000)


def _days(
    world: World, model: str, yesterday: Phase | None, today: Phase, *more: Phase
) -> None:
    if yesterday is None:
        before = (Phase(DAY, gone=True),)
    else:
        before = (replace(yesterday, minutes=150), NIGHT)
    # Every model has an address of its own.
    if model != MODEL:
        address = f"10.0.0.{sum(map(ord, model)) % 200 + 10}:9850"
    else:
        address = "10.0.0.1:9850"
    world.engine(*before, today, *more, model=model, instance=address)


def one_of_ten_regresses() -> World:
    """Models are slower than yesterday, one for 70 minutes; the others cannot be
    compared.
    """
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
    """A model is slower than yesterday for 70 minutes; then its load rises, so that it
    cannot be compared.
    """
    world = World()
    _days(
        world,
        MODEL,
        Phase(1, speedup=1.8),
        SLOWER,
        replace(SLOWER, minutes=95, running=12),
    )
    return world


SPEEDUP_REGRESSED_CASES: Table = {
    "a-fall-against-yesterday-at-the-same-load-and-k": (
        one_of_ten_regresses,
        {
            1460: "",
            1507: ["warning model", "warning model model_name=measured"],
            1595: "",
        },
    ),
    "a-fall-is-told-though-the-load-has-risen-since": (
        regression_under_load,
        {1507: "warning model", 1580: "warning model"},
    ),
}

CASES = (
    *cases("Harmful", HARMFUL_CASES),
    *cases("Collapsed", COLLAPSED_CASES),
    *cases("SpeedupRegressed", SPEEDUP_REGRESSED_CASES),
)
