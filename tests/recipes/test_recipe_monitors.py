"""Every way to discover finds the sidecars, each once and under the right job: a real
Prometheus relabels.
"""

import functools
import json
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from helm.api_rules import containers_of
from helm.charts import render
from helm.manifest_schemas import problems_everywhere
from recipes.discovery import NAMESPACE, discovered, pod_monitor, vm_pod_scrape
from recipes.stacks import Pod, load
from recipes.table import RECIPES
from support.programs import eventually
from support.prometheus import PrometheusServer

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
    running = next(pod for pod in pods() if pod.name.startswith(start))
    return Pod(
        running.name, running.spec, running.labels, annotations or {}, running.serves
    )


def address(number: int) -> str:
    """Return the address of a pod: of this machine, where nobody listens."""
    return f"127.0.77.{number + 1}"


def scrape_configs(path: str) -> list[dict[str, Any]]:
    """Return what a file of the examples has Prometheus scrape."""
    (document,) = load(path)
    assert set(document) == {"scrape_configs"}, "a whole configuration"
    configs: list[dict[str, Any]] = document["scrape_configs"]
    return configs


def offline(
    configs: Sequence[Mapping[str, Any]], file: str, prefix: str = ""
) -> list[dict[str, Any]]:
    """Return scrape configurations with a file in place of the Kubernetes API, and a
    prefix of names.
    """
    made = []
    for config in configs:
        kept = dict(config)
        assert kept.pop("kubernetes_sd_configs") == [{"role": "pod"}], (
            "lists init containers"
        )
        name = kept["job_name"]
        # what Prometheus sets of itself
        job = {"target_label": "job", "replacement": name}
        made.append(
            kept
            | {
                "job_name": prefix + name,
                "scrape_interval": "1h",
                "file_sd_configs": [{"files": [file]}],
            }
            | {"relabel_configs": [job, *kept["relabel_configs"]]}
        )
    return made


ONE_PORT = {"prometheus.io/scrape": "true"}
ANNOTATED = {
    "no port": ONE_PORT,
    "port": ONE_PORT | {"prometheus.io/port": "8000"},
    "path": ONE_PORT | {"prometheus.io/port": "8000", "prometheus.io/path": "/metrics"},
}
#: The pod with the tap.
TAPPED = f"vllm-{[recipe.path for recipe in RECIPES].index('deployment-with-tap.yaml')}"
PLAIN = ("prometheus/kubernetes-sd.yml", "prometheus/annotations.yml")

#: Labels and address of the targets that are kept, by the name of the scrape
#: configuration.
Kept = dict[str, list[dict[str, str]]]


def cases() -> dict[str, tuple[Sequence[Mapping[str, Any]], Sequence[Pod], str]]:
    """Return all that is tried: scrape configurations, pods and their phase."""
    by_annotation = scrape_configs("prometheus/annotations.yml")
    victoria = [
        config for obj in load("victoriametrics.yaml") for config in vm_pod_scrape(obj)
    ]
    ended = [pod_named("vllm-batch", ONE_PORT)]
    return {
        **{path: (scrape_configs(path), pods(), "Running") for path in PLAIN},
        **{
            name: (by_annotation, [pod_named("vllm-0", texts)], "Running")
            for name, texts in ANNOTATED.items()
        },
        "tap": (by_annotation, [pod_named(TAPPED, ONE_PORT)], "Running"),
        **{
            f"{phase} {path}": (scrape_configs(path), ended, phase)
            for path in PLAIN
            for phase in ("Succeeded", "Failed")
        },
        "victoriametrics": (victoria, pods(), "Running"),
        "chart": (pod_monitor(chart_monitor()), pods(), "Running"),
    }


@pytest.fixture(scope="module")
def found() -> dict[str, Kept]:
    """What one Prometheus keeps of each case, once it has looked at all that it
    discovered.
    """
    files: dict[str, str] = {}
    configs: list[dict[str, Any]] = []
    for number, (name, (given, listed, phase)) in enumerate(cases().items()):
        targets = [
            target
            for index, pod in enumerate(listed)
            for target in discovered(pod, address(index))
        ]
        for target in targets:
            target["labels"]["__meta_kubernetes_pod_phase"] = phase
        files[f"{number}.json"] = json.dumps(targets)
        configs += offline(given, f"{number}.json", f"{name}|")
    with PrometheusServer(config={"scrape_configs": configs}, files=files) as server:

        def synced() -> bool:
            with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as answer:
                text = answer.read().decode()
            return all(
                f'pool_sync_total{{scrape_job="{config["job_name"]}"}}' in text
                for config in configs
            )

        eventually(synced)
        answer = server.api("targets")
    assert answer["activeTargets"]
    assert answer["droppedTargets"]
    result: dict[str, Kept] = {}
    for config in configs:
        case, _, job = config["job_name"].partition("|")
        result.setdefault(case, {})[job] = [
            target["labels"] | {"__url__": target["scrapeUrl"]}
            for target in answer["activeTargets"]
            if target["scrapePool"] == config["job_name"]
        ]
    return result


def chart_monitor() -> dict[str, Any]:
    """Return the chart's PodMonitor."""
    (monitor,) = [
        obj
        for obj in render({"podMonitor": {"enabled": True}})
        if obj["kind"] == "PodMonitor"
    ]
    return monitor


def assert_exactly_the_sidecars(targets: Sequence[Mapping[str, str]]) -> None:
    """One target for each pod with a sidecar, no other; with the job and the labels
    that rules join by.
    """
    expected = [
        (f"http://{address(number)}:{PORT}/metrics", pod.name)
        for number, pod in enumerate(pods())
        if pod.serves
    ]
    assert sorted((target["__url__"], target["pod"]) for target in targets) == sorted(
        expected
    )
    assert {target["job"] for target in targets} == {JOB}
    assert {target["namespace"] for target in targets} == {NAMESPACE}
    assert {target["container"] for target in targets} == {"specdec-exporter"}


def assert_vllm(targets: Sequence[Mapping[str, str]]) -> None:
    """The pods whose labels the examples name are found, on vLLM's port and on no
    other.
    """
    labelled = [
        pod
        for pod in pods()
        if pod.labels.get("app.kubernetes.io/name") == "vllm" and pod.serves
    ]
    assert {target["pod"] for target in targets} == {pod.name for pod in labelled}
    assert all(target["__url__"].endswith(":8000/metrics") for target in targets)
    assert len(targets) == len(labelled) >= 3


def test_annotations_scrape_nothing_twice(found: dict[str, Kept]) -> None:
    """With prometheus.io/scrape on a pod with two ports, each port is scraped once, by
    one job.
    """
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
    containers = containers_of(pod_named(TAPPED).spec)
    names = {port["name"] for container in containers for port in container["ports"]}
    assert names == {"http", "specdec-metrics", "tap"}
    assert sorted(url.split(":")[2] for url in urls(found["tap"])) == [
        "8000/metrics",
        f"{PORT}/metrics",
    ]


def urls(jobs: Kept) -> list[str]:
    """Return what is scraped, by all jobs together."""
    return [target["__url__"] for targets in jobs.values() for target in targets]


def test_a_pod_that_has_ended_is_not_scraped(found: dict[str, Kept]) -> None:
    """A completed Job's pod keeps its address for a while, and must not count as an
    exporter that is down.
    """
    ended = {
        name: urls(found[name])
        for name in found
        if name.startswith(("Succeeded", "Failed"))
    }
    assert len(ended) == 4
    assert not any(ended.values()), ended


@pytest.mark.parametrize("case", [*PLAIN, "victoriametrics", "chart"])
def test_exactly_the_sidecars_are_found(found: dict[str, Kept], case: str) -> None:
    """Of all ports of all recipes' pods; vLLM under a job of its own that rules can
    join with.
    """
    sidecars, *others = found[case].values()
    assert_exactly_the_sidecars(sidecars)
    if case in ("prometheus/kubernetes-sd.yml", "victoriametrics"):
        (vllm,) = others
        assert_vllm(vllm)
        pairs, beside = (
            {(target["namespace"], target["pod"]) for target in monitor}
            for monitor in (vllm, sidecars)
        )
        assert pairs <= beside


def test_the_jobs_and_namespaces_are_as_the_rules_need_them(
    found: dict[str, Kept],
) -> None:
    """Google's job is the name of its object, which selects what VictoriaMetrics' does,
    in any namespace.
    """
    assert {
        target["job"] for target in found["prometheus/kubernetes-sd.yml"]["vllm"]
    } == {"vllm"}
    google = load("google-managed-prometheus.yaml")
    victoria = load("victoriametrics.yaml")
    assert problems_everywhere([*google, *victoria]) == []
    selected = (
        [
            (
                obj["spec"]["selector"],
                [endpoint["port"] for endpoint in obj["spec"][key]],
            )
            for obj in objects
        ]
        for objects, key in ((google, "endpoints"), (victoria, "podMetricsEndpoints"))
    )
    assert next(selected) == next(selected)
    assert [obj["metadata"]["name"] for obj in google] == [JOB, "vllm"]
    assert all(
        {"pod", "container"} <= set(obj["spec"]["targetLabels"]["metadata"])
        for obj in google
    )
    assert all(
        obj["spec"]["namespaceSelector"] == {"any": True}
        for obj in (*victoria, chart_monitor())
    )
