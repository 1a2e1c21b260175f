"""Groups of requests: type, tenant and temperature bucket of a request, limits on their
number, and settings.

A type comes from the configured header, else from the first matching rule, else from
the route. A rule is ``NAME=WHERE:PATTERN`` with a shell pattern (``*``, ``?``,
``[ab]``)::

    code=model:*coder*          the requested model
    batch=header.x-queue:bulk*  a request header
    tools=field:tools           the request has this field, and it is not empty
    rag=path:/rag/*             the path
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec import Struct

from .observation import Observation
from .routes import ROUTES, route_of

if TYPE_CHECKING:
    from .openai_api import RequestFields

T = TypeVar("T")

#: A valid type. Headers of clients are not trusted, and labels are not for free text.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,63}")
#: Limit of a model's name, in characters: it may be a path, and file systems allow 255
#: for a part of one.
_MAX_MODEL = 256
_WHERE = re.compile(r"model|path|field|header\.[!#$%&'*+.^_`|~0-9A-Za-z-]+")

#: Default header with the type of a request.
TYPE_HEADER = "X-Request-Type"

#: The label value for everything beyond a limit, and for invalid names.
OTHER = "other"


class TypeRule(Struct, frozen=True):
    """A request has the type `name` if the value at `where` matches `pattern`."""

    name: str
    where: str
    pattern: str

    def matches(
        self, path: str, headers: Mapping[str, str], request: RequestFields
    ) -> bool:
        """Return whether a request has this type."""
        if self.where == "field":
            return any(fnmatchcase(name, self.pattern) for name in request.fields)
        if self.where == "model":
            return fnmatchcase(request.model_name, self.pattern)
        if self.where == "path":
            return fnmatchcase(path.partition("?")[0], self.pattern)
        value = headers.get(self.where.removeprefix("header."))
        return value is not None and fnmatchcase(value, self.pattern)


def parse_rule(text: str) -> TypeRule:
    """Return the rule in `text`; ValueError with the allowed syntax if invalid."""
    name, _, condition = text.partition("=")
    where, _, pattern = condition.partition(":")
    rule = TypeRule(name.strip(), where.strip().lower(), pattern.strip())
    if not rule.name or not rule.pattern or not _WHERE.fullmatch(rule.where):
        raise ValueError(
            "allowed: NAME=WHERE:PATTERN, where WHERE is model, path, field or "
            "header.NAME, such as code=model:*coder*"
        )
    if not _NAME.fullmatch(rule.name):
        raise ValueError(
            "NAME is a letter or digit, then up to 63 of letters, digits and _.:/-, "
            "such as in code=model:*coder*"
        )
    return rule


class Classification(Struct, frozen=True, dict=True):
    """How requests are classified."""

    #: Request header (lower case) that names the type, empty for none.
    type_header: str = TYPE_HEADER.lower()
    rules: tuple[TypeRule, ...] = ()  # used in order if that header is absent
    #: Request header (lower case) that names the tenant, empty for none.
    tenant_header: str = ""
    #: The configured tenants; every other becomes `OTHER`, so that no name of a user is
    #: stored unless the operator has configured it.
    tenants: frozenset[str] = frozenset()

    @cached_property
    def headers(self) -> frozenset[str]:
        """The request headers (lower case) that are read."""
        of_rules = (rule.where.removeprefix("header.") for rule in self.rules)
        return frozenset({self.type_header, self.tenant_header, *of_rules})

    def type_of(
        self, path: str, headers: Mapping[str, str], request: RequestFields
    ) -> str:
        """Return a request's type; the names of its headers are in lower case."""
        if self.type_header:
            named = headers.get(self.type_header, "").strip()
            if named:
                return clean_type(named)
        for rule in self.rules:
            if rule.matches(path, headers, request):
                return rule.name
        return route_of(path) or OTHER

    def tenant_of(self, headers: Mapping[str, str]) -> str:
        """Return a request's tenant, empty if no header is configured or sent."""
        if not self.tenant_header:
            return ""
        return self.known_tenant(headers.get(self.tenant_header, ""))

    def known_tenant(self, name: str) -> str:
        """Return `name` if it is configured, else `OTHER`; empty stays empty."""
        name = name.strip()
        if name in self.tenants or not name:
            return name
        return OTHER


def clean_type(text: str) -> str:
    """Return a type from a client: unchanged if it is valid, else `OTHER`."""
    if _NAME.fullmatch(text):
        return text
    return OTHER


def clean_model(name: str) -> str:
    """Return a model's name from a client: unchanged if it is valid as a label, else
    `OTHER`.
    """
    if len(name) <= _MAX_MODEL and name.isprintable():
        return name
    return OTHER


#: Bucket of requests without a temperature, if the server's default is not configured.
UNSET = "unset"

#: The default buckets: greedy; low; medium; up to vLLM's default of 1; above.
TEMPERATURE_BOUNDS = (0.0, 0.5, 0.7, 1.0)

#: Limit of models: an exporter has one or a few servers, each with its adapters.
MAX_MODELS = 20
#: Limit of types that only clients name: no rule and no route has them.
MAX_TYPES = 20
#: Limit of the groups of these types, of all models together: a group is about 60
#: series.
MAX_CLIENT_GROUPS = 100


class GroupKey(NamedTuple):
    """The identity of a group: values of its labels."""

    model_name: str
    temperature: str
    request_type: str


class Temperatures(Struct, frozen=True):
    """Buckets of temperature."""

    bounds: tuple[float, ...] = TEMPERATURE_BOUNDS  # inclusive upper bounds, ascending
    #: Temperature of requests without one, ``None`` if not known.
    default: float | None = None

    def bucket(self, temperature: float | None) -> str:
        """Return the bucket of a temperature, such as ``0``, ``0-0.5``, ``1+``."""
        if temperature is None:
            temperature = self.default
        if temperature is None:
            return UNSET
        lower = 0.0
        for bound in self.bounds:
            if temperature <= bound:
                if bound > lower:
                    return f"{_text(lower)}-{_text(bound)}"
                return _text(bound)
            lower = bound
        return f"{_text(lower)}+"


def _text(bound: float) -> str:
    # All digits: two bounds must not have the same name.
    return repr(abs(bound)).removesuffix(".0")


class GroupOverflow(StrEnum):
    """A label that became `OTHER` because a limit is reached."""

    MODEL = "model"
    TYPE = "type"


class GroupLimiter:
    """Assigns every request to a group, within the limits: later values of a label
    become `OTHER`.
    """

    def __init__(
        self, classification: Classification, temperatures: Temperatures
    ) -> None:
        self._configured_types = {rule.name for rule in classification.rules}
        self._configured_types.update(ROUTES.values(), [OTHER])
        self._temperatures = temperatures
        self._models: set[str] = {OTHER}
        self._types: set[str] = set()  # those that only clients name
        self._groups: set[GroupKey] = set()  # of these types

    def place(
        self, observation: Observation
    ) -> tuple[GroupKey, tuple[GroupOverflow, ...]]:
        """Return the group of a request, and its labels that became `OTHER` because a
        limit is reached.
        """
        overflow = []
        model = clean_model(observation.model_name)
        request_type = clean_type(observation.request_type)
        if not _admit(model, self._models, MAX_MODELS + 1):  # with `OTHER`
            model = OTHER
            overflow.append(GroupOverflow.MODEL)
        key = GroupKey(
            model, self._temperatures.bucket(observation.temperature), request_type
        )
        if request_type not in self._configured_types and not (
            _admit(request_type, self._types, MAX_TYPES)
            and _admit(key, self._groups, MAX_CLIENT_GROUPS)
        ):
            key = key._replace(request_type=OTHER)
            overflow.append(GroupOverflow.TYPE)
        return key, tuple(overflow)


def _admit(value: T, admitted: set[T], limit: int) -> bool:
    """Return whether a value is admitted, which it is if it was before or the limit is
    not reached.
    """
    if value not in admitted and len(admitted) < limit:
        admitted.add(value)
    return value in admitted


#: Upper bounds of the histograms: ratios with the published thresholds, tokens up to
#: the largest usual K, and seconds as vLLM has them.
BOUNDS: dict[str, tuple[float, ...]] = {
    "acceptance_ratio": (
        0.05,
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
        0.6,
        0.65,
        0.7,
        0.8,
        0.9,
        0.95,
        1.0,
    ),
    "accepted_tokens_per_draft": (0.25, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 12, 16),
    "time_to_first_token_seconds": (
        0.01,
        0.025,
        0.05,
        0.1,
        0.25,
        0.5,
        0.75,
        1,
        2.5,
        5,
        7.5,
        10,
        20,
        40,
        80,
        160,
    ),
    "time_per_output_token_seconds": (
        0.0025,
        0.005,
        0.01,
        0.015,
        0.02,
        0.025,
        0.05,
        0.075,
        0.1,
        0.15,
        0.2,
        0.3,
        0.5,
        1,
        2.5,
    ),
}


class RequestSettings(Struct, frozen=True):
    """How requests are grouped and judged."""

    #: How types and tenants are assigned.
    classification: Classification = Classification()
    temperatures: Temperatures = Temperatures()  # buckets of temperature
    #: Length of the judged window, infinite for all requests of a file.
    window_seconds: float = 1800.0
