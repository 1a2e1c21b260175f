"""Sizes: parameters, memory and bytes per parameter, as people write them.

Memory comes in decimal units (GB = 1e9 bytes), as in the published arithmetic and in the names of cards, or
in binary ones (GiB = 2^30 bytes). Which one is meant must be said: they differ by 7 %.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_NUMBER = r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?)\s*"
_PARAMETERS = re.compile(_NUMBER + r"([kKmMbBtT]?)\s*")
_MEMORY = re.compile(_NUMBER + r"([A-Za-z]*)\s*")
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_UNITS = {"mb": 1e6, "gb": 1e9, "tb": 1e12, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}

#: The least and the most that makes a language model, in parameters: a slip of the unit lies outside.
_SMALLEST, _LARGEST = 1e6, 1e14
_LEAST_MEMORY, _MOST_MEMORY = 1e8, 1e14


@dataclass(frozen=True, slots=True)
class Precision:
    """How parameters are stored.

    Attributes:
        name: as on the command line.
        bytes_per_parameter: 0.5 to 4; scales and zero points of quantized weights come on top.
    """

    name: str
    bytes_per_parameter: float


#: Precisions by name. Bytes per parameter as published: BF16 2, INT8 1, INT4 0.5.
PRECISIONS = {
    name: Precision(name, size)
    for name, size in (
        ("fp32", 4.0),
        ("bf16", 2.0),
        ("fp16", 2.0),
        ("fp8", 1.0),
        ("int8", 1.0),
        ("fp4", 0.5),
        ("int4", 0.5),
    )
}

#: Other spellings, as in torch, in a config.json and in vLLM's options.
_SPELLINGS = {
    "float32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
}


def parse_precision(text: str) -> Precision:
    """Return the precision called `text`, such as ``bf16``, ``bfloat16`` or ``int4``.

    Raises:
        ValueError: no such precision; the message lists them.
    """
    name = text.strip().lower().removeprefix("torch.")
    found = PRECISIONS.get(_SPELLINGS.get(name, name))
    if found is None:
        msg = f"allowed: {', '.join(PRECISIONS)}"
        raise ValueError(msg)
    return found


def parse_parameters(text: str) -> int:
    """Return the number of parameters that `text` says: ``70B``, ``1.5b``, ``500M``, ``70e9``.

    Raises:
        ValueError: not a number with an optional unit, or no size that a language model has.
    """
    match = _PARAMETERS.fullmatch(text)
    number = float(match[1]) * _SCALES[match[2].lower()] if match else math.nan
    if not _SMALLEST <= number <= _LARGEST:
        msg = "allowed: a number of parameters such as 70B, 1.5B, 500M or 70e9, from 1M to 100T"
        raise ValueError(msg)
    return round(number)


def parse_memory(text: str) -> float:
    """Return the bytes that `text` says: ``80GB`` is 80e9, ``80GiB`` is 80 * 2^30.

    Raises:
        ValueError: no unit, an unknown one, or no size that a GPU has.
    """
    match = _MEMORY.fullmatch(text)
    number = float(match[1]) * _UNITS.get(match[2].lower(), math.nan) if match else math.nan
    if not _LEAST_MEMORY <= number <= _MOST_MEMORY:
        msg = "allowed: memory with its unit, such as 80GB (80e9 bytes) or 80GiB (80 x 2^30), 0.1GB to 100TB"
        raise ValueError(msg)
    return number


def format_parameters(count: float) -> str:
    """Return a number of parameters for people: ``70B``, ``8.03B``, ``500M``."""
    for unit, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if count >= scale:
            return f"{count / scale:.3g}{unit}" if count < 999.5 * scale else f"{count / scale:.0f}{unit}"
    return f"{count:.0f}"


def format_gigabytes(size: float) -> str:
    """Return bytes in GB = 1e9 bytes, with one decimal: ``113.8 GB``, ``-12.0 GB``."""
    return f"{size / 1e9:,.1f} GB".replace("-0.0 ", "0.0 ")


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
