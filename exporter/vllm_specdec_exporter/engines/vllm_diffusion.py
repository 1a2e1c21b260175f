"""vLLM serving a diffusion language model, which is not speculative decoding.

Since 0.24 vLLM counts denoising steps and committed tokens in place of drafts. They have no acceptance.
"""

from __future__ import annotations

from .dialect import Dialect
from .vllm_v1 import ENGINE_SERIES, PREFIXES

DIALECT = Dialect(
    name="vllm-diffusion",
    prefixes=PREFIXES,
    series=ENGINE_SERIES,
    marks=frozenset(
        {
            "diffusion_num_denoising_steps_total",
            "diffusion_num_canvas_positions_total",
            "diffusion_num_committed_tokens_total",
        }
    ),
    rank=30,
    speculative=False,
)
