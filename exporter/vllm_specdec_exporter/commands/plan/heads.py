"""The size of a drafting head, estimated from the target."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...economics.model import count_eagle, count_eagle3, count_medusa, count_mtp, from_parameters
from .methods import Drafter

if TYPE_CHECKING:
    from ...economics.architecture import Architecture
    from ...economics.model import Model
    from ...economics.sizes import Precision
    from .methods import Method


def estimate_head(method: Method, target: Model, precision: Precision, k: int) -> Model | None:
    """Return the heads of `method` for `target` by estimate, ``None`` where there is nothing to go by.

    Args:
        method: a method of heads.
        target: the model that they are for; with its dimensions the estimate is closer.
        precision: of the heads.
        k: number of speculative tokens; Medusa has a head for each.
    """
    if method.drafter is not Drafter.HEAD:
        return None
    if target.architecture is not None:
        count = _count_head(method, target.architecture, k)
        if count:
            source = "estimated from the target's dimensions"
            return replace(from_parameters(count, precision), source=source, estimated=True)
    if method.share is None:
        return None
    count = round(method.share * target.parameters * (k if method.per_token else 1))
    source = f"estimated ({method.share_source})"
    return replace(from_parameters(count, precision), source=source, estimated=True)


def _count_head(method: Method, target: Architecture, k: int) -> int:
    match method.name:
        case "eagle":
            return count_eagle(target)
        case "eagle3":
            return count_eagle3(target)
        case "medusa":
            return count_medusa(target, k)
        case "mtp":
            return count_mtp(target)
        case _:
            return 0
