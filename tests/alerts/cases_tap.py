"""Cases of the tap, of requests.yml: can clients connect, does it reach vLLM, does it
see what passes?
"""

from collections.abc import Callable
from dataclasses import replace

from .case import Table, Worlds, cases, never, silent
from .cases_requests import ENGINE, WELL, one_exporter
from .histories import replica
from .per_request import RequestPhase, observe
from .world import JOB, Phase, World

HOUR = 60
DEAF_PAGE, DOWN, FAILED = (
    f"critical model reason={reason}"
    for reason in ("not_listening", "down", "upstream")
)
DEAF_TICKET, FAILED_TICKET = (
    f"warning instance reason={reason} @1" for reason in ("not_listening", "upstream")
)
UNREAD, DEFECT = (
    f"warning instance reason={reason} @1" for reason in ("not_read", "defect")
)

# --- TapFailing: the port

PASSING = RequestPhase(30, passed=20)
#: Another program has the port.
DEAF = RequestPhase(30, passed=0, listening=False)
ENDING = (PASSING, replace(DEAF, minutes=3), replace(DEAF, gone=True))

TAP_FAILING_CASES: Table = {
    "the-port-of-the-tap-is-taken-and-free-again": (
        one_exporter(PASSING, DEAF, PASSING),
        {35: "", 38: DEAF_PAGE, 45: [DEAF_PAGE, DEAF_TICKET], 75: ""},
    ),
    "a-tap-waits-for-its-last-requests": (one_exporter(*ENDING), {**silent(31, 40)}),
    "there-is-no-tap": (one_exporter(WELL), {50: ""}),
}

# --- TapFailing: the exporter is down


def dead(
    *phases: tuple[int, bool], tap: bool = True, others: int = 1
) -> Callable[[], World]:
    """Return what builds an exporter that is there in some phases of minutes, and
    others without a tap.
    """

    def build() -> World:
        world = World()
        engine = [
            replace(ENGINE, minutes=minutes, gone=not there)
            for minutes, there in phases
        ]
        passed = 20 if tap else None
        requests = [
            RequestPhase(minutes, passed=passed, gone=not there, restart=True)
            for minutes, there in phases
        ]
        replica(world, 1, *engine, requests=requests)
        for index in range(2, 2 + others):
            replica(world, index, Phase(sum(minutes for minutes, _ in phases)))
        return world

    return build


def fleet(dead: int, of: int, **end: object) -> Callable[[], World]:
    """Return what builds replicas with taps, of which some end after half an hour."""

    def build() -> World:
        world = World()
        for index in range(1, of + 1):
            after = end if index <= dead else {}
            engine = replace(ENGINE, minutes=20, gone=bool(after.get("gone")))
            later = replace(PASSING, minutes=20, **after)  # type: ignore[arg-type]
            replica(
                world,
                index,
                replace(engine, minutes=30, gone=False),
                engine,
                requests=(PASSING, later),
            )
        return world

    return build


def removed() -> World:
    """A node is lost with a tap that had failed for four minutes, and the target is
    removed.
    """
    world = World()
    replica(
        world,
        1,
        replace(ENGINE, minutes=30),
        replace(ENGINE, minutes=4, gone=True),
        requests=(PASSING,),
    )
    replica(world, 2, Phase(60))
    return world


def rollout() -> World:
    """A new pod takes the place of the old one, whose target is gone with it."""
    world = World()
    for index, start in ((1, 0), (2, 30)):
        replica(
            world, index, replace(ENGINE, minutes=30), requests=(PASSING,), start=start
        )
    return world


def tap_taken_away() -> World:
    """The tap was taken out of the configuration more than six hours before the
    exporter died.
    """
    world = World()
    engine = (replace(ENGINE, minutes=400), replace(ENGINE, minutes=30, gone=True))
    replica(world, 1, *engine, requests=(replace(PASSING, minutes=20),))
    replica(world, 2, Phase(430))
    return world


TAP_FAILING_CASES_DEAD: Table = {
    "an-exporter-with-a-tap-dies": (
        dead((30, True), (7 * HOUR, False)),
        {32: "", 34: DOWN, 385: DOWN, 400: ""},
    ),
    "the-only-exporter-dies-with-its-tap": (
        dead((30, True), (30, False), others=0),
        {50: DOWN},
    ),
    "a-dead-tap-is-back": (
        dead((30, True), (2 * HOUR, False), (30, True)),
        {140: DOWN, 170: ""},
    ),
    "most-taps-die": (fleet(3, 5, gone=True), {32: "", 34: DOWN}),
    "most-taps-do-not-listen": (fleet(2, 3, listening=False), {38: DEAF_PAGE}),
    "half-of-the-taps-do-not-listen": (fleet(2, 4, listening=False), {38: DEAF_PAGE}),
    "half-of-the-taps-die": (fleet(2, 4, gone=True), {34: DOWN}),
    "half-of-the-taps-fail-to-connect": (
        fleet(2, 4, failed={"refused": 12}),
        {37: FAILED},
    ),
    "most-taps-fail-to-connect": (fleet(4, 5, failed={"timeout": 2}), {39: FAILED}),
    "one-tap-of-three-fails-to-connect": (
        fleet(1, 3, failed={"refused": 30}),
        {48: FAILED_TICKET},
    ),
    "one-tap-of-four-fails-to-connect-now-and-then": (
        fleet(1, 4, failed={"reset": 2}),
        {48: FAILED_TICKET},
    ),
    "one-tap-of-twenty-dies": (fleet(1, 20, gone=True), silent(30, 49)),
    "one-tap-of-three-does-not-listen": (
        fleet(1, 3, listening=False),
        {40: "", 45: DEAF_TICKET},
    ),
    "a-target-that-was-removed-nine-minutes-ago": (removed, {33: DOWN, 43: ""}),
    "an-exporter-without-a-tap-dies": (
        dead((30, True), (30, False), tap=False),
        {55: ""},
    ),
    "an-exporter-with-a-tap-restarts": (
        dead((30, True), (3, False), (20, True)),
        {**silent(30, 39), 50: ""},
    ),
    "a-pod-with-a-tap-ends": (rollout, {**silent(30, 44), 55: ""}),
    "the-tap-was-taken-away-before": (tap_taken_away, {425: ""}),
}

# --- TapFailing: no connection to vLLM

FAILING = RequestPhase(30, passed=15, failed={"refused": 3, "reset": 1, "timeout": 1})
#: While a model loads nothing answers.
LOADING = RequestPhase(20, passed=0, failed={"refused": 20})
LOADS = (Phase(30), Phase(20, unreachable=True), Phase(30))
#: One connection of fifty fails, and a single one.
SELDOM = replace(FAILING, passed=49, failed={"timeout": 1})
ONE = RequestPhase(1, passed=1, failed={"refused": 1})


def another_target_is_down() -> World:
    """One exporter watches two servers, of which one is down: it may be the one behind
    the tap.
    """
    world = World()
    target = {"job": JOB, "instance": "10.0.0.1:9850", "namespace": "chat"}
    world.engine(Phase(HOUR), labels={"target": "http://a:8000"})
    world.put("vllm_specdec_up", {**target, "target": "http://b:8000"}, 0, [0.0] * HOUR)
    observe(world, replace(FAILING, minutes=HOUR))
    return world


TAP_FAILING_CASES_TAP: Table = {
    "one-connection-of-four-fails-though-vllm-is-up": (
        one_exporter(PASSING, FAILING, replace(PASSING, minutes=40)),
        {33: "", 40: FAILED, 50: [FAILED, FAILED_TICKET], 85: ""},
    ),
    "the-tap-fails-while-a-model-loads": (
        one_exporter(PASSING, LOADING, PASSING, engine=LOADS),
        {**silent(31, 60)},
    ),
    "the-tap-fails-a-minute-before-vllm-is-known-to-be-gone": (
        one_exporter(
            PASSING,
            replace(LOADING, minutes=40),
            engine=(Phase(31), Phase(39, unreachable=True)),
        ),
        {**silent(31, 49), 60: ""},
    ),
    "one-connection-of-fifty-fails": (one_exporter(SELDOM), {28: ""}),
    "one-connection-fails": (
        one_exporter(replace(PASSING, passed=1), ONE, PASSING),
        {**silent(31, 37)},
    ),
    "the-tap-fails-and-one-of-two-servers-is-down": (another_target_is_down, {55: ""}),
}

# --- RequestsUnobserved

#: One of four cannot be looked at; what ends early or is refused does not count.
UNOBSERVED = RequestPhase(
    2 * HOUR,
    {"chat": {0.8: 4.5}},
    passed=12,
    unobserved={"encoded": 1.3, "too_large": 0.2, "aborted": 3.0, "refused": 3.0},
)
OBSERVED = RequestPhase(2 * HOUR, {"chat": {0.8: 6.0}}, passed=6)
FOR_TEN_MINUTES = (
    replace(OBSERVED, minutes=40),
    RequestPhase(
        10, passed=6, unobserved={"encoded": 3.0}, requests={"chat": {0.8: 3.0}}
    ),
    replace(OBSERVED, minutes=70),
)

REQUESTS_UNOBSERVED_CASES: Table = {
    "one-request-of-four-is-compressed-or-too-large": (
        one_exporter(UNOBSERVED, OBSERVED),
        {30: "", 80: UNREAD, 110: UNREAD, 230: ""},
    ),
    "no-request-can-be-followed": (
        one_exporter(RequestPhase(2 * HOUR, passed=6, unobserved={"connection": 6.0})),
        {110: UNREAD},
    ),
    "requests-are-unobserved-for-ten-minutes": (
        one_exporter(*FOR_TEN_MINUTES),
        {50: "", 60: "", 70: "", 80: "", 90: "", 115: ""},
    ),
}
REQUESTS_UNOBSERVED_NEVER: Worlds = {
    "most-requests-are-aborted-or-refused": one_exporter(
        replace(OBSERVED, unobserved={"aborted": 20.0, "refused": 20.0})
    ),
    "one-request-of-ten-is-unobserved": one_exporter(
        replace(OBSERVED, unobserved={"busy": 0.6})
    ),
    "a-few-requests-are-unobserved": one_exporter(
        RequestPhase(2 * HOUR, passed=1, unobserved={"malformed": 1.0})
    ),
    "pushed-requests-need-no-tap": one_exporter(
        RequestPhase(2 * HOUR, {"chat": {0.8: 6.0}})
    ),
}

# --- RequestsUnobserved by a defect

ONCE = (
    replace(OBSERVED, minutes=30),
    replace(OBSERVED, minutes=1, unobserved={"internal": 1.0}),
    replace(OBSERVED, minutes=3 * HOUR),
)

REQUESTS_UNOBSERVED_CASES_DEFECTS: Table = {
    "no-request-meets-the-defect-again": (
        one_exporter(*ONCE),
        {30: "", 70: DEFECT, 170: ""},
    ),
    "many-requests-meet-the-defect": (
        one_exporter(replace(OBSERVED, unobserved={"internal": 2.0})),
        {40: [DEFECT, UNREAD], 100: [DEFECT, UNREAD]},
    ),
    "as-many-as-succeed-meet-the-defect": (
        one_exporter(replace(OBSERVED, unobserved={"internal": 4.0})),
        {100: [DEFECT, UNREAD]},
    ),
}

CASES = (
    *cases("TapFailing", TAP_FAILING_CASES),
    *cases("TapFailing", TAP_FAILING_CASES_DEAD),
    *cases("TapFailing", TAP_FAILING_CASES_TAP),
    *cases("RequestsUnobserved", REQUESTS_UNOBSERVED_CASES),
    *never("RequestsUnobserved", 110, REQUESTS_UNOBSERVED_NEVER),
    *cases("RequestsUnobserved", REQUESTS_UNOBSERVED_CASES_DEFECTS),
)
