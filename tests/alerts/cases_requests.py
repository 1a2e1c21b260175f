"""Cases of requests.yml: do single requests lose, and does what looks at them work?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

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


def one_bad(bad: RequestPhase, good: RequestPhase, replicas: int) -> Callable[[], World]:
    """Return the builder of a world in which the first replica sees other requests than the rest."""

    def build() -> World:
        world = World()
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


def _instance(summary: str, name: str, severity: str, subject: str, **texts: str) -> Expected:
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


def _lose(model: str = MODEL, context: str = "15% of the requests lose", sample: str = "360") -> Expected:
    found = _model(
        "A part of the requests loses by speculation.",
        "RequestsLose",
        description=(
            f"A tenth of the requests of {model} in chat had 36.67% of their draft tokens accepted or less "
            "over 30 minutes. By its acceptance, speculation does not pay for such a request, whatever the "
            "mean says."
        ),
        action=(
            "Find out which requests lose, by type and temperature, and route them to replicas without "
            "speculation."
        ),
        value="P10 36.67%",
        threshold="50%",
        sample=f"{sample} requests in 30m",
        context=context,
    )
    if model == MODEL:
        return found
    page = GRAFANA + f"&var-namespace=chat&var-model_name={model}"
    return Expected({**found.labels, "model_name": model}, {**found.annotations, "dashboard_url": page})


WITH_MEAN = "15% of the requests lose, 65% of all draft tokens are accepted"
LOSE = _lose(context=WITH_MEAN)

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
        (_lose(context=WITH_MEAN, sample="324"),),
    ),
    Case(
        "requests-lose-though-pods-are-new",
        "RequestsLose",
        "fires",
        new_pods,
        68,
        (LOSE,),
        (Check(45, "RequestsLose", (_lose(context=WITH_MEAN, sample="354"),)),),
    ),
    Case(
        "requests-of-an-adapter-lose",
        "RequestsLose",
        "fires",
        built(SOME, model="poet"),
        55,
        (_lose("poet"),),
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

# --- TapNotListening

PASSING = RequestPhase(30, passed=20)
#: Another program has the port.
DEAF = RequestPhase(30, passed=0, listening=False)

NOT_LISTENING = _instance(
    "The tap does not listen: clients that are sent to it are refused.",
    "TapNotListening",
    "critical",
    "errors",
    description=(
        "Nobody has been able to connect to the tap of the exporter at vllm-1 in chat for 5 minutes. "
        "Requests that are sent there do not reach vLLM, which may be well and its pod ready."
    ),
    action=(
        "Send the traffic to vLLM's own port; then free the tap's port, or give --tap.listen-address another "
        "one."
    ),
    value="not listening",
)

LISTENING = (
    Case(
        "the-port-of-the-tap-is-taken",
        "TapNotListening",
        "fires",
        one_exporter(PASSING, DEAF),
        38,
        (NOT_LISTENING,),
        (Check(35, "TapNotListening"),),
    ),
    Case(
        "the-port-of-the-tap-is-free-again",
        "TapNotListening",
        "recovers",
        one_exporter(PASSING, DEAF, PASSING),
        75,
        earlier=(Check(40, "TapNotListening", (NOT_LISTENING,)),),
    ),
    Case("the-tap-listens", "TapNotListening", "silent", one_exporter(PASSING), 28, topic="healthy"),
    Case(
        "a-tap-waits-for-its-last-requests",
        "TapNotListening",
        "silent",
        one_exporter(PASSING, replace(DEAF, minutes=3), replace(DEAF, gone=True)),
        40,
        earlier=tuple(Check(minute, "TapNotListening") for minute in range(31, 40)),
        topic="too-short",
    ),
    Case("there-is-no-tap", "TapNotListening", "silent", one_exporter(WELL), 50, topic="other"),
)

# --- TapUpstreamFailing

FAILING = RequestPhase(30, passed=15, failed={"refused": 3, "reset": 1, "timeout": 1})
#: While a model loads nothing answers.
LOADING = RequestPhase(20, passed=0, failed={"refused": 20})

FAILED = _instance(
    "The tap cannot connect to a vLLM that is up: users get errors.",
    "TapUpstreamFailing",
    "critical",
    "errors",
    description=(
        "The tap of the exporter at vllm-1 in chat has failed to connect to vLLM for 25% of its requests "
        "over 5 minutes, and answers them with 502. vLLM itself is up: the exporter reads its metrics."
    ),
    action=(
        "Send the traffic to vLLM's own port; then compare --tap.upstream with the address that vLLM listens "
        "on."
    ),
    value="25% of the requests",
    threshold="5%",
    sample="25 failed to connect in 5m",
)


def another_target_is_down() -> World:
    """One exporter watches two servers, of which one is down: it may be the one behind the tap."""
    world = World()
    target = {"job": "vllm-specdec-exporter", "instance": "10.0.0.1:9850", "namespace": "chat"}
    for name, up in (("a", 1.0), ("b", 0.0)):
        if up:
            world.engine(Phase(HOUR), labels={"target": f"http://{name}:8000"})
        else:
            world.put("vllm_specdec_up", {**target, "target": f"http://{name}:8000"}, 0, [up] * HOUR)
    observe(world, replace(FAILING, minutes=HOUR))
    return world


TAP = (
    Case(
        "one-connection-of-four-fails-though-vllm-is-up",
        "TapUpstreamFailing",
        "fires",
        one_exporter(PASSING, FAILING),
        40,
        (FAILED,),
        (Check(33, "TapUpstreamFailing"),),
    ),
    Case(
        "the-tap-connects-again",
        "TapUpstreamFailing",
        "recovers",
        one_exporter(PASSING, FAILING, replace(PASSING, minutes=40)),
        85,
        earlier=(Check(40, "TapUpstreamFailing", (FAILED,)),),
    ),
    Case(
        "the-tap-fails-while-a-model-loads",
        "TapUpstreamFailing",
        "silent",
        one_exporter(PASSING, LOADING, PASSING, engine=(Phase(30), Phase(20, unreachable=True), Phase(30))),
        60,
        earlier=tuple(Check(minute, "TapUpstreamFailing") for minute in range(31, 60)),
        topic="restart",
    ),
    Case(
        "the-tap-fails-a-minute-before-vllm-is-known-to-be-gone",
        "TapUpstreamFailing",
        "silent",
        one_exporter(
            PASSING,
            replace(LOADING, minutes=40),
            engine=(Phase(31), Phase(39, unreachable=True)),
        ),
        60,
        earlier=tuple(Check(minute, "TapUpstreamFailing") for minute in range(31, 50)),
        topic="restart",
    ),
    Case("the-tap-connects", "TapUpstreamFailing", "silent", one_exporter(PASSING), 28, topic="healthy"),
    Case(
        "one-connection-of-fifty-fails",
        "TapUpstreamFailing",
        "silent",
        one_exporter(replace(FAILING, passed=49, failed={"timeout": 1})),
        28,
        topic="other",
    ),
    Case(
        "one-connection-fails",
        "TapUpstreamFailing",
        "silent",
        one_exporter(replace(PASSING, passed=1), RequestPhase(1, passed=1, failed={"refused": 1}), PASSING),
        37,
        earlier=tuple(Check(minute, "TapUpstreamFailing") for minute in range(31, 37)),
        topic="too-short",
    ),
    Case(
        "the-tap-fails-and-one-of-two-servers-is-down",
        "TapUpstreamFailing",
        "silent",
        another_target_is_down,
        55,
        topic="other",
    ),
)

# --- RequestsUnrecorded

UNRECORDED = RequestPhase(2 * HOUR, observed={"none": 2.0, "malformed": 1.0})
RECORDED = RequestPhase(2 * HOUR, {"chat": {0.8: 3.0}})

NO_RECORD = _instance(
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

REJECTED = _instance(
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
    *LISTENING,
    *TAP,
    *UNSEEN,
    *REJECTIONS,
)
