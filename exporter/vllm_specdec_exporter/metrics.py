"""The metric table: every metric that the exporter has, declared once.

The collector publishes from it, `docs/metrics.md` is generated from it, the snapshot's ``metric`` filter
knows its names from it, and the tests hold all of them to it. To add a metric is to add a row.
"""

from __future__ import annotations

import platform
from functools import partial
from typing import TYPE_CHECKING

from .judgement.activity import ActivityState
from .judgement.advice import Action
from .judgement.payoff import PayoffVerdict
from .judgement.quality import QualityLevel
from .metric import Kind, Metric, Scope, by_name, each, one_hot, row_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .baseline.match import LatencyRatio
    from .judgement.payoff import Payoff
    from .metric import Samples
    from .result import Deployment

_exporter = row_of(Scope.EXPORTER)
_target, _target_counter = row_of(Scope.TARGET), row_of(Scope.TARGET, Kind.COUNTER)
_engine, _engine_counter = row_of(Scope.ENGINE), row_of(Scope.ENGINE, Kind.COUNTER)
_engine_histogram = row_of(Scope.ENGINE, Kind.HISTOGRAM)
_window = row_of(Scope.WINDOW)

_DRAFTS = "vllm:spec_decode_num_drafts_total"
_DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
_GENERATED = "vllm:generation_tokens_total"
_RUNNING = "vllm:num_requests_running"
_TPOT = "vllm:request_time_per_output_token_seconds"


def _deployment(known: Deployment) -> Samples:
    labels = (known.method, known.draft_model, known.dialect, known.upstream_version, known.cost_profile)
    return [(labels, 1.0)]


def _latency_ratios(ratios: Iterable[LatencyRatio]) -> Samples:
    # Not "quantile", which belongs to summaries: promtool refuses it elsewhere.
    return [((item.latency, f"{100 * item.quantile:g}"), item.ratio) for item in ratios]


def _speedup(payoff: Payoff) -> Samples:
    if payoff.speedup is None or payoff.basis is None:
        return ()
    return [((payoff.basis.value,), payoff.speedup)]


def _build(version: str) -> Samples:
    return [((version, platform.python_version()), 1.0)]


#: Every metric, in the order in which it is exposed and documented.
METRICS: tuple[Metric, ...] = (
    # What the server counted, under one name whatever its dialect.
    _engine_counter(
        "drafts_total",
        "Verified drafts: one request in one step with drafted tokens.",
        _DRAFTS,
        field="counters.drafts",
    ),
    _engine_counter(
        "draft_tokens_total",
        "Drafted tokens that were verified.",
        _DRAFT_TOKENS,
        field="counters.draft_tokens",
    ),
    _engine_counter(
        "accepted_tokens_total",
        "Drafted tokens that were accepted; the bonus token of each draft does not count.",
        _ACCEPTED,
        field="counters.accepted_tokens",
    ),
    _engine_counter(
        "accepted_tokens_per_position_total",
        "Drafts in which the token at this position, counted from 0, was accepted.",
        _PER_POSITION,
        field="counters.accepted_tokens_per_position",
        expand=each,
        labels=("position",),
    ),
    _engine_counter(
        "generation_tokens_total",
        "Generated tokens, with and without speculation.",
        _GENERATED,
        field="counters.generation_tokens",
    ),
    _engine_histogram(
        "accepted_tokens_per_draft",
        "Distribution of accepted tokens per draft, recovered exactly: the drafts with at most j "
        "accepted tokens are all drafts less those accepted at position j.",
        _DRAFTS,
        _PER_POSITION,
        _ACCEPTED,
    ),
    # Derived over a window.
    _window("acceptance_ratio", "Accepted tokens over draft tokens, 0 to 1.", _ACCEPTED, _DRAFT_TOKENS),
    _window(
        "mean_acceptance_length",
        "Tokens emitted per draft, 1 to 1+K: 1 + accepted tokens / drafts.",
        _ACCEPTED,
        _DRAFTS,
    ),
    _window(
        "position_acceptance_ratio",
        "Share of drafts in which this position was accepted, 0 to 1. Drafts too short to reach a "
        "position count against it.",
        _PER_POSITION,
        _DRAFTS,
        expand=each,
        labels=("position",),
    ),
    _window(
        "position_conditional_acceptance_ratio",
        "Share of the drafts accepted at the position before in which this one was accepted too, 0 to 1; "
        "for position 0, of all drafts.",
        _PER_POSITION,
        _DRAFTS,
        expand=each,
        labels=("position",),
    ),
    _window(
        "expected_tokens_per_step",
        "1 + the sum of the position acceptance ratios: tokens that a draft is expected to emit.",
        _PER_POSITION,
        _DRAFTS,
    ),
    _window(
        "mean_acceptance_length_at",
        "Mean acceptance length that this K would have given, exact for every K up to the present one: "
        "1 + the sum of the first K position acceptance ratios.",
        _PER_POSITION,
        _DRAFTS,
        expand=partial(each, first=1),
        labels=("num_speculative_tokens",),
    ),
    _window(
        "mean_draft_length",
        "Draft tokens per draft, 0 to K. Below K, drafts vary and the deep positions are understated.",
        _DRAFT_TOKENS,
        _DRAFTS,
    ),
    _window(
        "position_decay_ratio",
        "Geometric mean of the conditional acceptance ratios behind position 0, 0 to 1: how much is left "
        "from one position to the next.",
        _PER_POSITION,
    ),
    _window(
        "coverage_ratio",
        "Share of the generated tokens that came out of drafts, 0 to 1: (accepted tokens + drafts) / "
        "generated tokens.",
        _ACCEPTED,
        _DRAFTS,
        _GENERATED,
    ),
    _window("drafts_per_second", "Drafts per second, over the real span of the window.", _DRAFTS),
    _window(
        "draft_tokens_per_second",
        "Draft tokens per second, over the real span of the window.",
        _DRAFT_TOKENS,
    ),
    _window(
        "accepted_tokens_per_second",
        "Accepted tokens per second, over the real span of the window.",
        _ACCEPTED,
    ),
    _window(
        "generation_tokens_per_second",
        "Generated tokens per second, over the real span of the window.",
        _GENERATED,
    ),
    _window(
        "window_drafts",
        "Drafts in the window: the sample size behind its ratios.",
        _DRAFTS,
        field="drafts",
    ),
    _window(
        "window_span_seconds",
        "Time between the first and the last sample of the window.",
        field="span_seconds",
    ),
    # What it gains: by the cost profile, and against a baseline.
    _window(
        "estimated_speedup",
        "Estimated speed over that without speculation: mean acceptance length / cost of a step under the "
        "cost profile (see info) at the batch size of the window. Of drafts: see coverage_ratio for how much "
        "came out of them. Below 1 speculation loses.",
        _ACCEPTED,
        _DRAFTS,
        _RUNNING,
        field="estimate.speedup",
    ),
    _window(
        "break_even_acceptance_length",
        "Mean acceptance length at which the estimated speedup is 1, from 1 up: the cost of a step with "
        "drafts, in plain steps.",
        _RUNNING,
        field="estimate.break_even_acceptance_length",
    ),
    _window(
        "break_even_acceptance_ratio",
        "Acceptance ratio at which the estimated speedup is 1, from 0 up. Above 1 no acceptance could pay.",
        _RUNNING,
        field="estimate.break_even_acceptance_ratio",
    ),
    _window(
        "mean_batch_size",
        "Requests in the batch, averaged over the drafts of the window, at least 1: what the estimate "
        "takes for the load.",
        _RUNNING,
        _DRAFTS,
        field="batch_size",
    ),
    _window(
        "measured_speedup",
        "Mean time per output token of the baseline at the same load over the present one. Only with a "
        "baseline; below 1 speculation loses.",
        _TPOT,
        _RUNNING,
        field="measured.speedup",
    ),
    _window(
        "measured_requests",
        "Finished requests behind the measured speedup. Only with a baseline.",
        _TPOT,
        field="measured.requests",
    ),
    _window(
        "latency_ratio",
        "Percentile of a latency over the baseline's at the same load: below 1 is faster. "
        "As coarse as the server's buckets. end_to_end compares only where answers are as long.",
        _TPOT,
        "vllm:time_to_first_token_seconds",
        "vllm:e2e_request_latency_seconds",
        field="measured.latency_ratios",
        expand=_latency_ratios,
        labels=("latency", "percentile"),
    ),
    _window(
        "return_on_speculation_ratio",
        "Relative benefit over relative cost: (mean acceptance length - 1) / (draft model's share of the GPU "
        "memory + compute overhead of a step). Only with --cost.draft-memory and --cost.gpu-memory.",
        _ACCEPTED,
        _DRAFTS,
        field="returns.return_ratio",
    ),
    _window(
        "benefit_tokens_per_second",
        "Upper bound of the further tokens per second, as published, before overhead: (mean acceptance "
        "length - 1) x throughput without speculation. Only with --cost.draft-memory and --cost.gpu-memory.",
        _ACCEPTED,
        _DRAFTS,
        field="returns.benefit_tokens_per_second",
    ),
    # What is known of the engine, and what is judged.
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
        _PER_POSITION,
    ),
    _engine(
        "scheduled_num_speculative_tokens",
        "K that the schedule by batch size has for the requests running, 0 for no speculation. Only where "
        "--spec.config has num_speculative_tokens_per_batch_size.",
        _RUNNING,
    ),
    _engine(
        "activity",
        "1 for what the engine does about speculation, 0 for the other states; all 0 where the server does "
        "not show it (vLLM V0).",
        _DRAFTS,
        _GENERATED,
        field="activity.state",
        expand=one_hot(ActivityState),
        labels=("state",),
    ),
    _engine(
        "quality",
        "1 for the level of acceptance by the thresholds in force, 0 for the others; all 0 unless active.",
        _ACCEPTED,
        _DRAFT_TOKENS,
        _DRAFTS,
        _PER_POSITION,
        field="quality.level",
        expand=one_hot(QualityLevel),
        labels=("level",),
    ),
    _engine(
        "payoff",
        "1 for what speculation does to the speed of all output, by the measured speedup or else the "
        "estimated one and coverage, 0 for the others; all 0 unless active.",
        _ACCEPTED,
        _DRAFTS,
        _RUNNING,
        field="payoff.verdict",
        expand=one_hot(PayoffVerdict),
        labels=("verdict",),
    ),
    _engine(
        "speedup",
        "Speed of all output over that without speculation, which payoff is judged by: measured, or else "
        "estimated and weighted with coverage. Only while active; below 1 speculation loses.",
        _ACCEPTED,
        _DRAFTS,
        _GENERATED,
        _RUNNING,
        field="payoff",
        expand=_speedup,
        labels=("basis",),
    ),
    _engine(
        "recommended_num_speculative_tokens",
        "The K to have, 0 for no speculation; absent while nothing can be said.",
        _PER_POSITION,
        _DRAFTS,
        _RUNNING,
        field="advice.num_speculative_tokens",
    ),
    _engine(
        "recommendation",
        "1 for what to do about K, 0 for the others; the snapshot has the reason.",
        _PER_POSITION,
        _DRAFTS,
        _RUNNING,
        field="advice.action",
        expand=one_hot(Action),
        labels=("action",),
    ),
    _engine(
        "requests_running",
        "Requests in the batch.",
        _RUNNING,
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
    # The target: the server that is polled.
    _target("up", "1 if the last poll of the server succeeded, else 0."),
    _target("last_success_timestamp_seconds", "Unix time of the last successful poll."),
    _target("poll_duration_seconds", "How long the last poll took, from the request to the derived values."),
    _target_counter("poll_errors_total", "Failed polls by reason.", expand=by_name, labels=("reason",)),
    # The exporter itself.
    _exporter(
        "threshold",
        "Every threshold in force, for rules and panels to compare with.",
        field="thresholds",
        expand=by_name,
        labels=("name",),
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
        expand=_build,
        labels=("version", "python_version"),
    ),
)
