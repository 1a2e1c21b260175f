"""TLS as the settings say: versions, cipher suites, curves, and what a client's
certificate says.
"""

import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest

from support.certificates import Authority, self_signed
from vllm_specdec_exporter.listener.web_config.document import parse
from vllm_specdec_exporter.listener.web_config.fields import WebConfigError
from vllm_specdec_exporter.listener.web_config.server_tls import (
    CIPHERS,
    CURVES,
    alternative_names,
    make_context,
)
from webconfig.https import MUTUAL, TLS, client_context
from webconfig.pki import Pki

GCM_128 = "ECDHE-ECDSA-AES128-GCM-SHA256"
GCM_256 = "ECDHE-ECDSA-AES256-GCM-SHA384"


def _context(pki: Pki, **settings: Any) -> ssl.SSLContext:
    tls = parse({"tls_server_config": {**TLS, **settings}}, str(pki.folder)).tls
    assert tls is not None
    return make_context(tls)


def _handshake(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Let both ends shake hands in memory."""
    to_server = ssl.MemoryBIO()
    to_client = ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(5):
        for end in (one, other):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return other, one


def test_tls_versions(pki: Pki) -> None:
    """Both ends of the range of versions hold."""
    client = client_context(pki)
    for settings, offered, spoken in (
        ({}, ("TLSv1_2", "TLSv1_3"), "TLSv1.3"),
        ({}, ("TLSv1_2", "TLSv1_2"), "TLSv1.2"),
        ({"max_version": "TLS12"}, ("TLSv1_2", "TLSv1_3"), "TLSv1.2"),
        ({"min_version": "TLS13"}, ("TLSv1_2", "TLSv1_3"), "TLSv1.3"),
        ({"min_version": "TLS13"}, ("TLSv1_2", "TLSv1_2"), None),
        ({"max_version": "TLS12"}, ("TLSv1_3", "TLSv1_3"), None),
    ):
        client.minimum_version, client.maximum_version = (
            ssl.TLSVersion[name] for name in offered
        )
        if spoken is None:
            with pytest.raises(ssl.SSLError, match=r"UNSUPPORTED_PROTOCOL|VERSION"):
                _handshake(_context(pki, **settings), client)
        else:
            assert _handshake(_context(pki, **settings), client)[0].version() == spoken


def test_cipher_suites(pki: Pki) -> None:
    """The one suite of the list is spoken, under Go's name for it, and no other than
    those of the list.
    """
    client = client_context(pki)
    client.set_ciphers("ALL")
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    for name in (name for name in CIPHERS if "ECDSA" in name):
        ended = _handshake(_context(pki, cipher_suites=[name]), client)[0].cipher()
        assert ended[0] == CIPHERS[name]
    client.set_ciphers(GCM_128)
    with pytest.raises(ssl.SSLError, match="NO_SHARED_CIPHER"):
        _handshake(
            _context(pki, cipher_suites=["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"]),
            client,
        )


def test_preference_of_cipher_suites(pki: Pki) -> None:
    """The server's order of suites counts, or the client's."""
    suites = [
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    ]
    client = client_context(pki)
    client.set_ciphers(f"{GCM_128}:{GCM_256}")
    for prefer, spoken in (("true", GCM_256), ("false", GCM_128)):
        settings = {"prefer_server_cipher_suites": prefer, "cipher_suites": suites}
        ended = _handshake(_context(pki, max_version="TLS12", **settings), client)[
            0
        ].cipher()
        assert ended[0] == spoken


@pytest.mark.parametrize("name", CURVES)
def test_curve(pki: Pki, name: str) -> None:
    """The key exchange is on this curve, or there is none.

    What Python lacks (3.11.2: X25519) is refused.
    """
    client = client_context(pki)
    other = client_context(pki)
    try:
        client.set_ecdh_curve(CURVES[name])
    except ssl.SSLError:
        with pytest.raises(WebConfigError, match="curve_preferences"):
            _context(pki, curve_preferences=[name])
        return
    server = _context(pki, curve_preferences=[name])
    other.set_ecdh_curve("secp384r1" if name != "CurveP384" else "prime256v1")

    assert _handshake(server, client)[0].version() == "TLSv1.3"
    with pytest.raises(ssl.SSLError):
        _handshake(server, other)


def test_http2_is_not_agreed_on(pki: Pki) -> None:
    """A client that would like HTTP/2 learns that it is HTTP/1.1."""
    client = client_context(pki)
    client.set_alpn_protocols(["h2", "http/1.1"])

    assert _handshake(_context(pki), client)[1].selected_alpn_protocol() == "http/1.1"


def test_alternative_names(pki: Pki) -> None:
    """Names of each kind read as the format writes them; whoever shows no certificate
    has none.
    """
    names = [
        "prometheus.example",
        "192.0.2.7",
        "2001:db8::7",
        "ops@example.com",
        "spiffe://example/ns/x",
    ]
    server = _context(pki, **MUTUAL)
    seen = _handshake(server, client_context(pki, pki.clients.issue(*names)))[
        0
    ].getpeercert()

    assert list(alternative_names(seen)) == names
    assert [*alternative_names(None), *alternative_names({})] == []


def test_client_authentication(
    pki: Pki, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each kind of authentication lets in whom it should; a CA is known by its key, not
    by its name.
    """
    name = "prometheus.example"
    impostor = Authority(tmp_path_factory.mktemp("impostor"), "clients")
    shown = {
        "none": None,
        "good": pki.clients.issue(name),
        "expired": pki.clients.issue(name, expired=True),
        "stranger's": pki.strangers.issue(name),
        "self-signed": self_signed(pki.folder, "self", name),
        "impostor's": impostor.issue(name),
    }
    for kind, expected in (
        ("NoClientCert", set(shown)),
        ("RequestClientCert", set(shown)),
        ("VerifyClientCertIfGiven", {"none", "good"}),
        ("RequireAndVerifyClientCert", {"good"}),
    ):
        if "Verify" in kind:
            authorities = {"client_ca_file": "clients.pem"}
        else:
            authorities = {}
        server = _context(pki, client_auth_type=kind, **authorities)
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            found = set()
            for who, files in shown.items():
                client = client_context(pki, files)
                client.maximum_version = version
                with contextlib.suppress(ssl.SSLError):
                    _handshake(server, client)
                    found.add(who)
            assert found == expected, (kind, version)


def test_a_certificate_may_be_trusted_without_its_root(pki: Pki) -> None:
    """As in Go, whoever is in the CA file is trusted, and nobody else."""
    files = pki.strangers.issue("prometheus.example")
    server = _context(pki, **{**MUTUAL, "client_ca_file": Path(files[0]).name})

    assert _handshake(server, client_context(pki, files))[0].getpeercert()
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        _handshake(server, client_context(pki, pki.clients.issue("prometheus.example")))
