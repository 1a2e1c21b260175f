"""Cases of harm.yml: does speculation hurt users, or does something that it is part of?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .case import Case
from .promtool import Check, Expected
from .world import JOB, MODEL, Phase, ServerPhase, World, idle

if TYPE_CHECKING:
    from collections.abc import Callable

RUNBOOKS = "https://example.com/vllm-specdec-exporter/runbooks/VLLMSpecDecode"
GRAFANA = "https://grafana.example.com/d/vllm-specdec-"
OF_MODEL = "?from=now-6h&var-namespace=chat&var-model_name=meta-llama%2FLlama-3.1-8B-Instruct"
OF_ENGINE = f"{OF_MODEL}&var-instance=10.0.0.1%3A9850&var-engine=0"
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

HARMFUL_PAGE = Expected(
    {"severity": "critical", "subject": "payoff", "level": "model", "model_name": MODEL, "namespace": "chat"},
    {
        "summary": "Speculation makes users wait longer than without it.",
        "description": f"{MODEL} in chat generates at 0.80x the speed that it would have without "
        "speculation.",
        "action": "Disable speculation, or set the K that the exporter recommends; look at acceptance and "
        "load for the cause.",
        "value": "0.80x",
        "threshold": "0.90x",
        "sample": "3k drafts in 5m",
        "context": "64 requests run per engine, 70% of the draft tokens are accepted, "
        "mean acceptance length 3.10",
        "runbook_url": f"{RUNBOOKS}Harmful.md",
        "dashboard_url": f"{GRAFANA}payoff{OF_MODEL}",
    },
)
HARMFUL_TICKET = Expected(
    {"severity": "warning", "subject": "payoff", "level": "model", "model_name": MODEL, "namespace": "chat"},
    {
        "summary": "Speculation makes users wait longer than without it.",
        "description": f"{MODEL} in chat generates at 0.95x the speed that it would have without "
        "speculation.",
        "action": "Disable speculation, or set the K that the exporter recommends; look at acceptance and "
        "load for the cause.",
        "value": "0.95x",
        "threshold": "1.00x",
        "sample": "18k drafts in 30m",
        "context": "64 requests run per engine, 70% of the draft tokens are accepted, "
        "mean acceptance length 3.10",
        "runbook_url": f"{RUNBOOKS}Harmful.md",
        "dashboard_url": f"{GRAFANA}payoff{OF_MODEL}",
    },
)
HARMFUL_ENGINE = Expected(
    {"severity": "warning", "subject": "payoff", "level": "engine", **ENGINE},
    {
        "summary": "Speculation makes users of one engine wait longer than without it.",
        "description": f"{MODEL}, engine 0 at 10.0.0.1:9850 generates at 0.95x the speed that it would have "
        "without speculation.",
        "action": "Compare its acceptance and its load with those of its peers; drain and restart it.",
        "value": "0.95x",
        "threshold": "1.00x",
        "sample": "18k drafts in 30m of the model",
        "runbook_url": f"{RUNBOOKS}Harmful.md",
        "dashboard_url": f"{GRAFANA}payoff{OF_ENGINE}",
    },
)
HARMFUL_ONE_OF_TEN = Expected(
    {"severity": "warning", "subject": "payoff", "level": "engine", **ENGINE},
    {
        "summary": "Speculation makes users of one engine wait longer than without it.",
        "description": f"{MODEL}, engine 0 at 10.0.0.1:9850 generates at 0.50x the speed that it would have "
        "without speculation.",
        "action": "Compare its acceptance and its load with those of its peers; drain and restart it.",
        "value": "0.50x",
        "threshold": "1.00x",
        "sample": "180k drafts in 30m of the model",
        "runbook_url": f"{RUNBOOKS}Harmful.md",
        "dashboard_url": f"{GRAFANA}payoff{OF_ENGINE}",
    },
)
HARMFUL_IN_CLUSTER_A = (
    Expected(
        {
            "severity": "warning",
            "subject": "payoff",
            "level": "model",
            "model_name": MODEL,
            "namespace": "chat",
            "cluster": "a",
        },
        {
            **HARMFUL_TICKET.annotations,
            "context": "8 requests run per engine, 70% of the draft tokens are accepted, "
            "mean acceptance length 3.10",
            "dashboard_url": f"{GRAFANA}payoff?from=now-6h&var-cluster=a&var-namespace=chat"
            "&var-model_name=meta-llama%2FLlama-3.1-8B-Instruct",
        },
    ),
    Expected(
        {
            "severity": "warning",
            "subject": "payoff",
            "level": "engine",
            **ENGINE,
            "cluster": "a",
            "pod": "vllm-1",
        },
        {
            **HARMFUL_ENGINE.annotations,
            "description": f"{MODEL}, engine 0 at vllm-1 generates at 0.95x the speed that it would have "
            "without speculation.",
            "dashboard_url": f"{GRAFANA}payoff?from=now-6h&var-cluster=a&var-namespace=chat"
            "&var-model_name=meta-llama%2FLlama-3.1-8B-Instruct&var-instance=10.0.0.1%3A9850&var-engine=0",
        },
    ),
)

#: The last that was seen of it before it ended: half an hour hardly below 1.
HARMFUL_TICKET_AT_THE_END = Expected(
    HARMFUL_TICKET.labels,
    {
        **HARMFUL_TICKET.annotations,
        "description": f"{MODEL} in chat generates at 0.99x the speed that it would have without "
        "speculation.",
        "value": "0.99x",
    },
)

SEVERE = Phase(12, speedup=0.8, running=64)
LOSING = Phase(50, speedup=0.95, running=64)

HARMFUL = (
    Case(
        "far-slower-than-plain-pages-within-minutes",
        "Harmful",
        "fires",
        _built(Phase(30), SEVERE),
        40,
        (HARMFUL_PAGE,),
    ),
    Case(
        "a-page-stays-ten-minutes",
        "Harmful",
        "recovers",
        _built(Phase(30), SEVERE, Phase(30, running=64)),
        55,
        earlier=(
            Check(33, "Harmful"),
            Check(40, "Harmful", (HARMFUL_PAGE,)),
            Check(50, "Harmful", (HARMFUL_PAGE,)),
        ),
    ),
    Case(
        "slower-than-plain-for-long-is-a-ticket-for-model-and-engine",
        "Harmful",
        "fires",
        _built(Phase(60), LOSING),
        107,
        (HARMFUL_TICKET, HARMFUL_ENGINE),
    ),
    Case(
        "tickets-on-harm-stay-half-an-hour",
        "Harmful",
        "recovers",
        _built(Phase(60), LOSING, Phase(45, running=64)),
        150,
        earlier=(
            Check(84, "Harmful"),
            Check(97, "Harmful", (HARMFUL_ENGINE,)),
            Check(107, "Harmful", (HARMFUL_TICKET, HARMFUL_ENGINE)),
            Check(132, "Harmful", (HARMFUL_TICKET_AT_THE_END, HARMFUL_ENGINE)),
        ),
    ),
    Case(
        "one-replica-of-ten-is-a-ticket-for-the-engine-alone",
        "Harmful",
        "fires",
        one_of_ten_loses,
        40,
        (HARMFUL_ONE_OF_TEN,),
    ),
    Case(
        "a-ticket-for-an-engine-stays-though-it-gains-again",
        "Harmful",
        "holds",
        one_of_ten_loses,
        70,
        (HARMFUL_ONE_OF_TEN,),
        earlier=(Check(28, "Harmful"), Check(40, "Harmful", (HARMFUL_ONE_OF_TEN,))),
    ),
    Case(
        "cluster-and-pod-are-named",
        "Harmful",
        "fires",
        models_that_lose_in_one_cluster_of_two,
        45,
        HARMFUL_IN_CLUSTER_A,
    ),
    Case(
        "as-fast-as-plain-is-no-harm",
        "Harmful",
        "silent",
        _built(Phase(80, speedup=1.0)),
        78,
        topic="other",
    ),
    Case(
        "four-minutes-of-harm-are-nobodys-page",
        "Harmful",
        "silent",
        _built(Phase(30), Phase(4, speedup=0.3), Phase(40)),
        36,
        earlier=(Check(34, "Harmful"), Check(40, "Harmful"), Check(70, "Harmful")),
        topic="too-short",
    ),
    Case(
        "minutes-of-harm-before-an-idle-hour-are-no-ticket",
        "Harmful",
        "silent",
        _built(idle(30), Phase(4, speedup=0.95), idle(60)),
        60,
        earlier=(Check(52, "Harmful"), Check(55, "Harmful")),
        topic="too-short",
    ),
    Case(
        "harm-on-a-few-drafts-is-not-judged",
        "Harmful",
        "silent",
        _built(Phase(80, drafts=15, speedup=0.5)),
        78,
        earlier=(Check(40, "Harmful"),),
        topic="low-traffic",
    ),
    Case(
        "nobody-is-paged-by-a-guess-about-the-drafter",
        "Harmful",
        "silent",
        _built(Phase(20, speedup=0.5, info={"cost_profile": "unknown"})),
        12,
        topic="other",
    ),
    Case(
        "a-measurement-pages-whatever-the-drafter",
        "Harmful",
        "fires",
        _built(Phase(20, speedup=0.8, running=64, basis="measured", info={"cost_profile": "unknown"})),
        12,
        (HARMFUL_PAGE,),
    ),
    Case(
        "without-a-speedup-there-is-no-harm",
        "Harmful",
        "silent",
        _built(Phase(80, acceptance=(0.02, 0.0, 0.0), speedup=None)),
        78,
        topic="missing-series",
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


REGRESSED = Expected(
    {"severity": "warning", "subject": "payoff", "level": "model", "model_name": MODEL, "namespace": "chat"},
    {
        "summary": "Speculation gains less than yesterday at this time, at no higher load.",
        "description": f"{MODEL} in chat generates at 1.20x the speed that it would have without "
        "speculation, over the last hour. Yesterday at this time it was far faster with the "
        "same K, and the load is hardly higher now.",
        "action": "Compare traffic, version and drafter with yesterday's; vllm-specdec-exporter compare does "
        "it from snapshots.",
        "value": "1.20x",
        "threshold": "15% below yesterday",
        "sample": "36k drafts in 1h",
        "context": "8 requests run per engine, 70% of the draft tokens are accepted, "
        "mean acceptance length 3.10",
        "runbook_url": f"{RUNBOOKS}SpeedupRegressed.md",
        "dashboard_url": f"{GRAFANA}payoff{OF_MODEL}",
    },
)
REGRESSED_UNDER_LOAD = Expected(
    REGRESSED.labels,
    {
        **REGRESSED.annotations,
        "context": "12 requests run per engine, 70% of the draft tokens are accepted, "
        "mean acceptance length 3.10",
    },
)
SPREAD_AGAINST_YESTERDAY = Expected(
    {
        "severity": "warning",
        "subject": "latency",
        "level": "model",
        "against": "yesterday",
        "model_name": MODEL,
        "namespace": "chat",
    },
    {
        "summary": "The spread between slow and typical tokens has widened.",
        "description": f"Time per output token of {MODEL} in chat: P99 is 15.65 times P50 over the last "
        "hour, far wider than yesterday at this time, at no higher load.",
        "action": "Look for a mixed workload: some requests lose by speculation. Route them apart, or set a "
        "K that suits both.",
        "value": "P99 15.65 times P50",
        "threshold": "1.50 times yesterday's spread",
        "sample": "3.6k requests in 1h",
        "runbook_url": f"{RUNBOOKS}LatencySpreadWidened.md",
        "dashboard_url": f"{GRAFANA}load{OF_MODEL}",
    },
)
FIRST_TOKEN_AGAINST_YESTERDAY = Expected(
    {
        "severity": "warning",
        "subject": "latency",
        "level": "model",
        "against": "yesterday",
        "model_name": MODEL,
        "namespace": "chat",
    },
    {
        "summary": "Users wait longer for the first token.",
        "description": f"P95 of the time to first token of {MODEL} in chat is 875ms over the last hour, far "
        "above yesterday at this time, at no higher load.",
        "action": "Look at waiting requests and the KV cache: a draft model takes memory and time from "
        "prefill. Where TTFT is the objective, speculation at this load may be wrong.",
        "value": "P95 875ms",
        "threshold": "1.50 times yesterday's",
        "sample": "3.6k requests in 1h",
        "runbook_url": f"{RUNBOOKS}TimeToFirstTokenRegressed.md",
        "dashboard_url": f"{GRAFANA}load{OF_MODEL}",
    },
)

AGAINST_YESTERDAY = (
    Case(
        "a-fall-against-yesterday-at-the-same-load-and-k",
        "SpeedupRegressed",
        "fires",
        one_of_ten_regresses,
        DAY + 67,
        (REGRESSED,),
        earlier=(Check(DAY + 20, "SpeedupRegressed"),),
    ),
    Case(
        "a-fall-against-yesterday-is-told-for-an-hour",
        "SpeedupRegressed",
        "recovers",
        regression_that_is_fixed,
        DAY + 155,
        earlier=(Check(DAY + 67, "SpeedupRegressed", (REGRESSED,)),),
    ),
    Case(
        "a-fall-is-told-though-the-load-has-risen-since",
        "SpeedupRegressed",
        "holds",
        regression_under_load,
        DAY + 140,
        (REGRESSED_UNDER_LOAD,),
        earlier=(Check(DAY + 67, "SpeedupRegressed", (REGRESSED,)),),
    ),
    Case(
        "without-a-yesterday-there-is-no-fall",
        "SpeedupRegressed",
        "silent",
        _built(Phase(60), Phase(60, speedup=1.0)),
        118,
        topic="missing-series",
    ),
    Case(
        "a-wider-spread-than-yesterday-at-the-same-load",
        "LatencySpreadWidened",
        "fires",
        one_of_six_waits,
        DAY + 67,
        (SPREAD_AGAINST_YESTERDAY,),
        earlier=(Check(DAY + 20, "LatencySpreadWidened"),),
    ),
    Case(
        "a-wider-spread-is-told-for-an-hour",
        "LatencySpreadWidened",
        "recovers",
        waiting_that_is_fixed,
        DAY + 163,
        earlier=(Check(DAY + 67, "LatencySpreadWidened", (SPREAD_AGAINST_YESTERDAY,)),),
    ),
    Case(
        "a-wider-spread-is-told-though-the-load-has-risen-since",
        "LatencySpreadWidened",
        "holds",
        waiting_under_load,
        DAY + 140,
        (SPREAD_AGAINST_YESTERDAY,),
        earlier=(Check(DAY + 67, "LatencySpreadWidened", (SPREAD_AGAINST_YESTERDAY,)),),
    ),
    Case(
        "a-later-first-token-than-yesterday-at-the-same-load",
        "TimeToFirstTokenRegressed",
        "fires",
        one_of_six_waits,
        DAY + 67,
        (FIRST_TOKEN_AGAINST_YESTERDAY,),
        earlier=(Check(DAY + 20, "TimeToFirstTokenRegressed"),),
    ),
    Case(
        "a-later-first-token-is-told-for-an-hour",
        "TimeToFirstTokenRegressed",
        "recovers",
        waiting_that_is_fixed,
        DAY + 163,
        earlier=(Check(DAY + 67, "TimeToFirstTokenRegressed", (FIRST_TOKEN_AGAINST_YESTERDAY,)),),
    ),
    Case(
        "a-later-first-token-is-told-though-the-load-has-risen-since",
        "TimeToFirstTokenRegressed",
        "holds",
        waiting_under_load,
        DAY + 140,
        (FIRST_TOKEN_AGAINST_YESTERDAY,),
        earlier=(Check(DAY + 67, "TimeToFirstTokenRegressed", (FIRST_TOKEN_AGAINST_YESTERDAY,)),),
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


SPREAD_AGAINST_BASELINE = Expected(
    {"severity": "warning", "subject": "latency", "level": "engine", "against": "baseline", **ENGINE},
    {
        "summary": "The spread between slow and typical tokens has widened.",
        "description": f"Time per output token of {MODEL}, engine 0 at 10.0.0.1:9850: the spread of P99 over "
        "P50 is 1.90 times that of the baseline without speculation at the same load.",
        "action": "Look for a mixed workload: some requests lose by speculation. Route them apart, or set a "
        "K that suits both.",
        "value": "1.90 times the baseline's spread",
        "threshold": "1.50",
        "sample": "18k drafts in 30m of the model",
        "runbook_url": f"{RUNBOOKS}LatencySpreadWidened.md",
        "dashboard_url": f"{GRAFANA}load{OF_ENGINE}",
    },
)
FIRST_TOKEN_AGAINST_BASELINE = Expected(
    {"severity": "warning", "subject": "latency", "level": "engine", "against": "baseline", **ENGINE},
    {
        "summary": "Users wait longer for the first token.",
        "description": f"P95 of the time to first token of {MODEL}, engine 0 at 10.0.0.1:9850 is 1.75 times "
        "that of the baseline without speculation at the same load.",
        "action": "Look at waiting requests and the KV cache: a draft model takes memory and time from "
        "prefill. Where TTFT is the objective, speculation at this load may be wrong.",
        "value": "1.75 times the baseline's P95",
        "threshold": "1.50",
        "sample": "18k drafts in 30m of the model",
        "runbook_url": f"{RUNBOOKS}TimeToFirstTokenRegressed.md",
        "dashboard_url": f"{GRAFANA}load{OF_ENGINE}",
    },
)

AGAINST_BASELINE = (
    Case(
        "a-wider-spread-than-the-baselines",
        "LatencySpreadWidened",
        "fires",
        _against_baseline((30, LIKE_THE_BASELINE), (40, WIDE)),
        67,
        (SPREAD_AGAINST_BASELINE,),
        earlier=(Check(55, "LatencySpreadWidened"),),
    ),
    Case(
        "a-spread-like-the-baselines-again",
        "LatencySpreadWidened",
        "recovers",
        _against_baseline((30, LIKE_THE_BASELINE), (40, WIDE), (80, LIKE_THE_BASELINE)),
        140,
        earlier=(
            Check(67, "LatencySpreadWidened", (SPREAD_AGAINST_BASELINE,)),
            Check(120, "LatencySpreadWidened", (SPREAD_AGAINST_BASELINE,)),
        ),
    ),
    Case(
        "a-spread-that-no-window-but-the-longest-has",
        "LatencySpreadWidened",
        "silent",
        _against_baseline((30, LIKE_THE_BASELINE), (50, ONCE_SLOW)),
        75,
        topic="too-short",
    ),
    Case(
        "a-spread-over-a-few-drafts",
        "LatencySpreadWidened",
        "silent",
        _against_baseline((80, WIDE), drafts=15),
        75,
        topic="low-traffic",
    ),
    Case(
        "a-spread-without-a-baseline-or-a-yesterday",
        "LatencySpreadWidened",
        "silent",
        _built(Phase(80), server=(replace(SLOWER_SERVER, minutes=80),)),
        75,
        topic="missing-series",
    ),
    Case(
        "a-later-first-token-than-the-baselines",
        "TimeToFirstTokenRegressed",
        "fires",
        _against_baseline((30, LIKE_THE_BASELINE), (40, WIDE)),
        67,
        (FIRST_TOKEN_AGAINST_BASELINE,),
        earlier=(Check(55, "TimeToFirstTokenRegressed"),),
    ),
    Case(
        "a-first-token-like-the-baselines-again",
        "TimeToFirstTokenRegressed",
        "recovers",
        _against_baseline((30, LIKE_THE_BASELINE), (40, WIDE), (80, LIKE_THE_BASELINE)),
        140,
        earlier=(
            Check(67, "TimeToFirstTokenRegressed", (FIRST_TOKEN_AGAINST_BASELINE,)),
            Check(120, "TimeToFirstTokenRegressed", (FIRST_TOKEN_AGAINST_BASELINE,)),
        ),
    ),
    Case(
        "a-late-first-token-in-the-longest-window-only",
        "TimeToFirstTokenRegressed",
        "silent",
        _against_baseline((30, LIKE_THE_BASELINE), (50, ONCE_SLOW)),
        75,
        topic="too-short",
    ),
    Case(
        "a-late-first-token-over-a-few-drafts",
        "TimeToFirstTokenRegressed",
        "silent",
        _against_baseline((80, WIDE), drafts=15),
        75,
        topic="low-traffic",
    ),
    Case(
        "a-late-first-token-without-a-baseline-or-a-yesterday",
        "TimeToFirstTokenRegressed",
        "silent",
        _built(Phase(80), server=(replace(SLOWER_SERVER, minutes=80),)),
        75,
        topic="missing-series",
    ),
)

# --- WastedUnderSaturation

#: 1530 of the 2400 tokens verified in a minute are rejected.
WASTING = Phase(30, acceptance=(0.3, 0.1, 0.05), speedup=1.1, waiting=5)

WASTED = Expected(
    {"severity": "warning", "subject": "load", "level": "model", "model_name": MODEL, "namespace": "chat"},
    {
        "summary": "Requests wait while the GPU verifies drafts that are thrown away.",
        "description": f"Requests of {MODEL} in chat have been waiting for 10 minutes, and 63.75% of the "
        "tokens that the target model verifies are rejected drafts.",
        "action": "Lower K, or set a schedule that drafts less in large batches: the exporter recommends "
        "one. Or add replicas.",
        "value": "63.75% of verified tokens rejected",
        "threshold": "50%",
        "sample": "3k drafts in 5m",
        "runbook_url": f"{RUNBOOKS}WastedUnderSaturation.md",
        "dashboard_url": f"{GRAFANA}load{OF_MODEL}",
    },
)

SATURATED = (
    Case(
        "requests-wait-for-rejected-drafts",
        "WastedUnderSaturation",
        "fires",
        _built(Phase(20), WASTING),
        47,
        (WASTED,),
        earlier=(Check(34, "WastedUnderSaturation"),),
    ),
    Case(
        "requests-wait-no-more",
        "WastedUnderSaturation",
        "recovers",
        _built(Phase(20), WASTING, replace(WASTING, waiting=0)),
        75,
        earlier=(
            Check(47, "WastedUnderSaturation", (WASTED,)),
            Check(65, "WastedUnderSaturation", (WASTED,)),
        ),
    ),
    Case(
        "rejected-drafts-are-nobodys-loss-while-nobody-waits",
        "WastedUnderSaturation",
        "silent",
        _built(replace(WASTING, minutes=50, waiting=0)),
        47,
        topic="other",
    ),
    Case(
        "requests-wait-and-drafts-are-accepted",
        "WastedUnderSaturation",
        "silent",
        _built(Phase(50, speedup=1.1, waiting=5)),
        47,
        topic="other",
    ),
    Case(
        "a-queue-that-empties-now-and-then",
        "WastedUnderSaturation",
        "silent",
        _built(
            *(replace(WASTING, minutes=1, waiting=0), replace(WASTING, minutes=16)) * 3,
        ),
        47,
        earlier=(Check(33, "WastedUnderSaturation"),),
        topic="too-short",
    ),
    Case(
        "rejected-drafts-that-pay-nevertheless",
        "WastedUnderSaturation",
        "silent",
        _built(replace(WASTING, minutes=50, speedup=1.3)),
        47,
        topic="beneficial",
    ),
    Case(
        "rejected-drafts-without-a-known-speedup",
        "WastedUnderSaturation",
        "fires",
        _built(replace(WASTING, minutes=50, speedup=None)),
        47,
        (WASTED,),
    ),
    Case(
        "a-few-rejected-drafts-while-requests-wait",
        "WastedUnderSaturation",
        "silent",
        _built(replace(WASTING, minutes=50, drafts=90)),
        47,
        topic="low-traffic",
    ),
)

# --- KVCacheSqueezed

FULL = Phase(30, kv_cache=0.97)
PREEMPTING = ServerPhase(30, preemptions=2)

SQUEEZED = Expected(
    {"severity": "warning", "subject": "load", "level": "model", "model_name": MODEL, "namespace": "chat"},
    {
        "summary": "The KV cache is full, and requests are preempted while speculation takes memory.",
        "description": f"The KV cache of {MODEL} in chat is 97% used, and vLLM preempts requests. A draft "
        "model shrinks the KV cache by its own size.",
        "action": "Run vllm-specdec-exporter plan with both models: a smaller drafter, n-gram, or no "
        "speculation gives memory back. Or lower --max-num-seqs.",
        "value": "97% of the KV cache",
        "threshold": "90%",
        "sample": "18k drafts in 30m",
        "runbook_url": f"{RUNBOOKS}KVCacheSqueezed.md",
        "dashboard_url": f"{GRAFANA}load{OF_MODEL}",
    },
)

KV_CACHE = (
    Case(
        "a-full-cache-and-preemptions",
        "KVCacheSqueezed",
        "fires",
        _built(Phase(20), FULL, server=(ServerPhase(20), PREEMPTING)),
        47,
        (SQUEEZED,),
        earlier=(Check(36, "KVCacheSqueezed"),),
    ),
    Case(
        "no-preemptions-any-more",
        "KVCacheSqueezed",
        "recovers",
        _built(
            Phase(20),
            replace(FULL, minutes=65),
            server=(ServerPhase(20), PREEMPTING, ServerPhase(35)),
        ),
        80,
        earlier=(Check(47, "KVCacheSqueezed", (SQUEEZED,)), Check(65, "KVCacheSqueezed", (SQUEEZED,))),
    ),
    Case(
        "a-full-cache-without-preemptions",
        "KVCacheSqueezed",
        "silent",
        _built(replace(FULL, minutes=50), server=(ServerPhase(50),)),
        47,
        topic="other",
    ),
    Case(
        "a-full-cache-with-a-rare-preemption",
        "KVCacheSqueezed",
        "silent",
        _built(replace(FULL, minutes=50), server=(ServerPhase(50, preemptions=0.8),)),
        47,
        topic="other",
    ),
    Case(
        "preemptions-with-room-in-the-cache",
        "KVCacheSqueezed",
        "silent",
        _built(Phase(50, kv_cache=0.85), server=(replace(PREEMPTING, minutes=50),)),
        47,
        topic="other",
    ),
    Case(
        "a-full-cache-and-nothing-known-of-preemptions",
        "KVCacheSqueezed",
        "silent",
        _built(replace(FULL, minutes=50)),
        47,
        topic="missing-series",
    ),
    Case(
        "a-full-cache-of-a-model-that-hardly-speculates",
        "KVCacheSqueezed",
        "silent",
        _built(replace(FULL, minutes=50, drafts=15), server=(replace(PREEMPTING, minutes=50),)),
        47,
        topic="low-traffic",
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

FAILED = Expected(
    {"severity": "critical", "subject": "errors", "level": "model", "model_name": MODEL, "namespace": "chat"},
    {
        "summary": "Requests of a speculating model end in errors.",
        "description": f"10% of the requests of {MODEL} in chat ended in an error within 5 minutes.",
        "action": "Read vLLM's log. If it names speculative decoding, start it without --speculative-config.",
        "value": "10% of the requests",
        "threshold": "5%",
        "sample": "300 requests in 5m",
        "runbook_url": f"{RUNBOOKS}RequestsFail.md",
        "dashboard_url": f"{GRAFANA}load{OF_MODEL}",
    },
)

ERRORS = (
    Case(
        "one-request-of-ten-fails",
        "RequestsFail",
        "fires",
        _built(Phase(40), server=(HEALTHY_SERVER, FAILING)),
        37,
        (FAILED,),
        earlier=(Check(24, "RequestsFail"),),
    ),
    Case(
        "requests-fail-no-more",
        "RequestsFail",
        "recovers",
        _built(Phase(70), server=(HEALTHY_SERVER, FAILING, replace(HEALTHY_SERVER, minutes=30))),
        62,
        earlier=(Check(37, "RequestsFail", (FAILED,)),),
    ),
    Case(
        "failed-requests-are-told-though-it-speculates-no-more",
        "RequestsFail",
        "holds",
        _built(Phase(40), PLAIN, server=(HEALTHY_SERVER, replace(FAILING, minutes=60))),
        50,
        (FAILED,),
        earlier=(Check(37, "RequestsFail", (FAILED,)),),
    ),
    Case(
        "one-request-of-twentyfive-fails",
        "RequestsFail",
        "silent",
        _built(Phase(40), server=(replace(FAILING, minutes=40, finished={"stop": 57.6, "error": 2.4}),)),
        37,
        topic="other",
    ),
    Case(
        "a-few-requests-that-all-fail",
        "RequestsFail",
        "silent",
        _built(Phase(40), server=(replace(FAILING, minutes=40, finished={"stop": 0.0, "error": 3.0}),)),
        37,
        topic="low-traffic",
    ),
    Case(
        "requests-fail-without-speculation",
        "RequestsFail",
        "silent",
        _built(PLAIN, server=(replace(FAILING, minutes=40),)),
        37,
        topic="other",
    ),
    Case(
        "an-old-vllm-that-does-not-count-errors",
        "RequestsFail",
        "silent",
        _built(Phase(40), server=(ServerPhase(40, finished={"stop": 30.0, "abort": 30.0}),)),
        37,
        topic="missing-series",
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
