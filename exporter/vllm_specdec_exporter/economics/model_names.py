"""Models as operators write them and as servers name them: ``30B-A3B:fp8``,
``Qwen3-30B-A3B-FP8``.
"""

import re
from functools import lru_cache

from msgspec.structs import replace

from .known_models import known_model
from .model import HEAD_SIZE, Model, from_architecture, from_parameters
from .sizes import BF16, PRECISIONS, parse_parameters, parse_precision


def parse_model(text: str) -> Model:
    """Return the model of ``70B``, ``8B:fp8`` or ``30B-A3B:int4``, by default in BF16,
    or a published one by its name, ``Qwen3-8B:fp8``, by default as it is published.

    ValueError for anything else.
    """
    size, _, precision = text.partition(":")
    published = _published(size, precision)
    if published is not None:
        return published
    total, _, active = size.replace("-a", "-A").partition("-A")
    stored = parse_precision(precision) if precision else BF16
    try:
        parameters = parse_parameters(total)
    except ValueError as error:
        raise ValueError(f"{error}; or a published model, such as Qwen3-8B") from error
    if not active:
        return from_parameters(parameters, stored)
    active_parameters = parse_parameters(active)
    if active_parameters > parameters:
        raise ValueError(f"a token cannot pass through {active} of {total} parameters")
    return from_parameters(parameters, stored, active_parameters)


def _published(name: str, precision: str) -> Model | None:
    """Return the published model that a name holds, ``None`` if it holds none.

    It is stored as `precision` says; if that is empty, as the name says, else as it is
    published.
    """
    known = known_model(name, size_in_name(name))
    if known is None:
        return None
    stored = parse_precision(precision or _precision_in(name) or known.precision)
    return from_architecture(known.architecture, stored)


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
                f"{name}: the dimensions of this model are known; allowed: kv"
            )
        match name:
            case "layers":
                layers = _count(pair, value)
                kv_values = model.kv_values * layers / model.layers
                model = replace(model, layers=layers, kv_values=kv_values)
            case "kv-heads":
                heads = _count(pair, value)
                kv_values = model.layers * 2 * heads * HEAD_SIZE
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
#: The first that a name holds: GPTQ-Int8 has eight bits, and GPTQ alone four.
_PRECISIONS = (
    (re.compile(r"nvfp4|mxfp4|fp4", re.IGNORECASE), "fp4"),
    (re.compile(r"int4|w4a|4bit|q4_", re.IGNORECASE), "int4"),
    (re.compile(r"int8|w8a|8bit|q8_", re.IGNORECASE), "int8"),
    (re.compile(r"awq|gptq", re.IGNORECASE), "int4"),
    (re.compile(r"fp8", re.IGNORECASE), "fp8"),
    (re.compile(r"bf16|fp16", re.IGNORECASE), "bf16"),
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
    unit = 1e9 if match[2] in "bB" else 1e6
    return float(match[1]) * unit


@lru_cache(maxsize=256)
def model_in_name(name: str) -> Model | None:
    """Return the model of a served name, ``None`` if the name is ambiguous.

    Of a published model, `Qwen3-8B-FP8`, all dimensions are known. Of others the name
    has to say the size: `Some-30B-A3B` has all parameters and the active ones, and
    `Llama-3.1-9B` is enough because the family is dense. `Mixtral-8x7B` is not.
    """
    published = _published(name, "")
    if published is not None:
        return published
    parameters = size_in_name(name)
    name = name.rpartition("/")[2]
    active = _ACTIVE.search(name)
    if parameters is None or (active is None and not _DENSE.search(name)):
        return None
    stored = PRECISIONS[_precision_in(name) or "bf16"]
    active_parameters = float(active[1]) * 1e9 if active else None
    return from_parameters(parameters, stored, active_parameters)


def _precision_in(name: str) -> str:
    """Return the precision that a name says, empty if it says none."""
    for pattern, precision in _PRECISIONS:
        if pattern.search(name):
            return precision
    return ""
