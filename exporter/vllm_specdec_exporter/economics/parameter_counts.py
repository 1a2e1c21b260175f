"""Numbers of parameters: of a model by its `config.json`, and of the drafters that
methods train for it.

Counts are sums of the weight matrices, norms and the biases of queries, keys and
values. Other biases are left out (below 0.1 % of any known model); layers for
multi-token prediction are counted apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .architecture import Architecture, Head, LatentAttention

#: Rows of the output layer that EAGLE-3 heads are trained with instead of the whole
#: vocabulary.
EAGLE3_VOCABULARY = 32_000


def count_parameters(model: Architecture) -> int:
    """Return all parameters of `model`, embeddings included, MTP layers not; of a
    drafter that reads the target's hidden states, those that it adds to the target.
    """
    if model.head is not None:
        return _count_head(model, model.head)
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
    experts = model.experts
    unused = experts.layers * max(0, experts.count - experts.used)
    return count_parameters(model) - unused * routed_expert(model)


def count_mtp(model: Architecture) -> int:
    """Return the parameters of the MTP layers that the checkpoint brings, 0 for none.

    Each is one layer and a projection of two hidden states to one (DeepSeek-V3 report,
    section 2.2); embeddings and output layer are the model's own.
    """
    mlp = _dense_mlp(model)
    if model.experts.count:
        mlp = _sparse_mlp(model)
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
    output = model.hidden * min(EAGLE3_VOCABULARY, model.vocabulary)
    return _dense_layer(model) + _second_input(model) + 3 * model.hidden**2 + output


def _count_head(model: Architecture, head: Head) -> int:
    """Return the parameters of an EAGLE head by its own `config.json`.

    vLLM shares the embeddings with the target, which needs the same hidden size. A
    projection joins two hidden states (EAGLE), or three of the target's (EAGLE-3).
    """
    parameters = model.layers * _dense_layer(model) + head.vocabulary * model.hidden
    target_hidden = head.target_hidden or model.hidden
    if head.method == "eagle":
        parameters += (model.hidden + target_hidden) * model.hidden
    else:
        parameters += _second_input(model) + 3 * target_hidden * model.hidden
    if target_hidden != model.hidden:
        parameters += model.vocabulary * model.hidden
    return parameters


def _second_input(model: Architecture) -> int:
    """Return what attention has more in the first layer of an EAGLE-3 head, which reads
    embedding and hidden state.
    """
    return model.hidden * model.head_size * (model.heads + 2 * model.kv_heads)


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


def routed_expert(model: Architecture) -> int:
    """Return the parameters of one routed expert of a layer."""
    return model.family.mlp_matrices * model.hidden * model.experts.size


def _sparse_mlp(model: Architecture) -> int:
    experts = model.experts
    router = experts.count * model.hidden
    shared = model.family.mlp_matrices * model.hidden * experts.shared_size
    parameters = experts.count * routed_expert(model) + shared + router
    if model.family.expert_gate and experts.shared_size:
        parameters += model.hidden
    if model.family.dense_beside:
        parameters += _dense_mlp(model)
    return parameters
