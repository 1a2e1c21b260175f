"""Models: parameters, and the dimensions that the time of a step depends on.

They are counted by a `config.json` (`architecture`), or those of a usual decoder of the
given size. Counts are sums of the weight matrices, norms and the biases of queries,
keys and values. Other biases are left out (below 0.1 % of any known model); layers for
multi-token prediction are counted apart.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from .sizes import BF16, PRECISIONS, Precision, parse_parameters, parse_precision

if TYPE_CHECKING:
    from .architecture import Architecture, LatentAttention

#: Head size of usual models; the detail `kv-heads` counts heads of this size.
_HEAD_SIZE = 128
_KV_HEADS = 8  # key-value heads of a usual model, as in all of Llama 3
_EXPERTS = 128  # experts in a layer of a usual mixture of experts
#: Rows of the output layer that EAGLE-3 heads are trained with instead of the whole
#: vocabulary.
EAGLE3_VOCABULARY = 32_000


class Model(Struct, frozen=True):
    """A model that is served or drafts."""

    parameters: float  # all of them, from 0 up
    #: Those that one token passes through; fewer only for a mixture of experts.
    active_parameters: float
    precision: Precision  # how they are stored
    layers: int
    hidden: int
    #: Numbers that one token caches, over all layers that attend to the whole context.
    kv_values: float
    routed_parameters: float = 0.0  # of all routed experts; 0 for a dense model
    experts: int = 0  # routed experts in a layer, 0 for a dense model
    used: int = 0  # of those, how many a token passes through
    #: Parameters of embeddings, of which a token reads one row.
    looked_up_parameters: float = 0.0
    kv_bytes: float = 2.0  # bytes of one cached number, such as 2
    kv_heads: float = 8  # key-value heads in such a layer, 0 for latent attention
    #: Numbers that one token caches in all layers with a sliding window.
    window_values: float = 0.0
    window_heads: float = 0  # key-value heads in such a layer
    window: float = 0.0  # tokens that such a layer looks back on
    #: The state that linear attention keeps of a request, over all layers.
    state_bytes: float = 0.0
    #: Rows of the output layer, by default those of a usual target.
    vocabulary: int = 128_000
    source: str = "as given"  # how the size is known, in words
    precision_source: str = "as given"  # how the precision is known, in words
    estimated: bool = False  # whether the size is an estimate
    #: All dimensions, if a `config.json` was read.
    architecture: Architecture | None = None

    @property
    def kv_values_of_layer(self) -> float:
        """Numbers that one token caches in a layer without a window."""
        full_layers = self.layers
        if self.architecture is not None:
            full_layers = self.architecture.full_layers
        if full_layers:
            return self.kv_values / full_layers
        return 2 * _KV_HEADS * _HEAD_SIZE

    @property
    def weight_bytes(self) -> float:
        """Bytes of the weights in memory."""
        return self.parameters * self.precision.bytes_per_parameter

    @property
    def active_weight_bytes(self) -> float:
        """Bytes of the weights that one token passes through."""
        return self.active_parameters * self.precision.bytes_per_parameter

    @property
    def dense_parameters(self) -> float:
        """Parameters that every step reads, whatever its tokens."""
        return self.parameters - self.routed_parameters - self.looked_up_parameters

    @property
    def multiplied_parameters(self) -> float:
        """Parameters that one token is multiplied with."""
        if not self.experts:
            return self.dense_parameters
        routed = self.routed_parameters * self.used / self.experts
        return self.dense_parameters + routed

    def bytes_read(self, tokens: float) -> float:
        """Return the bytes of weights that a step over `tokens` tokens is expected to
        read.
        """
        parameters = self.dense_parameters
        if self.experts:
            untouched = float((1 - self.used / self.experts) ** tokens)
            parameters += self.routed_parameters * (1 - untouched)
        return parameters * self.precision.bytes_read


def from_parameters(
    parameters: float, precision: Precision = BF16, active: float | None = None
) -> Model:
    """Return a usual decoder of this size.

    Layers and hidden size follow the Llama 3 models (1B: 16 x 2048, 8B: 32 x 4096, 70B:
    80 x 8192), keys and values their 8 heads of 128. A mixture of experts has 128
    experts a layer, and two fifths of the active parameters are not in experts
    (Qwen3-30B-A3B and DeepSeek-V3 45 %, gpt-oss-120b 30 %).

    Args:
        parameters: all of them.
        precision: how they are stored.
        active: those that one token passes through; fewer only for a mixture of
            experts.
    """
    if active is None:
        active = parameters
    sparse = active < parameters
    # A mixture of experts is about as deep and wide as a dense model of the geometric
    # mean of its two sizes.
    size = (parameters * active) ** 0.5 if sparse else parameters
    layers = max(1, round(32 * (size / 8e9) ** 0.4))
    model = Model(
        parameters=parameters,
        active_parameters=active,
        precision=precision,
        layers=layers,
        hidden=max(64, round(4096 * (size / 8e9) ** 0.32 / 64) * 64),
        kv_values=layers * 2 * _KV_HEADS * _HEAD_SIZE,
    )
    if not sparse:
        return model
    routed = parameters - 0.4 * active
    return replace(
        model,
        routed_parameters=routed,
        experts=_EXPERTS,
        used=max(1, round(_EXPERTS * 0.6 * active / routed)),
    )


def from_architecture(architecture: Architecture, precision: Precision) -> Model:
    """Return a model whose dimensions are known."""
    experts = architecture.experts
    full_values = architecture.kv_values_of_layer(full=True)
    window_values = architecture.kv_values_of_layer(full=False)
    kv_heads = architecture.kv_heads_of_layer(full=True)
    if architecture.latent:
        kv_heads = 0
    looked_up = architecture.vocabulary * architecture.hidden
    if architecture.tied:  # the output layer reads all of the embeddings
        looked_up = 0
    return Model(
        parameters=count_parameters(architecture),
        active_parameters=count_active_parameters(architecture),
        precision=precision,
        layers=architecture.layers,
        hidden=architecture.hidden,
        kv_values=architecture.full_layers * full_values,
        kv_heads=kv_heads,
        window_values=architecture.sliding_layers * window_values,
        window_heads=architecture.kv_heads,
        window=architecture.sliding_window,
        state_bytes=architecture.state_bytes,
        vocabulary=architecture.vocabulary,
        routed_parameters=_expert(architecture) * experts.count * experts.layers,
        experts=experts.count,
        used=experts.used,
        looked_up_parameters=looked_up,
        source="counted from its config.json",
        architecture=architecture,
    )


def parse_model(text: str) -> Model:
    """Return the model of ``70B``, ``8B:fp8`` or ``30B-A3B:int4``, by default in BF16.

    ValueError for anything else.
    """
    size, _, precision = text.partition(":")
    total, _, active = size.replace("-a", "-A").partition("-A")
    stored = parse_precision(precision) if precision else BF16
    parameters = parse_parameters(total)
    if not active:
        return from_parameters(parameters, stored)
    active_parameters = parse_parameters(active)
    if active_parameters > parameters:
        raise ValueError(f"a token cannot pass through {active} of {total} parameters")
    return from_parameters(parameters, stored, active_parameters)


def with_details(model: Model, details: str) -> Model:
    """Return `model` with dimensions as given:
    ``layers=48,kv-heads=4,experts=8/128,kv=fp8``.

    Heads are of size 128. A model with an architecture has all dimensions but `kv`.
    Raises ValueError for an unknown dimension, or one that contradicts the model.
    """
    for pair in details.split(","):
        name, _, value = pair.strip().partition("=")
        if model.architecture is not None and name in ("layers", "kv-heads", "experts"):
            raise ValueError(
                f"{name} contradicts the config.json, which has it; allowed: kv"
            )
        match name:
            case "layers":
                layers = _count(pair, value)
                kv_values = model.kv_values * layers / model.layers
                model = replace(model, layers=layers, kv_values=kv_values)
            case "kv-heads":
                heads = _count(pair, value)
                kv_values = model.layers * 2 * heads * _HEAD_SIZE
                model = replace(model, kv_heads=heads, kv_values=kv_values)
            case "experts":
                used, _, experts = value.partition("/")
                model = _with_experts(
                    model, pair, _count(pair, used), _count(pair, experts)
                )
            case "kv":
                stored = parse_precision(value)
                model = replace(model, kv_bytes=stored.bytes_per_parameter)
            case _:
                raise ValueError(
                    f"{pair!r} is no detail; allowed: layers=N, kv-heads=N, "
                    "experts=USED/ALL, kv=PRECISION"
                )
    return model


def _with_experts(model: Model, pair: str, used: int, experts: int) -> Model:
    if not model.routed_parameters:
        raise ValueError(
            f"{pair} contradicts the size, which is that of a dense model; say it as "
            "30B-A3B"
        )
    if used >= experts:
        raise ValueError(f"{pair}: allowed: fewer experts in use than there are")
    # The parameters in experts follow from both sizes:
    # all - active = routed * (1 - used / experts).
    inactive = model.parameters - model.multiplied_parameters
    routed = min(model.parameters, inactive / (1 - used / experts))
    return replace(model, routed_parameters=routed, experts=experts, used=used)


def _count(pair: str, text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if not 1 <= number <= 100_000:
        raise ValueError(f"{pair}: allowed: whole numbers from 1 up")
    return number


#: Families whose names have all parameters, of which a token passes through every one.
_DENSE = re.compile(
    r"(llama-?[23]|qwen-?2\.5|qwen3-(0\.6|1\.7|4|8|14|32)b|gemma-?[123]?-|mistral-7b"
    r"|phi-|smollm|opt-|granite-3)",
    re.IGNORECASE,
)
_ACTIVE = re.compile(r"[-_]A(\d+(?:\.\d+)?)B\b", re.IGNORECASE)
#: A size as model names have it: ``Llama-3.1-70B-Instruct`` (but not the 3.1),
#: ``Qwen2.5-0.5B``.
_SIZE = re.compile(r"(?<![A-Za-z0-9.])([0-9]+(?:\.[0-9]+)?)([bBmM])(?![A-Za-z0-9])")
_PRECISIONS = (
    (re.compile(r"nvfp4|mxfp4|fp4", re.IGNORECASE), "fp4"),
    (re.compile(r"awq|gptq|int4|w4a16|4bit", re.IGNORECASE), "int4"),
    (re.compile(r"fp8", re.IGNORECASE), "fp8"),
    (re.compile(r"int8|w8a8", re.IGNORECASE), "int8"),
)


@lru_cache(maxsize=256)
def size_in_name(name: str) -> float | None:
    """Return the parameters in a model's name, the first number with B or M: 70e9 of
    ``Llama-3.1-70B``.

    Of a mixture of experts such as ``Qwen3-30B-A3B``, it is the total. ``None`` without
    such a number.
    """
    match = _SIZE.search(name.rpartition("/")[2])
    if match is None:
        return None
    return float(match[1]) * (1e9 if match[2] in "bB" else 1e6)


@lru_cache(maxsize=256)
def model_in_name(name: str) -> Model | None:
    """Return the model of a served name, ``None`` if the name is ambiguous.

    `Qwen3-30B-A3B-FP8` has all parameters and the active ones. `Llama-3.1-70B` is
    enough because the family is dense. `gpt-oss-120b` is not: it is a mixture of
    experts, and its name has no second number.
    """
    parameters = size_in_name(name)
    name = name.rpartition("/")[2]
    active = _ACTIVE.search(name)
    if parameters is None or (active is None and not _DENSE.search(name)):
        return None
    matching = (stored for pattern, stored in _PRECISIONS if pattern.search(name))
    precision = PRECISIONS[next(matching, "bf16")]
    active_parameters = float(active[1]) * 1e9 if active else None
    return from_parameters(parameters, precision, active_parameters)


def count_parameters(model: Architecture) -> int:
    """Return all parameters of `model`, embeddings included, MTP layers not."""
    sparse_layers = model.experts.layers
    dense_layers = model.layers - sparse_layers
    layers = (
        sparse_layers * _sparse_mlp(model)
        + dense_layers * _dense_mlp(model)
        + model.layers * model.family.norms * model.hidden
        + model.full_layers * _attention(model)
        + model.sliding_layers * _attention(model, full=False)
        + model.linear.layers * _linear_attention(model)
    )
    # Embeddings, output layer, learned positions and the last norm.
    tables = 1 if model.tied else 2
    rows = model.vocabulary * tables + model.positions + 1
    return layers + rows * model.hidden


def count_active_parameters(model: Architecture) -> int:
    """Return the parameters that one token passes through: of a mixture of experts,
    only those it uses.
    """
    unused = max(0, model.experts.count - model.experts.used)
    return count_parameters(model) - model.experts.layers * unused * _expert(model)


def count_mtp(model: Architecture) -> int:
    """Return the parameters of the MTP layers that the checkpoint brings, 0 for none.

    Each is one layer and a projection of two hidden states to one (DeepSeek-V3 report,
    section 2.2); embeddings and output layer are the model's own.
    """
    mlp = _sparse_mlp(model) if model.experts.count else _dense_mlp(model)
    layer = _layer_without_mlp(model) + mlp
    return model.mtp_layers * (layer + 2 * model.hidden**2)


def count_eagle(model: Architecture) -> int:
    """Return the parameters of an EAGLE head.

    One decoder layer, and a projection of embedding and hidden state to one (Li et al.
    2024, arXiv 2401.15077). It gives 0.25B for Llama-3.1-8B and 0.99B for 70B; the
    paper has 0.24B for 7B, 0.99B for 70B.
    """
    return _dense_layer(model) + 2 * model.hidden**2


def count_eagle3(model: Architecture) -> int:
    """Return the parameters of an EAGLE-3 head.

    As for EAGLE, but the projection joins three hidden states, attention reads two
    inputs, and there is an output layer of its own with 32,000 rows (Li et al. 2025,
    arXiv 2503.01840). 0.42B for Llama-3.1-8B.
    """
    second_input = model.hidden * model.head_size * (model.heads + 2 * model.kv_heads)
    output = model.hidden * min(EAGLE3_VOCABULARY, model.vocabulary)
    return _dense_layer(model) + second_input + 3 * model.hidden**2 + output


def count_medusa(model: Architecture, heads: int) -> int:
    """Return the parameters of Medusa heads: a residual block and an output layer each
    (arXiv 2401.10774).
    """
    return heads * (model.hidden**2 + model.hidden * model.vocabulary)


def _dense_layer(model: Architecture) -> int:
    """Return a layer as heads have it: dense, also for a mixture of experts."""
    layer = _layer_without_mlp(model) + _dense_mlp(model)
    if model.intermediate:
        return layer
    # Where every layer has experts, the MLP is as wide as those that a token uses.
    return layer + 3 * model.hidden * model.experts.size * model.experts.used


def _layer_without_mlp(model: Architecture) -> int:
    return _attention(model) + model.family.norms * model.hidden


def _attention(model: Architecture, *, full: bool = True) -> int:
    """Return the attention of a layer with all of the context, or with a window."""
    if model.latent is not None:
        return _latent_attention(model, model.latent)
    head_size = model.head_size_of_layer(full=full)
    queries = model.heads * head_size
    keys = model.kv_heads_of_layer(full=full) * head_size
    columns = 2 * queries + 2 * keys  # queries and output, keys and values
    if full and model.keys_are_values:
        columns -= keys
    if model.family.linear:
        columns += queries  # gates
    parameters = model.hidden * columns
    if model.query_bias:
        parameters += queries + 2 * keys
    if model.family.head_norms:
        parameters += 2 * head_size
    return parameters


def _linear_attention(model: Architecture) -> int:
    """Return a gated delta net's queries, keys, values, gates, convolution, decays,
    norm and output.
    """
    linear = model.linear
    keys = linear.key_heads * linear.key_size
    values = linear.value_heads * linear.value_size
    matrices = model.hidden * (2 * keys + 3 * values + 2 * linear.value_heads)
    convolution = linear.kernel * (2 * keys + values)
    return matrices + convolution + 2 * linear.value_heads + linear.value_size


def _latent_attention(model: Architecture, latent: LatentAttention) -> int:
    query_columns = model.heads * (latent.key_size + latent.rope_size)
    if latent.query_rank:
        queries = latent.query_rank * (model.hidden + query_columns + 1)
    else:
        queries = model.hidden * query_columns
    compress = model.hidden * (latent.kv_rank + latent.rope_size) + latent.kv_rank
    expand = latent.kv_rank * model.heads * (latent.key_size + latent.value_size)
    output = model.heads * latent.value_size * model.hidden
    return queries + compress + expand + output


def _dense_mlp(model: Architecture) -> int:
    return model.family.mlp_matrices * model.hidden * model.intermediate


def _expert(model: Architecture) -> int:
    return model.family.mlp_matrices * model.hidden * model.experts.size


def _sparse_mlp(model: Architecture) -> int:
    experts = model.experts
    router = experts.count * model.hidden
    shared = model.family.mlp_matrices * model.hidden * experts.shared_size
    parameters = experts.count * _expert(model) + shared + router
    if model.family.expert_gate and experts.shared_size:
        parameters += model.hidden
    if model.family.dense_beside:
        parameters += _dense_mlp(model)
    return parameters
