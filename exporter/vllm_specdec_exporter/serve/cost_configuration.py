"""What the `cost.*` options say of the cost of speculation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..config.files import read_file
from ..config.options import ConfigError, check_both_or_neither
from ..economics.model import from_architecture, parse_model, with_details
from ..economics.profiles import (
    BUILTIN,
    CostSettings,
    Hardware,
    ProfileError,
    guess_method,
    meant_for,
    parse_profiles,
)
from ..economics.sizes import BF16

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..economics.cost import CostProfile
    from ..economics.model import Model
    from ..economics.speculative_config import Speculation


def build_costs(values: Mapping[str, Any], speculation: Speculation) -> CostSettings:
    """Return the cost settings from the values of the options.

    Raises:
        ConfigError: a file that cannot be used, or values that contradict each other.
    """
    profile = _profile(values, speculation)
    return CostSettings(profile, values["cost.draft-size-ratio"], _hardware(values, profile))


def _profile(values: Mapping[str, Any], speculation: Speculation) -> CostProfile:
    """Return the profile by name; with `auto`, the one for the method, from the file first."""
    own = _profiles(values["cost.file"])
    name: str = values["cost.profile"]
    known = {**BUILTIN, **own}
    if name in known:
        return known[name]
    if name != "auto":
        raise ConfigError(
            f"--cost.profile {json.dumps(name)}: no such profile; known: auto, {', '.join(known)}"
        )
    if len(own) == 1 and not next(iter(own.values())).methods:
        return next(iter(own.values()))
    return meant_for(guess_method(speculation.method, speculation.draft_model), own)


def _profiles(path: str | None) -> Mapping[str, CostProfile]:
    if not path:
        return {}
    try:
        return parse_profiles(read_file(path, "--cost.file"))
    except ProfileError as error:
        raise ConfigError(f"--cost.file {json.dumps(path)}: {error}") from error


def _hardware(values: Mapping[str, Any], profile: CostProfile) -> Hardware | None:
    """Return the hardware; ``None`` if it is not given, or if the operator's own profile is used."""
    machine, model = values["cost.hardware"], values["cost.model"]
    if machine is None:
        if model is not None:
            raise ConfigError(
                f"--cost.model {json.dumps(model)}: --cost.hardware is missing, which it belongs to"
            )
        return None
    if values["cost.profile"] != "auto":
        raise ConfigError(f"--cost.hardware and --cost.profile {values['cost.profile']}: give one of the two")
    target = None if model is None else _model(model)
    name, gpus = machine
    return Hardware(name, gpus, target) if BUILTIN.get(profile.name) == profile else None


def _model(text: str) -> Model:
    """Return the served model, from its size or its config.json, and details after a comma."""
    size, _, details = text.partition(",")
    try:
        model = _read_config(size) if size.lower().endswith(".json") else parse_model(size)
        return with_details(model, details) if details else model
    except ValueError as error:
        raise ConfigError(f"--cost.model {json.dumps(text)}: {error}") from error


def _read_config(path: str) -> Model:
    from ..economics.architecture import read_architecture  # here: most sidecars have no such file

    model = read_architecture(read_file(path, "--cost.model"))
    if model.weights is None and model.quantized:
        raise ValueError("its quantization is not known here; give the size instead, such as 70B:int4")
    return from_architecture(model, model.weights or BF16)


def memory_ratio(values: Mapping[str, Any]) -> float | None:
    """Return the memory of the draft model over that of the GPUs, ``None`` if it is not given.

    Raises:
        ConfigError: one of the two is missing, or the draft model exceeds the GPUs.
    """
    check_both_or_neither(values, "cost.draft-memory", "cost.gpu-memory")
    draft, gpus = values["cost.draft-memory"], values["cost.gpu-memory"]
    if draft is not None and draft > gpus:
        raise ConfigError(f"--cost.draft-memory: {draft:g} bytes exceed the {gpus:g} of --cost.gpu-memory")
    return None if draft is None else draft / gpus
