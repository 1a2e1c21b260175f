"""Cases of requests.yml: do single requests lose, and what is known of them? `cases_tap` has the tap's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_specdec_exporter.economics.criteria import thresholds_for
from vllm_specdec_exporter.economics.profiles import BUILTIN
from vllm_specdec_exporter.thresholds import Thresholds

from .case import Case
from .per_request import RequestPhase, observe
from .sweeps import replica
from .world import MODEL, Phase, World, idle

if TYPE_CHECKING:
    from collections.abc import Callable


HOUR = 60
#: Accepts 65 % of its draft tokens, as a mean.
ENGINE = Phase(HOUR, acceptance=(0.8, 0.65, 0.5))
#: Of a tenth of them less than a tenth loses.
WELL = RequestPhase(HOUR, {"chat": {0.8: 5.7, 0.35: 0.3}})
#: Three of twenty lose.
SOME = RequestPhase(HOUR, {"chat": {0.8: 5.1, 0.35: 0.9}})
#: What a mean of 65 % can be made of.
MIXED = RequestPhase(HOUR, {"chat": {0.82: 3.6, 0.38: 2.4}})
#: One type loses, which is less than a quarter of the requests.
TYPES = RequestPhase(2 * HOUR, {"chat": {0.8: 10.0}, "summary": {0.3: 3.0}})


def built(
    *phases: RequestPhase,
    replicas: int = 2,
    engine: Phase = ENGINE,
    thresholds: Thresholds | None = None,
    model: str = MODEL,
) -> Callable[[], World]:
    """Return the builder of a world in which every replica sees the same requests."""

    def build() -> World:
        world = World(thresholds or Thresholds())
        for index in range(1, replicas + 1):
            _add(world, index, *phases, engine=engine, model=model)
        return world

    return build


def _add(world: World, index: int, *phases: RequestPhase, engine: Phase = ENGINE, model: str = MODEL) -> None:
    """Add a replica whose engine is there for as long as its requests."""
    replica(world, index, replace(engine, minutes=sum(phase.minutes for phase in phases)))
    observe(world, *phases, instance=f"10.0.0.{index}:9850", labels={"pod": f"vllm-{index}"}, model=model)


def one_bad(
    bad: RequestPhase, good: RequestPhase, replicas: int, thresholds: Thresholds | None = None
) -> Callable[[], World]:
    """Return the builder of a world in which the first replica sees other requests than the rest."""

    def build() -> World:
        world = World(thresholds or Thresholds())
        for index in range(1, replicas + 1):
            _add(world, index, bad if index == 1 else good)
        return world

    return build


def one_exporter(*phases: RequestPhase, engine: tuple[Phase, ...] = ()) -> Callable[[], World]:
    """Return the builder of a world with one replica."""

    def build() -> World:
        world = World()
        minutes = sum(phase.minutes for phase in phases)
        replica(world, 1, *(engine or (replace(ENGINE, minutes=minutes),)), requests=phases)
        return world

    return build


def new_pods() -> World:
    """New pods take the place of the old ones at minute 30, and as many requests lose as before."""
    world = World()
    for index in (1, 2):
        _add(world, index, replace(SOME, minutes=30))
        later = replace(SOME, minutes=40)
        replica(world, 10 + index, replace(ENGINE, minutes=40), requests=(later,), start=30)
    return world


# --- RequestsLose

#: The zones of cheap drafters, which are no bounds of buckets.
NGRAM = thresholds_for(BUILTIN["ngram"], 5, "ngram")
EAGLE = thresholds_for(BUILTIN["eagle3"], 5, "eagle3")
#: An operator's own zones, and what goes by them: 0.45 gains.
OWN = Thresholds().with_values({"disable_acceptance_ratio": 0.4, "break_even_acceptance_ratio": 0.42})


REQUESTS_LOSE = (
    Case("three-requests-of-twenty-lose", "RequestsLose", built(SOME), {15: "", 55: "warning model"}),
    Case(
        "requests-lose-no-more",
        "RequestsLose",
        built(SOME, replace(WELL, minutes=80)),
        {55: "warning model", 125: ""},
    ),
    Case(
        "requests-lose-until-nobody-asks",
        "RequestsLose",
        built(SOME, RequestPhase(80, {"chat": {0.8: 0.0, 0.35: 0.0}})),
        {55: "warning model", 125: ""},
    ),
    Case(
        "requests-lose-though-exporters-restart",
        "RequestsLose",
        built(replace(SOME, minutes=10), *(replace(SOME, minutes=10, restart=True) for _ in range(5))),
        {58: "warning model"},
    ),
    Case(
        "requests-lose-though-pods-are-new",
        "RequestsLose",
        new_pods,
        {45: "warning model", 68: "warning model"},
    ),
    Case(
        "requests-of-an-adapter-lose",
        "RequestsLose",
        built(SOME, model="poet"),
        {55: "warning model model_name=poet"},
    ),
    Case(
        "all-requests-of-n-gram-lose",
        "RequestsLose",
        built(RequestPhase(HOUR, {"chat": {0.0: 6.0}}), thresholds=NGRAM),
        {55: "warning model"},
    ),
    Case(
        "one-request-of-eight-loses-in-the-bucket-of-the-limit",
        "RequestsLose",
        built(RequestPhase(HOUR, {"chat": {0.5: 5.28, 0.11: 0.72}}), thresholds=EAGLE),
        {55: "warning model"},
    ),
    Case(
        "requests-lose-by-own-zones",
        "RequestsLose",
        built(RequestPhase(HOUR, {"chat": {0.8: 5.1, 0.35: 0.9}}), thresholds=OWN),
        {55: "warning model"},
    ),
    Case(
        "requests-near-the-limit-do-not-lose",
        "RequestsLose",
        built(RequestPhase(HOUR, {"chat": {0.5: 3.6, 0.19: 2.4}}), thresholds=EAGLE),
        {58: ""},
    ),
    Case(
        "no-request-of-n-gram-loses",
        "RequestsLose",
        built(RequestPhase(HOUR, {"chat": {0.005: 6.0}}), thresholds=NGRAM),
        {58: ""},
    ),
    Case(
        "requests-gain-by-own-zones",
        "RequestsLose",
        built(RequestPhase(HOUR, {"chat": {0.45: 6.0}}), thresholds=OWN),
        {58: ""},
    ),
    Case("one-request-of-twenty-loses", "RequestsLose", built(WELL), {58: ""}),
    Case(
        "all-of-a-few-requests-lose",
        "RequestsLose",
        built(RequestPhase(HOUR, {"chat": {0.2: 0.8}})),
        {58: ""},
    ),
    Case(
        "all-requests-of-one-replica-of-twelve-lose",
        "RequestsLose",
        one_bad(RequestPhase(HOUR, {"chat": {0.2: 6.0}}), RequestPhase(HOUR, {"chat": {0.8: 6.0}}), 12),
        {58: ""},
    ),
    Case(
        "requests-lose-for-two-minutes",
        "RequestsLose",
        built(replace(WELL, minutes=40), RequestPhase(2, {"chat": {0.2: 3.0}}), replace(WELL, minutes=20)),
        {45: "", 50: "", 55: "", 60: ""},
    ),
    Case(
        "requests-above-a-lower-threshold",
        "RequestsLose",
        built(SOME, thresholds=Thresholds(poor_request_acceptance_ratio=0.3)),
        {58: ""},
    ),
    Case(
        "one-exporter-has-requests-below-a-lower-threshold",
        "RequestsLose",
        one_bad(
            RequestPhase(HOUR, {"chat": {0.8: 4.8, 0.2: 1.2}}),
            RequestPhase(HOUR, {"chat": {0.8: 5.4, 0.35: 0.6}}),
            2,
            Thresholds(poor_request_acceptance_ratio=0.3),
        ),
        {55: "warning model"},
    ),
    Case(
        "answers-without-a-record-do-not-lose",
        "RequestsLose",
        built(RequestPhase(HOUR, observed={"none": 6.0})),
        {58: ""},
    ),
)

# --- MixedWorkload


MIXED_WORKLOAD = (
    Case(
        "two-requests-of-five-lose-and-three-gain",
        "MixedWorkload",
        built(MIXED),
        {30: "", 55: "warning model"},
    ),
    Case(
        "requests-of-one-replica-lose-and-of-the-other-gain",
        "MixedWorkload",
        one_bad(RequestPhase(HOUR, {"chat": {0.2: 6.0}}), RequestPhase(HOUR, {"chat": {0.8: 6.0}}), 2),
        {55: "warning model"},
    ),
    Case(
        "workload-mixed-no-more",
        "MixedWorkload",
        built(MIXED, replace(WELL, minutes=2 * HOUR)),
        {55: "warning model", 150: ""},
    ),
    Case("nearly-all-requests-gain", "MixedWorkload", built(WELL), {58: ""}),
    Case("all-requests-lose", "MixedWorkload", built(RequestPhase(HOUR, {"chat": {0.2: 6.0}})), {58: ""}),
    Case(
        "requests-that-do-not-lose-break-even",
        "MixedWorkload",
        built(RequestPhase(HOUR, {"chat": {0.3: 2.4, 0.6: 3.6}})),
        {58: ""},
    ),
    Case(
        "a-few-mixed-requests",
        "MixedWorkload",
        built(RequestPhase(HOUR, {"chat": {0.82: 0.4, 0.38: 0.4}})),
        {58: ""},
    ),
    Case(
        "all-requests-of-one-replica-of-ten-lose",
        "MixedWorkload",
        one_bad(RequestPhase(HOUR, {"chat": {0.2: 6.0}}), RequestPhase(HOUR, {"chat": {0.8: 6.0}}), 10),
        {58: ""},
    ),
)

# --- RequestTypeLoses


TWO_TYPES = {**TYPES.requests, "poem": {0.1: 3.0}}

REQUEST_TYPE_LOSES = (
    Case(
        "one-type-loses", "RequestTypeLoses", built(TYPES), {55: "", 80: "warning model request_type=summary"}
    ),
    Case(
        "two-types-lose",
        "RequestTypeLoses",
        built(replace(TYPES, requests=TWO_TYPES)),
        {80: ["warning model request_type=poem", "warning model request_type=summary"]},
    ),
    Case(
        "a-type-loses-no-more",
        "RequestTypeLoses",
        built(TYPES, RequestPhase(4 * HOUR, {"chat": {0.8: 10.0}, "summary": {0.8: 3.0, 0.3: 0.0}})),
        {80: "warning model request_type=summary", 300: ""},
    ),
    Case(
        "a-type-of-which-a-third-loses",
        "RequestTypeLoses",
        built(RequestPhase(2 * HOUR, {"chat": {0.8: 10.0}, "summary": {0.8: 4.0, 0.3: 2.0}})),
        {110: ""},
    ),
    Case(
        "requests-without-a-type-lose",
        "RequestTypeLoses",
        built(RequestPhase(2 * HOUR, {"chat": {0.8: 10.0}, "other": {0.3: 3.0}})),
        {110: ""},
    ),
    Case(
        "all-types-lose",
        "RequestTypeLoses",
        built(RequestPhase(2 * HOUR, {"chat": {0.3: 10.0}, "summary": {0.3: 3.0}})),
        {110: ""},
    ),
    Case(
        "a-few-requests-of-a-type-lose",
        "RequestTypeLoses",
        built(RequestPhase(2 * HOUR, {"chat": {0.8: 10.0}, "summary": {0.3: 0.8}})),
        {110: ""},
    ),
    Case(
        "a-type-loses-on-one-replica-of-four",
        "RequestTypeLoses",
        one_bad(TYPES, RequestPhase(2 * HOUR, {"chat": {0.8: 10.0}, "summary": {0.8: 3.0}}), 4),
        {110: ""},
    ),
)

# --- RequestsUnrecorded

UNRECORDED = RequestPhase(2 * HOUR, observed={"none": 2.0, "malformed": 1.0})
RECORDED = RequestPhase(2 * HOUR, {"chat": {0.8: 3.0}})


UNSEEN = (
    Case(
        "no-answer-has-a-record",
        "RequestsUnrecorded",
        one_exporter(UNRECORDED),
        {40: "", 110: "info instance @1"},
    ),
    Case(
        "answers-lose-their-records",
        "RequestsUnrecorded",
        one_exporter(RECORDED, UNRECORDED),
        {200: "", 230: "info instance @1"},
    ),
    Case(
        "answers-have-records-again",
        "RequestsUnrecorded",
        one_exporter(UNRECORDED, RECORDED),
        {110: "info instance @1", 190: ""},
    ),
    Case("answers-have-records", "RequestsUnrecorded", one_exporter(RECORDED), {110: ""}),
    Case(
        "some-answers-have-records",
        "RequestsUnrecorded",
        one_exporter(replace(UNRECORDED, requests={"chat": {0.8: 0.1}})),
        {110: ""},
    ),
    Case(
        "nothing-was-drafted-for-them",
        "RequestsUnrecorded",
        one_exporter(replace(UNRECORDED, observed={"none": 2.0, "not_drafted": 1.0})),
        {110: ""},
    ),
    Case(
        "no-record-without-speculation",
        "RequestsUnrecorded",
        one_exporter(UNRECORDED, engine=(replace(ENGINE, minutes=2 * HOUR, drafts=0, activity="off"),)),
        {110: ""},
    ),
    Case(
        "a-few-answers-without-a-record",
        "RequestsUnrecorded",
        one_exporter(replace(UNRECORDED, observed={"none": 0.5})),
        {110: ""},
    ),
    Case(
        "no-request-at-all",
        "RequestsUnrecorded",
        one_exporter(RequestPhase(2 * HOUR), engine=(idle(2 * HOUR),)),
        {110: ""},
    ),
)

# --- ObservationsRejected

REJECTING = RequestPhase(HOUR, rejected=2)


REJECTIONS = (
    Case(
        "pushed-requests-are-rejected",
        "ObservationsRejected",
        one_exporter(RequestPhase(HOUR), replace(REJECTING, minutes=90)),
        {80: "", 130: "info instance @1"},
    ),
    Case(
        "pushed-requests-are-taken-again",
        "ObservationsRejected",
        one_exporter(RequestPhase(HOUR), replace(REJECTING, minutes=90), RequestPhase(HOUR)),
        {130: "info instance @1", 200: ""},
    ),
    Case(
        "pushed-requests-are-taken", "ObservationsRejected", one_exporter(replace(WELL, minutes=90)), {85: ""}
    ),
    Case(
        "one-bad-batch-is-rejected",
        "ObservationsRejected",
        one_exporter(RequestPhase(20), RequestPhase(1, rejected=500), RequestPhase(70)),
        {25: "", 35: "", 45: "", 55: "", 60: ""},
    ),
)

CASES: tuple[Case, ...] = (
    *REQUESTS_LOSE,
    *MIXED_WORKLOAD,
    *REQUEST_TYPE_LOSES,
    *UNSEEN,
    *REJECTIONS,
)
