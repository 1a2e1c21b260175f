"""Classification: which type of request one is, and whose.

A type comes from a header where one is configured and sent, else from the first rule that fits, else from the
route. Rules read as ``NAME=WHERE:PATTERN``, the pattern as in a shell (``*``, ``?``, ``[ab]``)::

    code=model:*coder*          the model asked for
    batch=header.x-queue:bulk*  a request header
    tools=field:tools           the request has this field, and something in it
    rag=path:/rag/*             the path
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from .answer import route_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .answer import Asked

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
