"""The web configuration file, in the format of Prometheus' exporter toolkit.

Settings that Python's TLS does not support are errors: nothing in the file is silently
ignored.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...config.files import read_regular
from .fields import (
    WebConfigError,
    boolean_of,
    mapping,
    not_allowed,
    parse_yaml,
    quote,
    text_of,
)
from .server_tls import ClientAuth, TLSSettings, make_context, parse_tls

#: Limit of the cost of a bcrypt hash: 2^18 rounds take about 20 s.
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
#: What protects the server, and how a file says that it does no longer: a file cut off
#: only lacks it.
_PROTECTIONS: Mapping[str, str] = {
    "tls_server_config": "{}",
    "basic_auth_users": "{}",
    "tls_server_config.client_auth_type": ClientAuth.NONE,
    "tls_server_config.client_allowed_sans": "",  # the format has no way to say so
    "tls_server_config.min_version": "TLS12",
}


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The content of a web configuration file."""

    tls: TLSSettings | None = None  # the TLS settings; ``None`` for plain HTTP
    headers: tuple[tuple[str, str], ...] = ()  # response headers to add, by name
    #: Bcrypt hashes of passwords by user name; empty for no authentication.
    users: tuple[tuple[str, str], ...] = ()


def parse(document: object, folder: str = "") -> WebConfig:
    """Return the content of a file, of which `parse_yaml` returns `document`.

    Relative paths are in `folder`. Raises WebConfigError if the content is not valid.
    """
    sections = mapping(document, "the file", _SECTIONS)
    http = mapping(
        sections.get("http_server_config"), "http_server_config", ("http2", "headers")
    )
    # HTTP/2 is not supported. The setting only allows it, and clients negotiate
    # HTTP/1.1.
    boolean_of(http, "http_server_config.http2", default=True)
    return WebConfig(
        tls=parse_tls(sections.get("tls_server_config"), folder),
        headers=_headers(http.get("headers")),
        users=_users(sections.get("basic_auth_users")),
    )


def bcrypt_cost(hashed: str) -> int:
    """Return the cost of a bcrypt hash, log2 of its rounds; ValueError for anything
    else.
    """
    match = _BCRYPT.fullmatch(hashed)
    if match is None:
        raise ValueError("not a bcrypt hash; `htpasswd -nBC 10 NAME` makes one")
    return int(match[1])


def _headers(value: object) -> tuple[tuple[str, str], ...]:
    where = "http_server_config.headers"
    section = mapping(value, where, _HEADERS)
    headers = {name: text_of(section, f"{where}.{name}") for name in section}
    for name, text in headers.items():
        if _HEADERS[name] and text not in _HEADERS[name]:
            raise not_allowed(f"{where}.{name}", text, _HEADERS[name])
        if not text.isprintable() or not text.isascii():
            raise WebConfigError(
                f"{where}.{name}: one line of printable ASCII is expected"
            )
    return tuple((name, text) for name, text in headers.items() if text)


def _users(value: object) -> tuple[tuple[str, str], ...]:
    where = "basic_auth_users"
    section = mapping(value, where, None)
    users = []
    for name in section:
        # Errors must not contain the hash, which is a secret.
        hashed = text_of(section, f"{where}.{name}", name)
        if ":" in name or not name.isprintable() or not name:
            raise WebConfigError(
                f"{where}: {quote(name)}: a user name is printable, without a colon"
            )
        try:
            cost = bcrypt_cost(hashed)
        except ValueError as error:
            raise WebConfigError(f"{where}.{name}: {error}") from error
        if not 4 <= cost <= MAX_BCRYPT_COST:
            raise WebConfigError(
                f"{where}.{name}: bcrypt of cost {cost}; allowed: 4 to "
                f"{MAX_BCRYPT_COST}, usual: 10 to 12"
            )
        users.append((name, hashed))
    return tuple(users)


_ATTEMPTS = 5  # attempts to read files that change meanwhile
#: Path and SHA-256 digest of each file; the error instead of the digest if it cannot be
#: read.
Contents = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid web configuration."""

    config: WebConfig  # the content of the file
    context: ssl.SSLContext | None  # the TLS context; ``None`` for plain HTTP
    contents: Contents  # the digests of the files
    #: The protections that the file speaks of, with a value; all of them if it is
    #: ``{}``.
    stated: frozenset[str] = frozenset()

    def require_protections_of(self, old: Loaded) -> None:
        """WebConfigError if one of `old` is missing here, unless the file says so."""
        on = _protections(self.config)
        stated = self.stated
        missing = _protections(old.config) - on - stated
        if "tls_server_config" not in on and "tls_server_config" in stated:
            missing &= {"basic_auth_users"}
        if missing:
            name = min(missing, key=list(_PROTECTIONS).index)
            off = (
                f", or until it contains `{name.rpartition('.')[2]}: "
                f"{_PROTECTIONS[name]}`"
            )
            raise WebConfigError(
                f"it no longer has {name}; the old configuration stays until the "
                "next start"
                f"{off if _PROTECTIONS[name] else ''}"
            )


def _protections(config: WebConfig) -> set[str]:
    tls = config.tls or TLSSettings("", "")
    on = (
        config.tls is not None,
        bool(config.users),
        tls.client_auth is not ClientAuth.NONE,
        bool(tls.client_allowed_sans),
        tls.min_version != "TLS12",
    )
    return {name for name, is_on in zip(_PROTECTIONS, on, strict=True) if is_on}


def _stated(document: object) -> frozenset[str]:
    if document == {}:
        return frozenset(_PROTECTIONS)
    if not isinstance(document, dict):
        return frozenset()
    tls = document.get("tls_server_config")
    if isinstance(tls, dict):
        fields = {f"tls_server_config.{key}": value for key, value in tls.items()}
    else:
        fields = {}
    return frozenset(
        name for name, value in (document | fields).items() if value not in ("", None)
    )


class WebConfigFile:
    """The web configuration file at a path.

    Changes are detected by content: a Kubernetes Secret is replaced by a symbolic link
    in the path, and a file that is written twice in a second can keep its time and
    size.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._files: tuple[str, tuple[str, ...]] = ("", ())

    def look(self) -> Contents:
        """Return the digests of all files."""
        text, digest = _read(self.path)
        if digest != self._files[0]:  # avoids parsing the YAML every second
            self._files = (digest, self._named(text))
        return (
            (self.path, digest),
            *((name, _read(name)[1]) for name in self._files[1]),
        )

    def _named(self, text: bytes | None) -> tuple[str, ...]:
        try:
            if text is None:
                config = WebConfig()
            else:
                config = self._parse(parse_yaml(text))
        except WebConfigError:
            return ()  # reported by `load`
        if config.tls:
            return config.tls.files
        return ()

    def load(self) -> Loaded:
        """Read a consistent version of all files, or raise WebConfigError."""
        for _ in range(_ATTEMPTS):
            before = self.look()
            try:
                loaded = self._load(before)
            except WebConfigError:
                if self.look() == before:
                    raise
                continue
            if self.look() == before:
                return loaded
        raise WebConfigError("the files change faster than they can be read")

    def _load(self, contents: Contents) -> Loaded:
        text, reason = _read(self.path)
        if text is None:
            raise WebConfigError(reason)
        document = parse_yaml(text)
        config = self._parse(document)
        context = make_context(config.tls) if config.tls else None
        return Loaded(config, context, contents, _stated(document))

    def _parse(self, document: object) -> WebConfig:
        return parse(document, str(Path(self.path).parent))


def _read(path: str) -> tuple[bytes | None, str]:
    """Return the content of a file and its digest, or `None` and the error."""
    content, reason = read_regular(path)
    return content, reason if content is None else hashlib.sha256(content).hexdigest()
