"""Room: which group a request is counted in, so that groups stay few and nobody crowds out the operator's.

Models and types get their names from outside, so they are told apart in the order in which they come, up to
so many. What the operator named in a rule, the routes and `OTHER` have their groups in any case, for each
bucket of temperature; types that only clients name share a room of their own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from .answer import ROUTES
from .classification import OTHER, clean_model, clean_type
from .grouping import MOST_GROUPS, MOST_MODELS, MOST_OWN_GROUPS, MOST_TYPES, Admission, GroupKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .classification import Classification
    from .grouping import Temperatures
    from .observation import Observation


class Crowded(StrEnum):
    """What there was no room for."""

    MODEL = "model"
    TYPE = "type"


class Place(NamedTuple):
    """Where a request is counted.

    Attributes:
        key: the group.
        crowded: what became `OTHER` in it for want of room.
    """

    key: GroupKey
    crowded: tuple[Crowded, ...] = ()


def own_types(classification: Classification) -> frozenset[str]:
    """Return the types that have their groups in any case."""
    return frozenset({*(rule.name for rule in classification.rules), *ROUTES.values(), OTHER})


def most_models(classification: Classification, temperatures: Temperatures) -> int:
    """Return how many models are told apart; 0 where not even the groups of one find room."""
    own = len(own_types(classification)) * len(temperatures.names)
    return min(MOST_MODELS, MOST_OWN_GROUPS // own)


class Room:
    """Gives every request its group.

    Args:
        classification: how requests are classified.
        temperatures: buckets of temperature.
    """

    def __init__(self, classification: Classification, temperatures: Temperatures) -> None:
        self._own = own_types(classification)
        self._temperatures = temperatures
        self._buckets = frozenset(temperatures.names)
        self._models = Admission(most_models(classification, temperatures))
        self._types = Admission(MOST_TYPES, self._own)
        self._named: set[GroupKey] = set()  # groups of types that are not its own

    def follow(self, earlier: Room, groups: Iterable[GroupKey]) -> None:
        """Tell apart what `earlier` told apart too; `groups` are counted already."""
        self._models.follow(earlier._models)
        self._types.follow(earlier._types)
        self._named = {key for key in groups if key.request_type not in self._own and self.has(key)}

    def has(self, key: GroupKey) -> bool:
        """Tell whether a request may still be counted in this group."""
        return key.temperature in self._buckets and self._types.knows(key.request_type)

    def place(self, observation: Observation) -> Place:
        """Return where to count a request."""
        crowded = []
        named, kind = clean_model(observation.model_name), clean_type(observation.request_type)
        model, shown = self._models.admit(named), self._types.admit(kind)
        if model != named:
            crowded.append(Crowded.MODEL)
        key = GroupKey(model, self._temperatures.bucket(observation.temperature), shown)
        if shown not in self._own and key not in self._named:
            if len(self._named) < MOST_GROUPS:
                self._named.add(key)
            else:
                key = key._replace(request_type=OTHER)
        if key.request_type != kind:
            crowded.append(Crowded.TYPE)
        return Place(key, tuple(crowded))
