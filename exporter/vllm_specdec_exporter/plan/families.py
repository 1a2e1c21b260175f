"""Families of architectures whose parameters can be counted from a `config.json`.

A `model_type` that is not here is refused: counting an unknown architecture as if it were Llama would give
a plausible number that may be wrong by any factor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Family:
    """What the configurations of one `model_type` leave unsaid.

    Attributes:
        mlp_matrices: 3 where the MLP has a gate, else 2.
        tied: whether the output layer shares the embeddings where the file does not say.
        query_bias: whether queries, keys and values have biases where the file does not say.
        norms: vectors of the hidden size in a layer's norms.
        head_norms: whether queries and keys are normalized per head.
        expert_gate: whether a shared expert has a gate of its own.
        positions: whether positions are embedded by a learned table (two rows longer than the context).
        defaults: keys that Transformers leaves out of the file when they have the class's default.
    """

    mlp_matrices: int = 3
    tied: bool = False
    query_bias: bool = False
    norms: int = 2
    head_norms: bool = False
    expert_gate: bool = False
    positions: bool = False
    defaults: Mapping[str, int] = field(default_factory=dict)


_GEMMA3 = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208}

#: By `model_type`. Source: the model and configuration classes of Transformers.
FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "mistral": Family(),
    "ministral3": Family(),
    "mixtral": Family(),
    "granite": Family(),
    "phi3": Family(),
    "olmo2": Family(),
    "seed_oss": Family(query_bias=True),
    "smollm3": Family(tied=True),
    "qwen2": Family(query_bias=True),
    "qwen2_moe": Family(query_bias=True, expert_gate=True),
    "qwen3": Family(head_norms=True),
    "qwen3_moe": Family(head_norms=True),
    "gemma": Family(tied=True),
    "gemma2": Family(tied=True, norms=4),
    "gemma3_text": Family(tied=True, norms=4, head_norms=True, defaults=_GEMMA3),
    "glm4_moe": Family(query_bias=True, head_norms=True),
    "gpt_oss": Family(query_bias=True),
    "deepseek_v2": Family(),
    "deepseek_v3": Family(),
    "kimi_k2": Family(),
    "opt": Family(mlp_matrices=2, tied=True, query_bias=True, norms=4, positions=True),
}
