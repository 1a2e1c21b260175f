"""Sizes: numbers of parameters, memory, precisions and accelerators, as people and
files write them.

Memory needs its unit: GB = 1e9 bytes, as in the published arithmetic and in the names
of cards, and GiB = 2^30 bytes differ by 7 %.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from ..config.tables import read_table

_PARAMETERS = re.compile(
    r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?)\s*([kKmMbBtT]?)\s*"
)
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
#: Limits of a language model; a wrong unit is beyond them.
_MIN_PARAMETERS = 1e6
_MAX_PARAMETERS = 1e14


class Precision(Struct, frozen=True):
    """How parameters are stored."""

    name: str  # as on the command line
    #: 0.5 to 4, without scales and zero points of quantized weights.
    bytes_per_parameter: float

    @property
    def bytes_read(self) -> float:
        """Bytes per parameter with the scales of quantized weights."""
        return max(self.bytes_per_parameter, 0.5625)

    @property
    def arithmetic(self) -> str:
        """The precision of multiplications.

        INT4 is unpacked to 16 bits: only FP4 has instructions.
        """
        if self.name in ("fp8", "int8", "fp4"):
            return self.name
        return "fp16"


_BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp4": 0.5,
    "int4": 0.5,
}
#: Precisions by name. Bytes per parameter as published: BF16 2, INT8 1, INT4 0.5.
PRECISIONS = {name: Precision(name, size) for name, size in _BYTES.items()}
BF16 = PRECISIONS["bf16"]

#: Other spellings, as in torch, in a config.json and in vLLM's options.
_SPELLINGS = {
    **dict.fromkeys(("float32", "float"), "fp32"),
    "bfloat16": "bf16",
    **dict.fromkeys(("float16", "half"), "fp16"),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "fp8_e4m3", "fp8_e5m2"), "fp8"),
}


def parse_precision(text: str) -> Precision:
    """Return the precision called `text`, such as ``bf16`` or ``bfloat16``; ValueError
    if it is unknown.
    """
    name = text.strip().lower().removeprefix("torch.")
    precision = PRECISIONS.get(_SPELLINGS.get(name, name))
    if precision is None:
        raise ValueError(f"allowed: {', '.join(PRECISIONS)}")
    return precision


def parse_parameters(text: str) -> int:
    """Return the number of parameters in ``70B``, ``1.5b``, ``500M`` or ``70e9``.

    ValueError for anything else.
    """
    match = _PARAMETERS.fullmatch(text)
    number = float(match[1]) * _SCALES[match[2].lower()] if match is not None else 0.0
    if not _MIN_PARAMETERS <= number <= _MAX_PARAMETERS:
        raise ValueError(
            "allowed: a number of parameters such as 70B, 1.5B, 500M or 70e9, from "
            "1M to 100T"
        )
    return round(number)


def format_parameters(count: float) -> str:
    """Return a number of parameters for people: ``70B``, ``8.03B``, ``500M``."""
    for unit, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if count >= scale:
            if count < 999.5 * scale:
                return f"{count / scale:.3g}{unit}"
            return f"{count / scale:.0f}{unit}"
    return f"{count:.0f}"


def format_gigabytes(size: float) -> str:
    """Return bytes in GB = 1e9 bytes, with one decimal: ``113.8 GB``, ``-12.0 GB``."""
    return f"{size / 1e9:,.1f} GB".replace("-0.0 ", "0.0 ")


def is_quantized(document: Mapping[str, object]) -> bool:
    """Return whether a `config.json` has quantized weights, in a known way or not."""
    return bool(document.get("quantization_config"))


def stored_precision(document: Mapping[str, object]) -> Precision | None:
    """Return the precision of the weights by a `config.json`, ``None`` if it is missing
    or not known.

    Quantization takes precedence over the data type. The layers that most quantized
    checkpoints keep at 16 bits (embeddings, output layer) are not counted: a few
    percent.
    """
    if is_quantized(document):
        quantization = document["quantization_config"]
        if not isinstance(quantization, Mapping):
            return None
        return PRECISIONS.get(_quantized(quantization))
    stored = document.get("dtype") or document.get("torch_dtype")
    if not isinstance(stored, str):
        return None
    try:
        precision = parse_precision(stored)
    except ValueError:
        return None
    # vLLM serves checkpoints of 32 bits in 16 by default (--dtype auto).
    if precision == PRECISIONS["fp32"]:
        return BF16
    return precision


#: Quantization methods of one precision, whatever else the file has.
_METHODS = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "mxfp4": "fp4",
    "awq": "int4",
    "awq_marlin": "int4",
}


def _quantized(quantization: Mapping[str, object]) -> str:
    """Return the name of the precision, empty if it is not known."""
    method = str(quantization.get("quant_method", "")).lower()
    if method in _METHODS:
        return _METHODS[method]
    algorithm = str(quantization.get("quant_algo", "")).lower()
    if algorithm:  # ModelOpt
        return {"fp8": "fp8", "nvfp4": "fp4"}.get(algorithm, "")
    if method == "bitsandbytes":
        if quantization.get("load_in_4bit"):
            return "int4"
        return "int8" if quantization.get("load_in_8bit") else ""
    width = quantization.get("bits")
    kind = "int"
    if method == "compressed-tensors":
        weights = _compressed_weights(quantization)
        width = weights.get("num_bits")
        kind = "fp" if weights.get("type") == "float" else "int"
    return f"{kind}{width}" if width in (4, 8) else ""


def _compressed_weights(quantization: Mapping[str, object]) -> Mapping[str, object]:
    """Return how the first group of weights is stored, empty if it is not known."""
    groups = quantization.get("config_groups")
    if not isinstance(groups, Mapping):
        return {}
    group = next(iter(groups.values()), None)
    if not isinstance(group, Mapping):
        return {}
    weights = group.get("weights")
    return weights if isinstance(weights, Mapping) else {}


class HardwareError(ValueError):
    """Unknown hardware. The message is one line with what is allowed."""


#: The next wider precision that values of a precision can be multiplied in.
_WIDER = {"fp4": "fp8", "fp8": "fp16", "int8": "fp16"}


class Accelerator(Struct, frozen=True):
    """One GPU by its data sheet (hardware.toml)."""

    name: str  # as `--cost.hardware` has it
    bandwidth: float  # of its memory, in bytes per second
    #: Dense operations per second, by precision.
    throughput: Mapping[str, float]
    link: float  # bytes per second to another GPU of the same server
    memory: float  # in bytes
    source: str  # the data sheet
    #: Multiprocessors, where the kernels for several tokens of a request do not split
    #: its context; else 0.
    units: int = 0

    def __hash__(self) -> int:
        return hash(self.name)

    def operations_per_second(self, precision: str) -> float:
        """Return the dense throughput of multiplications in `precision`, or in the next
        wider one it has.
        """
        wider = _WIDER.get(precision, "fp16")
        if precision in self.throughput:
            return self.throughput[precision]
        return self.operations_per_second(wider)


@lru_cache(maxsize=1)
def accelerators() -> Mapping[str, Accelerator]:
    """Return the known accelerators by name."""
    known = read_table(__file__, "hardware.toml")["accelerators"]
    return {
        name: Accelerator(
            name=name,
            bandwidth=entry["bandwidth"] * 1e9,
            throughput={
                key: entry[key] * 1e12
                for key in ("fp16", "fp8", "int8", "fp4")
                if key in entry
            },
            link=entry["link"] * 1e9,
            memory=entry["memory"] * 1e9,
            source=entry["source"],
            units=entry.get("units", 0),
        )
        for name, entry in known.items()
    }


#: Keys of one's own accelerator: unit, and limits that catch another unit: from an
#: embedded GPU to a rack.
_OWN = {
    "bandwidth": ("GB/s", 10.0, 100_000.0),
    "link": ("GB/s", 1.0, 10_000.0),
    "memory": ("GB", 1.0, 10_000.0),
    **dict.fromkeys(("fp16", "fp8", "int8", "fp4"), ("TFLOPS", 1.0, 100_000.0)),
}
#: Bandwidth between the GPUs of a server where it is not given: PCIe 4.0 with 16 lanes.
_OWN_LINK = 32.0


def own_accelerator(text: str) -> Accelerator:
    """Return an accelerator of the given data."""
    values: dict[str, float] = {}
    for pair in text.split(","):
        key, _, value = (part.strip() for part in pair.partition("="))
        if key not in _OWN:
            raise HardwareError(
                f"{pair.strip()!r}: no such key; known: {', '.join(_OWN)}"
            )
        if key in values:
            raise HardwareError(f"{key} is given twice")
        unit, least, most = _OWN[key]
        number = re.fullmatch(rf"(\d+(?:\.\d+)?) ?{unit.lower()}", value)
        if number is None or not least <= float(number[1]) <= most:
            raise HardwareError(
                f"{pair.strip()!r}: allowed: a number and its unit, from "
                f"{least:g}{unit} to {most:g}{unit}"
            )
        values[key] = float(number[1])
    for key in ("bandwidth", "fp16"):
        if key not in values:
            raise HardwareError(
                f"{key} is missing, in {_OWN[key][0]}: the data sheet has it"
            )
    return Accelerator(
        name=f"own-{values['bandwidth']:g}GB/s",
        bandwidth=values["bandwidth"] * 1e9,
        throughput={
            key: value * 1e12
            for key, value in values.items()
            if _OWN[key][0] == "TFLOPS"
        },
        link=values.get("link", _OWN_LINK) * 1e9,
        memory=values.get("memory", 0.0) * 1e9,
        source="as given",
    )
