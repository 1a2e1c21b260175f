"""Cases of the tap, of requests.yml: can clients connect, does it reach vLLM, does it see what passes?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .case import Case
from .cases_requests import ENGINE, WELL, of_instance, one_exporter
from .per_request import RequestPhase, observe
from .promtool import Check, Expected
from .sweeps import replica
from .world import Phase, World

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR = 60

# --- TapNotListening

PASSING = RequestPhase(30, passed=20)
#: Another program has the port.
DEAF = RequestPhase(30, passed=0, listening=False)

NOT_LISTENING = of_instance(
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

# --- TapDown

TAP_DOWN = of_instance(
    "An exporter with a tap does not answer: clients that are sent to its tap are refused.",
    "TapDown",
    "critical",
    "errors",
    description=(
        "The exporter at vllm-1 in chat has not answered Prometheus for 3 minutes, and it has a tap. Unless "
        "only Prometheus cannot reach it, requests that are sent there do not reach vLLM, which may be well."
    ),
    action=(
        "Send the traffic to vLLM's own port; then look at the exporter's container or unit and its log, and "
        "restart it."
    ),
    value="no answer",
)


def dead(*phases: tuple[int, bool], tap: bool = True, others: int = 1) -> Callable[[], World]:
    """Return the builder of a world with an exporter that comes and goes, and with others that stay.

    Args:
        phases: minutes, and whether it is there.
        tap: whether it has one.
        others: how many others there are, without a tap.
    """

    def build() -> World:
        world = World()
        engine = [replace(ENGINE, minutes=minutes, gone=not there) for minutes, there in phases]
        passed = 20 if tap else None
        requests = tuple(
            RequestPhase(minutes, passed=passed, gone=not there, restart=True) for minutes, there in phases
        )
        replica(world, 1, *engine, requests=requests)
        for index in range(2, 2 + others):
            replica(world, index, Phase(sum(minutes for minutes, _ in phases)))
        return world

    return build


def rollout() -> World:
    """A new pod takes the place of the old one, whose target is gone with it."""
    world = World()
    for index, start in ((1, 0), (2, 30)):
        phase = replace(ENGINE, minutes=30)
        replica(world, index, phase, requests=(PASSING,), start=start)
    return world


def tap_taken_away() -> World:
    """The tap was taken out of the configuration more than six hours before the exporter died."""
    world = World()
    engine = (replace(ENGINE, minutes=400), replace(ENGINE, minutes=30, gone=True))
    replica(world, 1, *engine, requests=(replace(PASSING, minutes=20),))
    replica(world, 2, Phase(430))
    return world


DEAD = (
    Case(
        "an-exporter-with-a-tap-dies",
        "TapDown",
        "fires",
        dead((30, True), (30, False)),
        34,
        (TAP_DOWN,),
        (Check(32, "TapDown"),),
    ),
    Case(
        "the-only-exporter-dies-with-its-tap",
        "TapDown",
        "fires",
        dead((30, True), (30, False), others=0),
        50,
        (TAP_DOWN,),
    ),
    Case(
        "a-tap-is-down-for-hours",
        "TapDown",
        "fires",
        dead((30, True), (6 * HOUR, False)),
        385,
        (TAP_DOWN,),
    ),
    Case(
        "a-tap-is-down-for-longer",
        "TapDown",
        "recovers",
        dead((30, True), (7 * HOUR, False)),
        400,
        earlier=(Check(385, "TapDown", (TAP_DOWN,)),),
    ),
    Case(
        "a-dead-tap-is-back",
        "TapDown",
        "recovers",
        dead((30, True), (2 * HOUR, False), (30, True)),
        170,
        earlier=(Check(140, "TapDown", (TAP_DOWN,)),),
    ),
    Case("an-exporter-with-a-tap-lives", "TapDown", "silent", one_exporter(PASSING), 28, topic="healthy"),
    Case(
        "an-exporter-without-a-tap-dies",
        "TapDown",
        "silent",
        dead((30, True), (30, False), tap=False),
        55,
        topic="other",
    ),
    Case(
        "an-exporter-with-a-tap-restarts",
        "TapDown",
        "silent",
        dead((30, True), (3, False), (20, True)),
        50,
        earlier=tuple(Check(minute, "TapDown") for minute in range(30, 40)),
        topic="restart",
    ),
    Case(
        "a-pod-with-a-tap-ends",
        "TapDown",
        "silent",
        rollout,
        55,
        earlier=tuple(Check(minute, "TapDown") for minute in range(30, 45)),
        topic="restart",
    ),
    Case("the-tap-was-taken-away-before", "TapDown", "silent", tap_taken_away, 425, topic="other"),
)

# --- TapUpstreamFailing

FAILING = RequestPhase(30, passed=15, failed={"refused": 3, "reset": 1, "timeout": 1})
#: While a model loads nothing answers.
LOADING = RequestPhase(20, passed=0, failed={"refused": 20})

FAILED = of_instance(
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

# --- RequestsUnobserved

#: One of four cannot be looked at; what ends early or is refused does not count.
UNOBSERVED = RequestPhase(
    2 * HOUR,
    {"chat": {0.8: 4.5}},
    passed=12,
    unobserved={"encoded": 1.3, "too_large": 0.2, "aborted": 3.0, "refused": 3.0},
)
OBSERVED = RequestPhase(2 * HOUR, {"chat": {0.8: 6.0}}, passed=6)


def _unobserved(share: str = "25%", sample: str = "180") -> Expected:
    return of_instance(
        "Much of what passes through the tap cannot be observed.",
        "RequestsUnobserved",
        "warning",
        "monitoring",
        description=(
            f"The tap of the exporter at vllm-1 in chat could not look at {share} of the requests for text "
            "over 30 minutes. They reached vLLM and were answered; what is said of single requests is of the "
            "others."
        ),
        action=(
            "Look up in the runbook what the reason asks for: most are in how clients ask, or in what stands "
            "in between."
        ),
        value=f"{share} of the requests",
        threshold="20%",
        sample=f"{sample} requests for text in 30m",
    )


PARTLY = _unobserved()
BLIND = (
    Case(
        "one-request-of-four-is-compressed-or-too-large",
        "RequestsUnobserved",
        "fires",
        one_exporter(UNOBSERVED),
        80,
        (PARTLY,),
        (Check(30, "RequestsUnobserved"),),
    ),
    Case(
        "no-request-can-be-followed",
        "RequestsUnobserved",
        "fires",
        one_exporter(RequestPhase(2 * HOUR, passed=6, unobserved={"connection": 6.0})),
        110,
        (_unobserved("100%"),),
    ),
    Case(
        "requests-can-be-observed-again",
        "RequestsUnobserved",
        "recovers",
        one_exporter(UNOBSERVED, OBSERVED),
        230,
        earlier=(Check(110, "RequestsUnobserved", (PARTLY,)),),
    ),
    Case(
        "all-requests-are-observed",
        "RequestsUnobserved",
        "silent",
        one_exporter(OBSERVED),
        110,
        topic="healthy",
    ),
    Case(
        "most-requests-are-aborted-or-refused",
        "RequestsUnobserved",
        "silent",
        one_exporter(replace(OBSERVED, unobserved={"aborted": 20.0, "refused": 20.0})),
        110,
        topic="other",
    ),
    Case(
        "one-request-of-ten-is-unobserved",
        "RequestsUnobserved",
        "silent",
        one_exporter(replace(OBSERVED, unobserved={"busy": 0.6})),
        110,
        topic="other",
    ),
    Case(
        "a-few-requests-are-unobserved",
        "RequestsUnobserved",
        "silent",
        one_exporter(RequestPhase(2 * HOUR, passed=1, unobserved={"malformed": 1.0})),
        110,
        topic="low-traffic",
    ),
    Case(
        "requests-are-unobserved-for-ten-minutes",
        "RequestsUnobserved",
        "silent",
        one_exporter(
            replace(OBSERVED, minutes=40),
            RequestPhase(10, passed=6, unobserved={"encoded": 3.0}, requests={"chat": {0.8: 3.0}}),
            replace(OBSERVED, minutes=70),
        ),
        115,
        earlier=tuple(Check(minute, "RequestsUnobserved") for minute in (50, 60, 70, 80, 90)),
        topic="too-short",
    ),
    Case(
        "pushed-requests-need-no-tap",
        "RequestsUnobserved",
        "silent",
        one_exporter(RequestPhase(2 * HOUR, {"chat": {0.8: 6.0}})),
        110,
        topic="other",
    ),
)

# --- TapDefect

DEFECT = of_instance(
    "The tap has a defect, by which it cannot observe some requests.",
    "TapDefect",
    "warning",
    "monitoring",
    description=(
        "The tap of the exporter at vllm-1 in chat could not look at what passed, because of a defect of its "
        "own. Requests within an hour of which nothing is known, though they passed: 1."
    ),
    action=(
        'Take "a request could not be observed" from the exporter\'s log, which says where, and report it.'
    ),
    value="1 in 1h",
)
ONCE = (
    replace(OBSERVED, minutes=30),
    replace(OBSERVED, minutes=1, unobserved={"internal": 1.0}),
    replace(OBSERVED, minutes=3 * HOUR),
)

DEFECTS = (
    Case(
        "a-single-request-meets-a-defect",
        "TapDefect",
        "fires",
        one_exporter(*ONCE),
        70,
        (DEFECT,),
        (Check(30, "TapDefect"),),
    ),
    Case(
        "no-request-meets-the-defect-again",
        "TapDefect",
        "recovers",
        one_exporter(*ONCE),
        170,
        earlier=(Check(70, "TapDefect", (DEFECT,)),),
    ),
    Case(
        "what-else-cannot-be-observed-is-no-defect",
        "TapDefect",
        "silent",
        one_exporter(UNOBSERVED),
        110,
        topic="healthy",
    ),
)

CASES: tuple[Case, ...] = (*LISTENING, *DEAD, *TAP, *BLIND, *DEFECTS)
