"""Sizes: parameters, memory and bytes per parameter, as people write them.

Memory comes in decimal units (GB = 1e9 bytes), as in the published arithmetic and in the names of cards, or
in binary ones (GiB = 2^30 bytes). Which one is meant must be said: they differ by 7 %.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

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
