"""llama.cpp's server: vLLM's schema with its own prefix, without labels for model or engine.

Counters increase when a request completes, so short windows contain bursts. Totals are printed with six
significant digits, so above a million they increase in steps of ten or more; position counters are exact.
"""

from __future__ import annotations

from .dialect import Dialect
from .vllm_v1 import SPEC_DECODE_SERIES

DIALECT = Dialect(
    name="llamacpp",
    prefixes=("llamacpp:", "llamacpp_"),
    series={
        **SPEC_DECODE_SERIES,
        "generation_tokens": ("tokens_predicted_total",),
        "requests_running": ("requests_processing",),
        "requests_waiting": ("requests_deferred",),
        "kv_cache_usage_ratio": ("kv_cache_usage_ratio",),
    },
    resolution=1e-5,
    counts_finished_requests=True,
)
