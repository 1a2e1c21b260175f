"""Grouping: which group a request belongs to, with label sets that cannot grow without end."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from .classification import OTHER

#: Temperature of requests that name none, where the server's default is not known.
UNSET = "unset"

#: By default: greedy; what a draft model likes; warm; up to vLLM's own default; hot.
TEMPERATURE_BOUNDS = (0.0, 0.5, 0.7, 1.0)

MOST_MODELS = 20
MOST_TYPES = 20
#: Groups of types that are neither the operator's nor a route, of all models together.
MOST_GROUPS = 100
#: Groups of all other types, of all models that have a name of their own: as many have one as find room for
#: all of theirs, so that none of these groups can be crowded out.
MOST_OWN_GROUPS = 600


class GroupKey(NamedTuple):
    """The identity of a group: values of its labels."""

    model_name: str
    temperature: str
    request_type: str


@dataclass(frozen=True, slots=True)
class Temperatures:
    """Buckets of temperature.

    Attributes:
        bounds: upper bounds, rising; each belongs to its bucket.
        default: temperature of requests that name none, ``None`` where it is not known.
    """

    bounds: tuple[float, ...] = TEMPERATURE_BOUNDS
    default: float | None = None

    def bucket(self, temperature: float | None) -> str:
        """Return the bucket of a temperature: ``0``, ``0-0.5``, ..., ``1+``, or `UNSET`."""
        value = self.default if temperature is None else temperature
        if value is None:
            return UNSET
        lower = 0.0
        for bound in self.bounds:
            if value <= bound:
                return f"{_text(lower)}-{_text(bound)}" if bound > lower else _text(bound)
            lower = bound
        return f"{_text(lower)}+"

    @property
    def names(self) -> tuple[str, ...]:
        """Every bucket, the coolest first."""
        return (*map(self.bucket, (*self.bounds, math.inf)), UNSET)


def _text(bound: float) -> str:
    # With all its digits: two bounds must not have the same name.
    return repr(abs(bound)).removesuffix(".0")


@dataclass(slots=True)
class Admission:
    """The first values of a label to come; all later ones are `OTHER`.

    Attributes:
        most: how many are told apart.
        always: values that have a place of their own whoever comes first.
    """

    most: int
    always: frozenset[str] = frozenset()
    _known: set[str] = field(default_factory=set)

    def admit(self, value: str) -> str:
        """Return the value, or `OTHER` where there are too many already."""
        if self.knows(value):
            return value
        if len(self._known) >= self.most:
            return OTHER
        self._known.add(value)
        return value

    def knows(self, value: str) -> bool:
        """Tell whether a value has a name of its own already, or is the one of all others."""
        return value in self._known or value in self.always or value == OTHER

    def follow(self, earlier: Admission) -> None:
        """Tell apart what `earlier` told apart too."""
        self._known |= earlier._known
