"""The tap of the recipe and of the chart, with the real exporter: clients get what vLLM answers."""

from __future__ import annotations

import ssl
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from injection import rendered_policy
from recipes.sidecar import IMAGE, sidecar_of
from recipes.stacks import load, workload
from support.certificates import Authority
from support.exporter import running_exporter
from support.ports import free_port
from support.programs import simulator

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.full

CHART = {**IMAGE, "tap": {"enabled": True}}


@pytest.fixture(scope="module")
def vllm() -> Iterator[str]:
    """The address of a vLLM that is simulated."""
    with simulator("--scenario", "healthy") as address:
        yield address


def recipe_args() -> list[str]:
    """Return the flags of the recipe's sidecar."""
    (pod,) = workload(load("deployment-with-tap.yaml"))
    return list(sidecar_of(pod)["args"])


def moved(args: list[str], vllm: str, port: int) -> list[str]:
    """Return flags with vLLM and the tap where they are here."""
    return [
        argument.replace("http://127.0.0.1:8000", vllm).replace("=:9852", f"=127.0.0.1:{port}")
        for argument in args
    ]


def read(url: str, context: ssl.SSLContext | None = None) -> str:
    """Return what is at an address."""
    with urllib.request.urlopen(url, timeout=30, context=context) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize(
    "args", [recipe_args(), rendered_policy.sidecar(CHART)["args"]], ids=["recipe", "chart"]
)
def test_clients_reach_vllm_through_the_tap(args: list[str], vllm: str) -> None:
    """At the port that the Service leads to; the exporter polls vLLM itself, and says what it is."""
    port = free_port()
    with running_exporter(*moved(args, vllm, port), fast=False) as exporter:
        assert read(f"http://127.0.0.1:{port}/version") == read(f"{vllm}/version")
        exporter.wait_until_up()
        assert exporter.metrics().value("tap_connections_total") == 1.0


def test_a_push_secret_that_is_missing_leaves_clients_alone(vllm: str) -> None:
    """The sidecar stands by and says so, and its tap goes on relaying."""
    port = free_port()
    args = rendered_policy.sidecar({**CHART, "push": {"existingSecret": "missing"}})["args"]
    # Who stands by does not log where it listens.
    listen = ("--web.listen-address", f"127.0.0.1:{free_port()}")
    with running_exporter(*moved(args, vllm, port), *listen, fast=False) as exporter:
        assert read(f"http://127.0.0.1:{port}/version") == read(f"{vllm}/version")
        assert exporter.get("/-/ready").text.startswith("standing by")


def test_the_certificate_of_the_chart_is_the_one_that_clients_see(vllm: str, tmp_path: Path) -> None:
    """With the files where the Secret puts them, clients speak https with the tap."""
    port = free_port()
    authority = Authority(tmp_path, "authority")
    for file, key in zip(authority.issue("localhost"), ("tls.crt", "tls.key"), strict=True):
        Path(file).rename(tmp_path / key)
    args = rendered_policy.sidecar({**CHART, "tap": {"enabled": True, "tls": {"existingSecret": "x"}}})[
        "args"
    ]
    args = [argument.replace("/etc/vllm-specdec-exporter/tap/", f"{tmp_path}/") for argument in args]
    with running_exporter(*moved(args, vllm, port), fast=False):
        trusted = ssl.create_default_context(cafile=authority.file)
        answer = read(f"https://localhost:{port}/version", trusted)
    assert answer == read(f"{vllm}/version")
