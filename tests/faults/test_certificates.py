"""Faults of the listener's own certificate."""

import ssl
import time
from pathlib import Path

import pytest

from support.exporter import Metrics, RunningExporter
from support.programs import eventually
from webconfig.https import HTTPS, ask, client_context, guarded, shown, write
from webconfig.pki import Pki

pytestmark = pytest.mark.full


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


_ANYBODY = ssl.create_default_context()
_ANYBODY.check_hostname = False
_ANYBODY.verify_mode = ssl.CERT_NONE


def _reloaded(exporter: RunningExporter) -> float | None:
    text = ask(exporter, "/metrics", _ANYBODY).text
    return Metrics(text).value("config_last_reload_successful")


def _assert_mended(exporter: RunningExporter, pki: Pki) -> None:
    pki.renew()
    eventually(lambda: shown(exporter, _ANYBODY) == pki.serial())
    eventually(lambda: _reloaded(exporter) == 1)
    assert ask(exporter, "/metrics", client_context(pki)).status == 200
    assert exporter.process.poll() is None


def test_expired(pki: Pki) -> None:
    for issued, name in zip(
        pki.ca.issue("127.0.0.1", expired=True),
        ("server.pem", "server.key"),
        strict=True,
    ):
        Path(issued).replace(pki.folder / name)
    with guarded(pki, HTTPS) as exporter:
        # Scrapers see that it has expired; those who do not look, and probes, are
        # served as ever.
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            ask(exporter, "/metrics", client_context(pki))
        assert shown(exporter, _ANYBODY) == pki.serial()
        assert ask(exporter, "/-/healthy", _ANYBODY).text == "healthy\n"
        assert _reloaded(exporter) == 1
        _assert_mended(exporter, pki)


def test_unusable(pki: Pki) -> None:
    """What was in force still is; one line and a metric say so until it is mended, and
    so does a reload.
    """
    pki.extras()
    certificate, key, other_key = (
        pki.folder / name for name in ("server.pem", "server.key", "other.key")
    )
    web = pki.folder / "web.yml"
    with guarded(pki, HTTPS) as exporter:
        for number, (spoil, reason) in enumerate(
            (
                (
                    lambda: certificate.write_bytes(certificate.read_bytes()[:100]),
                    "cert_file",
                ),
                (lambda: other_key.replace(key), "key_file"),
                (certificate.unlink, "cannot be read: No such file or directory"),
                (
                    lambda: web.write_text("tls_server_config: {cert_file: a}"),
                    "key_file: missing",
                ),
                (web.unlink, "cannot be read: No such file or directory"),
            )
        ):
            serial = pki.serial()
            spoil()
            eventually(lambda: _reloaded(exporter) == 0)
            time.sleep(2.2)  # two more looks, which log nothing
            lines = exporter.log_lines("web configuration not reloaded")
            assert len(lines) == number + 1, number
            assert reason in lines[-1]["error"], number
            assert shown(exporter, _ANYBODY) == serial, number
            assert (
                ask(exporter, "/-/healthy", client_context(pki)).text == "healthy\n"
            ), number
            reload = ask(exporter, "/-/reload", client_context(pki), method="POST")
            assert reload.status == 500, number
            assert reason in reload.text, number
            write(web, HTTPS)
            _assert_mended(exporter, pki)
