"""Cases of harm.yml: does speculation hurt users, or does something that it is part of?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .case import Case
from .world import JOB, MODEL, Phase, ServerPhase, World, idle

if TYPE_CHECKING:
    from collections.abc import Callable

#: What names the engine of most worlds.
ENGINE = {"job": JOB, "instance": "10.0.0.1:9850", "namespace": "chat", "model_name": MODEL, "engine": "0"}

DAY = 24 * 60


def _built(*phases: Phase, server: tuple[ServerPhase, ...] = ()) -> Callable[[], World]:
    """Return what builds one engine, and vLLM's own series of it."""

    def build() -> World:
        world = World()
        world.engine(*phases)
        if server:
            world.server(*server)
        return world

    return build


def one_of_ten_loses() -> World:
    """One replica of ten is half as fast as without speculation for 45 minutes."""
    world = World()
    world.engine(Phase(45, speedup=0.5), Phase(55))
    for index in range(2, 11):
        world.engine(Phase(100), instance=f"10.0.0.{index}:9850")
    return world


def models_that_lose_in_one_cluster_of_two() -> World:
    """The same model loses in cluster a, on a pod with a name, and gains in cluster b."""
    world = World()
    for cluster, index, speedup in (("a", 1, 0.95), ("b", 2, 1.6)):
        pod = {"cluster": cluster, "pod": f"vllm-{index}"}
        world.engine(Phase(50, speedup=speedup), instance=f"10.0.0.{index}:9850", labels=pod)
    return world


# --- Harmful


SEVERE = Phase(12, speedup=0.8, running=64)
LOSING = Phase(50, speedup=0.95, running=64)

HARMFUL = (
    Case(
        "far-slower-than-plain-pages-within-minutes",
        "Harmful",
        _built(Phase(30), SEVERE),
        {40: "critical model"},
    ),
    Case(
        "a-page-stays-ten-minutes",
        "Harmful",
        _built(Phase(30), SEVERE, Phase(30, running=64)),
        {33: "", 40: "critical model", 50: "critical model", 55: ""},
    ),
    Case(
        "slower-than-plain-for-long-is-a-ticket-for-model-and-engine",
        "Harmful",
        _built(Phase(60), LOSING),
        {107: ["warning engine @1", "warning model"]},
    ),
    Case(
        "tickets-on-harm-stay-half-an-hour",
        "Harmful",
        _built(Phase(60), LOSING, Phase(45, running=64)),
        {
            84: "",
            97: "warning engine @1",
            107: ["warning engine @1", "warning model"],
            132: ["warning engine @1", "warning model"],
            150: "",
        },
    ),
    Case(
        "a-ticket-for-an-engine-stays-though-it-gains-again",
        "Harmful",
        one_of_ten_loses,
        {28: "", 40: "warning engine @1", 70: "warning engine @1"},
    ),
    Case(
        "cluster-and-pod-are-named",
        "Harmful",
        models_that_lose_in_one_cluster_of_two,
        {45: ["warning engine cluster=a @1", "warning model cluster=a"]},
    ),
    Case("as-fast-as-plain-is-no-harm", "Harmful", _built(Phase(80, speedup=1.0)), {78: ""}),
    Case(
        "four-minutes-of-harm-are-nobodys-page",
        "Harmful",
        _built(Phase(30), Phase(4, speedup=0.3), Phase(40)),
        {34: "", 36: "", 40: "", 70: ""},
    ),
    Case(
        "minutes-of-harm-before-an-idle-hour-are-no-ticket",
        "Harmful",
        _built(idle(30), Phase(4, speedup=0.95), idle(60)),
        {52: "", 55: "", 60: ""},
    ),
    Case(
        "harm-on-a-few-drafts-is-not-judged",
        "Harmful",
        _built(Phase(80, drafts=15, speedup=0.5)),
        {40: "", 78: ""},
    ),
    Case(
        "nobody-is-paged-by-a-guess-about-the-drafter",
        "Harmful",
        _built(Phase(20, speedup=0.5, info={"cost_profile": "unknown"})),
        {12: ""},
    ),
    Case(
        "a-measurement-pages-whatever-the-drafter",
        "Harmful",
        _built(Phase(20, speedup=0.8, running=64, basis="measured", info={"cost_profile": "unknown"})),
        {12: "critical model"},
    ),
    Case(
        "without-a-speedup-there-is-no-harm",
        "Harmful",
        _built(Phase(80, acceptance=(0.02, 0.0, 0.0), speedup=None)),
        {78: ""},
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
    """Models are slower than yesterday, but only one of them can be compared."""
    world = World()
    _days(world, MODEL, Phase(1), SLOWER)
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


def regression_that_is_fixed() -> World:
    """A model is slower than yesterday for 70 minutes."""
    world = World()
    _days(world, MODEL, Phase(1), SLOWER, FASTER)
    return world


def regression_under_load() -> World:
    """A model is slower than yesterday for 70 minutes; then its load rises, so that it cannot be compared."""
    world = World()
    _days(world, MODEL, Phase(1), SLOWER, replace(SLOWER, minutes=95, running=12))
    return world


def one_of_six_waits() -> World:
    """Latencies are longer than yesterday, but only one of the models can be compared."""
    world = World()
    today = Phase(70)
    few = {reason: rate / 60 for reason, rate in SLOWER_SERVER.finished.items()}
    few_yesterday = replace(USUAL_SERVER, finished=few)
    for model, yesterday, now, before, server in (
        (MODEL, Phase(1), today, USUAL_SERVER, SLOWER_SERVER),
        ("more-load", Phase(1), replace(today, running=12), USUAL_SERVER, SLOWER_SERVER),
        ("few-requests", Phase(1), today, USUAL_SERVER, replace(SLOWER_SERVER, finished=few)),
        ("few-requests-yesterday", Phase(1), today, few_yesterday, SLOWER_SERVER),
        ("plain", Phase(1, drafts=0, plain_tokens=1), idle(70), USUAL_SERVER, SLOWER_SERVER),
        ("hardly-slower", Phase(1), today, USUAL_SERVER, replace(USUAL_SERVER, minutes=70)),
    ):
        _days(world, model, yesterday, now)
        world.server(before, NIGHT_OF_SERVER, server, model=model, instance=f"{model}:8000")
    _days(world, "new", None, today)
    world.server(SLOWER_SERVER, model="new", start=DAY, instance="new:8000")
    return world


def waiting_under_load() -> World:
    """Latencies are longer than yesterday; after 70 minutes the load rises: no comparison any more."""
    world = World()
    _days(world, MODEL, Phase(1), Phase(70), Phase(95, running=12))
    world.server(USUAL_SERVER, NIGHT_OF_SERVER, replace(SLOWER_SERVER, minutes=165))
    return world


def waiting_that_is_fixed() -> World:
    """Latencies are longer than yesterday for 70 minutes."""
    world = World()
    _days(world, MODEL, Phase(1), Phase(165))
    world.server(USUAL_SERVER, NIGHT_OF_SERVER, SLOWER_SERVER, FIXED_SERVER)
    return world


AGAINST_YESTERDAY = (
    Case(
        "a-fall-against-yesterday-at-the-same-load-and-k",
        "SpeedupRegressed",
        one_of_ten_regresses,
        {1460: "", 1507: "warning model"},
    ),
    Case(
        "a-fall-against-yesterday-is-told-for-an-hour",
        "SpeedupRegressed",
        regression_that_is_fixed,
        {1507: "warning model", 1595: ""},
    ),
    Case(
        "a-fall-is-told-though-the-load-has-risen-since",
        "SpeedupRegressed",
        regression_under_load,
        {1507: "warning model", 1580: "warning model"},
    ),
    Case(
        "without-a-yesterday-there-is-no-fall",
        "SpeedupRegressed",
        _built(Phase(60), Phase(60, speedup=1.0)),
        {118: ""},
    ),
    Case(
        "a-wider-spread-than-yesterday-at-the-same-load",
        "LatencySpreadWidened",
        one_of_six_waits,
        {1460: "", 1507: "warning model against=yesterday"},
    ),
    Case(
        "a-wider-spread-is-told-for-an-hour",
        "LatencySpreadWidened",
        waiting_that_is_fixed,
        {1507: "warning model against=yesterday", 1603: ""},
    ),
    Case(
        "a-wider-spread-is-told-though-the-load-has-risen-since",
        "LatencySpreadWidened",
        waiting_under_load,
        {1507: "warning model against=yesterday", 1580: "warning model against=yesterday"},
    ),
    Case(
        "a-later-first-token-than-yesterday-at-the-same-load",
        "TimeToFirstTokenRegressed",
        one_of_six_waits,
        {1460: "", 1507: "warning model against=yesterday"},
    ),
    Case(
        "a-later-first-token-is-told-for-an-hour",
        "TimeToFirstTokenRegressed",
        waiting_that_is_fixed,
        {1507: "warning model against=yesterday", 1603: ""},
    ),
    Case(
        "a-later-first-token-is-told-though-the-load-has-risen-since",
        "TimeToFirstTokenRegressed",
        waiting_under_load,
        {1507: "warning model against=yesterday", 1580: "warning model against=yesterday"},
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


AGAINST_BASELINE = (
    Case(
        "a-wider-spread-than-the-baselines",
        "LatencySpreadWidened",
        _against_baseline((30, LIKE_THE_BASELINE), (40, WIDE)),
        {55: "", 67: "warning engine against=baseline @1"},
    ),
    Case(
        "a-spread-like-the-baselines-again",
        "LatencySpreadWidened",
        _against_baseline((30, LIKE_THE_BASELINE), (40, WIDE), (80, LIKE_THE_BASELINE)),
        {67: "warning engine against=baseline @1", 120: "warning engine against=baseline @1", 140: ""},
    ),
    Case(
        "a-spread-that-no-window-but-the-longest-has",
        "LatencySpreadWidened",
        _against_baseline((30, LIKE_THE_BASELINE), (50, ONCE_SLOW)),
        {75: ""},
    ),
    Case(
        "a-spread-over-a-few-drafts",
        "LatencySpreadWidened",
        _against_baseline((80, WIDE), drafts=15),
        {75: ""},
    ),
    Case(
        "a-spread-without-a-baseline-or-a-yesterday",
        "LatencySpreadWidened",
        _built(Phase(80), server=(replace(SLOWER_SERVER, minutes=80),)),
        {75: ""},
    ),
    Case(
        "a-later-first-token-than-the-baselines",
        "TimeToFirstTokenRegressed",
        _against_baseline((30, LIKE_THE_BASELINE), (40, WIDE)),
        {55: "", 67: "warning engine against=baseline @1"},
    ),
    Case(
        "a-first-token-like-the-baselines-again",
        "TimeToFirstTokenRegressed",
        _against_baseline((30, LIKE_THE_BASELINE), (40, WIDE), (80, LIKE_THE_BASELINE)),
        {67: "warning engine against=baseline @1", 120: "warning engine against=baseline @1", 140: ""},
    ),
    Case(
        "a-late-first-token-in-the-longest-window-only",
        "TimeToFirstTokenRegressed",
        _against_baseline((30, LIKE_THE_BASELINE), (50, ONCE_SLOW)),
        {75: ""},
    ),
    Case(
        "a-late-first-token-over-a-few-drafts",
        "TimeToFirstTokenRegressed",
        _against_baseline((80, WIDE), drafts=15),
        {75: ""},
    ),
    Case(
        "a-late-first-token-without-a-baseline-or-a-yesterday",
        "TimeToFirstTokenRegressed",
        _built(Phase(80), server=(replace(SLOWER_SERVER, minutes=80),)),
        {75: ""},
    ),
)

# --- WastedUnderSaturation

#: 1530 of the 2400 tokens verified in a minute are rejected.
WASTING = Phase(30, acceptance=(0.3, 0.1, 0.05), speedup=1.1, waiting=5)


SATURATED = (
    Case(
        "requests-wait-for-rejected-drafts",
        "WastedUnderSaturation",
        _built(Phase(20), WASTING),
        {34: "", 47: "warning model"},
    ),
    Case(
        "requests-wait-no-more",
        "WastedUnderSaturation",
        _built(Phase(20), WASTING, replace(WASTING, waiting=0)),
        {47: "warning model", 65: "warning model", 75: ""},
    ),
    Case(
        "rejected-drafts-are-nobodys-loss-while-nobody-waits",
        "WastedUnderSaturation",
        _built(replace(WASTING, minutes=50, waiting=0)),
        {47: ""},
    ),
    Case(
        "requests-wait-and-drafts-are-accepted",
        "WastedUnderSaturation",
        _built(Phase(50, speedup=1.1, waiting=5)),
        {47: ""},
    ),
    Case(
        "a-queue-that-empties-now-and-then",
        "WastedUnderSaturation",
        _built(
            *(replace(WASTING, minutes=1, waiting=0), replace(WASTING, minutes=16)) * 3,
        ),
        {33: "", 47: ""},
    ),
    Case(
        "rejected-drafts-that-pay-nevertheless",
        "WastedUnderSaturation",
        _built(replace(WASTING, minutes=50, speedup=1.3)),
        {47: ""},
    ),
    Case(
        "rejected-drafts-without-a-known-speedup",
        "WastedUnderSaturation",
        _built(replace(WASTING, minutes=50, speedup=None)),
        {47: "warning model"},
    ),
    Case(
        "a-few-rejected-drafts-while-requests-wait",
        "WastedUnderSaturation",
        _built(replace(WASTING, minutes=50, drafts=90)),
        {47: ""},
    ),
)

# --- KVCacheSqueezed

FULL = Phase(30, kv_cache=0.97)
PREEMPTING = ServerPhase(30, preemptions=2)


KV_CACHE = (
    Case(
        "a-full-cache-and-preemptions",
        "KVCacheSqueezed",
        _built(Phase(20), FULL, server=(ServerPhase(20), PREEMPTING)),
        {36: "", 47: "warning model"},
    ),
    Case(
        "no-preemptions-any-more",
        "KVCacheSqueezed",
        _built(
            Phase(20),
            replace(FULL, minutes=65),
            server=(ServerPhase(20), PREEMPTING, ServerPhase(35)),
        ),
        {47: "warning model", 65: "warning model", 80: ""},
    ),
    Case(
        "a-full-cache-without-preemptions",
        "KVCacheSqueezed",
        _built(replace(FULL, minutes=50), server=(ServerPhase(50),)),
        {47: ""},
    ),
    Case(
        "a-full-cache-with-a-rare-preemption",
        "KVCacheSqueezed",
        _built(replace(FULL, minutes=50), server=(ServerPhase(50, preemptions=0.8),)),
        {47: ""},
    ),
    Case(
        "preemptions-with-room-in-the-cache",
        "KVCacheSqueezed",
        _built(Phase(50, kv_cache=0.85), server=(replace(PREEMPTING, minutes=50),)),
        {47: ""},
    ),
    Case(
        "a-full-cache-and-nothing-known-of-preemptions",
        "KVCacheSqueezed",
        _built(replace(FULL, minutes=50)),
        {47: ""},
    ),
    Case(
        "a-full-cache-of-a-model-that-hardly-speculates",
        "KVCacheSqueezed",
        _built(replace(FULL, minutes=50, drafts=15), server=(replace(PREEMPTING, minutes=50),)),
        {47: ""},
    ),
)

# --- RequestsFail

HEALTHY_SERVER = ServerPhase(20, finished={"stop": 60.0, "error": 0.0})
FAILING = ServerPhase(20, finished={"stop": 54.0, "error": 6.0})

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


ERRORS = (
    Case(
        "one-request-of-ten-fails",
        "RequestsFail",
        _built(Phase(40), server=(HEALTHY_SERVER, FAILING)),
        {24: "", 37: "critical model"},
    ),
    Case(
        "requests-fail-no-more",
        "RequestsFail",
        _built(Phase(70), server=(HEALTHY_SERVER, FAILING, replace(HEALTHY_SERVER, minutes=30))),
        {37: "critical model", 62: ""},
    ),
    Case(
        "failed-requests-are-told-though-it-speculates-no-more",
        "RequestsFail",
        _built(Phase(40), PLAIN, server=(HEALTHY_SERVER, replace(FAILING, minutes=60))),
        {37: "critical model", 50: "critical model"},
    ),
    Case(
        "one-request-of-twentyfive-fails",
        "RequestsFail",
        _built(Phase(40), server=(replace(FAILING, minutes=40, finished={"stop": 57.6, "error": 2.4}),)),
        {37: ""},
    ),
    Case(
        "a-few-requests-that-all-fail",
        "RequestsFail",
        _built(Phase(40), server=(replace(FAILING, minutes=40, finished={"stop": 0.0, "error": 3.0}),)),
        {37: ""},
    ),
    Case(
        "requests-fail-without-speculation",
        "RequestsFail",
        _built(PLAIN, server=(replace(FAILING, minutes=40),)),
        {37: ""},
    ),
    Case(
        "an-old-vllm-that-does-not-count-errors",
        "RequestsFail",
        _built(Phase(40), server=(ServerPhase(40, finished={"stop": 30.0, "abort": 30.0}),)),
        {37: ""},
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
