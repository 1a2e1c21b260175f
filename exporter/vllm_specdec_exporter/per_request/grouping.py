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
#: Groups of all models together; one more for each model takes all others.
MOST_GROUPS = 100


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
        if value in self._known or value in self.always or value == OTHER:
            return value
        if len(self._known) >= self.most:
            return OTHER
        self._known.add(value)
        return value

    def follow(self, earlier: Admission) -> None:
        """Tell apart what `earlier` told apart too."""
        self._known |= earlier._known
