"""vLLM serving a diffusion language model: recognised, and not speculative decoding.

From 0.24 on vLLM counts denoising steps and committed tokens on the path that otherwise counts drafts. No
acceptance can be derived from them.
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
