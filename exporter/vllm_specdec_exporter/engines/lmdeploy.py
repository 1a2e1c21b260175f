"""LMDeploy, 0.14 and later: vLLM's schema with its own prefix."""

from __future__ import annotations

from .dialect import Dialect
from .vllm_v1 import ENGINE_SERIES, SPEC_DECODE_SERIES

DIALECT = Dialect(
    name="lmdeploy",
    prefixes=("lmdeploy:", "lmdeploy_"),
    series={**SPEC_DECODE_SERIES, **ENGINE_SERIES},
)
