"""Classification: which type of request one is, and whose.

A type comes from a header where one is configured and sent, else from the first rule that fits, else from the
route. Rules read as ``NAME=WHERE:PATTERN``, the pattern as in a shell (``*``, ``?``, ``[ab]``)::

    code=model:*coder*          the model asked for
    batch=header.x-queue:bulk*  a request header
    tools=field:tools           the request has this field, and something in it
    rag=path:/rag/*             the path
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from .openai_api import ROUTES, route_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .observation import Observation
    from .openai_api import Asked


#: What a type may look like. A client's header may say anything, and labels are not for texts.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,63}")
#: Characters that a model's name may have: it may be a path.
_LONGEST_MODEL = 256
_WHERE = re.compile(r"model|path|field|header\.[!#$%&'*+.^_`|~0-9A-Za-z-]+")

#: What clients may call the type of a request in.
TYPE_HEADER = "X-Request-Type"

#: The group of everything that has no place of its own.
OTHER = "other"


@dataclass(frozen=True, slots=True)
class TypeRule:
    """One rule: a request is of type `name` where `where` fits `pattern`."""

    name: str
    where: str
    pattern: str

    def fits(self, path: str, headers: Mapping[str, str], asked: Asked) -> bool:
        """Tell whether a request is of this type."""
        if self.where == "field":
            return any(fnmatchcase(name, self.pattern) for name in asked.fields)
        if self.where == "model":
            return fnmatchcase(asked.model_name, self.pattern)
        if self.where == "path":
            return fnmatchcase(path.partition("?")[0], self.pattern)
        value = headers.get(self.where.removeprefix("header."))
        return value is not None and fnmatchcase(value, self.pattern)


def parse_rule(text: str) -> TypeRule:
    """Return the rule that `text` says.

    Raises:
        ValueError: no rule; the message says what is allowed.
    """
    name, equals, rest = text.partition("=")
    where, colon, pattern = rest.partition(":")
    name, where, pattern = name.strip(), where.strip().lower(), pattern.strip()
    if not equals or not colon or not name or not pattern or not _WHERE.fullmatch(where):
        msg = (
            "allowed: NAME=WHERE:PATTERN, where WHERE is model, path, field or header.NAME, such as "
            "code=model:*coder*"
        )
        raise ValueError(msg)
    if not _NAME.fullmatch(name):
        msg = (
            "NAME is a letter or digit, then up to 63 of letters, digits and _.:/-, such as in "
            "code=model:*coder*"
        )
        raise ValueError(msg)
    return TypeRule(name, where, pattern)


@dataclass(frozen=True, slots=True)
class Classification:
    """How requests are classified.

    Attributes:
        type_header: request header (lower case) that names the type, empty for none.
        rules: asked in order where that header is absent.
        tenant_header: request header (lower case) that names the tenant, empty for none.
        tenants: the tenants that are told apart; every other is `OTHER`, so that no name of a user is kept
            that the operator did not write down.
    """

    type_header: str = TYPE_HEADER.lower()
    rules: tuple[TypeRule, ...] = ()
    tenant_header: str = ""
    tenants: frozenset[str] = frozenset()

    def type_of(self, path: str, headers: Mapping[str, str], asked: Asked) -> str:
        """Return a request's type.

        Args:
            path: its path.
            headers: its headers, names in lower case.
            asked: what was read of its body.
        """
        named = headers.get(self.type_header, "").strip() if self.type_header else ""
        if named:
            return clean_type(named)
        ruled = next((rule.name for rule in self.rules if rule.fits(path, headers, asked)), "")
        return ruled or route_of(path) or OTHER

    def tenant_of(self, headers: Mapping[str, str]) -> str:
        """Return a request's tenant, empty where tenants are not told apart or it names none."""
        return self.known_tenant(headers.get(self.tenant_header, "")) if self.tenant_header else ""

    def known_tenant(self, name: str) -> str:
        """Return a tenant as it may be shown: itself if it is known, else `OTHER`; empty stays empty."""
        name = name.strip()
        return name if name in self.tenants or not name else OTHER


def clean_type(text: str) -> str:
    """Return a type that came from outside: itself where it looks like one, else `OTHER`."""
    return text if _NAME.fullmatch(text) else OTHER


def clean_model(name: str) -> str:
    """Return a model's name that came from outside: itself where a label may hold it, else `OTHER`."""
    return name if len(name) <= _LONGEST_MODEL and name.isprintable() else OTHER


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


class GroupOverflow(StrEnum):
    """What there was no room for."""

    MODEL = "model"
    TYPE = "type"


class GroupPlacement(NamedTuple):
    """Where a request is counted.

    Attributes:
        key: the group.
        crowded: what became `OTHER` in it for want of room.
    """

    key: GroupKey
    crowded: tuple[GroupOverflow, ...] = ()


def own_types(classification: Classification) -> frozenset[str]:
    """Return the types that have their groups in any case."""
    return frozenset({*(rule.name for rule in classification.rules), *ROUTES.values(), OTHER})


def most_models(classification: Classification, temperatures: Temperatures) -> int:
    """Return how many models are told apart; 0 where not even the groups of one find room."""
    own = len(own_types(classification)) * len(temperatures.names)
    return min(MOST_MODELS, MOST_OWN_GROUPS // own)


class GroupLimiter:
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

    def follow(self, earlier: GroupLimiter, groups: Iterable[GroupKey]) -> None:
        """Tell apart what `earlier` told apart too; `groups` are counted already."""
        self._models.follow(earlier._models)
        self._types.follow(earlier._types)
        self._named = {key for key in groups if key.request_type not in self._own and self.has(key)}

    def has(self, key: GroupKey) -> bool:
        """Tell whether a request may still be counted in this group."""
        return key.temperature in self._buckets and self._types.knows(key.request_type)

    def place(self, observation: Observation) -> GroupPlacement:
        """Return where to count a request."""
        crowded = []
        named, kind = clean_model(observation.model_name), clean_type(observation.request_type)
        model, shown = self._models.admit(named), self._types.admit(kind)
        if model != named:
            crowded.append(GroupOverflow.MODEL)
        key = GroupKey(model, self._temperatures.bucket(observation.temperature), shown)
        if shown not in self._own and key not in self._named:
            if len(self._named) < MOST_GROUPS:
                self._named.add(key)
            else:
                key = key._replace(request_type=OTHER)
        if key.request_type != kind:
            crowded.append(GroupOverflow.TYPE)
        return GroupPlacement(key, tuple(crowded))
