"""Models: parameters, and the dimensions that the time of a step depends on.

They are those of a `config.json` (`architecture`), or of a usual decoder of the given
size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from .parameter_counts import count_active_parameters, count_parameters, routed_expert
from .sizes import BF16, Precision

if TYPE_CHECKING:
    from .architecture import Architecture

#: Head size of usual models; the detail `kv-heads` counts heads of this size.
HEAD_SIZE = 128
_KV_HEADS = 8  # key-value heads of a usual model, as in all of Llama 3
_EXPERTS = 128  # experts in a layer of a usual mixture of experts


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
        return 2 * _KV_HEADS * HEAD_SIZE

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
        kv_values=layers * 2 * _KV_HEADS * HEAD_SIZE,
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
    # The output layer reads all of shared embeddings; a head has the target's.
    if architecture.tied or architecture.head:
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
        routed_parameters=routed_expert(architecture) * experts.count * experts.layers,
        experts=experts.count,
        used=experts.used,
        looked_up_parameters=looked_up,
        source="counted from its config.json",
        architecture=architecture,
    )
