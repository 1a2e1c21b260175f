"""The shape of a model: what the time of a step depends on."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from .sizes import parse_precision

if TYPE_CHECKING:
    from .model_size import ModelSize

#: Bytes per parameter with the scales of quantized weights, and what is multiplied, by precision.
#: Weights of 4 bits are mostly unpacked to 16, because only the newest GPUs multiply them.
STORAGE = {
    "fp32": (4.0, "fp16"),
    "bf16": (2.0, "fp16"),
    "fp16": (2.0, "fp16"),
    "fp8": (1.0, "fp8"),
    "int8": (1.0, "int8"),
    "fp4": (0.5625, "fp4"),
    "int4": (0.5625, "fp16"),
}


#: Head size of the usual models; the detail `kv-heads` counts heads of this size.
_HEAD_SIZE = 128


@dataclass(frozen=True, slots=True)
class Shape:
    """What a step needs to know of a model.

    Attributes:
        dense: parameters that every step reads, whatever its tokens; embeddings that are looked up excluded.
        routed: parameters of all routed experts; 0 for a dense model.
        experts: routed experts in a layer, 0 for a dense model.
        used: of those, how many a token passes through.
        layers: decoder layers.
        hidden: hidden size.
        kv_values: numbers that one token caches, over all layers.
        bytes_per_parameter: of the weights, such as 2.
        precision: what is multiplied: `fp16`, `fp8`, `int8` or `fp4`. Weights of 4 bits are mostly
            multiplied in `fp16`.
        kv_bytes: bytes of one cached number, such as 2.
    """

    dense: float
    layers: int
    hidden: int
    kv_values: float
    routed: float = 0.0
    experts: int = 0
    used: int = 0
    bytes_per_parameter: float = 2.0
    precision: str = "fp16"
    kv_bytes: float = 2.0

    @property
    def active(self) -> float:
        """Parameters that one token passes through."""
        return self.dense + (self.routed * self.used / self.experts if self.experts else 0.0)

    @property
    def parameters(self) -> float:
        """All parameters that steps read."""
        return self.dense + self.routed

    def weights(self, tokens: float) -> float:
        """Return the bytes of weights that a step over `tokens` tokens is expected to read."""
        touched = self.routed * (1 - (1 - self.used / self.experts) ** tokens) if self.experts else 0.0
        return (self.dense + touched) * self.bytes_per_parameter


def usual_shape(
    parameters: float, active: float | None = None, bytes_per_parameter: float = 2.0, precision: str = "fp16"
) -> Shape:
    """Return the shape of a usual decoder of this size: for where only the size is known.

    Layers and hidden size follow the Llama 3 models (1B: 16 x 2048, 8B: 32 x 4096, 70B: 80 x 8192), keys and
    values their 8 heads of 128. A mixture of experts has 128 experts a layer, and two fifths of the active
    parameters are not in experts (Qwen3-30B-A3B and DeepSeek-V3 45 %, gpt-oss-120b 30 %).

    Args:
        parameters: all of them.
        active: those that one token passes through; fewer only for a mixture of experts.
        bytes_per_parameter: of the weights.
        precision: what is multiplied.
    """
    sparse = active is not None and active < parameters
    of = (active or parameters) if not sparse else (parameters * (active or parameters)) ** 0.5
    layers = max(1, round(32 * (of / 8e9) ** 0.4))
    hidden = max(64, round(4096 * (of / 8e9) ** 0.32 / 64) * 64)
    kv_values = layers * 2 * 8 * _HEAD_SIZE
    if not sparse or active is None:
        return Shape(parameters, layers, hidden, kv_values, 0.0, 0, 0, bytes_per_parameter, precision)
    dense = 0.4 * active
    routed = parameters - dense
    experts = 128
    used = max(1, round(experts * (active - dense) / routed))
    return Shape(dense, layers, hidden, kv_values, routed, experts, used, bytes_per_parameter, precision)


def shape_of(size: ModelSize) -> Shape:
    """Return the shape of a model: from its `config.json` where there is one, else as usual for its size."""
    stored, multiplied = STORAGE[size.precision.name]
    model = size.architecture
    if model is None:
        return usual_shape(size.parameters, size.active_parameters, stored, multiplied)
    experts = model.experts
    routed = 0.0
    if experts is not None:
        routed = model.family.mlp_matrices * model.hidden * experts.size * experts.count * experts.layers
    # Embeddings are looked up, not read, unless the output layer shares them.
    looked_up = 0 if model.tied else model.vocabulary * model.hidden
    return Shape(
        dense=size.parameters - routed - looked_up,
        layers=model.layers,
        hidden=model.hidden,
        kv_values=model.kv_values_per_token(),
        routed=routed,
        experts=experts.count if experts else 0,
        used=experts.used if experts else 0,
        bytes_per_parameter=stored,
        precision=multiplied,
    )


def with_details(shape: Shape, details: str, *, known: bool) -> Shape:
    """Return `shape` with what `details` says of it: ``layers=48,kv-heads=4,experts=8/128,kv=fp8``.

    Args:
        shape: by size, or by a `config.json`.
        details: pairs separated by commas; heads are counted as of size 128.
        known: whether the dimensions come from a `config.json`, which says all but `kv`.

    Raises:
        ValueError: no such detail, or one that contradicts the shape; the message has what is allowed.
    """
    for pair in details.split(","):
        name, _, value = pair.strip().partition("=")
        if known and name in ("layers", "kv-heads", "experts"):
            msg = f"{name} contradicts the config.json, which has it; allowed: kv"
            raise ValueError(msg)
        match name:
            case "layers":
                layers = _count(pair, value)
                shape = replace(shape, layers=layers, kv_values=shape.kv_values * layers / shape.layers)
            case "kv-heads":
                shape = replace(shape, kv_values=shape.layers * 2 * _count(pair, value) * _HEAD_SIZE)
            case "experts":
                used, _, experts = value.partition("/")
                shape = _with_experts(shape, pair, _count(pair, used), _count(pair, experts))
            case "kv":
                shape = replace(shape, kv_bytes=parse_precision(value).bytes_per_parameter)
            case _:
                msg = f"{pair!r} is no detail; allowed: layers=N, kv-heads=N, experts=USED/ALL, kv=PRECISION"
                raise ValueError(msg)
    return shape


def _with_experts(shape: Shape, pair: str, used: int, experts: int) -> Shape:
    if not shape.routed:
        msg = f"{pair} contradicts the size, which is that of a dense model; say it as 30B-A3B"
        raise ValueError(msg)
    if used >= experts:
        msg = f"{pair}: allowed: fewer experts in use than there are"
        raise ValueError(msg)
    # What is in experts follows from both sizes: all - active = routed * (1 - used / experts).
    routed = min(shape.parameters, (shape.parameters - shape.active) / (1 - used / experts))
    return replace(shape, dense=shape.parameters - routed, routed=routed, experts=experts, used=used)


def _count(pair: str, text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if not 1 <= number <= 100_000:
        msg = f"{pair}: allowed: whole numbers from 1 up"
        raise ValueError(msg)
    return number


#: Families whose names have all their parameters, of which a token passes through every one.
_DENSE = re.compile(
    r"(llama-?[23]|qwen-?2\.5|qwen3-(0\.6|1\.7|4|8|14|32)b|gemma-?[123]?-|mistral-7b|phi-|smollm|opt-|granite-3)",
    re.IGNORECASE,
)
_ACTIVE = re.compile(r"[-_]A(\d+(?:\.\d+)?)B\b", re.IGNORECASE)
_SIZE = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)([bBmM])(?![A-Za-z0-9])")
_PRECISIONS = (
    (re.compile(r"nvfp4|mxfp4|fp4", re.IGNORECASE), "fp4"),
    (re.compile(r"awq|gptq|int4|w4a16|4bit", re.IGNORECASE), "int4"),
    (re.compile(r"fp8", re.IGNORECASE), "fp8"),
    (re.compile(r"int8|w8a8", re.IGNORECASE), "int8"),
)


@lru_cache(maxsize=256)
def shape_in_name(model: str) -> Shape | None:
    """Return the shape that a served name says, ``None`` where it is ambiguous.

    `Qwen3-30B-A3B-FP8` says all, parameters and those that a token uses. `Llama-3.1-70B` says it because the
    family is dense. `gpt-oss-120b` does not: it is a mixture of experts, and its name has no second number.
    """
    name = model.rpartition("/")[2]
    size = _SIZE.search(name)
    if size is None:
        return None
    active = _ACTIVE.search(name)
    if active is None and not _DENSE.search(name):
        return None
    precision = next((found for pattern, found in _PRECISIONS if pattern.search(name)), "bf16")
    parameters = float(size[1]) * (1e9 if size[2] in "bB" else 1e6)
    return usual_shape(parameters, float(active[1]) * 1e9 if active else None, *STORAGE[precision])


@dataclass(frozen=True, slots=True)
class Drafter:
    """What drafts.

    Attributes:
        shape: the model or head that drafts; ``None`` for a search in the text.
        parallel: whether it proposes all positions in one pass.
    """

    shape: Shape | None = None
    parallel: bool = False


#: Rows of the output layer: of the target, and of an EAGLE-3 head.
_VOCABULARY, _EAGLE3_VOCABULARY = 128_000, 32_000

#: Layers of drafters that propose all positions in one pass (DFlash has 5).
_PARALLEL_LAYERS = 5


def _head(target: Shape, layers: int, vocabulary: int) -> Shape:
    """Return a head of dense decoder layers (14 hidden² parameters, as Llama's) with an output layer."""
    return Shape(
        dense=14 * layers * target.hidden**2 + vocabulary * target.hidden,
        layers=layers,
        hidden=target.hidden,
        kv_values=layers * target.kv_values / target.layers,
        bytes_per_parameter=max(2.0, target.bytes_per_parameter),
    )


def usual_drafter(method: str, target: Shape, draft: Shape | None = None) -> Drafter | None:
    """Return the drafter that `method` usually has for `target`, ``None`` where it cannot be told.

    Args:
        method: as vLLM calls it.
        target: the model that it drafts for.
        draft: the draft model; only `draft_model` needs it.
    """
    match method:
        case "draft_model":
            return None if draft is None else Drafter(draft)
        case "ngram" | "ngram_gpu" | "suffix":
            return Drafter(None)
        case "eagle3":
            return Drafter(_head(target, 1, _EAGLE3_VOCABULARY))
        case "eagle":
            return Drafter(_head(target, 1, _VOCABULARY))
        case "dflash" | "dspark" | "parallel":
            return Drafter(_head(target, _PARALLEL_LAYERS, _VOCABULARY), parallel=True)
        case "medusa":
            return Drafter(_head(target, 0, 4 * _VOCABULARY), parallel=True)
        case "mlp_speculator":
            return Drafter(_head(target, 0, _VOCABULARY))
    if method == "mtp" or method.endswith("_mtp"):
        # One layer of the target itself, with its experts.
        per_layer = 1 / target.layers
        return Drafter(
            replace(
                target,
                dense=target.dense * per_layer + _VOCABULARY * target.hidden,
                routed=target.routed * per_layer,
                layers=1,
                kv_values=target.kv_values * per_layer,
            )
        )
    return None
