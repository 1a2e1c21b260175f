"""TLS as the settings say: versions, and whose certificates are accepted."""

import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest

from support.certificates import Authority, self_signed
from vllm_specdec_exporter.listener.web_config.document import parse
from vllm_specdec_exporter.listener.web_config.server_tls import make_context
from webconfig.https import MUTUAL, TLS, client_context
from webconfig.pki import Pki


def _context(pki: Pki, **settings: Any) -> ssl.SSLContext:
    document = {"tls_server_config": {**TLS, **settings}}
    return make_context(parse(document, str(pki.folder)).tls)


def _handshake(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Let both ends shake hands in memory."""
    to_server = ssl.MemoryBIO()
    to_client = ssl.MemoryBIO()
    client_end = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    server_end = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(5):
        for end in (client_end, server_end):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return server_end, client_end


@pytest.mark.parametrize(
    ("settings", "newest_offered", "spoken"),
    [
        ({}, ssl.TLSVersion.TLSv1_3, "TLSv1.3"),
        ({}, ssl.TLSVersion.TLSv1_2, "TLSv1.2"),
        ({"min_version": "TLS13"}, ssl.TLSVersion.TLSv1_3, "TLSv1.3"),
    ],
)
def test_tls_versions(
    pki: Pki, settings: dict[str, str], newest_offered: ssl.TLSVersion, spoken: str
) -> None:
    """The newest version of both is spoken."""
    client = client_context(pki)
    client.maximum_version = newest_offered
    server_end, _ = _handshake(_context(pki, **settings), client)
    assert server_end.version() == spoken


def test_no_version_below_the_lowest_one_is_spoken(pki: Pki) -> None:
    client = client_context(pki)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match=r"UNSUPPORTED_PROTOCOL|VERSION"):
        _handshake(_context(pki, min_version="TLS13"), client)


def test_http2_is_not_agreed_on(pki: Pki) -> None:
    """A client that would like HTTP/2 learns that it is HTTP/1.1."""
    client = client_context(pki)
    client.set_alpn_protocols(["h2", "http/1.1"])

    assert _handshake(_context(pki), client)[1].selected_alpn_protocol() == "http/1.1"


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
            accepted = set()
            for who, files in shown.items():
                client = client_context(pki, files)
                client.maximum_version = version
                with contextlib.suppress(ssl.SSLError):
                    _handshake(server, client)
                    accepted.add(who)
            assert accepted == expected, (kind, version)


def test_a_certificate_may_be_trusted_without_its_root(pki: Pki) -> None:
    """As in Go, whoever is in the CA file is trusted, and nobody else."""
    files = pki.strangers.issue("prometheus.example")
    server = _context(pki, **{**MUTUAL, "client_ca_file": Path(files[0]).name})

    assert _handshake(server, client_context(pki, files))[0].getpeercert()
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        _handshake(server, client_context(pki, pki.clients.issue("prometheus.example")))
