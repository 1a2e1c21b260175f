"""Speculation methods: what each needs, its usual K, what acceptance to assume, and the size of its heads.

They are rows of `methods.toml`. The assumed acceptances are for planning only: they span what was published,
or are marked as guesses. A measurement on the traffic to be served replaces them.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...economics.model import count_eagle, count_eagle3, count_medusa, count_mtp, from_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...economics.architecture import Architecture
    from ...economics.model import Model
    from ...economics.sizes import Precision


class Drafter(StrEnum):
    """What does the drafting."""

    MODEL = "model"
    """A model of its own."""
    HEAD = "head"
    """Layers trained for this very target."""
    LOOKUP = "lookup"
    """A search in what was written before; no weights."""


class Method(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A speculation method."""

    name: str  # as in vLLM's ``--speculative-config``
    drafter: Drafter
    cautious: float  # per-token acceptance to assume where little is known, 0 to 1
    good: float  # per-token acceptance where all goes well, 0 to 1
    acceptance_source: str  # where these two come from
    shallowest: int = 1  # the least K that is usual
    deepest: int = 0  # the greatest K that is usual; 0 where no range is published
    depth_source: str = ""  # where the range comes from
    #: Parameters of the heads over the target's where no size is given; ``None``: not known.
    share: float | None = None
    share_source: str = ""  # where the share comes from
    per_token: bool = False  # whether `share` is for each of K heads
    named: bool = True  # whether vLLM wants the drafter's name under ``model``


def _load() -> dict[str, Method]:
    table = tomllib.loads(Path(__file__).with_name("methods.toml").read_text("utf-8"))
    return {name: msgspec.convert({"name": name, **row}, Method) for name, row in table.items()}


#: By name.
METHODS: Mapping[str, Method] = _load()


_COUNTS: Mapping[str, Callable[[Architecture, int], int]] = {
    "eagle": lambda target, _: count_eagle(target),
    "eagle3": lambda target, _: count_eagle3(target),
    "mtp": lambda target, _: count_mtp(target),
    "medusa": count_medusa,
}


def estimate_head(method: Method, target: Model, precision: Precision, k: int) -> Model | None:
    """Return the heads of `method` for `target` by estimate, ``None`` where there is nothing to go by.

    With the dimensions of the target the estimate is closer. Medusa has a head for each of `k` tokens.
    """
    count, source = 0, "estimated from the target's dimensions"
    if target.architecture is not None and method.name in _COUNTS:
        count = _COUNTS[method.name](target.architecture, k)
    if not count:
        if method.share is None:
            return None
        count = round(method.share * target.parameters * (k if method.per_token else 1))
        source = f"estimated ({method.share_source})"
    return replace(from_parameters(count, precision), source=source, estimated=True)
