"""Cases of harm.yml: does speculation hurt users, or does something that it is part of?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .case import Case, cases, never
from .histories import engines, replica
from .world import JOB, MODEL, Phase, ServerPhase, World, idle

if TYPE_CHECKING:
    from collections.abc import Callable

#: What names the engine of most worlds.
ENGINE = {"job": JOB, "instance": "10.0.0.1:9850", "namespace": "chat", "model_name": MODEL, "engine": "0"}

DAY = 24 * 60

# --- Harmful


def models_that_lose_in_one_cluster_of_two() -> World:
    """The same model loses in cluster a and gains in cluster b."""
    world = World()
    for cluster, index, speedup in (("a", 1, 0.95), ("b", 2, 1.6)):
        replica(world, index, Phase(50, speedup=speedup), labels={"cluster": cluster})
    return world


SEVERE = Phase(12, speedup=0.8, running=64)
LOSING = Phase(50, speedup=0.95, running=64)
BOTH = ["warning engine @1", "warning model"]
GUESSED = {"cost_profile": "unknown"}

HARMFUL = (
    *cases(
        "Harmful",
        {
            "far-slower-than-plain-pages-within-minutes": (
                engines((Phase(30), SEVERE, Phase(30, running=64))),
                {33: "", 40: "critical model", 50: "critical model", 55: ""},
            ),
            "slower-than-plain-for-long-is-a-ticket-for-model-and-engine": (
                engines((Phase(60), LOSING, Phase(45, running=64))),
                {84: "", 97: "warning engine @1", 107: BOTH, 132: BOTH, 150: ""},
            ),
            "a-ticket-for-an-engine-stays-though-it-gains-again": (
                engines((Phase(45, speedup=0.5), Phase(55)), *[(Phase(100),)] * 9),
                {28: "", 40: "warning engine @1", 70: "warning engine @1"},
            ),
            "cluster-and-pod-are-named": (
                models_that_lose_in_one_cluster_of_two,
                {45: ["warning engine cluster=a @1", "warning model cluster=a"]},
            ),
            "four-minutes-of-harm-are-nobodys-page": (
                engines((Phase(30), Phase(4, speedup=0.3), Phase(40))),
                {34: "", 36: "", 40: "", 70: ""},
            ),
            "minutes-of-harm-before-an-idle-hour-are-no-ticket": (
                engines((idle(30), Phase(4, speedup=0.95), idle(60))),
                {52: "", 55: "", 60: ""},
            ),
            "a-measurement-pages-whatever-the-drafter": (
                engines((Phase(20, speedup=0.8, running=64, basis="measured", info=GUESSED),)),
                {12: "critical model"},
            ),
        },
    ),
    *never(
        "Harmful",
        78,
        {
            "as-fast-as-plain-is-no-harm": engines((Phase(80, speedup=1.0),)),
            "harm-on-a-few-drafts-is-not-judged": engines((Phase(80, drafts=15, speedup=0.5),)),
            "without-a-speedup-there-is-no-harm": engines(
                (Phase(80, acceptance=(0.02, 0.0, 0.0), speedup=None),)
            ),
        },
    ),
)

# --- against yesterday

#: Two hours and a half of yesterday, scaled to nothing over night, and today's.
NIGHT = Phase(DAY - 150, gone=True)
NIGHT_OF_SERVER = ServerPhase(DAY - 150, gone=True)
SLOWER = Phase(70, speedup=1.2)
#: After a fix there is ten times the traffic, so that the hour behind forgets quickly.
FASTER = Phase(95, drafts=6000)
USUAL_SERVER = ServerPhase(
    150, first_token={0.1: 0.5, 0.25: 0.4, 0.5: 0.1}, per_output_token={0.01: 0.4, 0.025: 0.6}
)
#: P95 of TTFT goes from 375 ms to 875 ms; P99 of TPOT from 1.98 to 15.65 times P50.
SLOWER_SERVER = ServerPhase(
    70,
    first_token={0.25: 0.5, 0.5: 0.3, 1.0: 0.2},
    per_output_token={0.01: 0.45, 0.025: 0.5, 0.2: 0.05},
)
FIXED_SERVER = replace(USUAL_SERVER, minutes=95, finished={"stop": 600.0})


def _days(world: World, model: str, yesterday: Phase | None, today: Phase, *more: Phase) -> None:
    before = (Phase(DAY, gone=True),) if yesterday is None else (replace(yesterday, minutes=150), NIGHT)
    # Every model has an address of its own.
    address = f"10.0.0.{sum(map(ord, model)) % 200 + 10}:9850" if model != MODEL else "10.0.0.1:9850"
    world.engine(*before, today, *more, model=model, instance=address)


def one_of_ten_regresses() -> World:
    """Models are slower than yesterday, one for 70 minutes; the others cannot be compared."""
    world = World()
    _days(world, MODEL, Phase(1), SLOWER, FASTER)
    _days(world, "another-k", Phase(1), replace(SLOWER, acceptance=(0.9, 0.7)))
    _days(world, "more-load", Phase(1), replace(SLOWER, running=12))
    _days(world, "few-drafts", Phase(1), replace(SLOWER, drafts=80))
    _days(world, "few-drafts-yesterday", Phase(1, drafts=80), SLOWER)
    _days(world, "new", None, SLOWER)
    _days(world, "measured-today", Phase(1), replace(SLOWER, basis="measured"))
    _days(world, "measured-yesterday", Phase(1, basis="measured"), SLOWER)
    _days(world, "another-profile", Phase(1, info={"cost_profile": "eagle3"}), SLOWER)
    _days(world, "hardly-slower", Phase(1), replace(SLOWER, speedup=1.4))
    return world


def regression_under_load() -> World:
    """A model is slower than yesterday for 70 minutes; then its load rises, so that it cannot be compared."""
    world = World()
    _days(world, MODEL, Phase(1), SLOWER, replace(SLOWER, minutes=95, running=12))
    return world


def one_of_six_waits() -> World:
    """Latencies are longer than yesterday, of one model for 70 minutes; the others cannot be compared."""
    world = World()
    today = Phase(70)
    few = {reason: rate / 60 for reason, rate in SLOWER_SERVER.finished.items()}
    few_yesterday = replace(USUAL_SERVER, finished=few)
    for model, yesterday, now, before, server in (
        (MODEL, Phase(1), Phase(165), USUAL_SERVER, (SLOWER_SERVER, FIXED_SERVER)),
        ("more-load", Phase(1), replace(today, running=12), USUAL_SERVER, (SLOWER_SERVER,)),
        ("few-requests", Phase(1), today, USUAL_SERVER, (replace(SLOWER_SERVER, finished=few),)),
        ("few-requests-yesterday", Phase(1), today, few_yesterday, (SLOWER_SERVER,)),
        ("plain", Phase(1, drafts=0, plain_tokens=1), idle(70), USUAL_SERVER, (SLOWER_SERVER,)),
        ("hardly-slower", Phase(1), today, USUAL_SERVER, (replace(USUAL_SERVER, minutes=70),)),
    ):
        _days(world, model, yesterday, now)
        world.server(before, NIGHT_OF_SERVER, *server, model=model, instance=f"{model}:8000")
    _days(world, "new", None, today)
    world.server(SLOWER_SERVER, model="new", start=DAY, instance="new:8000")
    return world


def waiting_under_load() -> World:
    """Latencies are longer than yesterday; after 70 minutes the load rises: no comparison any more."""
    world = World()
    _days(world, MODEL, Phase(1), Phase(70), Phase(95, running=12))
    world.server(USUAL_SERVER, NIGHT_OF_SERVER, replace(SLOWER_SERVER, minutes=165))
    return world


LATER = "warning model against=yesterday"

AGAINST_YESTERDAY = (
    *cases(
        "SpeedupRegressed",
        {
            "a-fall-against-yesterday-at-the-same-load-and-k": (
                one_of_ten_regresses,
                {1460: "", 1507: "warning model", 1595: ""},
            ),
            "a-fall-is-told-though-the-load-has-risen-since": (
                regression_under_load,
                {1507: "warning model", 1580: "warning model"},
            ),
            "without-a-yesterday-there-is-no-fall": (engines((Phase(60), Phase(60, speedup=1.0))), {118: ""}),
        },
    ),
    Case(
        "a-wider-spread-than-yesterday-at-the-same-load",
        "LatencySpreadWidened",
        one_of_six_waits,
        {1460: "", 1507: LATER, 1603: ""},
    ),
    Case(
        "a-wider-spread-is-told-though-the-load-has-risen-since",
        "LatencySpreadWidened",
        waiting_under_load,
        {1507: LATER, 1580: LATER},
    ),
    Case(
        "a-later-first-token-than-yesterday-at-the-same-load",
        "TimeToFirstTokenRegressed",
        one_of_six_waits,
        {1460: "", 1507: LATER, 1603: ""},
    ),
    Case(
        "a-later-first-token-is-told-though-the-load-has-risen-since",
        "TimeToFirstTokenRegressed",
        waiting_under_load,
        {1507: LATER, 1580: LATER},
    ),
)

# --- against the baseline

#: P50, P99 of the time per output token and P95 of the time to first token, over the baseline's, by window.
Ratios = dict[str, tuple[float, float, float]]
LIKE_THE_BASELINE: Ratios = {"5m": (0.6, 0.6, 1.0), "1h": (0.6, 0.6, 1.0)}
#: P99 hardly gains where P50 does: 2.0 and 1.9 times the baseline's spread.
WIDE: Ratios = {"5m": (0.6, 1.2, 1.8), "1h": (0.6, 1.14, 1.75)}
#: All requests were slow for a while: wide over the hour, and not wide over five minutes.
ONCE_SLOW: Ratios = {"5m": (2.0, 2.0, 1.0), "1h": (1.0, 2.0, 1.9)}


def _against_baseline(*parts: tuple[int, Ratios], drafts: float = 600) -> Callable[[], World]:
    """Return what builds an engine with a baseline, and what it was compared to from time to time."""

    def build() -> World:
        world, start = World(), 0
        world.engine(Phase(sum(minutes for minutes, _ in parts), drafts=drafts))
        for minutes, ratios in parts:
            for window, (p50, p99, first) in ratios.items():
                for latency, percentile, value in (
                    ("time_per_output_token", "50", p50),
                    ("time_per_output_token", "99", p99),
                    ("time_to_first_token", "95", first),
                ):
                    own = {**ENGINE, "window": window, "latency": latency, "percentile": percentile}
                    world.put("vllm_specdec_latency_ratio", own, start, [value] * minutes)
            start += minutes
        return world

    return build


#: What is slower than the baseline, by the start of the names of its cases.
SLOWER_THAN_BASELINE = {"spread": "LatencySpreadWidened", "first-token": "TimeToFirstTokenRegressed"}
WIDENED = "warning engine against=baseline @1"
AS_USUAL = (30, LIKE_THE_BASELINE)
SLOW_SERVER = (replace(SLOWER_SERVER, minutes=80),)

AGAINST_BASELINE = tuple(
    case
    for name, alert in SLOWER_THAN_BASELINE.items()
    for case in (
        Case(
            f"{name}-worse-than-the-baselines-and-back",
            alert,
            _against_baseline(AS_USUAL, (40, WIDE), (80, LIKE_THE_BASELINE)),
            {55: "", 67: WIDENED, 120: WIDENED, 140: ""},
        ),
        *never(
            alert,
            75,
            {
                f"{name}-worse-in-the-longest-window-only": _against_baseline(AS_USUAL, (50, ONCE_SLOW)),
                f"{name}-worse-over-a-few-drafts": _against_baseline((80, WIDE), drafts=15),
                f"{name}-worse-without-a-baseline-or-a-yesterday": engines((Phase(80),), server=SLOW_SERVER),
            },
        ),
    )
)

# --- WastedUnderSaturation

#: 1530 of the 2400 tokens verified in a minute are rejected.
WASTING = Phase(30, acceptance=(0.3, 0.1, 0.05), speedup=1.1, waiting=5)

STEADY = replace(WASTING, minutes=50)

SATURATED = (
    *cases(
        "WastedUnderSaturation",
        {
            "requests-wait-for-rejected-drafts-and-no-more": (
                engines((Phase(20), WASTING, replace(WASTING, waiting=0))),
                {34: "", 47: "warning model", 65: "warning model", 75: ""},
            ),
            "a-queue-that-empties-now-and-then": (
                engines((replace(WASTING, minutes=1, waiting=0), replace(WASTING, minutes=16)) * 3),
                {33: "", 47: ""},
            ),
            "rejected-drafts-without-a-known-speedup": (
                engines((replace(STEADY, speedup=None),)),
                {47: "warning model"},
            ),
        },
    ),
    *never(
        "WastedUnderSaturation",
        47,
        {
            "rejected-drafts-while-nobody-waits": engines((replace(STEADY, waiting=0),)),
            "requests-wait-and-drafts-are-accepted": engines((Phase(50, speedup=1.1, waiting=5),)),
            "rejected-drafts-that-pay-nevertheless": engines((replace(STEADY, speedup=1.3),)),
            "a-few-rejected-drafts-while-requests-wait": engines((replace(STEADY, drafts=90),)),
        },
    ),
)

# --- KVCacheSqueezed

FULL = Phase(50, kv_cache=0.97)
PREEMPTING = ServerPhase(50, preemptions=2)

KV_CACHE = (
    Case(
        "a-full-cache-and-preemptions",
        "KVCacheSqueezed",
        engines(
            (Phase(20), replace(FULL, minutes=65)),
            server=(ServerPhase(20), replace(PREEMPTING, minutes=30), ServerPhase(35)),
        ),
        {36: "", 47: "warning model", 65: "warning model", 80: ""},
    ),
    *never(
        "KVCacheSqueezed",
        47,
        {
            "a-full-cache-without-preemptions": engines((FULL,), server=(ServerPhase(50),)),
            "a-full-cache-with-a-rare-preemption": engines(
                (FULL,), server=(replace(PREEMPTING, preemptions=0.8),)
            ),
            "preemptions-with-room-in-the-cache": engines(
                (replace(FULL, kv_cache=0.85),), server=(PREEMPTING,)
            ),
            "a-full-cache-and-nothing-known-of-preemptions": engines((FULL,)),
            "a-full-cache-of-a-model-that-hardly-speculates": engines(
                (replace(FULL, drafts=15),), server=(PREEMPTING,)
            ),
        },
    ),
)

# --- RequestsFail

PLAIN = Phase(
    40,
    drafts=0,
    acceptance=(),
    plain_tokens=3000,
    speedup=None,
    activity="off",
    action="insufficient_data",
    recommended_k=None,
)


def ending(minutes: int, **finished: float) -> ServerPhase:
    """Return how many requests a minute end for which reasons."""
    return ServerPhase(minutes, finished=finished)


HEALTHY_SERVER = ending(20, stop=60.0, error=0.0)

ERRORS = (
    Case(
        "one-request-of-ten-fails",
        "RequestsFail",
        engines(
            (Phase(70),),
            server=(HEALTHY_SERVER, ending(20, stop=54.0, error=6.0), ending(30, stop=60.0, error=0.0)),
        ),
        {24: "", 37: "critical model", 62: ""},
    ),
    Case(
        "failed-requests-are-told-though-it-speculates-no-more",
        "RequestsFail",
        engines((Phase(40), PLAIN), server=(HEALTHY_SERVER, ending(60, stop=54.0, error=6.0))),
        {37: "critical model", 50: "critical model"},
    ),
    *never(
        "RequestsFail",
        37,
        {
            "one-request-of-twentyfive-fails": engines(
                (Phase(40),), server=(ending(40, stop=57.6, error=2.4),)
            ),
            "a-few-requests-that-all-fail": engines((Phase(40),), server=(ending(40, stop=0.0, error=3.0),)),
            "requests-fail-without-speculation": engines(
                (PLAIN,), server=(ending(40, stop=54.0, error=6.0),)
            ),
            "an-old-vllm-that-does-not-count-errors": engines(
                (Phase(40),), server=(ending(40, stop=30.0, abort=30.0),)
            ),
        },
    ),
)

CASES: tuple[Case, ...] = (
    *HARMFUL,
    *AGAINST_YESTERDAY,
    *AGAINST_BASELINE,
    *SATURATED,
    *KV_CACHE,
    *ERRORS,
)
