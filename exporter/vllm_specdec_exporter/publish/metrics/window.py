"""Rows of a window of an engine: ratios and rates, speedup and return."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

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
    TPOT,
    Breakdown,
    Metric,
    Scope,
    each,
    row_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...economics.baseline_match import LatencyRatio
    from .metric import Samples

_window = row_of(Scope.WINDOW)


def _rate(name: str, counted: str, upstream: str) -> Metric:
    return _window(name, f"{counted} per second, over the real span of the window.", upstream)


def _latency_ratios(ratios: Iterable[LatencyRatio]) -> Samples:
    # Not "quantile": promtool rejects that label outside summaries.
    return [((item.latency, f"{100 * item.quantile:g}"), item.ratio) for item in ratios]


#: Values of an engine over a window.
DERIVED: tuple[Metric, ...] = (
    _window("acceptance_ratio", "Accepted tokens over draft tokens, 0 to 1.", ACCEPTED, DRAFT_TOKENS),
    _window(
        "mean_acceptance_length",
        "Tokens emitted per draft, 1 to 1+K: 1 + accepted tokens / drafts.",
        *(ACCEPTED, DRAFTS),
    ),
    _window(
        "position_acceptance_ratio",
        "Share of drafts in which this position was accepted, 0 to 1. Drafts too short to reach a "
        "position count against it.",
        *(PER_POSITION, DRAFTS),
        by=POSITION,
    ),
    _window(
        "position_conditional_acceptance_ratio",
        "Share of the drafts accepted at the position before in which this one was accepted too, 0 to 1; "
        "for position 0, of all drafts.",
        *(PER_POSITION, DRAFTS),
        by=POSITION,
    ),
    _window(
        "expected_tokens_per_step",
        "1 + the sum of the position acceptance ratios: tokens that a draft is expected to emit.",
        *(PER_POSITION, DRAFTS),
    ),
    _window(
        "mean_acceptance_length_at",
        "Mean acceptance length that this K would have given, exact for every K up to the present one: "
        "1 + the sum of the first K position acceptance ratios.",
        *(PER_POSITION, DRAFTS),
        by=Breakdown(("num_speculative_tokens",), partial(each, first=1)),
    ),
    _window(
        "mean_draft_length",
        "Draft tokens per draft, 0 to K. Below K, drafts vary and the deep positions are understated.",
        *(DRAFT_TOKENS, DRAFTS),
    ),
    _window(
        "position_decay_ratio",
        "Geometric mean of the conditional acceptance ratios behind position 0, 0 to 1: how much is left "
        "from one position to the next.",
        PER_POSITION,
    ),
    _window(
        "coverage_ratio",
        "Share of the generated tokens that came out of drafts, 0 to 1: (accepted tokens + drafts) / "
        "generated tokens.",
        *(ACCEPTED, DRAFTS, GENERATED),
    ),
    _rate("drafts_per_second", "Drafts", DRAFTS),
    _rate("draft_tokens_per_second", "Draft tokens", DRAFT_TOKENS),
    _rate("accepted_tokens_per_second", "Accepted tokens", ACCEPTED),
    _rate("generation_tokens_per_second", "Generated tokens", GENERATED),
    _window(
        "window_drafts", "Drafts in the window: the sample size behind its ratios.", DRAFTS, field="drafts"
    ),
    _window(
        "window_span_seconds",
        "Time between the first and the last sample of the window.",
        field="span_seconds",
    ),
    _window(
        "step_seconds",
        "Mean time of an engine step, whatever it emits, as each request in the batch sees it.",
        STEPS,
    ),
    _window(
        "estimated_speedup",
        "Estimated speed over that without speculation: mean acceptance length / cost of a step under the "
        "cost profile (see info) at the batch size of the window. Of drafts: see coverage_ratio for how much "
        "came out of them. Below 1 speculation loses. The basis says where the cost of a step comes from.",
        *(ACCEPTED, DRAFTS, RUNNING),
        field="estimate",
        by=BASIS,
    ),
    _window(
        "break_even_acceptance_length",
        "Mean acceptance length at which the estimated speedup is 1, from 1 up: the cost of a step with "
        "drafts, in plain steps.",
        RUNNING,
        field="estimate.break_even_acceptance_length",
    ),
    _window(
        "break_even_acceptance_ratio",
        "Acceptance ratio at which the estimated speedup is 1, from 0 up. Above 1 no acceptance could pay.",
        RUNNING,
        field="estimate.break_even_acceptance_ratio",
    ),
    _window(
        "mean_batch_size",
        "Requests in the batch, averaged over the drafts of the window, at least 1: what the estimate "
        "takes for the load.",
        *(RUNNING, DRAFTS),
        field="batch_size",
    ),
    _window(
        "measured_speedup",
        "Mean time per output token of the baseline at the same load over the present one. Only with a "
        "baseline; below 1 speculation loses.",
        *(TPOT, RUNNING),
        field="measured.speedup",
    ),
    _window(
        "measured_requests",
        "Finished requests behind the measured speedup. Only with a baseline.",
        TPOT,
        field="measured.requests",
    ),
    _window(
        "latency_ratio",
        "Percentile of a latency over the baseline's at the same load: below 1 is faster. "
        "As coarse as the server's buckets. end_to_end compares only where answers are as long.",
        TPOT,
        "vllm:time_to_first_token_seconds",
        "vllm:e2e_request_latency_seconds",
        field="measured.latency_ratios",
        by=Breakdown(("latency", "percentile"), _latency_ratios),
    ),
    _window(
        "return_on_speculation_ratio",
        "Relative benefit over relative cost: (mean acceptance length - 1) / (draft model's share of the GPU "
        "memory + compute overhead of a step). Only with --cost.draft-memory and --cost.gpu-memory.",
        *(ACCEPTED, DRAFTS),
        field="returns.return_ratio",
    ),
    _window(
        "benefit_tokens_per_second",
        "Upper bound of the further tokens per second, as published, before overhead: (mean acceptance "
        "length - 1) x throughput without speculation. Only with --cost.draft-memory and --cost.gpu-memory.",
        *(ACCEPTED, DRAFTS),
        field="returns.benefit_tokens_per_second",
    ),
)
