"""vLLM's V0 engine, up to 0.9.2: only two gauges are usable.

They are means over the server's whole life. The acceptance gauge is too high: it also counts tokens that the
verifier would have accepted after an earlier rejection. The counters are unusable, although two of them have
the names of V1 counters: vLLM adds its running totals to them every five seconds.
"""

from __future__ import annotations

from .dialect import Dialect
from .vllm_v1 import ENGINE_SERIES, PREFIXES

DIALECT = Dialect(
    name="vllm-v0",
    prefixes=PREFIXES,
    series={
        **ENGINE_SERIES,
        "lifetime_acceptance_ratio": ("spec_decode_draft_acceptance_rate",),
        "lifetime_efficiency": ("spec_decode_efficiency",),
    },
    marks=frozenset(
        {
            "spec_decode_draft_acceptance_rate",
            "spec_decode_efficiency",
            "spec_decode_num_emitted_tokens_total",
            "num_requests_swapped",
            "cpu_cache_usage_perc",
        }
    ),
    unless=frozenset({"spec_decode_num_drafts_total"}),
    rank=20,
)
