"""Faults of the listener's own certificate."""

import socket
import ssl
import time
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from support.exporter import Metrics, RunningExporter
from support.programs import eventually
from webconfig.https import TLS, address_of, ask, client_context, guarded
from webconfig.pki import Pki, serial_of

pytestmark = pytest.mark.full


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


def _trusting_anybody() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _shown(exporter: RunningExporter) -> int:
    """The serial number of the certificate that is shown."""
    raw = socket.create_connection(address_of(exporter), timeout=5)
    with _trusting_anybody().wrap_socket(raw) as connection:
        certificate = connection.getpeercert(binary_form=True)
    assert certificate is not None
    return serial_of(certificate)


def _reloaded(exporter: RunningExporter) -> float | None:
    text = ask(exporter, "/metrics", _trusting_anybody()).text
    return Metrics(text).value("config_last_reload_successful")


def _assert_mended(exporter: RunningExporter, pki: Pki) -> None:
    pki.renew()
    eventually(lambda: _shown(exporter) == pki.serial())
    eventually(lambda: _reloaded(exporter) == 1)
    assert ask(exporter, "/metrics", client_context(pki)).status == 200
    assert exporter.process.poll() is None


def test_expires_while_serving(pki: Pki) -> None:
    end = _write_short_lived(pki.folder, seconds=3)
    with guarded(pki, {"tls_server_config": TLS}) as exporter:
        serial = _shown(exporter)
        eventually(lambda: time.time() > end + 0.5)
        # Scrapers see that it has expired; those who do not look, and probes, are served as before.
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            ask(exporter, "/metrics", ssl.create_default_context(cafile=str(pki.folder / "server.pem")))
        assert _shown(exporter) == serial
        assert ask(exporter, "/-/healthy", _trusting_anybody()).text == "healthy\n"
        assert _reloaded(exporter) == 1
        _assert_mended(exporter, pki)


def _write_short_lived(folder: Path, seconds: float) -> float:
    """Write a certificate that expires soon, and its key; return when, in Unix seconds."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    end = datetime.now(UTC) + timedelta(seconds=seconds)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=1))
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "server.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "server.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return end.timestamp()


def test_unusable(pki: Pki) -> None:
    """What was in force still is; the log and a metric say that something else was meant to be."""
    pki.extras()
    certificate, key, other = (pki.folder / name for name in ("server.pem", "server.key", "other.key"))
    with guarded(pki, {"tls_server_config": TLS}) as exporter:
        for spoil in (
            lambda: certificate.write_bytes(certificate.read_bytes()[:100]),
            lambda: other.replace(key),
            certificate.unlink,
        ):
            serial = pki.serial()
            told = len(exporter.log_lines("web configuration not reloaded"))
            spoil()
            eventually(lambda told=told: len(exporter.log_lines("web configuration not reloaded")) > told)
            assert _shown(exporter) == serial
            assert _reloaded(exporter) == 0
            assert ask(exporter, "/-/healthy", client_context(pki)).text == "healthy\n"
            _assert_mended(exporter, pki)
