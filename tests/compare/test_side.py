"""Sides: from a snapshot to what is compared, with several engines and models."""

from typing import Any

import pytest

from compare.sides import DRAFTING, SPAN, engine, measures, side, snapshot_of
from support.builders import increase
from support.copies import replace
from vllm_specdec_exporter.commands.compare.report import describe
from vllm_specdec_exporter.commands.compare.side import (
    Side,
    SideError,
    pool,
    pool_latencies,
    side_of,
)
from vllm_specdec_exporter.engines.reading import Load
from vllm_specdec_exporter.judgement.activity import Activity, ActivityState
from vllm_specdec_exporter.judgement.advice import Action, Advice
from vllm_specdec_exporter.judgement.payoff import Payoff, PayoffVerdict
from vllm_specdec_exporter.judgement.quality import Quality, QualityLevel
from vllm_specdec_exporter.measures.history import Latency
from vllm_specdec_exporter.measures.measures import derive
from vllm_specdec_exporter.observe.result import Deployment, ExporterResult


def read(*engines: Any, model: str = "", **more: Any) -> Side:
    return side_of(snapshot_of(*engines, **more), "A", model=model)


# --- one engine


def test_requests_at_a_time_are_by_littles_law() -> None:
    summed = side("A", 0.02, 300.0, end_to_end=4.0)
    assert summed.requests_per_second == pytest.approx(10.0)
    assert summed.requests_at_a_time == pytest.approx(40.0)
    assert summed.tokens_per_request == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("state", "method", "speculating"),
    [
        (ActivityState.OFF, "", False),
        (ActivityState.BYPASSED, "", None),
        (ActivityState.BYPASSED, "ngram", False),
        (ActivityState.IDLE, "", None),
        (None, "", None),
    ],
)
def test_without_drafts_the_activity_tells_whether_it_speculates(
    state: ActivityState | None, method: str, speculating: bool | None
) -> None:
    """With a draft model, steps without drafts are not those of a server without
    speculation.
    """
    server = engine(
        measures(), activity=Activity(state), deployment=Deployment(method=method)
    )
    assert read(server).speculating is speculating


# A router, or vLLM V0, counts no drafts.
@pytest.mark.parametrize(("drafts", "says_so"), [(0.0, True), (None, False)])
def test_only_a_server_that_counts_drafts_is_said_to_have_none(
    drafts: float | None, says_so: bool
) -> None:
    counted = replace(measures(), drafts=drafts)
    description = describe(read(engine(counted, activity=Activity())))
    assert ("no drafts" in description) is says_so


def test_the_judged_window_counts() -> None:
    short = replace(measures(0.01), window="10s", span_seconds=10.0)
    long = measures(0.02)
    assert (
        read(
            engine(short, windows=(short, long), judged_window="10s")
        ).measures.span_seconds
        == 10.0
    )


def test_verdicts_are_taken_over() -> None:
    summed = read(
        engine(
            measures(**DRAFTING),
            quality=Quality(QualityLevel.FAIR),
            payoff=Payoff(PayoffVerdict.MARGINAL, 1.1),
            advice=Advice(Action.DECREASE_K, 2),
        )
    )
    assert summed.quality == "fair"
    assert summed.payoff == "marginal"
    assert summed.advice == "decrease k to 2"
    unsure = Payoff(
        PayoffVerdict.UNKNOWN, None, 0.6, 1.08, likely=PayoffVerdict.HARMFUL
    )
    assert (
        read(engine(measures(), payoff=unsure)).payoff
        == "likely harmful (0.60 to 1.08)"
    )


def test_names_that_would_steer_a_terminal_are_made_harmless() -> None:
    assert read(engine(measures(), model="a\x1b[31mb\n")).models == ("a�[31mb�",)


def test_a_server_without_samples_has_nothing_to_say() -> None:
    summed = read(engine(None))
    assert summed.why_no_latencies == "there are no two samples of it"
    assert (summed.measures.span_seconds, summed.engines) == (None, 0)


# --- several engines


def test_engines_add_up() -> None:
    first = engine(
        measures(0.02, 400.0, positions=(0.8, 0.4), drafts=10_000.0),
        load=Load(3.0, 1.0),
    )
    two = engine(
        measures(0.03, 100.0, positions=(0.2, 0.1), drafts=30_000.0),
        number="1",
        load=Load(5.0, None),
    )
    summed = read(first, two)
    assert summed.engines == 2
    assert summed.measures.drafts == 40_000
    assert summed.acceptance_ratio.value == pytest.approx(
        (10_000 * 1.2 + 30_000 * 0.3) / 80_000
    )
    assert summed.measures.position_acceptance_ratio == pytest.approx((0.35, 0.175))
    assert summed.measures.generation_tokens_per_second == pytest.approx(
        500 * 200 / SPAN
    )
    assert summed.requests_per_second == pytest.approx(500 / SPAN)
    assert (summed.requests_running, summed.requests_waiting) == (8.0, 1.0)
    per_token = summed.latency("time_per_output_token")
    assert per_token.mean_seconds == pytest.approx((400 * 0.02 + 100 * 0.03) / 500)
    assert per_token.p50_seconds is None


def test_an_idle_engine_does_not_count() -> None:
    idle = engine(
        measures(None, 0.0), number="1", activity=Activity(ActivityState.IDLE)
    )
    summed = read(engine(measures(**DRAFTING)), idle)
    assert (summed.engines, summed.speculating) == (1, True)
    assert summed.latency("time_per_output_token") == side("A", **DRAFTING).latency(
        "time_per_output_token"
    )


def test_errors_of_engines_that_share_their_traffic_add_up() -> None:
    parts = [
        Latency(
            "end_to_end", requests, mean, error_seconds=error, error_freedom=freedom
        )
        for requests, mean, error, freedom in (
            (300.0, 1.0, 0.1, 7.0),
            (100.0, 2.0, 0.3, 3.0),
        )
    ]
    assert pool_latencies(parts) == (
        Latency(
            "end_to_end",
            400.0,
            1.25,
            error_seconds=pytest.approx(0.15),
            error_freedom=3.0,
        ),
    )
    (older,) = pool_latencies([*parts, Latency("end_to_end", 10.0, 1.0, 0.5)])
    assert older.error_seconds is None


def test_engines_are_pooled_by_their_drafts_also_beside_one_that_does_not_draft() -> (
    None
):
    pooled = pool(
        [
            measures(**DRAFTING),
            measures(positions=(0.8, 0.4), drafts=10_000.0, speedup=1.1),
            measures(),
        ]
    )
    accepted = 30_000 * 1.25 + 10_000 * 1.2
    assert pooled.drafts == 40_000
    assert pooled.drafts_per_second == pytest.approx(40_000 / SPAN)
    assert pooled.mean_acceptance_length == pytest.approx(1 + accepted / 40_000)
    assert pooled.coverage_ratio == pytest.approx((accepted + 40_000) / (3 * 80_000))
    assert pooled.estimate.speedup == pytest.approx((3 * 1.5 + 1.1) / 4)


def test_prefix_caches_are_pooled_by_the_tokens_looked_up() -> None:
    """Of the engines that count them; none of them counts as 0."""
    half = replace(
        measures(), prefix_cache_queries_per_second=300.0, prefix_cache_hit_ratio=0.5
    )
    three_quarters = replace(
        measures(), prefix_cache_queries_per_second=100.0, prefix_cache_hit_ratio=0.9
    )
    assert pool([half, three_quarters]).prefix_cache_hit_ratio == pytest.approx(0.6)
    assert pool([half, measures()]).prefix_cache_hit_ratio == pytest.approx(0.5)
    assert pool([measures(), measures()]).prefix_cache_hit_ratio is None


def test_what_one_engine_did_not_deliver_is_not_delivered_by_both() -> None:
    """Answers of 2 tokens on one engine: its drafts give a token each."""
    happened = increase(1000, [900, 900], generation=2000)
    short = derive("5m", replace(happened, first_tokens=1000.0, decode_steps=1000.0))
    long = derive("5m", increase(1000, [900, 900], generation=2800))
    pooled = pool([short, long])
    assert (short.mean_acceptance_length, long.mean_acceptance_length) == (1.0, 2.8)
    assert pooled.mean_acceptance_length == pytest.approx(1.9)
    assert pooled.coverage_ratio == pytest.approx(3800 / 4800)
    assert pooled.undelivered_ratio == pytest.approx(1800 / 5600)


def test_a_coverage_that_one_engine_cannot_know_is_not_known_of_both() -> None:
    """It drafted, and not all of its drafts are counted."""
    known = measures(**DRAFTING)
    assert pool([known, replace(known, coverage_ratio=None)]).coverage_ratio is None


def test_a_snapshot_without_a_server_is_no_side() -> None:
    with pytest.raises(SideError, match="no server"):
        side_of(ExporterResult("0.1.0", 0.0), "A")
