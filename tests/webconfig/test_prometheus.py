"""A real Prometheus that scrapes the exporter over TLS, with a password, with a certificate."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from support.programs import eventually
from support.prometheus import PrometheusServer
from webconfig.https import MUTUAL, TLS, address_of, guarded, write
from webconfig.pki import hashed

if TYPE_CHECKING:
    from pathlib import Path

    from support.exporter import RunningExporter
    from webconfig.pki import Pki

pytestmark = pytest.mark.full


def _prometheus(exporter: RunningExporter, pki: Pki, **jobs: dict[str, Any]) -> PrometheusServer:
    """Return a Prometheus with one job for each way to scrape."""
    host, port = address_of(exporter)
    return PrometheusServer(
        config={
            "scrape_configs": [
                {
                    "job_name": name,
                    "scheme": "https",
                    "tls_config": {"ca_file": str(pki.ca.file), **settings.pop("tls_config", {})},
                    "static_configs": [{"targets": [f"{host}:{port}"]}],
                    **settings,
                }
                for name, settings in jobs.items()
            ]
        }
    )


def _password(word: str, user: str = "prometheus") -> dict[str, Any]:
    return {"basic_auth": {"username": user, "password": word}}


def _certificate(files: tuple[str, str]) -> dict[str, Any]:
    return {"tls_config": {"cert_file": files[0], "key_file": files[1]}}


def test_tls_and_a_password(pki: Pki) -> None:
    """Who has the password scrapes; without, with another, or without trust in the CA, nobody does."""
    document = {"tls_server_config": TLS, "basic_auth_users": {"prometheus": hashed("secret", 10)}}
    stranger = {**_password("secret"), "tls_config": {"ca_file": str(pki.strangers.file)}}
    with (
        guarded(pki, document) as exporter,
        _prometheus(
            exporter,
            pki,
            right=_password("secret"),
            wrong=_password("Secret"),
            unknown=_password("secret", "alice"),
            none={},
            stranger=stranger,
        ) as prometheus,
    ):
        prometheus.wait_for('vllm_specdec_build_info{job="right"}')
        prometheus.wait_for("count(up) == 5")
        up = {dict(series)["job"]: value for series, value in prometheus.query("up").items()}

        assert up == {"right": 1, "wrong": 0, "unknown": 0, "none": 0, "stranger": 0}


def test_client_certificates(pki: Pki) -> None:
    """The certificate's name decides."""
    settings = {**MUTUAL, "client_allowed_sans": ["prometheus.example"]}
    with (
        guarded(pki, {"tls_server_config": settings}) as exporter,
        _prometheus(
            exporter,
            pki,
            right=_certificate(pki.clients.issue("prometheus.example")),
            name=_certificate(pki.clients.issue("grafana.example")),
            issuer=_certificate(pki.strangers.issue("prometheus.example")),
            none={},
        ) as prometheus,
    ):
        prometheus.wait_for('vllm_specdec_build_info{job="right"}')
        prometheus.wait_for("count(up) == 4")
        up = {dict(series)["job"]: value for series, value in prometheus.query("up").items()}

        assert up == {"right": 1, "name": 0, "issuer": 0, "none": 0}


@pytest.mark.parametrize("version", ["TLS12", "TLS13"])
def test_rotation(pki: Pki, version: str) -> None:
    """No scrape fails while certificates, CA, settings and another user's password change in turn."""
    document: dict[str, Any] = {
        "tls_server_config": {**MUTUAL, "min_version": version, "max_version": version},
        "basic_auth_users": {"prometheus": hashed("secret")},  # one that is dear would outlast a scrape
    }
    job = {**_password("secret"), **_certificate(pki.clients.issue("prometheus.example"))}
    changes = [
        pki.renew,
        lambda: _trust(pki, pki.strangers.file, pki.clients.file),
        lambda: _change(pki, document, "tls_server_config", "client_allowed_sans", ["prometheus.example"]),
        lambda: _change(pki, document, "basic_auth_users", "alice", hashed("x")),
    ]
    job |= {"scrape_interval": "400ms", "scrape_timeout": "400ms"}
    with guarded(pki, document) as exporter, _prometheus(exporter, pki, right=job) as prometheus:
        prometheus.wait_for("vllm_specdec_build_info")
        for count, change in enumerate(changes, 1):
            change()
            eventually(lambda count=count: len(exporter.log_lines("web configuration reloaded")) == count, 5)
            time.sleep(1)
        scrapes = prometheus.value("count_over_time(up[1h])")
        failed = prometheus.value("count_over_time((up == 0)[1h:100ms])")

    assert scrapes is not None
    assert scrapes > 12
    assert failed is None


def _trust(pki: Pki, *authorities: Path) -> None:
    (pki.folder / "clients.pem").write_bytes(b"".join(file.read_bytes() for file in authorities))


def _change(pki: Pki, document: dict[str, Any], section: str, key: str, value: object) -> None:
    document[section][key] = value
    write(pki.folder / "web.yml", document)
