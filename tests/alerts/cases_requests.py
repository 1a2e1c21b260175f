"""Cases of requests.yml: do single requests lose, and what is known of them? `cases_tap` has the tap's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_specdec_exporter.economics.criteria import thresholds_for
from vllm_specdec_exporter.economics.profiles import BUILTIN
from vllm_specdec_exporter.thresholds import Thresholds

from .case import Case
from .per_request import RequestPhase, observe
from .promtool import Check, Expected
from .sweeps import replica
from .world import MODEL, Phase, World, idle

if TYPE_CHECKING:
    from collections.abc import Callable

RUNBOOKS = "https://example.com/vllm-specdec-exporter/runbooks/VLLMSpecDecode"
GRAFANA = "https://grafana.example.com/d/vllm-specdec-requests?from=now-6h"
OF_MODEL = "&var-namespace=chat&var-model_name=meta-llama%2FLlama-3.1-8B-Instruct"
OF_INSTANCE = "&var-instance=10.0.0.1%3A9850"

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


def _model(summary: str, name: str, subject: str = "acceptance", **texts: str) -> Expected:
    return Expected(
        labels={
            "level": "model",
            "model_name": MODEL,
            "namespace": "chat",
            "severity": "warning",
            "subject": subject,
        },
        annotations={
            "summary": summary,
            **texts,
            "runbook_url": f"{RUNBOOKS}{name}.md",
            "dashboard_url": GRAFANA + OF_MODEL,
        },
    )


def of_instance(summary: str, name: str, severity: str, subject: str, **texts: str) -> Expected:
    return Expected(
        labels={
            "instance": "10.0.0.1:9850",
            "job": "vllm-specdec-exporter",
            "level": "instance",
            "namespace": "chat",
            "pod": "vllm-1",
            "severity": severity,
            "subject": subject,
        },
        annotations={
            "summary": summary,
            **texts,
            "runbook_url": f"{RUNBOOKS}{name}.md",
            "dashboard_url": GRAFANA + OF_INSTANCE,
        },
    )


# --- RequestsLose

#: The zones of cheap drafters, which are no bounds of buckets.
NGRAM = thresholds_for(BUILTIN["ngram"], 5, "ngram")
EAGLE = thresholds_for(BUILTIN["eagle3"], 5, "eagle3")
#: An operator's own zones, and what goes by them: 0.45 gains.
OWN = Thresholds().with_values({"disable_acceptance_ratio": 0.4, "break_even_acceptance_ratio": 0.42})


def _lose(
    share: str = "15%",
    model: str = MODEL,
    gain: str = "85%",
    mean: str = ", 65% of all draft tokens are accepted",
    sample: str = "360",
) -> Expected:
    found = _model(
        "A part of the requests loses by speculation.",
        "RequestsLose",
        description=(
            f"{share} of the requests of {model} in chat have lost by speculation over 30 minutes: so few of "
            "their draft tokens were accepted that it does not pay for them, whatever the mean says."
        ),
        action=(
            "Find out which requests lose, by type and temperature, and route them to replicas without "
            "speculation."
        ),
        value=f"{share} lose",
        threshold="10% of the requests",
        sample=f"{sample} requests in 30m",
        context=f"{gain} of the requests gain{mean}",
    )
    if model == MODEL:
        return found
    page = GRAFANA + f"&var-namespace=chat&var-model_name={model}"
    return Expected({**found.labels, "model_name": model}, {**found.annotations, "dashboard_url": page})


LOSE = _lose()

REQUESTS_LOSE = (
    Case(
        "three-requests-of-twenty-lose",
        "RequestsLose",
        "fires",
        built(SOME),
        55,
        (LOSE,),
        (Check(15, "RequestsLose"),),
    ),
    Case(
        "requests-lose-no-more",
        "RequestsLose",
        "recovers",
        built(SOME, replace(WELL, minutes=80)),
        125,
        earlier=(Check(55, "RequestsLose", (LOSE,)),),
    ),
    Case(
        "requests-lose-until-nobody-asks",
        "RequestsLose",
        "recovers",
        built(SOME, RequestPhase(80, {"chat": {0.8: 0.0, 0.35: 0.0}})),
        125,
        earlier=(Check(55, "RequestsLose", (LOSE,)),),
    ),
    Case(
        "requests-lose-though-exporters-restart",
        "RequestsLose",
        "fires",
        built(replace(SOME, minutes=10), *(replace(SOME, minutes=10, restart=True) for _ in range(5))),
        58,
        (_lose(sample="324"),),
    ),
    Case(
        "requests-lose-though-pods-are-new",
        "RequestsLose",
        "fires",
        new_pods,
        68,
        (LOSE,),
        (Check(45, "RequestsLose", (_lose(sample="354"),)),),
    ),
    Case(
        "requests-of-an-adapter-lose",
        "RequestsLose",
        "fires",
        built(SOME, model="poet"),
        55,
        (_lose(model="poet", mean=""),),
    ),
    Case(
        "all-requests-of-n-gram-lose",
        "RequestsLose",
        "fires",
        built(RequestPhase(HOUR, {"chat": {0.0: 6.0}}), thresholds=NGRAM),
        55,
        (_lose("100%", gain="0%"),),
    ),
    Case(
        "one-request-of-eight-loses-in-the-bucket-of-the-limit",
        "RequestsLose",
        "fires",
        built(RequestPhase(HOUR, {"chat": {0.5: 5.28, 0.11: 0.72}}), thresholds=EAGLE),
        55,
        (_lose("12%", gain="88%"),),
    ),
    Case(
        "requests-lose-by-own-zones",
        "RequestsLose",
        "fires",
        built(RequestPhase(HOUR, {"chat": {0.8: 5.1, 0.35: 0.9}}), thresholds=OWN),
        55,
        (LOSE,),
    ),
    Case(
        "requests-near-the-limit-do-not-lose",
        "RequestsLose",
        "silent",
        built(RequestPhase(HOUR, {"chat": {0.5: 3.6, 0.19: 2.4}}), thresholds=EAGLE),
        58,
        topic="other",
    ),
    Case(
        "no-request-of-n-gram-loses",
        "RequestsLose",
        "silent",
        built(RequestPhase(HOUR, {"chat": {0.005: 6.0}}), thresholds=NGRAM),
        58,
        topic="other",
    ),
    Case(
        "requests-gain-by-own-zones",
        "RequestsLose",
        "silent",
        built(RequestPhase(HOUR, {"chat": {0.45: 6.0}}), thresholds=OWN),
        58,
        topic="other",
    ),
    Case("one-request-of-twenty-loses", "RequestsLose", "silent", built(WELL), 58, topic="healthy"),
    Case(
        "all-of-a-few-requests-lose",
        "RequestsLose",
        "silent",
        built(RequestPhase(HOUR, {"chat": {0.2: 0.8}})),
        58,
        topic="low-traffic",
    ),
    Case(
        "all-requests-of-one-replica-of-twelve-lose",
        "RequestsLose",
        "silent",
        one_bad(RequestPhase(HOUR, {"chat": {0.2: 6.0}}), RequestPhase(HOUR, {"chat": {0.8: 6.0}}), 12),
        58,
        topic="one-of-many",
    ),
    Case(
        "requests-lose-for-two-minutes",
        "RequestsLose",
        "silent",
        built(replace(WELL, minutes=40), RequestPhase(2, {"chat": {0.2: 3.0}}), replace(WELL, minutes=20)),
        60,
        earlier=tuple(Check(minute, "RequestsLose") for minute in (45, 50, 55)),
        topic="too-short",
    ),
    Case(
        "requests-above-a-lower-threshold",
        "RequestsLose",
        "silent",
        built(SOME, thresholds=Thresholds(poor_request_acceptance_ratio=0.3)),
        58,
        topic="other",
    ),
    Case(
        "one-exporter-has-requests-below-a-lower-threshold",
        "RequestsLose",
        "fires",
        one_bad(
            RequestPhase(HOUR, {"chat": {0.8: 4.8, 0.2: 1.2}}),
            RequestPhase(HOUR, {"chat": {0.8: 5.4, 0.35: 0.6}}),
            2,
            Thresholds(poor_request_acceptance_ratio=0.3),
        ),
        55,
        (LOSE,),
    ),
    Case(
        "answers-without-a-record-do-not-lose",
        "RequestsLose",
        "silent",
        built(RequestPhase(HOUR, observed={"none": 6.0})),
        58,
        topic="missing-series",
    ),
)

# --- MixedWorkload

MIX = _model(
    "Some requests gain by speculation and some lose, so no mean describes them.",
    "MixedWorkload",
    description=(
        f"40% of the requests of {MODEL} in chat lose by speculation, and 60% gain, over 30 minutes. The "
        "acceptance rate is a mean of both and describes neither."
    ),
    action=(
        "Look in the runbook for the query that names the types that lose; route them to replicas without "
        "speculation, and keep it for the rest."
    ),
    value="40% lose, 60% gain",
    threshold="20% each",
    sample="360 requests in 30m",
    context="65% of all draft tokens are accepted",
)
HALVES = Expected(
    MIX.labels,
    {
        **MIX.annotations,
        "description": MIX.annotations["description"].replace("40%", "50%").replace("60%", "50%"),
        "value": "50% lose, 50% gain",
    },
)

MIXED_WORKLOAD = (
    Case(
        "two-requests-of-five-lose-and-three-gain",
        "MixedWorkload",
        "fires",
        built(MIXED),
        55,
        (MIX,),
        (Check(30, "MixedWorkload"),),
    ),
    Case(
        "requests-of-one-replica-lose-and-of-the-other-gain",
        "MixedWorkload",
        "fires",
        one_bad(RequestPhase(HOUR, {"chat": {0.2: 6.0}}), RequestPhase(HOUR, {"chat": {0.8: 6.0}}), 2),
        55,
        (HALVES,),
    ),
    Case(
        "workload-mixed-no-more",
        "MixedWorkload",
        "recovers",
        built(MIXED, replace(WELL, minutes=2 * HOUR)),
        150,
        earlier=(Check(55, "MixedWorkload", (MIX,)),),
    ),
    Case("nearly-all-requests-gain", "MixedWorkload", "silent", built(WELL), 58, topic="healthy"),
    Case(
        "all-requests-lose",
        "MixedWorkload",
        "silent",
        built(RequestPhase(HOUR, {"chat": {0.2: 6.0}})),
        58,
        topic="other",
    ),
    Case(
        "requests-that-do-not-lose-break-even",
        "MixedWorkload",
        "silent",
        built(RequestPhase(HOUR, {"chat": {0.3: 2.4, 0.6: 3.6}})),
        58,
        topic="other",
    ),
    Case(
        "a-few-mixed-requests",
        "MixedWorkload",
        "silent",
        built(RequestPhase(HOUR, {"chat": {0.82: 0.4, 0.38: 0.4}})),
        58,
        topic="low-traffic",
    ),
    Case(
        "all-requests-of-one-replica-of-ten-lose",
        "MixedWorkload",
        "silent",
        one_bad(RequestPhase(HOUR, {"chat": {0.2: 6.0}}), RequestPhase(HOUR, {"chat": {0.8: 6.0}}), 10),
        58,
        topic="one-of-many",
    ),
)

# --- RequestTypeLoses


def _type(name: str, share: str = "23.08%") -> Expected:
    found = _model(
        "Most requests of one type lose by speculation, though the others do not.",
        "RequestTypeLoses",
        description=(
            f"100% of the requests of type {name} of {MODEL} in chat have lost by speculation for an hour; "
            "most of its other requests have not."
        ),
        action=f"Route requests of type {name} to replicas without speculation.",
        value=f"100% of type {name} lose",
        threshold="50% of a type, and not of the model",
        sample="180 requests of it in 30m",
        context=f"{share} of all requests lose, 65% of all draft tokens are accepted",
    )
    return Expected({**found.labels, "request_type": name}, found.annotations)


SUMMARY = _type("summary")
TWO_TYPES = {**TYPES.requests, "poem": {0.1: 3.0}}

REQUEST_TYPE_LOSES = (
    Case(
        "one-type-loses",
        "RequestTypeLoses",
        "fires",
        built(TYPES),
        80,
        (SUMMARY,),
        (Check(55, "RequestTypeLoses"),),
    ),
    Case(
        "two-types-lose",
        "RequestTypeLoses",
        "fires",
        built(replace(TYPES, requests=TWO_TYPES)),
        80,
        (_type("poem", "37.5%"), _type("summary", "37.5%")),
    ),
    Case(
        "a-type-loses-no-more",
        "RequestTypeLoses",
        "recovers",
        built(TYPES, RequestPhase(4 * HOUR, {"chat": {0.8: 10.0}, "summary": {0.8: 3.0, 0.3: 0.0}})),
        5 * HOUR,
        earlier=(Check(80, "RequestTypeLoses", (SUMMARY,)),),
    ),
    Case(
        "a-type-of-which-a-third-loses",
        "RequestTypeLoses",
        "silent",
        built(RequestPhase(2 * HOUR, {"chat": {0.8: 10.0}, "summary": {0.8: 4.0, 0.3: 2.0}})),
        110,
        topic="healthy",
    ),
    Case(
        "requests-without-a-type-lose",
        "RequestTypeLoses",
        "silent",
        built(RequestPhase(2 * HOUR, {"chat": {0.8: 10.0}, "other": {0.3: 3.0}})),
        110,
        topic="other",
    ),
    Case(
        "all-types-lose",
        "RequestTypeLoses",
        "silent",
        built(RequestPhase(2 * HOUR, {"chat": {0.3: 10.0}, "summary": {0.3: 3.0}})),
        110,
        topic="other",
    ),
    Case(
        "a-few-requests-of-a-type-lose",
        "RequestTypeLoses",
        "silent",
        built(RequestPhase(2 * HOUR, {"chat": {0.8: 10.0}, "summary": {0.3: 0.8}})),
        110,
        topic="low-traffic",
    ),
    Case(
        "a-type-loses-on-one-replica-of-four",
        "RequestTypeLoses",
        "silent",
        one_bad(TYPES, RequestPhase(2 * HOUR, {"chat": {0.8: 10.0}, "summary": {0.8: 3.0}}), 4),
        110,
        topic="one-of-many",
    ),
)

# --- RequestsUnrecorded

UNRECORDED = RequestPhase(2 * HOUR, observed={"none": 2.0, "malformed": 1.0})
RECORDED = RequestPhase(2 * HOUR, {"chat": {0.8: 3.0}})

NO_RECORD = of_instance(
    "Requests are seen, and no answer tells what speculation did for it.",
    "RequestsUnrecorded",
    "info",
    "monitoring",
    description=(
        "The exporter at vllm-1 in chat has seen 180 requests within an hour, and not one answer had a "
        "record of speculation that it can read, though vLLM drafts. Nothing can be said of single requests."
    ),
    action=(
        "Start vLLM (0.29 or newer) with --per-request-spec-decode-metrics summary or detailed; let streams "
        "ask for stream_options.include_usage, or set --tap.ask-for-usage true."
    ),
    value="180 requests in 1h, none with a record",
    threshold="none of 50 requests or more",
)

UNSEEN = (
    Case(
        "no-answer-has-a-record",
        "RequestsUnrecorded",
        "fires",
        one_exporter(UNRECORDED),
        110,
        (NO_RECORD,),
        (Check(40, "RequestsUnrecorded"),),
    ),
    Case(
        "answers-lose-their-records",
        "RequestsUnrecorded",
        "fires",
        one_exporter(RECORDED, UNRECORDED),
        230,
        (NO_RECORD,),
        (Check(200, "RequestsUnrecorded"),),
    ),
    Case(
        "answers-have-records-again",
        "RequestsUnrecorded",
        "recovers",
        one_exporter(UNRECORDED, RECORDED),
        190,
        earlier=(Check(110, "RequestsUnrecorded", (NO_RECORD,)),),
    ),
    Case(
        "answers-have-records", "RequestsUnrecorded", "silent", one_exporter(RECORDED), 110, topic="healthy"
    ),
    Case(
        "some-answers-have-records",
        "RequestsUnrecorded",
        "silent",
        one_exporter(replace(UNRECORDED, requests={"chat": {0.8: 0.1}})),
        110,
        topic="other",
    ),
    Case(
        "nothing-was-drafted-for-them",
        "RequestsUnrecorded",
        "silent",
        one_exporter(replace(UNRECORDED, observed={"none": 2.0, "not_drafted": 1.0})),
        110,
        topic="other",
    ),
    Case(
        "no-record-without-speculation",
        "RequestsUnrecorded",
        "silent",
        one_exporter(UNRECORDED, engine=(replace(ENGINE, minutes=2 * HOUR, drafts=0, activity="off"),)),
        110,
        topic="other",
    ),
    Case(
        "a-few-answers-without-a-record",
        "RequestsUnrecorded",
        "silent",
        one_exporter(replace(UNRECORDED, observed={"none": 0.5})),
        110,
        topic="low-traffic",
    ),
    Case(
        "no-request-at-all",
        "RequestsUnrecorded",
        "silent",
        one_exporter(RequestPhase(2 * HOUR), engine=(idle(2 * HOUR),)),
        110,
        topic="idle",
    ),
)

# --- ObservationsRejected

REJECTING = RequestPhase(HOUR, rejected=2)

REJECTED = of_instance(
    "The exporter goes on rejecting requests that are pushed to it.",
    "ObservationsRejected",
    "info",
    "monitoring",
    description=(
        "The exporter at vllm-1 in chat has rejected 120 pushed requests within an hour, and goes on: they "
        "are missing in all that is said of single requests."
    ),
    action="Read why in the answers that the pushing program gets, and mend what it sends.",
    value="120 rejected in 1h",
)

REJECTIONS = (
    Case(
        "pushed-requests-are-rejected",
        "ObservationsRejected",
        "fires",
        one_exporter(RequestPhase(HOUR), replace(REJECTING, minutes=90)),
        130,
        (REJECTED,),
        (Check(80, "ObservationsRejected"),),
    ),
    Case(
        "pushed-requests-are-taken-again",
        "ObservationsRejected",
        "recovers",
        one_exporter(RequestPhase(HOUR), replace(REJECTING, minutes=90), RequestPhase(HOUR)),
        200,
        earlier=(Check(130, "ObservationsRejected", (REJECTED,)),),
    ),
    Case(
        "pushed-requests-are-taken",
        "ObservationsRejected",
        "silent",
        one_exporter(replace(WELL, minutes=90)),
        85,
        topic="healthy",
    ),
    Case(
        "one-bad-batch-is-rejected",
        "ObservationsRejected",
        "silent",
        one_exporter(RequestPhase(20), RequestPhase(1, rejected=500), RequestPhase(70)),
        60,
        earlier=tuple(Check(minute, "ObservationsRejected") for minute in (25, 35, 45, 55)),
        topic="too-short",
    ),
)

CASES: tuple[Case, ...] = (
    *REQUESTS_LOSE,
    *MIXED_WORKLOAD,
    *REQUEST_TYPE_LOSES,
    *UNSEEN,
    *REJECTIONS,
)
