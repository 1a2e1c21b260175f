"""The dialects: the metric names of every supported engine.

To add a dialect, add an entry to `DIALECTS`.
"""

from __future__ import annotations

from .dialect import Dialect

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

_PREFIXES = ("vllm:", "vllm_")

_DIALECTS = (
    # vLLM's V1 engine, 0.8.5 and later, from either front end. The Python front end prints the classic text,
    # in multiprocess mode without ``_created``. The Rust front end prints OpenMetrics. OpenMetrics from the
    # Python front end may have ``vllm_`` instead of ``vllm:`` in sample names. Names and meaning of the
    # counters never changed.
    Dialect(
        name="vllm-v1",
        prefixes=_PREFIXES,
        series={
            **_SPEC_DECODE_SERIES,
            **_ENGINE_SERIES,
            **_STEP_SERIES,
            "created": ("spec_decode_num_drafts_created",),
        },
        identifying=frozenset(name for names in _SPEC_DECODE_SERIES.values() for name in names)
        | frozenset(name for names in _ENGINE_SERIES.values() for name in names)
        | {"spec_decode_num_drafts_created"},
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
    ),
)

#: Every dialect, in the order in which they are tried.
DIALECTS: tuple[Dialect, ...] = tuple(sorted(_DIALECTS, key=lambda d: (-d.priority, d.name)))
