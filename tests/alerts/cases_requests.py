"""Cases of requests.yml: do single requests lose, and what is known of them?

`cases_tap` has the tap's.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from vllm_specdec_exporter.config.thresholds import Thresholds

from .case import Table, Worlds, cases, never
from .histories import replica
from .per_request import RequestPhase, observe
from .world import MODEL, Phase, World, idle

HOUR = 60
#: Accepts 65 % of its draft tokens, as a mean.
ENGINE = Phase(HOUR, acceptance=(0.8, 0.65, 0.5))
#: Of a tenth of them less than a tenth loses.
WELL = RequestPhase(HOUR, {"chat": {0.8: 5.7, 0.35: 0.3}})
#: Three of twenty lose.
SOME = RequestPhase(HOUR, {"chat": {0.8: 5.1, 0.35: 0.9}})
LOSING = RequestPhase(HOUR, {"chat": {0.2: 6.0}})
GAINING = RequestPhase(HOUR, {"chat": {0.8: 6.0}})


def built(
    *lives: Sequence[RequestPhase],
    thresholds: Thresholds | None = None,
    model: str = MODEL,
) -> Callable[[], World]:
    """Return what builds a replica for the requests that each sees, in this order."""

    def build() -> World:
        world = World(thresholds or Thresholds())
        for index, life in enumerate(lives, 1):
            replica(
                world,
                index,
                replace(ENGINE, minutes=sum(phase.minutes for phase in life)),
            )
            pod = {"pod": f"vllm-{index}"}
            observe(
                world, *life, instance=f"10.0.0.{index}:9850", labels=pod, model=model
            )
        return world

    return build


def both(*life: RequestPhase, model: str = MODEL) -> Callable[[], World]:
    """Return what builds two replicas that see the same requests."""
    return built(life, life, model=model)


def one_exporter(
    *phases: RequestPhase, engine: Sequence[Phase] = ()
) -> Callable[[], World]:
    """Return what builds one replica."""

    def build() -> World:
        world = World()
        minutes = sum(phase.minutes for phase in phases)
        replica(
            world, 1, *(engine or (replace(ENGINE, minutes=minutes),)), requests=phases
        )
        return world

    return build


def new_pods() -> World:
    """New pods take the place of the old ones at minute 30, and as many requests lose
    as before.
    """
    world = World()
    for index in (1, 2):
        for number, minutes, start in ((index, 30, 0), (10 + index, 40, 30)):
            requests = (replace(SOME, minutes=minutes),)
            replica(
                world,
                number,
                replace(ENGINE, minutes=minutes),
                requests=requests,
                start=start,
            )
    return world


# --- RequestsLose; `test_requests_agree` has its limits

NOBODY_ASKS = RequestPhase(80, {"chat": {0.8: 0.0, 0.35: 0.0}})
RESTARTING = (replace(SOME, minutes=10), *[replace(SOME, minutes=10, restart=True)] * 5)
FOR_TWO_MINUTES = (
    replace(WELL, minutes=40),
    RequestPhase(2, {"chat": {0.2: 3.0}}),
    replace(WELL, minutes=20),
)
#: Of two exporters only one has a tenth of requests below the threshold on poor
#: requests.
LOWER = Thresholds(poor_request_acceptance_ratio=0.3)
BELOW_LOWER = RequestPhase(HOUR, {"chat": {0.8: 4.8, 0.2: 1.2}})
NOT_BELOW = RequestPhase(HOUR, {"chat": {0.8: 5.4, 0.35: 0.6}})

REQUESTS_LOSE_CASES: Table = {
    "requests-lose-no-more": (
        both(SOME, replace(WELL, minutes=80)),
        {15: "", 55: "warning model", 125: ""},
    ),
    "requests-lose-until-nobody-asks": (
        both(SOME, NOBODY_ASKS),
        {55: "warning model", 125: ""},
    ),
    "requests-lose-though-exporters-restart": (
        both(*RESTARTING),
        {58: "warning model"},
    ),
    "requests-lose-though-pods-are-new": (
        new_pods,
        {45: "warning model", 68: "warning model"},
    ),
    "requests-of-an-adapter-lose": (
        both(SOME, model="poet"),
        {55: "warning model model_name=poet"},
    ),
    "requests-lose-for-two-minutes": (
        both(*FOR_TWO_MINUTES),
        {45: "", 50: "", 55: "", 60: ""},
    ),
    "one-exporter-has-requests-below-a-lower-threshold": (
        built((BELOW_LOWER,), (NOT_BELOW,), thresholds=LOWER),
        {55: "warning model"},
    ),
}
REQUESTS_LOSE_NEVER: Worlds = {
    "one-request-of-twenty-loses": both(WELL),
    "all-of-a-few-requests-lose": both(RequestPhase(HOUR, {"chat": {0.2: 0.8}})),
    "all-requests-of-one-replica-of-twelve-lose": built((LOSING,), *[(GAINING,)] * 11),
    "answers-without-a-record-do-not-lose": both(
        RequestPhase(HOUR, observed={"none": 6.0})
    ),
}

# --- RequestsUnobserved

UNRECORDED = RequestPhase(2 * HOUR, observed={"none": 2.0, "malformed": 1.0})
RECORDED = RequestPhase(2 * HOUR, {"chat": {0.8: 3.0}})
OFF = replace(ENGINE, minutes=2 * HOUR, drafts=0, activity="off")

REQUESTS_UNOBSERVED_CASES: Table = {
    "no-answer-has-a-record-until-they-have-again": (
        one_exporter(UNRECORDED, RECORDED),
        {40: "", 110: "info instance reason=no_record @1", 190: ""},
    ),
    "four-answers-a-minute-without-a-record": (
        one_exporter(replace(UNRECORDED, observed={"none": 4.0})),
        {110: "info instance reason=no_record @1"},
    ),
    "ten-answers-a-minute-without-a-record": (
        one_exporter(replace(UNRECORDED, observed={"none": 4.0, "malformed": 6.0})),
        {110: "info instance reason=no_record @1"},
    ),
    "answers-lose-their-records": (
        one_exporter(RECORDED, UNRECORDED),
        {200: "", 230: "info instance reason=no_record @1"},
    ),
}
REQUESTS_UNOBSERVED_NEVER: Worlds = {
    "some-answers-have-records": one_exporter(
        replace(UNRECORDED, requests={"chat": {0.8: 0.1}})
    ),
    "nothing-was-drafted-for-them": one_exporter(
        replace(UNRECORDED, observed={"none": 2.0, "not_drafted": 1.0})
    ),
    "no-record-without-speculation": one_exporter(UNRECORDED, engine=(OFF,)),
    "a-few-answers-without-a-record": one_exporter(
        replace(UNRECORDED, observed={"none": 0.5})
    ),
    "no-request-at-all": one_exporter(RequestPhase(2 * HOUR), engine=(idle(2 * HOUR),)),
}

# --- pushed requests

REQUESTS_UNOBSERVED_CASES_REJECTIONS: Table = {
    "pushed-requests-are-rejected-and-taken-again": (
        one_exporter(
            RequestPhase(HOUR), RequestPhase(90, rejected=2), RequestPhase(HOUR)
        ),
        {80: "", 130: "info instance reason=push_rejected @1", 200: ""},
    ),
    **{
        f"pushed-requests-are-rejected-{rejected}-a-minute": (
            one_exporter(RequestPhase(HOUR), RequestPhase(90, rejected=rejected)),
            {130: "info instance reason=push_rejected @1"},
        )
        for rejected in (3, 5)
    },
    "pushed-requests-are-taken": (one_exporter(replace(WELL, minutes=90)), {85: ""}),
    "one-bad-batch-is-rejected": (
        one_exporter(RequestPhase(20), RequestPhase(1, rejected=500), RequestPhase(70)),
        {25: "", 35: "", 45: "", 55: "", 60: ""},
    ),
}

CASES = (
    *cases("RequestsLose", REQUESTS_LOSE_CASES),
    *never("RequestsLose", 58, REQUESTS_LOSE_NEVER),
    *cases("RequestsUnobserved", REQUESTS_UNOBSERVED_CASES),
    *never("RequestsUnobserved", 110, REQUESTS_UNOBSERVED_NEVER),
    *cases("RequestsUnobserved", REQUESTS_UNOBSERVED_CASES_REJECTIONS),
)
