"""TLS as Python speaks it: from settings to an `ssl.SSLContext`, and what a client's certificate says."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import ssl
from typing import TYPE_CHECKING, Any

from . import files
from .fields import WebConfigError
from .tlssection import ClientAuth, TLSSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    # What a client would show is neither needed nor looked at, so none is asked for.
    ClientAuth.REQUEST: ssl.CERT_NONE,
    ClientAuth.VERIFY_IF_GIVEN: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE_AND_VERIFY: ssl.CERT_REQUIRED,
}


def make_context(settings: TLSSettings) -> ssl.SSLContext:
    """Return what speaks TLS as `settings` say. It reads their files.

    Raises:
        WebConfigError: a file cannot be read or does not hold what it should.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    context.maximum_version = _VERSIONS[settings.max_version]
    context.set_alpn_protocols(["http/1.1"])
    if not settings.prefer_server_ciphers:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    _choose(context, settings)
    _load_certificate(context, settings)
    if settings.client_auth.verifies:
        _load_authorities(context, settings.client_ca_file)
    context.verify_mode = _VERIFY[settings.client_auth]
    return context


def alternative_names(certificate: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the alternative names of a certificate as `ssl.SSLSocket.getpeercert` returns it."""
    for kind, name in (certificate or {}).get("subjectAltName", ()):
        if kind == "IP Address":
            with contextlib.suppress(ValueError):  # OpenSSL writes <invalid> where it is none
                yield str(ipaddress.ip_address(name.strip()))
        elif kind in ("DNS", "email", "URI"):
            yield name


def _choose(context: ssl.SSLContext, settings: TLSSettings) -> None:
    try:
        if settings.ciphers:
            context.set_ciphers(":".join(settings.ciphers))
        if settings.curve:
            context.set_ecdh_curve(settings.curve)
    except (ssl.SSLError, ValueError) as error:
        msg = f"tls_server_config: this machine's {ssl.OPENSSL_VERSION} has not what cipher_suites or "
        msg += f"curve_preferences ask for ({error})"
        raise WebConfigError(msg) from error


def _load_certificate(context: ssl.SSLContext, settings: TLSSettings) -> None:
    _check_pem("cert_file", settings.cert_file)
    _check_pem("key_file", settings.key_file)
    try:
        # Without a password, OpenSSL would ask the terminal for it.
        context.load_cert_chain(settings.cert_file, settings.key_file, password=_no_password)
    except _EncryptedError as error:
        msg = f"tls_server_config.key_file: {json.dumps(settings.key_file)}: encrypted; a plain key is needed"
        raise WebConfigError(msg) from error
    except (ssl.SSLError, OSError, ValueError) as error:
        both = f"{json.dumps(settings.cert_file)} and {json.dumps(settings.key_file)}"
        reason = getattr(error, "reason", None) or str(error)
        known = {"KEY_VALUES_MISMATCH": "the key is not the certificate's"}
        msg = f"tls_server_config: cert_file and key_file, {both}: {known.get(reason, reason)}"
        raise WebConfigError(msg) from error


class _EncryptedError(Exception):
    """The key wants a password."""


def _no_password() -> str:
    raise _EncryptedError


def _load_authorities(context: ssl.SSLContext, name: str) -> None:
    _check_pem("client_ca_file", name)
    try:
        context.load_verify_locations(name)
    except (ssl.SSLError, OSError) as error:
        msg = f"tls_server_config.client_ca_file: {json.dumps(name)}: no certificates in it"
        raise WebConfigError(msg) from error
    # Whatever is in the file is trusted as it is, as in Go: an intermediate CA needs not its root beside it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _check_pem(key: str, name: str) -> None:
    """Say which file it is that is none; OpenSSL would not."""
    content, reason = files.read(name)
    if content is None:
        msg = f"tls_server_config.{key}: {json.dumps(name)}: {reason}"
        raise WebConfigError(msg)
    if b"-----BEGIN " not in content:
        msg = f"tls_server_config.{key}: {json.dumps(name)}: nothing in the PEM format in it"
        raise WebConfigError(msg)
