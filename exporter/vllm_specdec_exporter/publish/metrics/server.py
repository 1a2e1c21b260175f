"""Rows of a server: counters, states, advice and load of its engines, and the polls. Rows of the exporter."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from ...economics.cost import Basis
from ...judgement.activity import ActivityState
from ...judgement.advice import Action
from ...judgement.payoff import PayoffVerdict
from ...judgement.quality import QualityLevel
from .metric import (
    ACCEPTED,
    BASIS,
    DRAFT_TOKENS,
    DRAFTS,
    GENERATED,
    PER_POSITION,
    POSITION,
    RUNNING,
    STEPS,
    Breakdown,
    Kind,
    Metric,
    Scope,
    by_name,
    one_hot,
    row_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...economics.choice import CandidateK
    from ...economics.speculative_config import ScheduleRow
    from ...economics.step_time import StepFit
    from ...judgement.payoff import Payoff
    from ...observe.result import Deployment, Discovered
    from .metric import Samples

_engine, _engine_counter = row_of(Scope.ENGINE), row_of(Scope.ENGINE, Kind.COUNTER)
_engine_histogram = row_of(Scope.ENGINE, Kind.HISTOGRAM)
_target, _target_counter = row_of(Scope.TARGET), row_of(Scope.TARGET, Kind.COUNTER)
_exporter = row_of(Scope.EXPORTER)

#: Batch sizes at which the advised K schedule is published. Fixed, because the bounds of the advised rows
#: vary from poll to poll and would create a series each.
SCHEDULED_BATCHES = tuple(2**power for power in range(11))


def _deployment(known: Deployment) -> Samples:
    labels = (known.method, known.draft_model, known.dialect, known.upstream_version, known.cost_profile)
    return [(labels, 1.0)]


def _interval(payoff: Payoff) -> Samples:
    if payoff.basis is not Basis.MODELLED or payoff.speedup_low is None or payoff.speedup_high is None:
        return ()
    return [(("low",), payoff.speedup_low), (("high",), payoff.speedup_high)]


def _terms(fit: StepFit | None) -> Samples:
    if fit is None:
        return ()
    return [((term,), getattr(fit, term)) for term in ("fixed", "per_request", "per_kv_cache")]


def _fit_error(fit: StepFit | None) -> Samples:
    return () if fit is None else [((), fit.error)]


def _speedups(options: Iterable[CandidateK]) -> Samples:
    return [((str(option.num_speculative_tokens),), option.speedup) for option in options]


def _rows(schedule: Iterable[ScheduleRow]) -> Samples:
    rows = tuple(schedule)
    return [
        ((str(size),), float(row.num_speculative_tokens))
        for size in SCHEDULED_BATCHES
        for row in rows
        if row.first <= size <= row.last
    ]


def _discovery(names: Iterable[Discovered]) -> Samples:
    return [((each.name,), float(each.up)) for each in names]


def _build(version: str) -> Samples:
    return [((version, platform.python_version()), 1.0)]


#: Counters of an engine, under one name for all dialects.
COUNTED: tuple[Metric, ...] = (
    _engine_counter(
        "drafts_total",
        "Verified drafts: one request in one step with drafted tokens.",
        DRAFTS,
        field="counters.drafts",
    ),
    _engine_counter(
        "draft_tokens_total",
        "Drafted tokens that were verified.",
        DRAFT_TOKENS,
        field="counters.draft_tokens",
    ),
    _engine_counter(
        "accepted_tokens_total",
        "Drafted tokens that were accepted; the bonus token of each draft does not count.",
        ACCEPTED,
        field="counters.accepted_tokens",
    ),
    _engine_counter(
        "accepted_tokens_per_position_total",
        "Drafts in which the token at this position, counted from 0, was accepted.",
        PER_POSITION,
        field="counters.accepted_tokens_per_position",
        by=POSITION,
    ),
    _engine_counter(
        "drafts_reaching_position_total",
        "Drafts in which every position before this one was accepted: the ones behind its conditional "
        "acceptance. At position 0, all.",
        *(DRAFTS, PER_POSITION),
        field="drafts_reaching_position",
        by=POSITION,
    ),
    _engine_counter(
        "generation_tokens_total",
        "Generated tokens, with and without speculation.",
        GENERATED,
        field="counters.generation_tokens",
    ),
    _engine_histogram(
        "accepted_tokens_per_draft",
        "Distribution of accepted tokens per draft, recovered exactly: the drafts with at most j "
        "accepted tokens are all drafts less those accepted at position j.",
        *(DRAFTS, PER_POSITION, ACCEPTED),
    ),
)


#: States and gauges of an engine.
ENGINES: tuple[Metric, ...] = (
    _engine(
        "info",
        "Always 1. What is known of the deployment: method and draft model as --spec.config says, the "
        "dialect of the server's metrics, its version, the cost profile that speedup is estimated by.",
        field="deployment",
        by=Breakdown(("method", "draft_model", "dialect", "upstream_version", "cost_profile"), _deployment),
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
        "1 for the activity state of the engine, 0 for the other states; all 0 where the server does "
        "not show it (vLLM V0).",
        *(DRAFTS, GENERATED),
        field="activity.state",
        by=one_hot("state", ActivityState),
    ),
    _engine(
        "quality",
        "1 for the level of acceptance by the thresholds in force, 0 for the others; all 0 unless active.",
        *(ACCEPTED, DRAFT_TOKENS, DRAFTS, PER_POSITION),
        field="quality.level",
        by=one_hot("level", QualityLevel),
    ),
    _engine(
        "payoff",
        "1 for what speculation does to the speed of all output, by the measured speedup or else the "
        "estimated one and coverage, 0 for the others; all 0 unless active.",
        *(ACCEPTED, DRAFTS, RUNNING),
        field="payoff.verdict",
        by=one_hot("verdict", PayoffVerdict),
    ),
    _engine(
        "speedup",
        "Speed of all output over that without speculation, which payoff is judged by: measured, or else "
        "estimated and weighted with coverage. Only while active; below 1 speculation loses.",
        *(ACCEPTED, DRAFTS, GENERATED, RUNNING),
        field="payoff",
        by=BASIS,
    ),
    _engine(
        "speedup_interval",
        "Low and high end of the interval of a modelled speedup of all output, also while the verdict is "
        "unknown because it includes 1. Absent if measured or calibrated.",
        *(ACCEPTED, DRAFTS, GENERATED, RUNNING),
        field="payoff",
        by=Breakdown(("bound",), _interval),
    ),
    _engine(
        "step_fit_seconds",
        "The learned time of a step: fixed + per_request * requests in the batch + per_kv_cache * used "
        "share of the KV cache. Of steps with drafts, or of all if there are none.",
        *(STEPS, RUNNING),
        field="steps.fit",
        by=Breakdown(("term",), _terms),
    ),
    _engine(
        "step_fit_error_ratio",
        "Relative error of the learned time of a step, as a root of the mean square.",
        *(STEPS, RUNNING),
        field="steps.fit",
        by=Breakdown((), _fit_error),
    ),
    _engine(
        "recommended_num_speculative_tokens",
        "Recommended K, 0 for no speculation; absent without advice.",
        *(PER_POSITION, DRAFTS, RUNNING),
        field="advice.num_speculative_tokens",
    ),
    _engine(
        "recommendation",
        "1 for what to do about K, 0 for the others; the snapshot has the reason.",
        *(PER_POSITION, DRAFTS, RUNNING),
        field="advice.action",
        by=one_hot("action", Action),
    ),
    _engine(
        "estimated_speedup_at",
        "Estimated speedup of drafts that each K would give at the batch size of the judged window, which "
        "the advice goes by; extrapolated beyond the present K. Only with advice.",
        *(PER_POSITION, DRAFTS, RUNNING),
        field="advice.options",
        by=Breakdown(("num_speculative_tokens",), _speedups),
    ),
    _engine(
        "recommended_num_speculative_tokens_at",
        "Recommended K with this many requests in the batch, by the advised schedule; 0 for no speculation. "
        "Only where a schedule is advised.",
        *(PER_POSITION, DRAFTS, RUNNING),
        field="advice.schedule",
        by=Breakdown(("batch_size",), _rows),
    ),
    _engine("requests_running", "Requests in the batch.", RUNNING, field="load.requests_running"),
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
    _engine_counter("engine_resets_total", "Counter resets of the engine that were detected."),
    _engine_counter(
        "inconsistent_samples_total",
        "Inconsistent samples, by themselves or against the one before; ratios were clamped or left out.",
    ),
)


#: Metrics of a target and of the exporter.
SERVING: tuple[Metric, ...] = (
    _target("up", "1 if the last poll of the server succeeded, else 0."),
    _target("last_success_timestamp_seconds", "Unix time of the last successful poll."),
    _target("poll_duration_seconds", "How long the last poll took, from the request to the derived values."),
    _target_counter("poll_errors_total", "Failed polls by reason.", by=by_name("reason")),
    _exporter(
        "discovery_up",
        "1 if the name was last resolved to servers, else 0: the last known ones are then polled for five "
        "minutes.",
        field="discoveries",
        by=Breakdown(("name",), _discovery),
    ),
    _exporter(
        "threshold",
        "Every threshold in force, for rules and panels to compare with.",
        field="thresholds",
        by=by_name("name"),
    ),
    _exporter(
        "config_last_reload_successful",
        "1 if the last reading of the configuration succeeded, else 0.",
        field="reload.successful",
    ),
    _exporter(
        "config_last_reload_success_timestamp_seconds",
        "Unix time at which the configuration in force was read.",
        field="reload.success_timestamp_seconds",
    ),
    _exporter(
        "build_info",
        "Always 1. The exporter's version and the Python that runs it.",
        field="version",
        by=Breakdown(("version", "python_version"), _build),
    ),
)
