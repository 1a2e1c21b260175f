"""Cost profiles by name, method, file or hardware: which one is used for a deployment.

A file of profiles has one mapping, `profiles`, from names to profiles; an example is in
docs/reference/cost-profiles.md.
"""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..config.spelling import nearest
from ..config.tables import read_table
from ..engines import ENGINE_OF, Engine
from .cost import MAX_UNCERTAINTY, Basis, CostProfile, DraftCost, TargetCost
from .hardware import (
    SPEEDUP,
    Machine,
    PhysicalModel,
    method_family,
    regime,
    usual_drafter,
)
from .known_problems import release_of
from .model import Model, from_parameters
from .model_names import model_in_name, size_in_name
from .speculative_config import Speculation, drafts_without_model

_PARTS: dict[str, type[TargetCost | DraftCost]] = {
    "target": TargetCost,
    "draft": DraftCost,
}
_BASES = (Basis.CALIBRATED.value, Basis.MODELLED.value)
#: Values of the keys that are neither numbers nor texts.
_ALLOWED = {
    "basis": " or ".join(_BASES),
    "batches": "a list of the least and the most requests in a batch",
    "contexts": "a list of the least and the most tokens of context",
    "cheap": "true or false",
    "typical_k": "a whole number from 1 up",
    "methods": "a list of methods",
}
_NUMBERS = ("context_tokens", "size_ratio", "typical_size_ratio", "uncertainty")
_TEXTS = ("provenance", "unit")
_KNOWN = frozenset((*_PARTS, *_ALLOWED, *_NUMBERS, *_TEXTS))


class ProfileError(ValueError):
    """A profile that cannot be used.

    The message is one line with its name and what is allowed.
    """


def parse_profiles(document: object) -> dict[str, CostProfile]:
    """Return the profiles of a parsed YAML document by name; ProfileError for unknown
    keys and bad values.
    """
    entries = document if isinstance(document, dict) else {}
    profiles = entries.get("profiles")
    if not isinstance(profiles, dict) or not profiles or len(entries) > 1:
        raise ProfileError(
            "a mapping with the one key profiles is expected, from names to profiles"
        )
    for name in profiles:
        if not str(name).isprintable() or not str(name).strip():
            raise ProfileError(
                f"{str(name)!r} is no name for a profile: it must be text on one line"
            )
    parsed = {str(name): _profile(str(name), entry) for name, entry in profiles.items()}
    _check_methods(parsed.values())
    return parsed


def _check_methods(profiles: Iterable[CostProfile]) -> None:
    """Raise ProfileError if two profiles are for the same method."""
    taken: dict[str, str] = {}
    for profile in profiles:
        for method in profile.methods:
            if method in taken:
                raise ProfileError(
                    f"profile {profile.name}: method {method} belongs to profile "
                    f"{taken[method]} already"
                )
            taken[method] = profile.name


def _profile(name: str, entry: object) -> CostProfile:
    checked = _checked(name, entry, _KNOWN)
    if "target" not in checked:
        raise ProfileError(
            f"profile {name}: target is missing; its key fixed is the time of a step"
        )
    values = {key: _value(name, key, value) for key, value in checked.items()}
    values.pop("unit", None)
    profile = CostProfile(name=name, **values)
    if profile.target.fixed <= 0:
        raise ProfileError(
            f"profile {name}: target.fixed is {profile.target.fixed:g}; allowed: "
            "above 0"
        )
    if profile.basis is Basis.CALIBRATED and profile.uncertainty > MAX_UNCERTAINTY:
        raise ProfileError(
            f"profile {name}: uncertainty is {profile.uncertainty:g}; allowed if it "
            f"is calibrated: up to {MAX_UNCERTAINTY:g}, because beyond it the "
            "measurement says nothing: run calibrate again"
        )
    if profile.size_ratio is not None:
        try:
            profile.sized(profile.size_ratio)
        except ValueError as error:
            raise ProfileError(f"profile {name}: size_ratio: {error}") from error
    return profile


def _value(name: str, key: str, value: object) -> Any:
    match key:
        case "target" | "draft":
            return _part(name, key, value)
        case _ if key in _NUMBERS:
            return _number(name, key, value)
        case _ if key in _TEXTS:
            return str(value).strip()
        case "cheap" if isinstance(value, bool):
            return value
        case "typical_k" if type(value) is int and value >= 1:
            return value
        case "methods" if isinstance(value, list) and all(
            isinstance(v, str) for v in value
        ):
            return tuple(value)
        case "basis" if value in _BASES:
            return Basis(value)
        case "batches" | "contexts" if isinstance(value, list) and len(value) == 2:
            return tuple(_number(name, key, number) for number in value)
    raise ProfileError(f"profile {name}: {key} is {value!r}; allowed: {_ALLOWED[key]}")


def _checked(where: str, entry: object, known: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(entry, dict):
        raise ProfileError(
            f"profile {where}: a mapping is expected; known keys: "
            f"{', '.join(sorted(known))}"
        )
    for key in entry:
        if key not in known:
            near = nearest(key, known)
            if near:
                hint = f"did you mean {near}?"
            else:
                hint = f"known: {', '.join(sorted(known))}"
            raise ProfileError(f"profile {where}: no such key {key!r}; {hint}")
    return entry


def _part(name: str, key: str, value: object) -> TargetCost | DraftCost:
    part = _PARTS[key]
    checked = _checked(f"{name}, {key}", value, frozenset(part.__struct_fields__))
    numbers = {
        item: _number(name, f"{key}.{item}", number) for item, number in checked.items()
    }
    if key == "target" and "fixed" not in numbers:
        raise ProfileError(
            f"profile {name}: target.fixed is missing: the time of a step, "
            "whatever its batch"
        )
    return part(**numbers)


def _number(name: str, key: str, value: object) -> float:
    # YAML takes 5e-6 for a text: its numbers with an exponent need a point.
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise ProfileError(
            f"profile {name}: {key} is {value!r}; allowed: a number from 0 up"
        )
    return number


#: Every profile that is shipped, by name.
BUILTIN: Mapping[str, CostProfile] = parse_profiles(
    read_table(__file__, "profiles.toml")
)


def for_method(method: str, size_ratio: float | None = None) -> CostProfile:
    """Return the shipped profile of a method as vLLM calls it, or `unknown`; ValueError
    for a bad size.
    """
    return fit(meant_for(method), size_ratio)


def meant_for(
    method: str, profiles: Mapping[str, CostProfile] = BUILTIN
) -> CostProfile:
    """Return the first of `profiles` for a method, else the shipped one, else
    `unknown`.
    """
    # deepseek_mtp, qwen3_next_mtp, ...: vLLM has one for each architecture
    if method.endswith("_mtp"):
        method = "mtp"
    for profile in chain(profiles.values(), BUILTIN.values()):
        if method and method in profile.methods:
            return profile
    return BUILTIN["unknown"]


def fit(profile: CostProfile, size_ratio: float | None) -> CostProfile:
    """Return `profile` for a draft model of this size, by default its own; ValueError
    if out of range.
    """
    ratio = size_ratio or profile.size_ratio
    if ratio is None or not profile.draft.depends_on_size:
        return profile
    return profile.sized(ratio)


class Hardware(Struct, frozen=True):
    """The server's hardware and model, as given by the operator."""

    name: str  # as given, such as `4xh100`
    machine: Machine  # the GPUs
    target: Model | None = None  # the served model; ``None``: by its served name


class CostSettings(Struct, frozen=True):
    """The settings of the cost of speculation."""

    #: The profile of the method, or the chosen one.
    profile: CostProfile = BUILTIN["unknown"]
    #: Size of the draft model over the target's, if given.
    size_ratio: float | None = None
    #: The server's GPUs, if given; used with a shipped profile.
    hardware: Hardware | None = None
    #: The operator's own profiles, if the profile is chosen by the method; ``None`` if
    #: it was chosen.
    by_method: tuple[CostProfile, ...] | None = ()


@lru_cache(maxsize=256)
def deployed(
    costs: CostSettings,
    speculation: Speculation,
    target_model: str,
    dialect: str = "",
    version: str = "",
    printed: str = "",
) -> CostProfile:
    """Return the profile for the deployed models.

    `target_model` is the served name, for the model if it is not given; dialect and
    version of the server are empty if not known. So is `printed`, the method that the
    server prints, for one that is not given.
    """
    method = guess_method(speculation.method, speculation.draft_model)
    pauses = any(row.num_speculative_tokens == 0 for row in speculation.schedule)
    idles = pauses and not drafts_without_model(method)
    if printed and not method:
        configured = _configured_for(printed, costs)
        if configured is not None:
            method = printed
            costs = replace(costs, profile=configured)
    engine = ENGINE_OF.get(dialect)
    max_batch = engine.max_batch if engine else None
    looks_up = drafts_without_model(method) or any(
        map(drafts_without_model, costs.profile.methods)
    )
    ahead = engine is not None and engine.drafts_ahead and not looks_up
    draft_parameters = size_in_name(speculation.draft_model)
    builtin = BUILTIN.get(costs.profile.name) == costs.profile
    if costs.hardware is not None and builtin:
        physical = hardware_profile(
            costs.profile,
            costs.hardware,
            method=method,
            target_model=target_model,
            draft_parameters=draft_parameters,
            size_ratio=costs.size_ratio,
            dated=is_dated(engine, version),
            unsplit=engine is None or not engine.splits_attention,
            parallel=speculation.parallel,
        )
        if physical is not None:
            return replace(
                physical, max_batch=max_batch, idles=idles, drafts_ahead=ahead
            )
    ratio = costs.size_ratio
    target = size_in_name(target_model)
    if ratio is None and draft_parameters and target and draft_parameters < target:
        ratio = draft_parameters / target
    lacking = _lacking(costs.hardware, method, target_model) if builtin else ""
    if lacking == "--spec.config" and speculation.configured:
        lacking = "its method in --spec.config"
    fitted = fit(costs.profile, ratio)
    return replace(
        fitted,
        max_batch=max_batch,
        idles=idles,
        drafts_ahead=ahead,
        lacking=lacking,
    )


def _configured_for(method: str, costs: CostSettings) -> CostProfile | None:
    """Return the profile of a method, ``None`` if the operator chose one."""
    if costs.by_method is None or costs.profile != BUILTIN["unknown"]:
        return None
    return meant_for(method, {profile.name: profile for profile in costs.by_method})


def _lacking(hardware: Hardware | None, method: str, target_model: str) -> str:
    """Return the option without which there is no model of the hardware, empty if none
    would help.
    """
    if hardware is None:
        return "--cost.hardware"
    if hardware.target is None and model_in_name(target_model) is None:
        return "--cost.model"
    if not method:
        return "--spec.config"
    if method == "draft_model":
        return "--cost.draft-size-ratio"
    return ""


def hardware_profile(
    generic: CostProfile,
    hardware: Hardware,
    *,
    method: str,
    target_model: str = "",
    draft_parameters: float | None = None,
    size_ratio: float | None = None,
    dated: bool = False,
    unsplit: bool = True,
    parallel: bool = False,
) -> CostProfile | None:
    """Return the profile of `method` on this hardware, ``None`` if target or drafter
    are not known.

    Args:
        generic: the profile of the method, for what does not depend on the hardware.
        hardware: the hardware.
        method: as vLLM calls it.
        target_model: the served name, if `hardware` has no target.
        draft_parameters: of the draft model; only the method `draft_model` needs it,
            or:
        size_ratio: size of the draft model over the target's.
        dated: whether the engine is older than `_CURRENT`.
        unsplit: whether its attention kernels are those that `Accelerator.units` is
            about.
        parallel: whether the drafter proposes all positions in one pass, whatever is
            usual of the method.
    """
    target = hardware.target or model_in_name(target_model)
    if target is None:
        return None
    if size_ratio is not None:
        draft_parameters = size_ratio * (
            target.parameters - target.looked_up_parameters
        )
    draft = from_parameters(draft_parameters) if draft_parameters else None
    drafter = usual_drafter(method, target, draft)
    if drafter is None:
        return None
    if parallel and drafter.model is not None:
        drafter = replace(drafter, parallel=True)
    family = method_family(method)
    if drafter.parallel:
        family = "parallel"
    machine = replace(hardware.machine, unsplit=unsplit)
    return replace(
        generic,
        name=f"{hardware.name}, {method}",
        physical=PhysicalModel(machine, target, drafter, dated),
        uncertainty=SPEEDUP[family, regime(target)] - 1,
        provenance="Roofline model of the hardware, fitted to published measurements.",
    )


def is_dated(engine: Engine | None, version: str) -> bool:
    """Return whether the server is known to be older than those that the model is
    fitted to.
    """
    release = release_of(version)
    if engine is None or engine.drafts_on_gpu_since is None or release is None:
        return False
    return release < engine.drafts_on_gpu_since


def guess_method(method: str, draft_model: str) -> str:
    """Return the method; without one, the method that vLLM derives from the drafter's
    name.
    """
    if method or not draft_model:
        return method
    if draft_model in ("ngram", "[ngram]"):
        return "ngram"
    # For a draft model, medusa and an MLP speculator, vLLM reads files.
    name = draft_model.lower()
    for part in ("eagle3", "eagle-", "dflash", "dspark"):
        if part in name:
            return part.removesuffix("-")
    return ""
