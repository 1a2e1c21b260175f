"""TLS of the web configuration file: its settings, and their `ssl.SSLContext`."""

import json
import ssl
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from ...config.files import read_regular
from .fields import WebConfigError, mapping, not_allowed, text_of

_SECTION = "tls_server_config"
#: The settings of the section.
SETTINGS = (
    "cert_file",
    "key_file",
    "client_auth_type",
    "client_ca_file",
    "min_version",
)
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}


class ClientAuth(StrEnum):
    """How client certificates are checked."""

    NONE = "NoClientCert"
    REQUEST = "RequestClientCert"
    VERIFY_IF_GIVEN = "VerifyClientCertIfGiven"
    REQUIRE_AND_VERIFY = "RequireAndVerifyClientCert"


_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    # A certificate would be ignored, so none is requested.
    ClientAuth.REQUEST: ssl.CERT_NONE,
    ClientAuth.VERIFY_IF_GIVEN: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE_AND_VERIFY: ssl.CERT_REQUIRED,
}
#: Go can require a certificate without verifying it; Python's TLS cannot.
_UNVERIFIED = ("RequireAnyClientCert", "RequireClientCert")


class TLSSettings(Struct, frozen=True):
    """The settings of TLS."""

    cert_file: str  # certificate with its chain, PEM
    key_file: str  # its private key, PEM
    client_auth: ClientAuth = ClientAuth.NONE  # how client certificates are checked
    #: CA of client certificates, PEM; empty if they are not verified.
    client_ca_file: str = ""
    min_version: str = "TLS12"  # ``TLS12`` or ``TLS13``

    @property
    def verify_mode(self) -> ssl.VerifyMode:
        """Whether a client's certificate is verified, and whether one is required."""
        return _VERIFY[self.client_auth]

    @property
    def files(self) -> tuple[str, ...]:
        """All files that the settings name."""
        names = (self.cert_file, self.key_file, self.client_ca_file)
        return tuple(name for name in names if name)


def parse_tls(value: object, folder: str) -> TLSSettings | None:
    """Return the settings of the section, `None` for plain HTTP; WebConfigError if one
    cannot be used.

    Relative paths are in `folder`.
    """
    section = mapping(value, _SECTION, SETTINGS)
    if not section:
        return None
    for key in ("cert_file", "key_file"):
        if not text_of(section, key, _SECTION):
            raise WebConfigError(
                f"{_SECTION}.{key}: missing; TLS needs cert_file and key_file"
            )
    version = text_of(section, "min_version", _SECTION) or "TLS12"
    if version not in _VERSIONS:
        raise not_allowed(f"{_SECTION}.min_version", version, _VERSIONS)
    settings = TLSSettings(
        cert_file=_path(section, "cert_file", folder),
        key_file=_path(section, "key_file", folder),
        client_auth=_client_auth(section),
        client_ca_file=_path(section, "client_ca_file", folder),
        min_version=version,
    )
    _check_client_ca(settings)
    return settings


def _path(section: Mapping[str, object], key: str, folder: str) -> str:
    text = text_of(section, key, _SECTION)
    if not text:
        return ""
    return str(Path(folder, text))


def _client_auth(section: Mapping[str, object]) -> ClientAuth:
    where = f"{_SECTION}.client_auth_type"
    text = text_of(section, "client_auth_type", _SECTION) or ClientAuth.NONE
    if text in _UNVERIFIED:
        raise WebConfigError(
            f"{where}: {text} is not supported: Python's TLS cannot require a "
            "certificate without verifying it; "
            f"use {ClientAuth.REQUIRE_AND_VERIFY} and client_ca_file"
        )
    if text not in list(ClientAuth):
        raise not_allowed(where, text, ClientAuth)
    return ClientAuth(text)


def _check_client_ca(settings: TLSSettings) -> None:
    where = f"{_SECTION}.client_ca_file"
    verifies = settings.verify_mode is not ssl.CERT_NONE
    if settings.client_ca_file and not verifies:
        raise WebConfigError(
            f"{where}: nothing is verified with client_auth_type "
            f"{settings.client_auth}; "
            f"{ClientAuth.REQUIRE_AND_VERIFY} and {ClientAuth.VERIFY_IF_GIVEN} verify"
        )
    if verifies and not settings.client_ca_file:
        raise WebConfigError(
            f"{where}: missing; client_auth_type {settings.client_auth} needs a CA"
        )


def make_context(settings: TLSSettings) -> ssl.SSLContext:
    """Return the TLS context for `settings`; raise WebConfigError if a file cannot be
    read or used.

    New files get a new context: `load_cert_chain` on one in use drops its key if the
    files do not match, and a CA cannot be removed from it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    context.set_alpn_protocols(["http/1.1"])
    _load_certificate(context, settings)
    if settings.client_ca_file:
        _load_authorities(context, settings.client_ca_file)
    context.verify_mode = settings.verify_mode
    return context


def _load_certificate(context: ssl.SSLContext, settings: TLSSettings) -> None:
    cert_file = settings.cert_file
    key_file = settings.key_file
    _check_pem("cert_file", cert_file)
    _check_pem("key_file", key_file)
    try:
        # Without a password callback, OpenSSL prompts on the terminal.
        context.load_cert_chain(cert_file, key_file, password=_no_password)
    except _EncryptedError as error:
        raise WebConfigError(
            f"{_SECTION}.key_file: {json.dumps(key_file)}: "
            "encrypted; a plain key is needed"
        ) from error
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        if reason == "KEY_VALUES_MISMATCH":
            reason = "the key is not the certificate's"
        raise WebConfigError(
            f"{_SECTION}: cert_file and key_file, {json.dumps(cert_file)} and "
            f"{json.dumps(key_file)}: {reason}"
        ) from error


class _EncryptedError(Exception):
    """The key is encrypted."""


def _no_password() -> str:
    raise _EncryptedError


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    _check_pem("client_ca_file", path)
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise WebConfigError(
            f"{_SECTION}.client_ca_file: {json.dumps(path)}: no certificates in it"
        ) from error
    # As in Go, all certificates in the file are trusted: an intermediate CA does not
    # need its root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _check_pem(key: str, path: str) -> None:
    """Raise an error that names the file, unlike OpenSSL's."""
    content, reason = read_regular(path)
    if content is not None and b"-----BEGIN " not in content:
        reason = "not in the PEM format"
    if reason:
        raise WebConfigError(f"{_SECTION}.{key}: {json.dumps(path)}: {reason}")
