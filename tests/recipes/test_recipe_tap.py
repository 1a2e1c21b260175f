"""The tap of the recipe and of the chart, with the real exporter: clients get what vLLM answers."""

import contextlib
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from injection import rendered_policy
from recipes.sidecar import IMAGE, sidecar_of
from recipes.stacks import load, workload
from support.certificates import Authority
from support.exporter import RunningExporter, running_exporter
from support.ports import free_port
from support.programs import answers, eventually, simulator

pytestmark = pytest.mark.full

CHART = {**IMAGE, "tap": {"enabled": True}}


@pytest.fixture(scope="module")
def vllm() -> Iterator[str]:
    """The address of a vLLM that is simulated."""
    with simulator("--scenario", "healthy") as address:
        yield address


@contextlib.contextmanager
def exporting(args: list[str], vllm: str, *more: str) -> Iterator[tuple[RunningExporter, int]]:
    """An exporter with these flags, but with vLLM and the tap where they are here; and the tap's port."""
    port = free_port()
    places = {"http://127.0.0.1:8000": vllm, "=:9852": f"=127.0.0.1:{port}"}
    for place, here in places.items():
        args = [argument.replace(place, here) for argument in args]
    with running_exporter(*args, *more, fast=False) as exporter:
        yield exporter, port


def read(url: str, context: ssl.SSLContext | None = None) -> str:
    """Return what is at an address."""
    with urllib.request.urlopen(url, timeout=30, context=context) as answer:
        return str(answer.read().decode())


def test_clients_reach_vllm_through_the_tap(vllm: str) -> None:
    """At the port that the Service leads to; the exporter polls vLLM itself, and reports it."""
    (pod,) = workload(load("deployment-with-tap.yaml"))
    with exporting(list(sidecar_of(pod)["args"]), vllm) as (exporter, port):
        assert read(f"http://127.0.0.1:{port}/version") == read(f"{vllm}/version")
        exporter.wait_until_up()
        assert exporter.metrics().value("tap_connections_total") == 1.0


def test_a_push_secret_that_is_missing_leaves_clients_alone(vllm: str) -> None:
    """The sidecar stands by and says so, and its tap goes on relaying."""
    args = rendered_policy.sidecar({**CHART, "push": {"existingSecret": "missing"}})["args"]
    # An exporter that stands by does not log where it listens.
    listen = ("--web.listen-address", f"127.0.0.1:{free_port()}")
    with exporting(args, vllm, *listen) as (exporter, port):
        eventually(lambda: answers(f"http://127.0.0.1:{port}/version"))
        assert read(f"http://127.0.0.1:{port}/version") == read(f"{vllm}/version")
        assert exporter.get("/-/ready").text.startswith("standing by")


def test_the_certificate_of_the_chart_is_the_one_that_clients_see(vllm: str, tmp_path: Path) -> None:
    """With the files where the Secret puts them, clients speak https with the tap."""
    authority = Authority(tmp_path, "authority")
    for file, key in zip(authority.issue("localhost"), ("tls.crt", "tls.key"), strict=True):
        Path(file).rename(tmp_path / key)
    tap = {"enabled": True, "tls": {"existingSecret": "x"}}
    args = rendered_policy.sidecar({**CHART, "tap": tap})["args"]
    args = [argument.replace("/etc/vllm-specdec-exporter/tap/", f"{tmp_path}/") for argument in args]
    with exporting(args, vllm) as (_, port):
        trusted = ssl.create_default_context(cafile=authority.file)
        assert read(f"https://localhost:{port}/version", trusted) == read(f"{vllm}/version")
