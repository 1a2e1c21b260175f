"""Published models by their served names: the dimensions of `known_models.toml`.

A size alone says little of a model of today: of two with 27B parameters, one keeps keys
and values in each layer, another a state in three of four, and a step of a mixture of
experts depends on how many of these there are. The name says which model it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct, convert

from ..config.tables import read_table

if TYPE_CHECKING:
    from .architecture import Architecture

#: How far a size in a name may be from the published one: names round to a whole
#: number, and some count a vision tower. What differs by more is another model, such
#: as one of 12B whose name holds `DeepSeek-R1`.
_NEAR = 1.25
#: What the rest of the name of another model says, which was made from a known one.
_OTHERS = re.compile(r"distill|tiny|lite|layers|nextn|random|assistant", re.IGNORECASE)


class KnownModel(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of `known_models.toml`."""

    names: tuple[str, ...]  # parts of served names
    billions: float  # parameters as published
    config: Mapping[str, object]  # as in its `config.json`
    precision: str = "bf16"  # of the published weights, of `sizes.PRECISIONS`

    @property
    def architecture(self) -> Architecture:
        """Its dimensions."""
        # here: most sidecars name no hardware, and ask for no model
        from .architecture import read_architecture

        return read_architecture(self.config)


@lru_cache(maxsize=1)
def known_models() -> tuple[KnownModel, ...]:
    """Return all of them."""
    table = read_table(__file__, "known_models.toml")
    return convert(table["model"], tuple[KnownModel, ...])


def known_model(name: str, parameters: float | None) -> KnownModel | None:
    """Return the model that a served name holds, of several the one with the longest
    name; ``None`` if it holds none.

    Of a path, the last part is the name. `parameters` is the size that it says,
    ``None`` if it says none.
    """
    name = name.rstrip("/").rpartition("/")[2]
    longest = ""
    found = None
    for model in known_models():
        ratio = (parameters or model.billions * 1e9) / (model.billions * 1e9)
        if not 1 / _NEAR <= ratio <= _NEAR:
            continue
        for part in model.names:
            if len(part) > len(longest) and _is_called(name, part):
                longest = part
                found = model
    return found


def _is_called(name: str, part: str) -> bool:
    # Not within a longer word or number: Qwen3-4B in Qwen3-4B-FP8, but not DeepSeek-V3
    # in DeepSeek-V3.2.
    pattern = rf"(?<![a-z0-9.]){re.escape(part)}(?![a-z0-9]|[._][0-9])"
    match = re.search(pattern, name, re.IGNORECASE)
    if match is None:
        return False
    rest = name[: match.start()] + name[match.end() :]
    return _OTHERS.search(rest) is None
