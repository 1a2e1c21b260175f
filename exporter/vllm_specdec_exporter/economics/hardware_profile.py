"""The cost profile of known hardware: the roofline model in the form of a profile."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .hardware import accelerators
from .physical import Machine, PhysicalModel
from .shape import shape_in_name, usual_drafter, usual_shape

if TYPE_CHECKING:
    from .cost import CostProfile
    from .shape import Shape

#: Relative error of the speedup that 90 % of the published measurements for judging stay below:
#: docs/reference/estimate-accuracy.md.
UNCERTAINTY = 0.35

#: The first versions that prepare drafts on the GPU, by dialect.
_CURRENT = {"vllm": (0, 11), "sglang": (0, 5)}


class HardwareError(ValueError):
    """Hardware that cannot be used. The message is one line with what is allowed."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the operator says of the server's hardware and model.

    Attributes:
        name: as given, such as `4xh100`.
        machine: the GPUs.
        target: the served model; ``None``: by its served name.
    """

    name: str
    machine: Machine
    target: Shape | None = None


def parse_machine(text: str) -> tuple[str, Machine]:
    """Return the name and the machine that `text` says: ``h100`` or, for tensor parallelism, ``4xh100``.

    Raises:
        HardwareError: not of this form, or no such accelerator.
    """
    match = re.fullmatch(r"(?:(\d{1,3})x)?([a-z0-9][a-z0-9.-]*)", text.strip().lower().replace("_", "-"))
    known = accelerators()
    if match is None or match[2] not in known or match[1] == "0":
        msg = f"allowed: an accelerator, or COUNTxNAME such as 4xh100; known: {', '.join(known)}"
        raise HardwareError(msg)
    count = int(match[1] or 1)
    return (f"{count}x{match[2]}" if count > 1 else match[2]), Machine(known[match[2]], count)


def hardware_profile(
    generic: CostProfile,
    hardware: Hardware,
    *,
    method: str,
    target_model: str = "",
    draft_parameters: float | None = None,
    size_ratio: float | None = None,
    dated: bool = False,
) -> CostProfile | None:
    """Return the profile of `method` on this hardware, ``None`` where target or drafter are not known.

    Args:
        generic: the profile of the method, for what does not depend on the hardware.
        hardware: the hardware.
        method: as vLLM calls it.
        target_model: the served name, where `hardware` has no target.
        draft_parameters: of the draft model; only the method `draft_model` needs it, or:
        size_ratio: size of the draft model over the target's.
        dated: whether the engine is older than `_CURRENT`.
    """
    target = hardware.target or shape_in_name(target_model)
    if target is None:
        return None
    if size_ratio is not None:
        draft_parameters = size_ratio * target.parameters
    draft = usual_shape(draft_parameters) if draft_parameters else None
    drafter = usual_drafter(method, target, draft)
    if drafter is None:
        return None
    return replace(
        generic,
        name=f"{hardware.name}, {method}",
        physical=PhysicalModel(hardware.machine, target, drafter, dated=dated),
        uncertainty=UNCERTAINTY,
        provenance="Roofline model of the hardware, fitted to published measurements.",
    )


def is_dated(dialect: str, version: str) -> bool:
    """Return whether the engine is known to be older than those that the model is fitted to."""
    first = next((found for name, found in _CURRENT.items() if dialect.startswith(name)), None)
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return first is not None and match is not None and (int(match[1]), int(match[2])) < first
