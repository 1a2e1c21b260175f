"""A real Prometheus that scrapes over TLS with a password and a certificate, while both change."""

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest

from support.programs import eventually
from support.prometheus import PrometheusServer
from webconfig.https import MUTUAL, address_of, guarded, write
from webconfig.pki import Pki, hashed

pytestmark = pytest.mark.full


def test_rotation(pki: Pki) -> None:
    """No scrape fails while certificates, CA, settings and another user's password change in turn."""
    document: dict[str, Any] = {
        "tls_server_config": {**MUTUAL},
        "basic_auth_users": {"prometheus": hashed("secret")},  # one that is dear would outlast a scrape
    }
    certificate, key = pki.clients.issue("prometheus.example")
    job: dict[str, Any] = {
        "job_name": "right",
        "scheme": "https",
        "basic_auth": {"username": "prometheus", "password": "secret"},
        "tls_config": {"ca_file": str(pki.ca.file), "cert_file": certificate, "key_file": key},
        "scrape_interval": "400ms",
        "scrape_timeout": "400ms",
    }
    changes = [
        pki.renew,
        lambda: _trust(pki, pki.strangers.file, pki.clients.file),
        lambda: _change(pki, document, "tls_server_config", "client_allowed_sans", ["prometheus.example"]),
        lambda: _change(pki, document, "basic_auth_users", "alice", hashed("x")),
    ]
    with guarded(pki, document) as exporter, contextlib.ExitStack() as stack:
        job["static_configs"] = [{"targets": [":".join(map(str, address_of(exporter)))]}]
        prometheus = stack.enter_context(PrometheusServer(config={"scrape_configs": [job]}))
        prometheus.wait_for("vllm_specdec_build_info")
        for count, change in enumerate(changes, 1):
            change()
            eventually(lambda count=count: len(exporter.log_lines("web configuration reloaded")) == count)
            time.sleep(0.6)
        scrapes = prometheus.value("count_over_time(up[1h])")
        failed = prometheus.value("count_over_time((up == 0)[1h:100ms])")

    assert scrapes is not None
    assert scrapes > 8
    assert failed is None


def _trust(pki: Pki, *authorities: Path) -> None:
    (pki.folder / "clients.pem").write_bytes(b"".join(file.read_bytes() for file in authorities))


def _change(pki: Pki, document: dict[str, Any], section: str, key: str, value: object) -> None:
    document[section][key] = value
    write(pki.folder / "web.yml", document)
