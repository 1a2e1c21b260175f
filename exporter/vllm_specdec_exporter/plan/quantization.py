"""The precision of a checkpoint's weights, as its `config.json` tells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .size import PRECISIONS, parse_precision

if TYPE_CHECKING:
    from .size import Precision

#: Methods that mean one precision, whatever else the file says.
_METHODS = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "fp4", "awq": "int4", "awq_marlin": "int4"}
_BITS = {4: "int4", 8: "int8"}


def is_quantized(document: Mapping[str, object]) -> bool:
    """Tell whether a configuration says that its weights are quantized, understood here or not."""
    return bool(document.get("quantization_config"))


def stored_precision(document: Mapping[str, object]) -> Precision | None:
    """Return the precision of the weights, ``None`` where the file does not tell it or tells another one.

    Quantization beats the data type. The layers that stay at 16 bits in most quantized checkpoints
    (embeddings, output layer) and the scales are not counted: expect a few percent more on top.
    """
    if is_quantized(document):
        quantization = document["quantization_config"]
        return _quantized(quantization) if isinstance(quantization, Mapping) else None
    stored = document.get("dtype") or document.get("torch_dtype")
    try:
        precision = parse_precision(stored) if isinstance(stored, str) else None
    except ValueError:
        return None
    # vLLM serves checkpoints of 32 bits in 16, unless it is told otherwise (--dtype auto).
    return PRECISIONS["bf16"] if precision == PRECISIONS["fp32"] else precision


def _quantized(quantization: Mapping[str, object]) -> Precision | None:
    method = str(quantization.get("quant_method", "")).lower()
    if method in _METHODS:
        return PRECISIONS[_METHODS[method]]
    algorithm = str(quantization.get("quant_algo", "")).lower()
    if algorithm:  # ModelOpt
        named = {"fp8": "fp8", "nvfp4": "fp4"}.get(algorithm)
        return PRECISIONS[named] if named else None
    if method == "bitsandbytes":
        bits = {"load_in_4bit": "int4", "load_in_8bit": "int8"}
        found = next((name for key, name in bits.items() if quantization.get(key)), None)
        return PRECISIONS[found] if found else None
    if method == "compressed-tensors":
        return _compressed(quantization)
    width = quantization.get("bits")
    return PRECISIONS[_BITS[width]] if isinstance(width, int) and width in _BITS else None


def _compressed(quantization: Mapping[str, object]) -> Precision | None:
    groups = quantization.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        return None
    width, kind = weights.get("num_bits"), weights.get("type")
    named = {8: "fp8", 4: "fp4"} if kind == "float" else _BITS
    return PRECISIONS[named[width]] if isinstance(width, int) and width in named else None
