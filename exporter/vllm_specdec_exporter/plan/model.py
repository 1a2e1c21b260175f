"""The two models of a plan: how large each is, what its weights take, and how that is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .methods import Drafter
from .parameters import (
    count_active_parameters,
    count_eagle,
    count_eagle3,
    count_medusa,
    count_mtp,
    count_parameters,
)

if TYPE_CHECKING:
    from .architecture import Architecture
    from .methods import Method
    from .size import Precision


@dataclass(frozen=True, slots=True)
class Model:
    """The target or the drafter.

    Attributes:
        parameters: all of them, from 0 up.
        active_parameters: those that one token passes through; fewer only for a mixture of experts.
        precision: how they are stored.
        source: how the size is known, in words.
        precision_source: how the precision is known, in words.
        estimated: whether the size is an estimate.
        architecture: the dimensions, where a `config.json` was read.
    """

    parameters: int
    active_parameters: int
    precision: Precision
    source: str
    precision_source: str = "as given"
    estimated: bool = False
    architecture: Architecture | None = None

    @property
    def weights(self) -> float:
        """Bytes of the weights: parameters times bytes per parameter."""
        return self.parameters * self.precision.bytes_per_parameter

    @property
    def active_weights(self) -> float:
        """Bytes of the weights that one token passes through."""
        return self.active_parameters * self.precision.bytes_per_parameter


def from_parameters(count: int, precision: Precision) -> Model:
    """Return a model of which only the size is known."""
    return Model(count, count, precision, "as given")


def from_architecture(architecture: Architecture, precision: Precision) -> Model:
    """Return a model whose dimensions are known."""
    return Model(
        count_parameters(architecture),
        count_active_parameters(architecture),
        precision,
        "counted from its config.json",
        architecture=architecture,
    )


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
            return Model(count, count, precision, "estimated from the target's dimensions", estimated=True)
    if method.share is None:
        return None
    count = round(method.share * target.parameters * (k if method.per_token else 1))
    return Model(count, count, precision, f"estimated ({method.share_source})", estimated=True)


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
