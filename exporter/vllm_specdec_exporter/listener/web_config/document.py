"""The web configuration file, in the format of Prometheus' exporter-toolkit.

Settings that are not supported are errors: nothing in the file is silently ignored.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from ...config.files import read_regular
from .fields import WebConfigError, mapping, parse_yaml, quote, text_of
from .server_tls import ClientAuth, TLSSettings, make_context, parse_tls

#: Limit of the cost of a bcrypt hash: 2^18 rounds take about 20 s.
MAX_BCRYPT_COST = 18
_BCRYPT = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}")
SECTIONS = ("tls_server_config", "basic_auth_users")
#: What protects the server, and how a file says that it does no longer: a file cut off
#: only lacks it.
_PROTECTIONS: Mapping[str, str] = {
    "tls_server_config": "{}",
    "basic_auth_users": "{}",
    "tls_server_config.client_auth_type": ClientAuth.NONE,
    "tls_server_config.min_version": "TLS12",
}


class WebConfig(Struct, frozen=True):
    """The content of a web configuration file."""

    tls: TLSSettings | None = None  # the TLS settings; ``None`` for plain HTTP
    #: Bcrypt hashes of passwords by user name; empty for no authentication.
    users: tuple[tuple[str, str], ...] = ()

    def has(self, protection: str) -> bool:
        """Return whether one of `_PROTECTIONS` is on."""
        if protection == "basic_auth_users":
            return bool(self.users)
        if self.tls is None:
            return False
        if protection.endswith("client_auth_type"):
            return self.tls.client_auth is not ClientAuth.NONE
        if protection.endswith("min_version"):
            return self.tls.min_version != "TLS12"
        return True


def parse(document: object, folder: str = "") -> WebConfig:
    """Return the content of a file, of which `parse_yaml` returns `document`.

    Relative paths are in `folder`. Raises WebConfigError if the content is not valid.
    """
    sections = mapping(document, "", SECTIONS)
    return WebConfig(
        tls=parse_tls(sections.get("tls_server_config"), folder),
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


def _users(value: object) -> tuple[tuple[str, str], ...]:
    where = "basic_auth_users"
    section = mapping(value, where)
    users = []
    for name in section:
        # Errors must not contain the hash, which is a secret.
        hashed = text_of(section, name, where)
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


class Loaded(Struct, frozen=True):
    """A valid web configuration."""

    config: WebConfig  # the content of the file
    context: ssl.SSLContext | None  # the TLS context; ``None`` for plain HTTP
    contents: Contents  # the digests of the files
    document: object = None  # the file's YAML

    def require_protections_of(self, old: Loaded) -> None:
        """WebConfigError if one of `old` is missing here, unless the file says so."""
        for name, off in _PROTECTIONS.items():
            is_lost = old.config.has(name) and not self.config.has(name)
            if is_lost and not _turns_off(self.document, name):
                raise WebConfigError(
                    f"it no longer has {name}; the old configuration stays until the "
                    "next start, or until it contains "
                    f"`{name.rpartition('.')[2]}: {off}`"
                )

    @property
    def tls_and_files(self) -> tuple[object, ...]:
        """The settings of TLS, and the digests of their files."""
        return self.config.tls, self.contents[1:]

    @property
    def client_rules(self) -> tuple[object, ...]:
        """The rules for client certificates; empty without TLS."""
        tls = self.config.tls
        if tls is None:
            return ()
        return tls.client_auth, dict(self.contents).get(tls.client_ca_file)


def _turns_off(document: object, protection: str) -> bool:
    """Return whether a file has the key of a protection, or turns off its section."""
    if document == {}:
        return True
    section, _, key = protection.partition(".")
    stated = document.get(section) if isinstance(document, dict) else None
    if key and isinstance(stated, dict) and stated:
        stated = stated.get(key)
    return stated not in (None, "")


class WebConfigFile:
    """The web configuration file at a path.

    Changes are detected by content: a Kubernetes Secret is replaced by a symbolic link
    in the path, and a file that is written twice in a second can keep its time and
    size.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._digest = ""
        self._named: tuple[str, ...] = ()  # the files that it names

    def look(self) -> Contents:
        """Return the digests of all files."""
        text, digest = _read(self.path)
        if digest != self._digest:  # avoids parsing the YAML every second
            self._digest = digest
            self._named = self._files_in(text)
        named = ((path, _read(path)[1]) for path in self._named)
        return ((self.path, digest), *named)

    def _files_in(self, text: bytes | None) -> tuple[str, ...]:
        try:
            tls = self._parse(parse_yaml(text or b"")).tls
        except WebConfigError:
            return ()  # reported by `load`
        if tls is None:
            return ()
        return tls.files

    def load(self) -> Loaded:
        """Read a consistent version of all files, or raise WebConfigError."""
        for _ in range(_ATTEMPTS):
            contents = self.look()
            try:
                loaded = self._load(contents)
            except WebConfigError:
                if self.look() == contents:
                    raise
                continue
            if self.look() == contents:
                return loaded
        raise WebConfigError("the files change faster than they can be read")

    def _load(self, contents: Contents) -> Loaded:
        text, reason = _read(self.path)
        if text is None:
            raise WebConfigError(reason)
        document = parse_yaml(text)
        config = self._parse(document)
        context = make_context(config.tls) if config.tls else None
        return Loaded(config, context, contents, document)

    def _parse(self, document: object) -> WebConfig:
        return parse(document, str(Path(self.path).parent))


def _read(path: str) -> tuple[bytes | None, str]:
    """Return the content of a file and its digest, or `None` and the error."""
    content, reason = read_regular(path)
    if content is None:
        return None, reason
    return content, hashlib.sha256(content).hexdigest()
