"""What is known of an engine, what is judged and advised, and its load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...judgement.activity import ActivityState
from ...judgement.advice import Action
from ...judgement.payoff import PayoffVerdict
from ...judgement.quality import QualityLevel
from .metric import (
    ACCEPTED,
    DRAFT_TOKENS,
    DRAFTS,
    GENERATED,
    PER_POSITION,
    RUNNING,
    Kind,
    Metric,
    Scope,
    one_hot,
    row_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...economics.choice import CandidateK
    from ...economics.speculative_config import ScheduleRow
    from ...judgement.payoff import Payoff
    from ...observe.result import Deployment
    from .metric import Samples

_engine, _engine_counter = row_of(Scope.ENGINE), row_of(Scope.ENGINE, Kind.COUNTER)

#: Batch sizes at which the advised K schedule is published.
SCHEDULED_BATCHES = tuple(2**power for power in range(11))


def _deployment(known: Deployment) -> Samples:
    labels = (known.method, known.draft_model, known.dialect, known.upstream_version, known.cost_profile)
    return [(labels, 1.0)]


def _speedup(payoff: Payoff) -> Samples:
    if payoff.speedup is None or payoff.basis is None:
        return ()
    return [((payoff.basis.value,), payoff.speedup)]


def _speedups(options: Iterable[CandidateK]) -> Samples:
    return [((str(option.num_speculative_tokens),), option.speedup) for option in options]


def _rows(schedule: Iterable[ScheduleRow]) -> Samples:
    rows = tuple(schedule)
    # Fixed sizes: the rows' own bounds move with every answer, and would leave a series each.
    return [
        ((str(size),), float(row.num_speculative_tokens))
        for size in SCHEDULED_BATCHES
        for row in rows
        if row.first <= size <= row.last
    ]


#: States and gauges of an engine.
ENGINES: tuple[Metric, ...] = (
    _engine(
        "info",
        "Always 1. What is known of the deployment: method and draft model as --spec.config says, the "
        "dialect of the server's metrics, its version, the cost profile that speedup is estimated by.",
        field="deployment",
        expand=_deployment,
        labels=("method", "draft_model", "dialect", "upstream_version", "cost_profile"),
    ),
    _engine(
        "num_speculative_tokens",
        "K: the highest position plus one; before any position is known, what --spec.config says.",
        PER_POSITION,
    ),
    _engine(
        "scheduled_num_speculative_tokens",
        "K that the schedule by batch size has for the requests running, 0 for no speculation. Only where "
        "--spec.config has num_speculative_tokens_per_batch_size.",
        RUNNING,
    ),
    _engine(
        "activity",
        "1 for what the engine does about speculation, 0 for the other states; all 0 where the server does "
        "not show it (vLLM V0).",
        DRAFTS,
        GENERATED,
        field="activity.state",
        expand=one_hot(ActivityState),
        labels=("state",),
    ),
    _engine(
        "quality",
        "1 for the level of acceptance by the thresholds in force, 0 for the others; all 0 unless active.",
        ACCEPTED,
        DRAFT_TOKENS,
        DRAFTS,
        PER_POSITION,
        field="quality.level",
        expand=one_hot(QualityLevel),
        labels=("level",),
    ),
    _engine(
        "payoff",
        "1 for what speculation does to the speed of all output, by the measured speedup or else the "
        "estimated one and coverage, 0 for the others; all 0 unless active.",
        ACCEPTED,
        DRAFTS,
        RUNNING,
        field="payoff.verdict",
        expand=one_hot(PayoffVerdict),
        labels=("verdict",),
    ),
    _engine(
        "speedup",
        "Speed of all output over that without speculation, which payoff is judged by: measured, or else "
        "estimated and weighted with coverage. Only while active; below 1 speculation loses.",
        ACCEPTED,
        DRAFTS,
        GENERATED,
        RUNNING,
        field="payoff",
        expand=_speedup,
        labels=("basis",),
    ),
    _engine(
        "recommended_num_speculative_tokens",
        "The K to have, 0 for no speculation; absent while nothing can be said.",
        PER_POSITION,
        DRAFTS,
        RUNNING,
        field="advice.num_speculative_tokens",
    ),
    _engine(
        "recommendation",
        "1 for what to do about K, 0 for the others; the snapshot has the reason.",
        PER_POSITION,
        DRAFTS,
        RUNNING,
        field="advice.action",
        expand=one_hot(Action),
        labels=("action",),
    ),
    _engine(
        "estimated_speedup_at",
        "Estimated speedup of drafts that each K would give at the batch size of the judged window, which "
        "the advice goes by; extrapolated beyond the present K. Only with advice.",
        PER_POSITION,
        DRAFTS,
        RUNNING,
        field="advice.options",
        expand=_speedups,
        labels=("num_speculative_tokens",),
    ),
    _engine(
        "recommended_num_speculative_tokens_at",
        "The K to have with this many requests in the batch, by the advised schedule; 0 for no speculation. "
        "Only where a schedule is advised.",
        PER_POSITION,
        DRAFTS,
        RUNNING,
        field="advice.schedule",
        expand=_rows,
        labels=("batch_size",),
    ),
    _engine(
        "requests_running",
        "Requests in the batch.",
        RUNNING,
        field="load.requests_running",
    ),
    _engine(
        "requests_waiting",
        "Requests in the queue.",
        "vllm:num_requests_waiting",
        field="load.requests_waiting",
    ),
    _engine(
        "kv_cache_usage_ratio",
        "Used share of the KV cache, 0 to 1.",
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        field="load.kv_cache_usage_ratio",
    ),
    _engine_counter("engine_resets_total", "Times that the engine's counters were seen to start anew."),
    _engine_counter(
        "inconsistent_samples_total",
        "Samples that contradicted themselves or the one before; ratios were clamped or left out.",
    ),
)
