"""The document: what the web configuration file says, checked. Pure.

The format is that of Prometheus' exporter toolkit. What Python's TLS cannot do as the format means it is an
error that says so: nothing in the file is silently ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .fields import WebConfigError, boolean_of, mapping, not_allowed, quote, text_of
from .tlssection import TLSSettings, parse_tls

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The most that a password's hash may cost: two to this many rounds take some twenty seconds.
MAX_BCRYPT_COST = 18

_BCRYPT = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
_HEADERS: Mapping[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
_SECTIONS = ("tls_server_config", "http_server_config", "basic_auth_users")


@dataclass(frozen=True, slots=True)
class WebConfig:
    """All that a web configuration file says.

    Attributes:
        tls: how TLS is spoken; ``None`` for plain HTTP.
        headers: response headers to add, by name.
        users: bcrypt hashes of passwords by user name; empty where none is needed.
    """

    tls: TLSSettings | None = None
    headers: tuple[tuple[str, str], ...] = ()
    users: tuple[tuple[str, str], ...] = ()


def parse(document: object, folder: str = "") -> WebConfig:
    """Check a document whose scalars are all texts, and return what it says.

    Args:
        document: mappings, lists and texts as `yamltext.read` returns them; `None` for an empty file.
        folder: where the file is; relative paths in it start there.

    Raises:
        WebConfigError: something in it cannot be used.
    """
    sections = mapping(document, "the file", _SECTIONS)
    http = mapping(sections.get("http_server_config"), "http_server_config", ("http2", "headers"))
    # There is no HTTP/2 here. What is asked for is that it may be spoken, and clients then agree on HTTP/1.1.
    boolean_of(http, "http_server_config.http2", default=True)
    return WebConfig(
        tls=parse_tls(sections.get("tls_server_config"), folder),
        headers=_headers(http.get("headers")),
        users=_users(sections.get("basic_auth_users")),
    )


def bcrypt_cost(hashed: str) -> int:
    """Return the cost of a bcrypt hash: the logarithm of its rounds.

    Raises:
        ValueError: no such hash.
    """
    match = _BCRYPT.fullmatch(hashed)
    if match is None:
        msg = "not a bcrypt hash; `htpasswd -nBC 10 NAME` makes one"
        raise ValueError(msg)
    return int(match[1])


def _headers(value: object) -> tuple[tuple[str, str], ...]:
    where = "http_server_config.headers"
    section = mapping(value, where, _HEADERS)
    headers = {name: text_of(section, f"{where}.{name}") for name in section}
    for name, text in headers.items():
        if _HEADERS[name] and text not in _HEADERS[name]:
            raise not_allowed(f"{where}.{name}", text, _HEADERS[name])
        if not text.isprintable() or not text.isascii():
            msg = f"{where}.{name}: one line of printable ASCII is expected"
            raise WebConfigError(msg)
    return tuple((name, text) for name, text in headers.items() if text)


def _users(value: object) -> tuple[tuple[str, str], ...]:
    where = "basic_auth_users"
    section = mapping(value, where, None)
    users = []
    for name in section:
        # The hash is a secret of a kind: it is never shown.
        hashed = text_of(section, f"{where}.{name}", name)
        if ":" in name or not name.isprintable() or not name:
            msg = f"{where}: {quote(name)}: a user name is printable, without a colon"
            raise WebConfigError(msg)
        try:
            cost = bcrypt_cost(hashed)
        except ValueError as error:
            msg = f"{where}.{name}: {error}"
            raise WebConfigError(msg) from error
        if not 4 <= cost <= MAX_BCRYPT_COST:
            msg = f"{where}.{name}: bcrypt of cost {cost}; allowed: 4 to {MAX_BCRYPT_COST}, usual: 10 to 12"
            raise WebConfigError(msg)
        users.append((name, hashed))
    return tuple(users)
