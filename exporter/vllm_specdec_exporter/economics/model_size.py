"""Parameter counts, from dimensions.

Sums of the weight matrices, norms and the biases of queries, keys and values. Other biases are left out
(below 0.1 % of any model known here); layers for multi-token prediction are counted apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .sizes import PRECISIONS, parse_parameters, parse_precision

if TYPE_CHECKING:
    from .architecture import Architecture
    from .sizes import Precision


#: Rows of the output layer that EAGLE-3 heads are trained with instead of the whole vocabulary.
_EAGLE3_VOCABULARY = 32_000


def count_parameters(model: Architecture) -> int:
    """Return all parameters of `model`, embeddings included, MTP layers not."""
    sparse = model.experts.layers if model.experts else 0
    layers = sparse * _layer(model, sparse=True) + (model.layers - sparse) * _layer(model, sparse=False)
    return layers + _around(model)


def count_active_parameters(model: Architecture) -> int:
    """Return the parameters that one token passes through: of a mixture of experts, only those it uses."""
    if model.experts is None:
        return count_parameters(model)
    unused = max(0, model.experts.count - model.experts.used)
    expert = model.family.mlp_matrices * model.hidden * model.experts.size
    return count_parameters(model) - model.experts.layers * unused * expert


def count_mtp(model: Architecture) -> int:
    """Return the parameters of the MTP layers that the checkpoint brings, 0 for none.

    Each is one layer and a projection of two hidden states to one (DeepSeek-V3 report, section 2.2);
    embeddings and output layer are the model's own.
    """
    return model.mtp_layers * (_layer(model, sparse=model.experts is not None) + 2 * model.hidden**2)


def count_eagle(model: Architecture) -> int:
    """Return the parameters of an EAGLE head for `model`.

    One decoder layer, and a projection of embedding and hidden state to one (Li et al. 2024, arXiv
    2401.15077). It gives 0.25B for Llama-3.1-8B and 0.99B for 70B; the paper has 0.24B for 7B, 0.99B for 70B.
    """
    return _dense_layer(model) + 2 * model.hidden**2


def count_eagle3(model: Architecture) -> int:
    """Return the parameters of an EAGLE-3 head for `model`.

    As for EAGLE, but the projection joins three hidden states, attention reads two inputs, and there is an
    output layer of its own with 32,000 rows (Li et al. 2025, arXiv 2503.01840). 0.42B for Llama-3.1-8B.
    """
    second_input = model.hidden * model.head_size * (model.heads + 2 * model.kv_heads)
    output = model.hidden * min(_EAGLE3_VOCABULARY, model.vocabulary)
    return _dense_layer(model) + second_input + 3 * model.hidden**2 + output


def count_medusa(model: Architecture, heads: int) -> int:
    """Return the parameters of `heads` Medusa heads for `model`.

    Each is a residual block and an output layer of its own (Cai et al. 2024, arXiv 2401.10774).
    """
    return heads * (model.hidden**2 + model.hidden * model.vocabulary)


def _dense_layer(model: Architecture) -> int:
    """Return a layer as heads have it: with a dense MLP, also for a mixture of experts."""
    if model.intermediate or model.experts is None:
        return _layer(model, sparse=False)
    return _layer(model, sparse=False) + 3 * model.hidden * model.experts.size * model.experts.used


def _layer(model: Architecture, *, sparse: bool) -> int:
    return _attention(model) + _mlp(model, sparse=sparse) + model.family.norms * model.hidden


def _attention(model: Architecture) -> int:
    if model.latent is not None:
        return _latent_attention(model)
    queries, keys = model.heads * model.head_size, model.kv_heads * model.head_size
    matrices = model.hidden * (2 * queries + 2 * keys)
    biases = queries + 2 * keys if model.query_bias else 0
    return matrices + biases + (2 * model.head_size if model.family.head_norms else 0)


def _latent_attention(model: Architecture) -> int:
    latent = model.latent
    assert latent is not None
    query = model.heads * (latent.key_size + latent.rope_size)
    queries = latent.query_rank * (model.hidden + query + 1) if latent.query_rank else model.hidden * query
    compress = model.hidden * (latent.kv_rank + latent.rope_size) + latent.kv_rank
    expand = latent.kv_rank * model.heads * (latent.key_size + latent.value_size)
    return queries + compress + expand + model.heads * latent.value_size * model.hidden


def _mlp(model: Architecture, *, sparse: bool) -> int:
    matrices = model.family.mlp_matrices
    if not sparse or model.experts is None:
        return matrices * model.hidden * model.intermediate
    experts = model.experts
    routed = experts.count * matrices * model.hidden * experts.size
    shared = matrices * model.hidden * experts.shared_size
    gate = model.hidden if model.family.expert_gate and experts.shared_size else 0
    return routed + shared + gate + experts.count * model.hidden  # the last: the router


def _around(model: Architecture) -> int:
    """Return embeddings, output layer and the last norm."""
    embeddings = model.vocabulary * model.hidden * (1 if model.tied else 2)
    return embeddings + model.positions * model.hidden + model.hidden


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The target or the drafter.

    Attributes:
        parameters: all of them, from 0 up.
        active_parameters: those that one token passes through; fewer only for a mixture of experts.
        precision: how they are stored.
        source: how the size is known, in words.
        precision_source: how the precision is known, in words.
        estimated: whether the size is an estimate.
        architecture: the dimensions, where a `config.json` was read.
    """

    parameters: int
    active_parameters: int
    precision: Precision
    source: str
    precision_source: str = "as given"
    estimated: bool = False
    architecture: Architecture | None = None

    @property
    def weights(self) -> float:
        """Bytes of the weights: parameters times bytes per parameter."""
        return self.parameters * self.precision.bytes_per_parameter

    @property
    def active_weights(self) -> float:
        """Bytes of the weights that one token passes through."""
        return self.active_parameters * self.precision.bytes_per_parameter


def from_parameters(count: int, precision: Precision) -> ModelSize:
    """Return a model of which only the size is known."""
    return ModelSize(count, count, precision, "as given")


def parse_model_size(text: str) -> ModelSize:
    """Return the size that `text` says: ``70B``, ``8B:fp8``, ``30B-A3B:int4``. BF16 without a precision.

    Raises:
        ValueError: not of this form; the message has what is allowed.
    """
    size, _, precision = text.partition(":")
    total, _, active = size.partition("-A") if "-A" in size else size.partition("-a")
    found = parse_precision(precision) if precision else PRECISIONS["bf16"]
    parameters = parse_parameters(total)
    used = parse_parameters(active) if active else parameters
    if used > parameters:
        msg = f"a token cannot pass through {active} of {total} parameters"
        raise ValueError(msg)
    return ModelSize(parameters, used, found, "as given")


def from_architecture(architecture: Architecture, precision: Precision) -> ModelSize:
    """Return a model whose dimensions are known."""
    return ModelSize(
        count_parameters(architecture),
        count_active_parameters(architecture),
        precision,
        "counted from its config.json",
        architecture=architecture,
    )
