"""vLLM's V1 engine, 0.8.5 and later, from either front end.

The Python front end prints the classic text, in multiprocess mode without ``_created``. The Rust front end
prints OpenMetrics. OpenMetrics from the Python front end may have ``vllm_`` instead of ``vllm:`` in sample
names. Names and meaning of the counters never changed.
"""

from __future__ import annotations

from .dialect import Dialect

#: Also used by LMDeploy and llama.cpp, with their own prefixes.
SPEC_DECODE_SERIES = {
    "drafts": ("spec_decode_num_drafts_total",),
    "draft_tokens": ("spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("spec_decode_num_accepted_tokens_total",),
    "accepted_tokens_per_position": ("spec_decode_num_accepted_tokens_per_pos_total",),
}

#: Series of every vLLM, the names of earlier versions last.
ENGINE_SERIES = {
    "generation_tokens": ("generation_tokens_total",),
    "requests_running": ("num_requests_running",),
    "requests_waiting": ("num_requests_waiting",),
    "kv_cache_usage_ratio": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
}

#: The inter-token latency, whose second name is that before vLLM 0.11, and what the context follows from.
STEP_SERIES = {
    "step_seconds": ("inter_token_latency_seconds_sum", "time_per_output_token_seconds_sum"),
    "step_observations": ("inter_token_latency_seconds_count", "time_per_output_token_seconds_count"),
    "prompt_tokens": ("prompt_tokens_total",),
    "requests": ("time_to_first_token_seconds_count",),
}

#: Not `inter_token_latency_seconds`: see `Latencies`.
LATENCY_HISTOGRAMS = {
    "time_to_first_token": "time_to_first_token_seconds",
    "time_per_output_token": "request_time_per_output_token_seconds",
    "end_to_end": "e2e_request_latency_seconds",
}

PREFIXES = ("vllm:", "vllm_")

DIALECT = Dialect(
    name="vllm-v1",
    prefixes=PREFIXES,
    series={
        **SPEC_DECODE_SERIES,
        **ENGINE_SERIES,
        **STEP_SERIES,
        "created": ("spec_decode_num_drafts_created",),
    },
    marks=frozenset(name for names in SPEC_DECODE_SERIES.values() for name in names)
    | frozenset(name for names in ENGINE_SERIES.values() for name in names)
    | {"spec_decode_num_drafts_created"},
    histograms=LATENCY_HISTOGRAMS,
)
