"""Architecture: the dimensions of a decoder, from its Hugging Face `config.json`.

Only the language model counts: for a model with images the nested `text_config` is
read, without the vision tower (about 0.4B parameters in most).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import replace

from ..config.spelling import nearest
from ..config.tables import read_table
from .sizes import Precision, is_quantized, stored_precision

#: Types of layers that are counted here, as Transformers calls them.
_FULL = "full_attention"
_SLIDING = "sliding_attention"
_LINEAR = "linear_attention"
_KINDS = (_FULL, _SLIDING, _LINEAR)
#: Methods whose drafter is a head with decoder layers of its own.
_EAGLE = "eagle"
_EAGLE3 = "eagle3"
_HEADS = (_EAGLE, _EAGLE3)
#: Key of the method in the format of Speculators, which nests the layers.
_SPECULATORS = "speculators_model_type"
_MAX_LAYERS = 10_000  # the deepest published models have a few hundred layers


class ArchitectureError(ValueError):
    """An invalid configuration. The message is one line, without the file's name."""


class Family(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of `families.toml`: what configurations of a `model_type` leave out."""

    types: tuple[str, ...]  # each `model_type` of the family
    mlp_matrices: int = 3  # 3 if the MLP has a gate, else 2
    tied: bool = False  # whether the output layer shares the embeddings by default
    query_bias: bool = False  # whether queries, keys and values have biases by default
    norms: int = 2  # vectors of the hidden size in a layer's norms
    head_norms: bool = False  # whether queries and keys are normalized per head
    expert_gate: bool = False  # whether a shared expert has a gate of its own
    dense_beside: bool = False  # whether layers with experts have a dense MLP too
    #: By default, each layer of this number attends to the whole context; 0 if all do.
    full_every: int = 0
    #: Whether the others have linear attention, instead of a sliding window.
    linear: bool = False
    #: Whether positions are embedded by a learned table (two rows longer than the
    #: context).
    positions: bool = False
    #: Keys that Transformers leaves out of the file when they have the class's default.
    defaults: dict[str, int] = {}


#: By `model_type`.
FAMILIES: Mapping[str, Family] = {
    model_type: family
    for family in convert(
        read_table(__file__, "families.toml"),
        dict[str, tuple[Family, ...]],
    )["family"]
    for model_type in family.types
}


class LatentAttention(Struct, frozen=True):
    """Multi-head latent attention (DeepSeek-V2): keys and values cached as one
    compressed vector.
    """

    kv_rank: int  # numbers in the compressed vector of one token and layer
    rope_size: int  # additional numbers for the position
    query_rank: int  # rank of the compressed queries, 0 if not compressed
    key_size: int  # numbers of a head's key without the position
    value_size: int  # numbers of a head's value


class LinearAttention(Struct, frozen=True):
    """Layers that keep a state of one size instead of keys and values: a gated delta
    net (Qwen3-Next).
    """

    layers: int = 0  # layers that have it, 0 for none
    key_heads: int = 0
    key_size: int = 0  # numbers in a head's key
    value_heads: int = 0
    value_size: int = 0  # numbers in a head's value
    kernel: int = 0  # tokens of its convolution

    @property
    def state_numbers(self) -> int:
        """Numbers in the state of a request, over all layers."""
        heads = self.layers * self.value_heads
        return heads * self.value_size * self.key_size


class Experts(Struct, frozen=True):
    """A mixture of experts; by default none, as in a dense model."""

    count: int = 0  # routed experts in a layer
    used: int = 0  # routed experts per token
    size: int = 0  # intermediate size of an expert
    shared_size: int = 0  # intermediate size of all shared experts together
    layers: int = 0  # layers with experts; the others have a dense MLP


class Head(Struct, frozen=True):
    """What an EAGLE head has beside the layers of its configuration."""

    method: str  # eagle or eagle3
    #: Rows of an output layer of its own, 0 where the target's is used.
    vocabulary: int = 0
    target_hidden: int = 0  # hidden size of the target, 0 for the head's own


class Architecture(Struct, frozen=True):
    """A decoder-only language model."""

    model_type: str  # as Transformers names the architecture
    layers: int
    hidden: int
    #: Intermediate size of a dense MLP, 0 where every layer has experts.
    intermediate: int
    heads: int
    kv_heads: int  # key and value heads
    head_size: int  # numbers in a head
    vocabulary: int  # rows of the embeddings
    tied: bool  # whether the output layer shares the embeddings
    query_bias: bool = False  # whether queries, keys and values have biases
    #: Multi-head latent attention, ``None`` for the usual one.
    latent: LatentAttention | None = None
    experts: Experts = Experts()
    mtp_layers: int = 0  # layers for multi-token prediction that the checkpoint brings
    positions: int = 0  # rows of a table of learned positions, 0 for none
    #: Tokens that a sliding-window layer looks back on, 0 where no layer has one.
    sliding_window: int = 0
    sliding_layers: int = 0  # layers with a sliding window
    linear: LinearAttention = LinearAttention()
    #: Key and value heads in the other layers, where they differ; else 0.
    global_kv_heads: int = 0
    global_head_size: int = 0  # numbers in a head there, where they differ; else 0
    #: Whether values there are computed by the matrix of the keys.
    keys_are_values: bool = False
    #: Precision of the weights, ``None`` if the file does not have it.
    precision: Precision | None = None
    quantized: bool = False  # whether the weights are quantized
    #: Of a drafter that reads the target's hidden states, else ``None``.
    head: Head | None = None

    @property
    def family(self) -> Family:
        """Properties of the `model_type`."""
        return FAMILIES[self.model_type]

    @property
    def full_layers(self) -> int:
        """Layers that attend to the whole context."""
        return self.layers - self.sliding_layers - self.linear.layers

    def kv_heads_of_layer(self, *, full: bool) -> int:
        """Return the key and value heads of a layer that attends to the whole context,
        or to a window.
        """
        if full and self.global_kv_heads:
            return self.global_kv_heads
        return self.kv_heads

    def head_size_of_layer(self, *, full: bool) -> int:
        """Return the numbers in a head likewise."""
        if full and self.global_head_size:
            return self.global_head_size
        return self.head_size

    def kv_values_of_layer(self, gpus: int = 1, *, full: bool) -> int:
        """Return the numbers that one token caches in such a layer, over all GPUs."""
        if self.latent is not None:
            return (self.latent.kv_rank + self.latent.rope_size) * gpus
        heads = max(1, self.kv_heads_of_layer(full=full) // gpus) * gpus
        return 2 * heads * self.head_size_of_layer(full=full)

    def kv_values_per_token(self, gpus: int = 1) -> int:
        """Return the numbers in the KV cache of one token, over all GPUs.

        Tensor parallelism splits the key-value heads. A GPU has at least one, so with
        fewer heads than GPUs, and with latent attention, which has one vector, there
        are copies. Sliding-window layers count in full: an upper bound, exact while the
        context is not longer than the window.
        """
        full = self.full_layers * self.kv_values_of_layer(gpus, full=True)
        windowed = self.sliding_layers * self.kv_values_of_layer(gpus, full=False)
        return full + windowed

    @property
    def state_bytes(self) -> float:
        """Bytes of the state that linear attention keeps of a request, in 32 bits as
        vLLM keeps Qwen's.
        """
        return self.linear.state_numbers * 4.0

    def as_head(self, method: str) -> Architecture:
        """Return a drafter of EAGLE as its head, also where its file does not say so:
        the first ones published call themselves a Llama of one layer.
        """
        if self.head is not None or method not in _HEADS:
            return self
        vocabulary = self.vocabulary if method == _EAGLE3 else 0
        return replace(self, head=Head(method, vocabulary))

    def one_layer(self) -> Architecture:
        """Return the same model with a single layer, like EAGLE heads and MTP."""
        return replace(self, layers=1, sliding_layers=0, linear=LinearAttention())


def read_architecture(document: object) -> Architecture:
    """Return the architecture of a parsed `config.json`; ArchitectureError if it is
    unsupported.
    """
    if not isinstance(document, Mapping):
        raise ArchitectureError(
            "a JSON object is expected, as in the config.json of a Hugging Face model"
        )
    text = _decoder(document)
    model_type = _model_type(text)
    family = FAMILIES[model_type]
    # Models with images have it beside the nested configuration.
    tied = {"tie_word_embeddings": document.get("tie_word_embeddings")}
    reader = _Reader({**family.defaults, **tied, **text})
    if reader.number("hidden_size_per_layer_input", 0):
        raise ArchitectureError(
            "hidden_size_per_layer_input: embeddings of each layer cannot be counted "
            "here. Give the number of parameters instead of the file"
        )
    hidden = reader.number("hidden_size")
    heads = reader.number("num_attention_heads")
    layers = reader.number("num_hidden_layers", most=_MAX_LAYERS)
    window = 0
    if reader.document.get("use_sliding_window") is not False:
        window = reader.number("sliding_window", 0)
    kinds = _layer_kinds(reader, family, layers, window)
    keys_are_values = reader.flag("attention_k_eq_v")
    global_kv_heads = 0
    if keys_are_values:
        global_kv_heads = reader.number("num_global_key_value_heads", 0)
    return Architecture(
        model_type=model_type,
        layers=layers,
        hidden=hidden,
        # Qwen3-MoE files may have 0 if every layer has experts.
        intermediate=reader.first(
            "ffn_dim",
            "intermediate_size",
            default=0 if reader.has("moe_intermediate_size") else None,
        ),
        heads=heads,
        # Without grouped queries, each head has keys and values of its own.
        kv_heads=reader.first("num_key_value_heads", "num_attention_heads"),
        head_size=_head_size(reader, hidden, heads),
        vocabulary=reader.number("vocab_size"),
        tied=reader.flag("tie_word_embeddings", default=family.tied),
        query_bias=reader.flag("attention_bias", default=family.query_bias),
        latent=_latent(reader),
        experts=_experts(reader, layers),
        mtp_layers=reader.first(
            "num_nextn_predict_layers", "mtp_num_hidden_layers", default=0
        ),
        positions=_positions(reader) if family.positions else 0,
        sliding_window=window,
        sliding_layers=kinds.count(_SLIDING),
        linear=_linear(reader, kinds.count(_LINEAR)),
        global_kv_heads=global_kv_heads,
        global_head_size=reader.number("global_head_dim", 0),
        keys_are_values=keys_are_values,
        precision=stored_precision(document) or stored_precision(text),
        quantized=is_quantized(document) or is_quantized(text),
        head=_head(document, reader),
    )


def _decoder(document: Mapping[str, object]) -> Mapping[str, object]:
    """Return the part of a configuration that has the dimensions of the decoder."""
    if _SPECULATORS in document:
        kind = document[_SPECULATORS]
        if kind not in _HEADS:
            raise ArchitectureError(
                f"{_SPECULATORS} {_shown(kind)}: only {', '.join(_HEADS)} can be "
                "counted here. Give the number of parameters instead of the file"
            )
        name = "transformer_layer_config"
        part = document.get(name)
    else:
        name = "text_config"
        part = document.get(name, document)
    if not isinstance(part, Mapping):
        raise ArchitectureError(f"{name}: a JSON object is expected")
    return part


def _head(document: Mapping[str, object], reader: _Reader) -> Head | None:
    """Return the head that a configuration describes: by its type in Speculators'
    format, else by the name of its class or by a vocabulary of its own.
    """
    own = _Reader(document)
    method = document.get(_SPECULATORS)
    classes = str(document.get("architectures")).lower()
    if not method and (own.has("draft_vocab_size") or _EAGLE3 in classes):
        method = _EAGLE3
    elif not method and _EAGLE in classes:
        method = _EAGLE
    if not method:
        return None
    vocabulary = 0
    if method == _EAGLE3:
        vocabulary = own.number("draft_vocab_size", reader.number("vocab_size"))
    return Head(
        method=str(method),
        vocabulary=vocabulary,
        target_hidden=own.number("target_hidden_size", 0),
    )


class _Reader(Struct, frozen=True):
    """Reads keys of a configuration; errors name the key."""

    document: Mapping[str, object]

    def number(self, name: str, default: int | None = None, most: int = 10**9) -> int:
        """Return a whole number; without a default it is required and above 0."""
        value = self.document.get(name)
        if value is None:
            if default is None:
                raise ArchitectureError(f"{name} is missing")
            return default
        least = 1 if default is None else 0
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not least <= value <= most
        ):
            raise ArchitectureError(
                f"{name} is {_shown(value)}; a whole number from {least} to "
                f"{most:,} is expected"
            )
        return value

    def first(self, *names: str, default: int | None = None) -> int:
        """Return the number of the first existing key."""
        existing = filter(self.has, names)
        return self.number(next(existing, names[-1]), default)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return whether a key is true."""
        value = self.document.get(name)
        return default if value is None else value is True

    def has(self, name: str) -> bool:
        return self.document.get(name) is not None


def _shown(value: object) -> str:
    text = repr(value)
    if len(text) <= 40:
        return text
    return f"{text[:40]}…"


def _model_type(text: Mapping[str, object]) -> str:
    model_type = text.get("model_type")
    if model_type is None:
        raise ArchitectureError("model_type is missing")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        near = nearest(model_type, FAMILIES)
        hint = f"did you mean {near}? " if near else ""
        raise ArchitectureError(
            f"model_type {_shown(model_type)} is an architecture whose parameters "
            f"cannot be counted here; {hint}known: {', '.join(FAMILIES)}. Give the "
            "number of parameters instead of the file"
        )
    return model_type


def _layer_kinds(
    reader: _Reader, family: Family, layers: int, window: int
) -> list[str]:
    """Return the kind of each layer, as Transformers derives it where `layer_types` is
    missing.
    """
    listed = reader.document.get("layer_types")
    if listed is not None:
        return _checked_kinds(listed, layers, window)
    if family.linear:
        special = _LINEAR
    elif window:
        special = _SLIDING
    else:
        special = _FULL
    kinds = [special] * layers
    period = reader.first(
        "full_attention_interval", "sliding_window_pattern", default=family.full_every
    )
    if period:
        for layer in range(period - 1, layers, period):
            kinds[layer] = _FULL
        return kinds
    full = min(layers, reader.number("max_window_layers", 0))
    return [_FULL] * full + kinds[full:]


def _checked_kinds(listed: object, layers: int, window: int) -> list[str]:
    """Return the kinds that `layer_types` has; a layer whose window is switched off
    attends to the whole context.
    """
    kinds: list[Any] = listed if isinstance(listed, list) else [listed]
    unsupported = {_shown(kind) for kind in kinds if kind not in _KINDS}
    if unsupported:
        raise ArchitectureError(
            f"layer_types has {', '.join(sorted(unsupported))}; only "
            f"{', '.join(_KINDS)} can be counted here. Give the number of parameters "
            "instead of the file"
        )
    if kinds and len(kinds) != layers:
        raise ArchitectureError(
            f"layer_types has {len(kinds)} layers, num_hidden_layers says {layers}"
        )
    if window:
        return kinds
    return [_FULL if kind == _SLIDING else kind for kind in kinds]


def _linear(reader: _Reader, layers: int) -> LinearAttention:
    if not layers:
        return LinearAttention()
    return LinearAttention(
        layers=layers,
        key_heads=reader.number("linear_num_key_heads"),
        key_size=reader.number("linear_key_head_dim"),
        value_heads=reader.number("linear_num_value_heads"),
        value_size=reader.number("linear_value_head_dim"),
        kernel=reader.number("linear_conv_kernel_dim"),
    )


def _positions(reader: _Reader) -> int:
    # OPT, the only such family, keeps two rows for padding.
    return reader.number("max_position_embeddings") + 2


def _head_size(reader: _Reader, hidden: int, heads: int) -> int:
    if reader.has("head_dim"):
        return reader.number("head_dim")
    if hidden % heads and not reader.has("kv_lora_rank"):
        raise ArchitectureError(
            f"head_dim is missing, and hidden_size {hidden} is no multiple of "
            f"num_attention_heads {heads}"
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


def _experts(reader: _Reader, layers: int) -> Experts:
    count = reader.first(
        "n_routed_experts", "num_local_experts", "num_experts", default=0
    )
    if not count or reader.document.get("enable_moe_block") is False:
        return Experts()
    size = reader.first("moe_intermediate_size", "intermediate_size")
    shared_size = reader.number("n_shared_experts", 0) * size
    if not shared_size:
        shared_size = reader.number("shared_expert_intermediate_size", 0)
    return Experts(
        layers=_layers_with_experts(reader, layers),
        count=count,
        used=reader.first("top_k_experts", "num_experts_per_tok"),
        size=size,
        shared_size=shared_size,
    )


def _layers_with_experts(reader: _Reader, layers: int) -> int:
    step = reader.first("decoder_sparse_step", "moe_layer_freq", default=1) or 1
    first = reader.number("first_k_dense_replace", 0)
    listed = reader.document.get("mlp_only_layers")
    if not isinstance(listed, list):
        listed = []
    # A set: a file may list hundreds of thousands, each looked up once a layer.
    dense = {layer for layer in listed if isinstance(layer, int)}
    # Qwen's step counts layers from 1, DeepSeek's from 0.
    offset = int(reader.has("decoder_sparse_step"))
    every_step = range(-offset % step, layers, step)
    return sum(layer >= first and layer not in dense for layer in every_step)
