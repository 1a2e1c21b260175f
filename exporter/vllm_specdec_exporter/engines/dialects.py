"""The dialects: the metric names of every supported engine.

To add a dialect, add an entry to `_DIALECTS`; `dialect.py` describes its fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .dialect import DRAFTED_PER_POSITION, MAX_POSITIONS, PER_POSITION, Dialect
from .reading import SGLANG, Server

#: Of vLLM, LMDeploy and llama.cpp, each with its own prefix.
_SPEC_DECODE_SERIES = {
    "drafts": ("spec_decode_num_drafts_total",),
    "draft_tokens": ("spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("spec_decode_num_accepted_tokens_total",),
    "accepted_tokens_per_position": ("spec_decode_num_accepted_tokens_per_pos_total",),
}

#: Series of every vLLM, the names of earlier versions last.
_ENGINE_SERIES = {
    "generation_tokens": ("generation_tokens_total",),
    "requests_running": ("num_requests_running",),
    "requests_waiting": ("num_requests_waiting",),
    "kv_cache_usage_ratio": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
}

#: The inter-token latency, whose second name is that before vLLM 0.11, and what the context follows from.
_STEP_SERIES = {
    "step_seconds": ("inter_token_latency_seconds_sum", "time_per_output_token_seconds_sum"),
    "step_observations": ("inter_token_latency_seconds_count", "time_per_output_token_seconds_count"),
    "prompt_tokens": ("prompt_tokens_total",),
    "requests": ("time_to_first_token_seconds_count",),
}

#: Not `inter_token_latency_seconds`: see `Latencies`.
_LATENCY_HISTOGRAMS = {
    "time_to_first_token": "time_to_first_token_seconds",
    "time_per_output_token": "request_time_per_output_token_seconds",
    "end_to_end": "e2e_request_latency_seconds",
}

#: As vLLM prints them, as KServe on OpenShift renames them, and as Ray Serve exports them.
_PREFIXES = ("vllm:", "vllm_", "kserve_vllm:", "ray_vllm_", "ray_vllm:")

_V1_SERIES = {
    **_SPEC_DECODE_SERIES,
    **_ENGINE_SERIES,
    **_STEP_SERIES,
    "created": ("spec_decode_num_drafts_created",),
}
_V1_IDENTIFYING = frozenset(
    name for series in (_SPEC_DECODE_SERIES, _ENGINE_SERIES) for names in series.values() for name in names
) | {"spec_decode_num_drafts_created"}

_SGLANG_PREFIXES = ("sglang:", "sglang_")
_SGLANG_RANKS = ("pp_rank", "tp_rank", "moe_ep_rank")
#: Counters are of the whole server, so gauges are added up over `dp_rank`. `priority` and `is_streaming` are
#: classes of requests. Of one server `engine_type` has one value (sglang/srt/observability, 0.5.23).
_SGLANG_PARTS = frozenset({"dp_rank", "priority", "is_streaming", "engine_type"})
_SGLANG_LOAD = {
    "requests_running": ("num_running_reqs",),
    "requests_waiting": ("num_queue_reqs",),
    "kv_cache_usage_ratio": ("token_usage",),
}

#: What SGLang counts when a request finishes: one token of its prefill, and of each verification the accepted
#: tokens and one more. A retracted request has another prefill.
_SGLANG_DERIVED = {
    # These series appear with the first finished request, drafts with the first that was speculated.
    "generation_tokens": lambda v: v.get("generation_tokens", 0.0),
    "requests": lambda v: v.get("requests", 0.0 if not v["generation_tokens"] else None),
    "drafts": lambda v: v.get("drafts", 0.0 if not v["generation_tokens"] else None),
    "accepted_tokens": lambda v: (
        v["generation_tokens"] - v["requests"] - v["drafts"] - v.get("retractions", 0.0)
    ),
    "num_speculative_tokens": lambda v: max(0.0, v["verified_tokens"] - 1),
    "draft_tokens": lambda v: (
        v["drafts"] * v["num_speculative_tokens"] if v["draft_steps"] == v["num_speculative_tokens"] else None
    ),
}


def _whole(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 4 else None


def _padded(v: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the accepted tokens of every position: TensorRT-LLM does not print a count of 0."""
    accepted: tuple[float, ...] = v.get(PER_POSITION, ())
    k = max(len(v[DRAFTED_PER_POSITION]), min(int(v.get("num_speculative_tokens", 0)), MAX_POSITIONS))
    return accepted + (0.0,) * (k - len(accepted))


def _tensorrt_drafts(v: Mapping[str, Any]) -> float | None:
    """Return the drafts. Without any, the other counters show whether the server counts them."""
    if DRAFTED_PER_POSITION in v:
        drafts: float = v[DRAFTED_PER_POSITION][0]
        return drafts
    return 0.0 if "generation_tokens" in v and not v.get("drafted_in_iterations") else None


_TENSORRT_DERIVED = {
    "num_speculative_tokens": lambda v: _whole(v["spec_num_tokens"]),
    "verified_tokens": lambda v: (
        v["num_speculative_tokens"] + 1 if v["spec_enabled"].lower() == "true" else 0.0
    ),
    "method": lambda v: v["spec_method"].lower(),
    "drafts": _tensorrt_drafts,
    "draft_tokens": lambda v: v["drafts"] and sum(v[DRAFTED_PER_POSITION]),
    "accepted_tokens": lambda v: v["drafts"] and sum(_padded(v)),
    PER_POSITION: _padded,
}

_DIALECTS = (
    # vLLM's V1 engine, 0.8.5 and later, from either front end. The Python front end prints the classic text,
    # in multiprocess mode without ``_created``. The Rust front end prints OpenMetrics. OpenMetrics from the
    # Python front end may have ``vllm_`` instead of ``vllm:`` in sample names. Names and meaning of the
    # counters never changed.
    Dialect(
        name="vllm-v1",
        prefixes=_PREFIXES,
        series=_V1_SERIES,
        identifying=_V1_IDENTIFYING,
        histograms=_LATENCY_HISTOGRAMS,
    ),
    # vLLM's V0 engine, up to 0.9.2: only two gauges are usable. They are means over the server's whole life.
    # The acceptance gauge is too high: it also counts tokens that the verifier would have accepted after an
    # earlier rejection. The counters are unusable, although two of them have the names of V1 counters: vLLM
    # adds its running totals to them every five seconds.
    Dialect(
        name="vllm-v0",
        prefixes=_PREFIXES,
        series={
            **_ENGINE_SERIES,
            "lifetime_acceptance_ratio": ("spec_decode_draft_acceptance_rate",),
            "lifetime_efficiency": ("spec_decode_efficiency",),
        },
        identifying=frozenset(
            {
                "spec_decode_draft_acceptance_rate",
                "spec_decode_efficiency",
                "spec_decode_num_emitted_tokens_total",
                "num_requests_swapped",
                "cpu_cache_usage_perc",
            }
        ),
        excluding=frozenset({"spec_decode_num_drafts_total"}),
        priority=20,
    ),
    # vLLM serving a diffusion language model, which is not speculative decoding. Since 0.24 vLLM counts
    # denoising steps and committed tokens in place of drafts. They have no acceptance.
    Dialect(
        name="vllm-diffusion",
        prefixes=_PREFIXES,
        series=_ENGINE_SERIES,
        identifying=frozenset(
            {
                "diffusion_num_denoising_steps_total",
                "diffusion_num_canvas_positions_total",
                "diffusion_num_committed_tokens_total",
            }
        ),
        priority=30,
        speculative=False,
    ),
    # Aphrodite, 0.24 and later: a fork of vLLM's V1 engine, metric for metric.
    Dialect(
        name="aphrodite",
        prefixes=("aphrodite:", "aphrodite_"),
        series=_V1_SERIES,
        identifying=_V1_IDENTIFYING,
        histograms=_LATENCY_HISTOGRAMS,
        server=Server("Aphrodite", "--speculative-config"),
    ),
    # SGLang, 0.5.13 and later. Counters are of the whole server and increase when a request finishes; gauges
    # are of each rank. Its gauges of acceptance (`spec_accept_length`, `spec_accept_rate`) are not read: they
    # cover forty iterations, however long ago, and keep their value while the server is idle.
    # `inter_token_latency_seconds` is per token, unlike vLLM's.
    Dialect(
        name="sglang",
        prefixes=_SGLANG_PREFIXES,
        series={
            **_SGLANG_LOAD,
            "drafts": ("spec_verify_calls_total",),
            "generation_tokens": ("generation_tokens_total",),
            "prompt_tokens": ("prompt_tokens_total",),
            "requests": ("num_requests_total",),
            "verified_tokens": ("spec_num_draft_tokens",),
            "draft_steps": ("spec_num_steps",),
        },
        # With SGLANG_ENABLE_METRICS_DEVICE_TIMER=1.
        categories={
            "forward_execution_seconds_total": {
                "eagle_draft": "draft_seconds",
                "eagle_draft_extend": "draft_seconds",
                "frozen_kv_draft": "draft_seconds",
                "target_verify": "verify_seconds",
            }
        },
        terms={
            "retractions": ("num_retracted_requests_total",),
            "idle_seconds": ("scheduler_idle_seconds_total",),  # the first series that a server prints
        },
        derived=_SGLANG_DERIVED,
        histograms=_LATENCY_HISTOGRAMS,
        counts_finished_requests=True,
        ranks=_SGLANG_RANKS,
        parts=_SGLANG_PARTS,
        passive="prefill",
        missing="no finished request had a draft, or the server's front end does not count verifications",
        server=SGLANG,
    ),
    # SGLang before 0.5.13: gauges of acceptance only, which are not current (see above).
    Dialect(
        name="sglang-gauges",
        prefixes=_SGLANG_PREFIXES,
        series={**_SGLANG_LOAD, "generation_tokens": ("generation_tokens_total",)},
        identifying=frozenset({"spec_accept_length", "spec_accept_rate"}),
        excluding=frozenset({"spec_num_draft_tokens", "spec_verify_calls_total"}),
        priority=20,
        ranks=_SGLANG_RANKS,
        parts=_SGLANG_PARTS,
        uncounted="SGLang before 0.5.13 does not count drafts, and its gauges of acceptance are not current",
        server=SGLANG,
    ),
    # TensorRT-LLM: of its two families of counters, the one of finished requests (`return_perf_metrics`). The
    # other one is updated in each iteration, so the two must not be divided by each other.
    Dialect(
        name="trtllm",
        prefixes=("trtllm_", "trtllm:"),
        series={
            PER_POSITION: ("spec_decode_accepted_tokens_total",),
            DRAFTED_PER_POSITION: ("spec_decode_drafted_tokens_total",),
            "generation_tokens": ("generation_tokens_total",),
            "requests_running": ("num_requests_running",),
            "requests_waiting": ("num_requests_waiting",),
            "kv_cache_usage_ratio": ("kv_cache_utilization",),
            "prompt_tokens": ("prompt_tokens_total",),
            "requests": ("time_to_first_token_seconds_count",),
        },
        terms={"drafted_in_iterations": ("spec_decode_num_draft_tokens_total",)},
        derived=_TENSORRT_DERIVED,
        info_series="speculative_config_info",
        info=("spec_enabled", "spec_num_tokens", "spec_method"),
        histograms={
            "time_to_first_token": "time_to_first_token_seconds",
            "time_per_output_token": "time_per_output_token_seconds",
            "end_to_end": "e2e_request_latency_seconds",
        },
        counts_finished_requests=True,
        position_label="token_position",
        parts=frozenset({"engine_type"}),  # one value of one server (tensorrt_llm/metrics/collector.py)
        missing="no finished request had a draft, or the server runs without return_perf_metrics",
        server=Server("TensorRT-LLM", "speculative_config"),
    ),
    # LMDeploy, 0.14 and later: vLLM's schema with its own prefix.
    Dialect(
        name="lmdeploy",
        prefixes=("lmdeploy:", "lmdeploy_"),
        series={**_SPEC_DECODE_SERIES, **_ENGINE_SERIES},
    ),
    # llama.cpp's server: vLLM's schema with its own prefix, without labels for model or engine. Counters
    # increase when a request completes, so short windows contain bursts. Totals are printed with six
    # significant digits, so above a million they increase in steps of ten or more; position counters are
    # exact.
    Dialect(
        name="llamacpp",
        prefixes=("llamacpp:", "llamacpp_"),
        series={
            **_SPEC_DECODE_SERIES,
            "generation_tokens": ("tokens_predicted_total",),
            "requests_running": ("requests_processing",),
            "requests_waiting": ("requests_deferred",),
            "kv_cache_usage_ratio": ("kv_cache_usage_ratio",),
        },
        resolution=1e-5,
        counts_finished_requests=True,
        server=Server("llama.cpp", "--spec-type"),
    ),
)

#: Every dialect, in the order in which they are tried.
DIALECTS: tuple[Dialect, ...] = tuple(sorted(_DIALECTS, key=lambda d: (-d.priority, d.name)))
