"""The tap of the chart, with the real exporter: clients get what vLLM answers, over
TLS.
"""

import ssl
import urllib.request
from pathlib import Path

import pytest

from injection import rendered_policy
from recipes.sidecar import IMAGE
from support.certificates import Authority
from support.exporter import running_exporter
from support.ports import free_port
from support.programs import simulator

pytestmark = pytest.mark.full


def read(url: str, context: ssl.SSLContext | None = None) -> str:
    """Return what is at an address."""
    with urllib.request.urlopen(url, timeout=30, context=context) as answer:
        return str(answer.read().decode())


def test_clients_reach_vllm_through_the_tap_with_the_certificate_of_the_chart(
    tmp_path: Path,
) -> None:
    """With the files where the Secret puts them; the exporter polls vLLM itself, and
    reports it.
    """
    authority = Authority(tmp_path, "authority")
    for file, key in zip(
        authority.issue("localhost"), ("tls.crt", "tls.key"), strict=True
    ):
        Path(file).rename(tmp_path / key)
    tap = {"enabled": True, "tls": {"existingSecret": "x"}}
    args = rendered_policy.sidecar({**IMAGE, "tap": tap})["args"]
    port = free_port()
    files = "/etc/vllm-specdec-exporter/tap/"
    with simulator("--scenario", "healthy") as vllm:
        places = {
            "http://127.0.0.1:8000": vllm,
            "=:9852": f"=127.0.0.1:{port}",
            files: f"{tmp_path}/",
        }
        for path, here in places.items():
            args = [argument.replace(path, here) for argument in args]
        trusted = ssl.create_default_context(cafile=authority.file)
        with running_exporter(*args, fast=False) as exporter:
            assert read(f"https://localhost:{port}/version", trusted) == read(
                f"{vllm}/version"
            )
            exporter.wait_until_up()
            assert exporter.metrics().value("tap_connections_total") == 1.0
