"""The tap of the chart, with the real exporter: clients get what vLLM answers."""

import urllib.request

import pytest

from injection import rendered_policy
from recipes.sidecar import IMAGE
from support.exporter import running_exporter
from support.ports import free_port
from support.programs import simulator

pytestmark = pytest.mark.full


def read(url: str) -> str:
    """Return what is at an address."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def test_clients_reach_vllm_through_the_tap_of_the_chart() -> None:
    """The exporter polls vLLM itself, and reports it."""
    args = rendered_policy.sidecar({**IMAGE, "tap": {"enabled": True}})["args"]
    port = free_port()
    with simulator("--scenario", "healthy") as vllm:
        places = {"http://127.0.0.1:8000": vllm, "=:9852": f"=127.0.0.1:{port}"}
        for path, here in places.items():
            args = [argument.replace(path, here) for argument in args]
        with running_exporter(*args, fast=False) as exporter:
            tapped = read(f"http://127.0.0.1:{port}/version")
            assert tapped == read(f"{vllm}/version")
            exporter.wait_until_up()
            assert exporter.metrics().value("tap_connections_total") == 1.0
