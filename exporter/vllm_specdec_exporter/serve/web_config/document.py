"""The web configuration file: read, and checked.

The format is that of Prometheus' exporter toolkit. What Python's TLS cannot do as the format means it is an
error that says so: nothing in the file is silently ignored.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .fields import WebConfigError, boolean_of, mapping, not_allowed, parse_yaml, quote, read_file, text_of
from .tls import TLSSettings, make_context, parse_tls

if TYPE_CHECKING:
    import ssl
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
        document: mappings, lists and texts as `parse_yaml` returns them; `None` for an empty file.
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


#: How often files that change while they are read are read again.
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in the files, as digests, by path; in place of those of a file that cannot be read: why."""

    digests: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A web configuration that can be used.

    Attributes:
        config: what the file says.
        context: what speaks TLS; ``None`` for plain HTTP.
        contents: what it was read from.
        empty: whether the file has nothing in it.
    """

    config: WebConfig
    context: ssl.SSLContext | None
    contents: Contents
    empty: bool = False


class WebConfigFile:
    """The web configuration file at a path.

    Files are compared by what is in them: a Kubernetes Secret changes by one symbolic link far up the path,
    and neither the time nor the size of a file that was written twice in a second tells anything.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._files: tuple[str, tuple[str, ...]] = ("", ())

    def look(self) -> Contents:
        """Return what is in all files now."""
        text, digest = _read(self.path)
        if digest != self._files[0]:  # YAML takes a millisecond, and this is asked every second
            self._files = (digest, self._named(text))
        return Contents(((self.path, digest), *((name, _read(name)[1]) for name in self._files[1])))

    def _named(self, text: bytes | None) -> tuple[str, ...]:
        try:
            config = WebConfig() if text is None else self._parse(text)
        except WebConfigError:
            return ()  # told when it is loaded
        return config.tls.files if config.tls else ()

    def load(self) -> Loaded:
        """Read everything, as it was at one moment.

        Raises:
            WebConfigError: it cannot be used.
        """
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
        msg = "the files change faster than they can be read"
        raise WebConfigError(msg)

    def _load(self, contents: Contents) -> Loaded:
        text, reason = _read(self.path)
        if text is None:
            raise WebConfigError(reason)
        config = self._parse(text)
        context = make_context(config.tls) if config.tls else None
        return Loaded(config, context, contents, empty=not text.strip())

    def _parse(self, text: bytes) -> WebConfig:
        return parse(parse_yaml(text), str(Path(self.path).parent))


def _read(path: str) -> tuple[bytes | None, str]:
    """Return what is in a file and its digest, or nothing and why."""
    content, reason = read_file(path)
    return content, reason if content is None else hashlib.sha256(content).hexdigest()
