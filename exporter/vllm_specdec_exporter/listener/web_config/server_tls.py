"""TLS of the web configuration file: its settings, and their `ssl.SSLContext`."""

import contextlib
import ipaddress
import json
import ssl
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ...config.files import read_regular
from .fields import (
    WebConfigError,
    boolean_of,
    list_of,
    mapping,
    not_allowed,
    path_of,
    text_of,
)

#: Names of the format.
_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
CIPHERS = _TABLE["ciphers"]
CURVES = _TABLE["curves"]

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_OBSOLETE_VERSIONS = ("TLS10", "TLS11")


class ClientAuth(StrEnum):
    """How client certificates are checked."""

    NONE = "NoClientCert"
    REQUEST = "RequestClientCert"
    REQUIRE_ANY = "RequireAnyClientCert"
    VERIFY_IF_GIVEN = "VerifyClientCertIfGiven"
    REQUIRE_AND_VERIFY = "RequireAndVerifyClientCert"

    @property
    def verifies(self) -> bool:
        """Whether a client's certificate must be issued by the CA."""
        return self in (ClientAuth.VERIFY_IF_GIVEN, ClientAuth.REQUIRE_AND_VERIFY)


@dataclass(frozen=True, slots=True)
class TLSSettings:
    """The settings of TLS."""

    cert_file: str  # certificate with its chain, PEM
    key_file: str  # its private key, PEM
    client_auth: ClientAuth = ClientAuth.NONE  # how client certificates are checked
    #: CA of client certificates, PEM; empty if they are not verified.
    client_ca_file: str = ""
    #: Alternative names of which one must match; empty for any.
    client_allowed_sans: frozenset[str] = frozenset()
    min_version: str = "TLS12"  # ``TLS12`` or ``TLS13``
    max_version: str = "TLS13"  # the same
    #: OpenSSL's names of the cipher suites of TLS 1.2; empty for its default.
    ciphers: tuple[str, ...] = ()
    #: Whether the server's order of cipher suites counts, or the client's.
    prefer_server_ciphers: bool = True
    #: OpenSSL's name of the curve of the key exchange; empty for its default.
    curve: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """All files that the settings name."""
        return tuple(
            name
            for name in (self.cert_file, self.key_file, self.client_ca_file)
            if name
        )


def parse_tls(value: object, folder: str) -> TLSSettings | None:
    """Return the settings of the section, `None` for plain HTTP; WebConfigError if one
    cannot be used.
    """
    section = mapping(value, "tls_server_config", _TABLE["settings"], _TABLE["inline"])
    if not section:
        return None
    for key in ("cert_file", "key_file"):
        if not text_of(section, f"tls_server_config.{key}"):
            raise WebConfigError(
                f"tls_server_config.{key}: missing; TLS needs cert_file and key_file"
            )
    minimum = _version(section, "min_version", "TLS12")
    maximum = _version(section, "max_version", "TLS13")
    if minimum > maximum:
        raise WebConfigError(
            f"tls_server_config.min_version: {minimum} is above max_version, {maximum}"
        )
    client_auth = _client_auth(section)
    return TLSSettings(
        cert_file=path_of(section, "cert_file", folder),
        key_file=path_of(section, "key_file", folder),
        client_auth=client_auth,
        client_ca_file=_client_ca_file(section, client_auth, folder),
        client_allowed_sans=_client_allowed_sans(section, client_auth),
        min_version=minimum,
        max_version=maximum,
        ciphers=_ciphers(section, minimum),
        prefer_server_ciphers=boolean_of(
            section, "tls_server_config.prefer_server_cipher_suites", default=True
        ),
        curve=_curve(section),
    )


def _client_auth(section: Mapping[str, object]) -> ClientAuth:
    where = "tls_server_config.client_auth_type"
    text = text_of(section, where) or ClientAuth.NONE
    if text in (ClientAuth.REQUIRE_ANY, "RequireClientCert"):
        raise WebConfigError(
            f"{where}: {text} is not supported: Python's TLS cannot require a "
            "certificate without verifying "
            f"it; use {ClientAuth.REQUIRE_AND_VERIFY} and client_ca_file"
        )
    if text not in list(ClientAuth):
        raise not_allowed(
            where, text, [kind for kind in ClientAuth if kind != ClientAuth.REQUIRE_ANY]
        )
    return ClientAuth(text)


def _client_ca_file(
    section: Mapping[str, object], client_auth: ClientAuth, folder: str
) -> str:
    where = "tls_server_config.client_ca_file"
    given = text_of(section, where)
    if given and not client_auth.verifies:
        raise WebConfigError(
            f"{where}: nothing is verified with client_auth_type {client_auth}; "
            f"{ClientAuth.REQUIRE_AND_VERIFY} and {ClientAuth.VERIFY_IF_GIVEN} verify"
        )
    if not given and client_auth.verifies:
        raise WebConfigError(
            f"{where}: missing; client_auth_type {client_auth} needs a CA"
        )
    return path_of(section, "client_ca_file", folder)


def _client_allowed_sans(
    section: Mapping[str, object], client_auth: ClientAuth
) -> frozenset[str]:
    where = "tls_server_config.client_allowed_sans"
    if section.get("client_allowed_sans") is None:
        return frozenset()
    if client_auth is not ClientAuth.REQUIRE_AND_VERIFY:
        raise WebConfigError(
            f"{where}: only allowed with client_auth_type "
            f"{ClientAuth.REQUIRE_AND_VERIFY}"
        )
    names = list_of(section, where)
    if not names:
        raise WebConfigError(
            f"{where}: empty, so no client could connect; leave it out to allow "
            "all certificates of the CA"
        )
    return frozenset(names)


def _version(section: Mapping[str, object], key: str, default: str) -> str:
    where = f"tls_server_config.{key}"
    text = text_of(section, where) or default
    if text in _OBSOLETE_VERSIONS:
        raise WebConfigError(
            f"{where}: {text} is obsolete and not supported; allowed: "
            f"{', '.join(_VERSIONS)}"
        )
    if text not in _VERSIONS:
        raise not_allowed(where, text, _VERSIONS)
    return text


def _ciphers(section: Mapping[str, object], minimum: str) -> tuple[str, ...]:
    where = "tls_server_config.cipher_suites"
    names = list_of(section, where)
    for name in names:
        if name in _TABLE["tls13_suites"]:
            raise WebConfigError(
                f"{where}: {name} is of TLS 1.3, whose suites cannot be "
                "configured; leave it out"
            )
        if name not in CIPHERS:
            raise not_allowed(where, name, CIPHERS)
    if names and minimum == "TLS13":
        raise WebConfigError(
            f"{where}: without effect: they are of TLS 1.2, and min_version is TLS13"
        )
    return tuple(CIPHERS[name] for name in names)


def _curve(section: Mapping[str, object]) -> str:
    where = "tls_server_config.curve_preferences"
    names = list_of(section, where)
    for name in names:
        if name not in CURVES:
            raise not_allowed(where, name, CURVES)
    if len(names) > 1:
        raise WebConfigError(
            f"{where}: {len(names)} curves, but Python's TLS takes one; leave it "
            "out for the default"
        )
    if names:
        return str(CURVES[names[0]])
    return ""


_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    # A certificate would be ignored, so none is requested.
    ClientAuth.REQUEST: ssl.CERT_NONE,
    ClientAuth.VERIFY_IF_GIVEN: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE_AND_VERIFY: ssl.CERT_REQUIRED,
}


def make_context(settings: TLSSettings) -> ssl.SSLContext:
    """Return the TLS context for `settings`; raise WebConfigError if a file cannot be
    read or used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    context.maximum_version = _VERSIONS[settings.max_version]
    context.set_alpn_protocols(["http/1.1"])
    if not settings.prefer_server_ciphers:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    _set_ciphers(context, settings)
    _load_certificate(context, settings)
    if settings.client_auth.verifies:
        _load_authorities(context, settings.client_ca_file)
    context.verify_mode = _VERIFY[settings.client_auth]
    return context


def alternative_names(certificate: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the alternative names of a certificate as `ssl.SSLSocket.getpeercert`
    returns it.
    """
    for kind, name in (certificate or {}).get("subjectAltName", ()):
        if kind == "IP Address":
            with contextlib.suppress(ValueError):  # OpenSSL writes <invalid>
                yield str(ipaddress.ip_address(name.strip()))
        elif kind in ("DNS", "email", "URI"):
            yield name


def _set_ciphers(context: ssl.SSLContext, settings: TLSSettings) -> None:
    try:
        if settings.ciphers:
            context.set_ciphers(":".join(settings.ciphers))
        if settings.curve:
            context.set_ecdh_curve(settings.curve)
    except (ssl.SSLError, ValueError) as error:
        msg = (
            f"tls_server_config: this machine's {ssl.OPENSSL_VERSION} does not support "
            "cipher_suites or "
        )
        msg += f"curve_preferences ({error})"
        raise WebConfigError(msg) from error


def _load_certificate(context: ssl.SSLContext, settings: TLSSettings) -> None:
    _check_pem("cert_file", settings.cert_file)
    _check_pem("key_file", settings.key_file)
    try:
        # Without a password callback, OpenSSL prompts on the terminal.
        context.load_cert_chain(
            settings.cert_file, settings.key_file, password=_no_password
        )
    except _EncryptedError as error:
        raise WebConfigError(
            f"tls_server_config.key_file: {json.dumps(settings.key_file)}: "
            "encrypted; a plain key is needed"
        ) from error
    except (ssl.SSLError, OSError, ValueError) as error:
        both = f"{json.dumps(settings.cert_file)} and {json.dumps(settings.key_file)}"
        reason = getattr(error, "reason", None) or str(error)
        known = {"KEY_VALUES_MISMATCH": "the key is not the certificate's"}
        raise WebConfigError(
            f"tls_server_config: cert_file and key_file, {both}: "
            f"{known.get(reason, reason)}"
        ) from error


class _EncryptedError(Exception):
    """The key is encrypted."""


def _no_password() -> str:
    raise _EncryptedError


def _load_authorities(context: ssl.SSLContext, name: str) -> None:
    _check_pem("client_ca_file", name)
    try:
        context.load_verify_locations(name)
    except (ssl.SSLError, OSError) as error:
        raise WebConfigError(
            f"tls_server_config.client_ca_file: {json.dumps(name)}: no "
            "certificates in it"
        ) from error
    # As in Go, all certificates in the file are trusted: an intermediate CA does not
    # need its root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _check_pem(key: str, name: str) -> None:
    """Raise an error that names the file, unlike OpenSSL's."""
    content, reason = read_regular(name)
    if content is None:
        raise WebConfigError(f"tls_server_config.{key}: {json.dumps(name)}: {reason}")
    if b"-----BEGIN " not in content:
        raise WebConfigError(
            f"tls_server_config.{key}: {json.dumps(name)}: not in the PEM format"
        )
