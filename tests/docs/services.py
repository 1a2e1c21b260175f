"""The processes that the pages assume to run, and the addresses by which pages name
them.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from act.receiver import act
from alerts.pushing import TOKEN, pushing
from support.alertmanager import AlertmanagerServer
from support.closing import loop_in_a_thread
from support.commands import run, started
from support.exporter import running_exporter
from support.fake_vllm import FakeVLLM
from support.ports import free_port
from support.programs import simulator
from support.repository import ROOT, data_of, text_of
from sweep.fake import FakeServer

#: The server that speculates, as pages call it; each of the names may have a port.
SPECULATING = ("127.0.0.1:8000", "vllm:8000", "VLLM:8000", "vllm-b:8000")
#: Another one, for sides that must not be the same.
OTHER = ("OLD:8000", "GOOD:8000", "127.0.0.1:8001")
PLAIN = ("PLAIN:8000", "vllm-a:8000")
EXPORTER = ("127.0.0.1:9850", "EXPORTER:9850")
ACT = ("127.0.0.1:9851",)
#: Answers as the vLLM behind it does.
TAP = "TAP:9852"
SPECULATION = {"method": "eagle3", "num_speculative_tokens": 3}


@dataclass(frozen=True)
class Services:
    """What runs while the blocks of some pages do."""

    addresses: dict[str, str]  # host:port by what pages call it
    openai: list[str]  # host:port of servers to sweep, each for one block
    answering: str  # URL of a server that answers prompts
    alertmanager: str  # its URL
    #: What pages assume, by name below the folder in which they are run.
    files: dict[str, str]
    #: Commands that only print and have run.
    printed: set[str] = field(default_factory=set)


@contextlib.contextmanager
def running_services(folder: Path, openai: int = 0) -> Iterator[Services]:
    """Run all services of the pages."""
    token = folder / "push-token"
    token.write_text(TOKEN, encoding="utf-8")
    flags = ["--speed", "20", "--seed", "1", "--model", "MODEL", "--scenario.file"]
    of_k = "--num-speculative-tokens"
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        speculating = enter(simulator(*flags, _scenario(folder, 16), of_k, "3"))
        second = enter(simulator(*flags, _scenario(folder, 24), of_k, "4"))
        plain = enter(simulator(*flags, _scenario(folder, 8, 16), of_k, "0"))
        settings = (
            f"--vllm.url {speculating} --poll.interval 1s --poll.timeout 950ms "
            "--window 10s --window 5m --judgement.window 10s --requests.window 60s "
            f"--tap.listen-address 127.0.0.1:{free_port()} "
            f"--push.bearer-token-file {token} --spec.config"
        ).split()
        exporter = running_exporter(*settings, json.dumps(SPECULATION), fast=False)
        address = enter(exporter).address
        enter(pushing(address))
        fakes = enter(servers_to_sweep(openai))
        alertmanager = enter(AlertmanagerServer(_routes()))
        answering = enter(FakeVLLM()).url
        yield Services(
            addresses={
                **dict.fromkeys(SPECULATING, speculating.removeprefix("http://")),
                **dict.fromkeys(OTHER, second.removeprefix("http://")),
                **dict.fromkeys(PLAIN, plain.removeprefix("http://")),
                **dict.fromkeys(EXPORTER, address),
                TAP: answering.removeprefix("http://"),
                "127.0.0.1:9093": alertmanager.url.removeprefix("http://"),
                **dict.fromkeys(ACT, enter(act()).url.removeprefix("http://")),
            },
            openai=[fake.removeprefix("http://") for fake in fakes],
            answering=answering,
            alertmanager=alertmanager.url,
            files=_files(folder, speculating, plain),
        )


def _scenario(folder: Path, *clients: int) -> str:
    """Write a scenario with as many loads as numbers of clients are given; return its
    path.
    """
    path = folder / f"scenario-{'-'.join(map(str, clients))}.yaml"
    phases = [
        {"phase": "healthy", "seconds": 20, "clients": n, "output_tokens": 30}
        for n in clients
    ]
    path.write_text(yaml.safe_dump({"phases": phases}), encoding="utf-8")
    return str(path)


def _routes() -> dict[str, Any]:
    """Return the routes of the bundle, with receivers that send nothing."""
    routes = data_of("alerts/alertmanager.yml")
    routes["receivers"] = [{"name": route["name"]} for route in routes["receivers"]]
    return {key: value for key, value in routes.items() if key != "templates"}


def _files(folder: Path, speculating: str, plain: str) -> dict[str, str]:
    """Return the files that pages assume; recordings are made from the servers."""
    baseline = folder / "baseline.json"
    duration = f"--for 8s --interval 250ms --out {baseline}".split()
    with started("baseline", plain, *duration) as recording:
        snapshot = run(*f"check {speculating} --for 2s --json".split()).out
        _, errors = recording.communicate(timeout=180)
    assert recording.returncode == 0, errors
    answer = {"model": "llama", "usage": {"completion_tokens": 80}}
    record = {
        "num_spec_steps": 20,
        "num_draft_tokens": 60,
        "num_accepted_draft_tokens": 40,
    }
    scaling = ROOT / "docs/scaling"
    return {
        "baseline.json": text_of(baseline),
        "good-day.json": snapshot,
        "answers.jsonl": json.dumps(
            {**answer, "metrics": {"speculative_decoding": record}}
        )
        + "\n",
        "exporter.yml": yaml.safe_dump({"poll": {"interval": "2s"}}),
        "specdec-token": TOKEN,
        "root/run/secrets/specdec-token": TOKEN,
        "root/var/lib/specdec/.keep": "",
        "root/usr/local/bin/specdec-act": "#!/bin/sh\nexit 0\n",
        "root/etc/systemd/system/vllm-specdec-exporter.service": "",
        "root/etc/default/vllm-specdec-exporter": "",
        "web-config.yml": "basic_auth_users: {}\n",
        **dict.fromkeys(("tls.crt", "tls.key", "ca.crt"), "\n"),
        "pod.yaml": yaml.safe_dump(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
        ),
        "root/etc/grafana/provisioning/dashboards/.keep": "",
        **{path.name: text_of(path) for path in scaling.rglob("*.yml")},
        **_overlay(),
        "central.yml": text_of(scaling / "remote-write/central.yml"),
    }


def _overlay() -> dict[str, str]:
    """Return the files that helm/kustomize/README.md assumes beside its
    kustomization.
    """
    kustomize = ROOT / "helm/kustomize"
    page = text_of(kustomize / "README.md")
    component = (kustomize / "component").iterdir()
    return {
        "kustomization.yaml": page.partition("# kustomization.yaml\n")[2].partition(
            "```"
        )[0],
        "vllm.yaml": text_of(kustomize / "example/vllm.yaml"),
        **{
            f"vllm-specdec-exporter/component/{path.name}": text_of(path)
            for path in component
        },
    }


@contextlib.contextmanager
def servers_to_sweep(openai: int) -> Iterator[list[str]]:
    """Run servers to sweep; yield their URLs."""
    fakes = [FakeServer() for _ in range(openai)]
    with loop_in_a_thread() as finish:
        for fake in fakes:
            finish(fake.open())
        try:
            yield [fake.url for fake in fakes]
        finally:
            for fake in fakes:
                finish(fake.close())
