"""Architecture: the dimensions of a decoder, from its Hugging Face `config.json`.

Only the language model counts: for a model with images the nested `text_config` is read, without the vision
tower (about 0.4B parameters in most).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..config.options import nearest
from .sizes import is_quantized, stored_precision

if TYPE_CHECKING:
    from .sizes import Precision

_CACHING = ("full_attention", "sliding_attention")  # types of layers with a KV cache
_MAX_LAYERS = 10_000  # the deepest published models have a few hundred layers


@dataclass(frozen=True, slots=True)
class Family:
    """What the configurations of one `model_type` leave out."""

    mlp_matrices: int = 3  # 3 if the MLP has a gate, else 2
    tied: bool = False  # whether the output layer shares the embeddings by default
    query_bias: bool = False  # whether queries, keys and values have biases by default
    norms: int = 2  # vectors of the hidden size in a layer's norms
    head_norms: bool = False  # whether queries and keys are normalized per head
    expert_gate: bool = False  # whether a shared expert has a gate of its own
    #: Whether positions are embedded by a learned table (two rows longer than the context).
    positions: bool = False
    #: Keys that Transformers leaves out of the file when they have the class's default.
    defaults: Mapping[str, int] = field(default_factory=dict)


_GEMMA3 = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208}

#: By `model_type`. Source: the model and configuration classes of Transformers.
FAMILIES: Mapping[str, Family] = {
    **dict.fromkeys(("llama", "mistral", "ministral3", "mixtral", "granite", "phi3", "olmo2"), Family()),
    "seed_oss": Family(query_bias=True),
    "smollm3": Family(tied=True),
    "qwen2": Family(query_bias=True),
    "qwen2_moe": Family(query_bias=True, expert_gate=True),
    **dict.fromkeys(("qwen3", "qwen3_moe"), Family(head_norms=True)),
    "gemma": Family(tied=True),
    "gemma2": Family(tied=True, norms=4),
    "gemma3_text": Family(tied=True, norms=4, head_norms=True, defaults=_GEMMA3),
    "glm4_moe": Family(query_bias=True, head_norms=True),
    "gpt_oss": Family(query_bias=True),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), Family()),
    "opt": Family(mlp_matrices=2, tied=True, query_bias=True, norms=4, positions=True),
}


class ArchitectureError(ValueError):
    """An invalid configuration. The message is one line, without the file's name."""


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2): keys and values cached as one compressed vector."""

    kv_rank: int  # numbers in the compressed vector of one token and layer
    rope_size: int  # additional numbers for the position
    query_rank: int  # rank of the compressed queries, 0 if not compressed
    key_size: int  # numbers of a head's key without the position
    value_size: int  # numbers of a head's value


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts."""

    count: int  # routed experts in a layer
    used: int  # routed experts per token
    size: int  # intermediate size of an expert
    shared_size: int  # intermediate size of all shared experts together, 0 for none
    layers: int  # layers with experts; the others have a dense MLP


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder-only language model."""

    model_type: str  # as Transformers names the architecture
    layers: int
    hidden: int
    intermediate: int  # intermediate size of a dense MLP, 0 where every layer has experts
    heads: int
    kv_heads: int  # key and value heads
    head_size: int  # numbers in a head
    vocabulary: int  # rows of the embeddings
    tied: bool  # whether the output layer shares the embeddings
    query_bias: bool = False  # whether queries, keys and values have biases
    latent: LatentAttention | None = None  # multi-head latent attention, ``None`` for the usual one
    experts: Experts | None = None  # mixture of experts, ``None`` for a dense model
    mtp_layers: int = 0  # layers for multi-token prediction that the checkpoint brings
    positions: int = 0  # rows of a table of learned positions, 0 for none
    sliding_window: int = 0  # tokens that a sliding-window layer looks back on, 0 where no layer has one
    weights: Precision | None = None  # precision of the weights, ``None`` if the file does not have it
    quantized: bool = False  # whether the weights are quantized

    @property
    def family(self) -> Family:
        """Properties of the `model_type`."""
        return FAMILIES[self.model_type]

    def kv_values_per_token(self, gpus: int = 1) -> int:
        """Return the numbers in the KV cache of one token, over all GPUs.

        Tensor parallelism splits the key-value heads. A GPU has at least one, so with fewer heads than GPUs,
        and with latent attention, which has one vector, there are copies. Sliding-window layers count in
        full: an upper bound, exact while the context is not longer than the window.
        """
        if self.latent is not None:
            return self.layers * (self.latent.kv_rank + self.latent.rope_size) * gpus
        heads = max(1, self.kv_heads // gpus) * gpus
        return self.layers * 2 * heads * self.head_size

    def one_layer(self) -> Architecture:
        """Return the same model with a single layer, like EAGLE heads and MTP layers."""
        return replace(self, layers=1)


def read_architecture(document: object) -> Architecture:
    """Return the architecture of a parsed `config.json`; ArchitectureError if it is unsupported."""
    if not isinstance(document, Mapping):
        raise ArchitectureError("a JSON object is expected, as in the config.json of a Hugging Face model")
    text = document.get("text_config", document)
    if not isinstance(text, Mapping):
        raise ArchitectureError("text_config: a JSON object is expected")
    model_type = _model_type(text)
    family = FAMILIES[model_type]
    _refuse_other_layers(text)
    reader = _Reader({**family.defaults, **text})
    hidden, heads = reader.number("hidden_size"), reader.number("num_attention_heads")
    layers = reader.number("num_hidden_layers", most=_MAX_LAYERS)
    tied = text.get("tie_word_embeddings", document.get("tie_word_embeddings"))
    bias = text.get("attention_bias")
    windowed = reader.document.get("use_sliding_window") is not False
    return Architecture(
        model_type=model_type,
        layers=layers,
        hidden=hidden,
        # Qwen3-MoE files may have 0 if every layer has experts.
        intermediate=reader.first(
            "ffn_dim", "intermediate_size", default=0 if reader.has("moe_intermediate_size") else None
        ),
        heads=heads,
        kv_heads=reader.number("num_key_value_heads") if reader.has("num_key_value_heads") else heads,
        head_size=_head_size(reader, hidden, heads),
        vocabulary=reader.number("vocab_size"),
        tied=family.tied if tied is None else tied is True,
        query_bias=family.query_bias if bias is None else bias is True,
        latent=_latent(reader),
        experts=_experts(reader, layers),
        mtp_layers=reader.number("num_nextn_predict_layers", 0),
        positions=reader.number("max_position_embeddings") + 2 if family.positions else 0,
        sliding_window=reader.number("sliding_window", 0) if windowed else 0,
        weights=stored_precision(document) or stored_precision(text),
        quantized=is_quantized(document) or is_quantized(text),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads keys of a configuration; errors name the key."""

    document: Mapping[str, object]

    def number(self, name: str, default: int | None = None, most: int = 10**9) -> int:
        """Return a whole number; without a default it is required and must be above 0."""
        value = self.document.get(name)
        if value is None:
            if default is None:
                raise ArchitectureError(f"{name} is missing")
            return default
        least = 1 if default is None else 0
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ArchitectureError(
                f"{name} is {_shown(value)}; a whole number from {least} to {most:,} is expected"
            )
        return value

    def first(self, *names: str, default: int | None = None) -> int:
        """Return the number of the first existing key."""
        name = next((name for name in names if self.has(name)), names[-1])
        return self.number(name, default)

    def has(self, name: str) -> bool:
        return self.document.get(name) is not None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _model_type(text: Mapping[str, object]) -> str:
    model_type = text.get("model_type")
    if model_type is None:
        raise ArchitectureError("model_type is missing")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        near = nearest(model_type, FAMILIES)
        hint = f"did you mean {near}? " if near else ""
        raise ArchitectureError(
            f"model_type {_shown(model_type)} is an architecture whose parameters cannot be counted here; "
            f"{hint}known: {', '.join(FAMILIES)}. Give the number of parameters instead of the file"
        )
    return model_type


def _refuse_other_layers(text: Mapping[str, object]) -> None:
    """Refuse layers without a KV cache, such as linear attention."""
    kinds = text.get("layer_types")
    listed = [] if kinds is None else kinds if isinstance(kinds, list) else [kinds]
    others = {_shown(kind) for kind in listed if kind not in _CACHING}
    if others:
        raise ArchitectureError(
            f"layer_types has {', '.join(sorted(others))}; only full_attention and sliding_attention can be "
            "counted here. Give the number of parameters instead of the file"
        )


def _head_size(reader: _Reader, hidden: int, heads: int) -> int:
    if reader.has("head_dim"):
        return reader.number("head_dim")
    if hidden % heads and not reader.has("kv_lora_rank"):
        raise ArchitectureError(
            f"head_dim is missing, and hidden_size {hidden} is no multiple of num_attention_heads {heads}"
        )
    return hidden // heads


def _latent(reader: _Reader) -> LatentAttention | None:
    if not reader.has("kv_lora_rank"):
        return None
    return LatentAttention(
        kv_rank=reader.number("kv_lora_rank"),
        rope_size=reader.number("qk_rope_head_dim"),
        query_rank=reader.number("q_lora_rank", 0),
        key_size=reader.number("qk_nope_head_dim"),
        value_size=reader.number("v_head_dim"),
    )


def _experts(reader: _Reader, layers: int) -> Experts | None:
    count = reader.first("n_routed_experts", "num_local_experts", "num_experts", default=0)
    if not count:
        return None
    size = reader.first("moe_intermediate_size", "intermediate_size")
    shared = reader.number("n_shared_experts", 0) * size or reader.number(
        "shared_expert_intermediate_size", 0
    )
    step = reader.first("decoder_sparse_step", "moe_layer_freq", default=1) or 1
    first = reader.number("first_k_dense_replace", 0)
    listed = reader.document.get("mlp_only_layers")
    dense = {at for at in listed if isinstance(at, int)} if isinstance(listed, list) else set()
    offset = 1 if reader.has("decoder_sparse_step") else 0
    sparse = [at for at in range(first, layers) if at not in dense and (at + offset) % step == 0]
    return Experts(count, reader.number("num_experts_per_tok"), size, shared, len(sparse))
