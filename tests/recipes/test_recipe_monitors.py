"""Every way to discover finds the sidecars, each once and under the right job: a real Prometheus relabels."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import subprocess
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from helm.charts import render
from helm.manifest_schemas import problems_everywhere
from recipes.discovery import NAMESPACE, cluster_pod_monitoring, discovered, pod_monitor, vm_pod_scrape
from recipes.stacks import Pod, load
from recipes.table import RECIPES
from support.programs import eventually, find_program
from support.prometheus import PrometheusServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

pytestmark = pytest.mark.full

JOB = "vllm-specdec-exporter"
PORT = 9850


@functools.cache
def pods() -> tuple[Pod, ...]:
    """Return the pods of all recipes, under names of their own."""
    return tuple(
        Pod(f"{pod.name}-{number}", pod.spec, pod.labels, pod.annotations, pod.serves)
        for number, recipe in enumerate(RECIPES)
        for pod in recipe.pods(load(recipe.path))
    )


def pod_named(start: str, annotations: Mapping[str, str] | None = None) -> Pod:
    """Return one of the pods, with annotations of its own."""
    found = next(pod for pod in pods() if pod.name.startswith(start))
    return Pod(found.name, found.spec, found.labels, annotations or {}, found.serves)


def address(number: int) -> str:
    """Return the address of a pod: of this machine, where nobody listens."""
    return f"127.0.77.{number + 1}"


def scrape_configs(path: str) -> list[dict[str, Any]]:
    """Return what a file of the examples has Prometheus scrape."""
    (document,) = load(path)
    configs: list[dict[str, Any]] = document["scrape_configs"]
    return configs


def offline(configs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return scrape configurations with a file in the place of the Kubernetes API."""
    assert all(config["kubernetes_sd_configs"] == [{"role": "pod"}] for config in configs), (
        "lists init containers"
    )
    kept = [
        {key: value for key, value in config.items() if key != "kubernetes_sd_configs"} for config in configs
    ]
    return [
        config | {"scrape_interval": "1h", "file_sd_configs": [{"files": ["pods.json"]}]} for config in kept
    ]


@dataclass(frozen=True)
class Case:
    """Scrape configurations, and what Prometheus discovers."""

    configs: Sequence[Mapping[str, Any]]
    pods: Sequence[Pod]
    phase: str = "Running"

    def server(self) -> PrometheusServer:
        """Return a Prometheus of this configuration, not yet started."""
        listed = [
            target for number, pod in enumerate(self.pods) for target in discovered(pod, address(number))
        ]
        for target in listed:
            target["labels"]["__meta_kubernetes_pod_phase"] = self.phase
        return PrometheusServer(
            config={"scrape_configs": offline(self.configs)}, files={"pods.json": json.dumps(listed)}
        )


#: Labels and address of the targets that a Prometheus keeps, by the name of the scrape configuration.
Kept = dict[str, list[dict[str, str]]]


def kept(server: PrometheusServer, case: Case) -> Kept:
    """Return what a Prometheus keeps, once it has looked at all that it discovered."""
    names = [config["job_name"] for config in case.configs]
    synced = [f'pool_sync_total{{scrape_job="{name}"}}' for name in names]
    eventually(lambda: all(one in _own_metrics(server) for one in synced))
    answer = server.api("targets")
    assert answer["activeTargets"] or answer["droppedTargets"]
    return {
        name: [
            target["labels"] | {"__url__": target["scrapeUrl"]}
            for target in answer["activeTargets"]
            if target["scrapePool"] == name
        ]
        for name in names
    }


def _own_metrics(server: PrometheusServer) -> str:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


ONE_PORT = {"prometheus.io/scrape": "true"}
ANNOTATED = {
    "no port": ONE_PORT,
    "port": ONE_PORT | {"prometheus.io/port": "8000"},
    "path": ONE_PORT | {"prometheus.io/port": "8000", "prometheus.io/path": "/metrics"},
}
#: The pod with the tap.
TAPPED = f"vllm-{[recipe.path for recipe in RECIPES].index('deployment-with-tap.yaml')}"
PLAIN = ("prometheus/kubernetes-sd.yml", "prometheus/annotations.yml")


def cases() -> dict[str, Case]:
    """Return all that is tried."""
    by_annotation = scrape_configs("prometheus/annotations.yml")
    careless = copy.deepcopy(by_annotation)
    del careless[1]["relabel_configs"][0]
    google = [
        config for obj in load("google-managed-prometheus.yaml") for config in cluster_pod_monitoring(obj)
    ]
    victoria = [config for obj in load("victoriametrics.yaml") for config in vm_pod_scrape(obj)]
    return {
        **{path: Case(scrape_configs(path), pods()) for path in PLAIN},
        **{name: Case(by_annotation, [pod_named("vllm-0", texts)]) for name, texts in ANNOTATED.items()},
        "tap": Case(by_annotation, [pod_named(TAPPED, ONE_PORT)]),
        "careless": Case(careless, [pod_named("vllm-0", ONE_PORT)]),
        **{
            f"{phase} {path}": Case(scrape_configs(path), [pod_named("vllm-batch", ONE_PORT)], phase)
            for path in PLAIN
            for phase in ("Succeeded", "Failed")
        },
        "google": Case(google, pods()),
        "victoriametrics": Case(victoria, pods()),
        "chart": Case(pod_monitor(chart_monitor()), pods()),
    }


@pytest.fixture(scope="module")
def found() -> dict[str, Kept]:
    """What each case's Prometheus keeps; they run at once, for each takes seconds to discover."""
    tried = cases()
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(case.server()) for name, case in tried.items()}
        return {name: kept(server, tried[name]) for name, server in servers.items()}


def chart_monitor() -> dict[str, Any]:
    """Return the chart's PodMonitor."""
    (monitor,) = [obj for obj in render({"podMonitor": {"enabled": True}}) if obj["kind"] == "PodMonitor"]
    return monitor


def assert_exactly_the_sidecars(targets: Sequence[Mapping[str, str]]) -> None:
    """One target for each pod with a sidecar, no other; with the job and the labels that rules join by."""
    expected = [
        (f"http://{address(number)}:{PORT}/metrics", pod.name)
        for number, pod in enumerate(pods())
        if pod.serves
    ]
    assert sorted((target["__url__"], target["pod"]) for target in targets) == sorted(expected)
    assert {target["job"] for target in targets} == {JOB}
    assert {target["namespace"] for target in targets} == {NAMESPACE}
    assert {target["container"] for target in targets} == {"specdec-exporter"}


def test_plain_prometheus_keeps_exactly_the_sidecars(found: dict[str, Kept]) -> None:
    """Of all ports of all recipes' pods, init containers' too, the exporter's job keeps the sidecars'."""
    for path in PLAIN:
        assert_exactly_the_sidecars(found[path][JOB])


def test_kubernetes_sd_finds_vllm_beside_it(found: dict[str, Kept]) -> None:
    """VLLM is a job of its own, with the same namespace and pod, which rules join by, and another port."""
    jobs = found["prometheus/kubernetes-sd.yml"]
    sidecars = {(target["namespace"], target["pod"]) for target in jobs[JOB]}
    assert_vllm(jobs["vllm"])
    assert {target["job"] for target in jobs["vllm"]} == {"vllm"}
    assert {(target["namespace"], target["pod"]) for target in jobs["vllm"]} <= sidecars


def assert_vllm(targets: Sequence[Mapping[str, str]]) -> None:
    """The pods whose labels the examples name are found, on vLLM's port and on no other."""
    labelled = [pod for pod in pods() if pod.labels.get("app.kubernetes.io/name") == "vllm" and pod.serves]
    assert {target["pod"] for target in targets} == {pod.name for pod in labelled}
    assert all(target["__url__"].endswith(":8000/metrics") for target in targets)
    assert len(targets) == len(labelled) >= 3


def test_annotations_scrape_nothing_twice(found: dict[str, Kept]) -> None:
    """With prometheus.io/scrape on a pod with two ports, each port is scraped once, by one job."""
    for name in ANNOTATED:
        ((sidecar,), (vllm,)) = (found[name][JOB], found[name]["kubernetes-pods"])
        assert sidecar["__url__"] == f"http://{address(0)}:{PORT}/metrics", name
        assert vllm["__url__"] == f"http://{address(0)}:8000/metrics", name
        assert len(urls(found[name])) == 2
        assert (sidecar["job"], vllm["job"]) == (JOB, "kubernetes-pods")
        for target in (sidecar, vllm):
            assert (target["namespace"], target["pod"]) == (NAMESPACE, "vllm-0")


def test_annotations_leave_the_tap_alone(found: dict[str, Kept]) -> None:
    """It relays vLLM's /metrics, which would count everything twice."""
    ports = {port["name"] for kind in ("containers", "initContainers") for port in ports_of(TAPPED, kind)}
    assert ports == {"http", "specdec-metrics", "tap"}
    assert sorted(url.split(":")[2] for url in urls(found["tap"])) == ["8000/metrics", f"{PORT}/metrics"]


def ports_of(name: str, kind: str) -> list[dict[str, Any]]:
    """Return the ports of a pod's containers of a kind."""
    return [port for container in pod_named(name).spec[kind] for port in container["ports"]]


def test_annotations_alone_would_scrape_twice(found: dict[str, Kept]) -> None:
    """The rule that leaves the sidecar's port out is what prevents it."""
    assert urls(found["careless"]).count(f"http://{address(0)}:{PORT}/metrics") == 2


def urls(jobs: Kept) -> list[str]:
    """Return what is scraped, by all jobs together."""
    return [target["__url__"] for targets in jobs.values() for target in targets]


def test_a_pod_that_has_ended_is_not_scraped(found: dict[str, Kept]) -> None:
    """A completed Job's pod keeps its address for a while, and must not count as an exporter that is down."""
    ended = {name: urls(found[name]) for name in found if name.startswith(("Succeeded", "Failed"))}
    assert len(ended) == 4
    assert not any(ended.values()), ended


def test_promtool_takes_the_configuration(tmp_path: Path) -> None:
    """Each file is a whole configuration; for Debian, whose promtool has no kubernetes_sd, with files."""
    (tmp_path / "pods.json").write_text("[]")
    for path in PLAIN:
        (document,) = load(path)
        assert set(document) == {"scrape_configs"}
        config = tmp_path / "prometheus.yml"
        config.write_text(yaml.safe_dump({"scrape_configs": offline(scrape_configs(path))}))
        command = (find_program("promtool", "prometheus"), "check", "config", config)
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_google_finds_exactly_the_sidecars(found: dict[str, Kept]) -> None:
    """ClusterPodMonitoring: its name is the job, its port the sidecar's; the rules' labels are there."""
    assert problems_everywhere(load("google-managed-prometheus.yaml")) == []
    (sidecars, vllm) = found["google"].values()
    assert_exactly_the_sidecars(sidecars)
    names = {pod.name for pod in pods() if pod.serves}
    assert {target["instance"] for target in sidecars} == {f"{name}:specdec-metrics" for name in names}
    assert_vllm(vllm)


def test_victoriametrics_finds_exactly_the_sidecars(found: dict[str, Kept]) -> None:
    """VMPodScrape: in any namespace, and the job that the rules look for."""
    objects = load("victoriametrics.yaml")
    assert problems_everywhere(objects) == []
    assert all(obj["spec"]["namespaceSelector"] == {"any": True} for obj in objects)
    (sidecars, vllm) = found["victoriametrics"].values()
    assert_exactly_the_sidecars(sidecars)
    assert_vllm(vllm)


def test_the_charts_pod_monitor_finds_exactly_the_sidecars(found: dict[str, Kept]) -> None:
    """The PodMonitor that the index of recipes recommends for all stacks."""
    assert chart_monitor()["spec"]["namespaceSelector"] == {"any": True}
    (sidecars,) = found["chart"].values()
    assert_exactly_the_sidecars(sidecars)
