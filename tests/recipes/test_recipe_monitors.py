"""Every way to discover finds the sidecars, each once and under the right job: a real
Prometheus relabels.
"""

import functools
import json
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pytest

from helm.api_rules import containers_of
from helm.charts import render
from helm.manifest_schemas import problems_everywhere
from recipes.discovery import NAMESPACE, discovered, pod_monitor, vm_pod_scrape
from recipes.stacks import Pod, load
from recipes.table import RECIPES
from support.programs import eventually
from support.prometheus import PrometheusServer
from support.repository import Json

pytestmark = pytest.mark.full

JOB = "vllm-specdec-exporter"
PORT = 9850


@functools.cache
def pods() -> tuple[Pod, ...]:
    """Return the pods of all recipes, under names of their own."""
    renamed = []
    for number, recipe in enumerate(RECIPES):
        renamed += [
            replace(pod, name=f"{pod.name}-{number}")
            for pod in recipe.pods(load(recipe.path))
        ]
    return tuple(renamed)


def pod_named(start: str, annotations: Mapping[str, str] | None = None) -> Pod:
    """Return one of the pods, with annotations of its own."""
    named = next(pod for pod in pods() if pod.name.startswith(start))
    return replace(named, annotations=annotations or {})


def address(number: int) -> str:
    """Return the address of a pod: of this machine, where nobody listens."""
    return f"127.0.77.{number + 1}"


def scrape_configs(path: str) -> list[Json]:
    """Return what a file of the examples has Prometheus scrape."""
    (document,) = load(path)
    assert set(document) == {"scrape_configs"}, "a whole configuration"
    return document["scrape_configs"]


def offline(configs: Sequence[Json], file: str, prefix: str = "") -> list[Json]:
    """Return scrape configurations with a file in place of the Kubernetes API, and a
    prefix of names.
    """
    made = []
    for config in configs:
        kept = dict(config)
        name = kept["job_name"]
        # Without a selector, it lists init containers too.
        assert kept.pop("kubernetes_sd_configs") == [{"role": "pod"}], name
        # What Prometheus sets by itself, from the name that gets a prefix here.
        job = {"target_label": "job", "replacement": name}
        kept |= {
            "job_name": f"{prefix}{name}",
            "scrape_interval": "1h",
            "file_sd_configs": [{"files": [file]}],
            "relabel_configs": [job, *kept["relabel_configs"]],
        }
        made.append(kept)
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


@dataclass(frozen=True)
class Case:
    """What one Prometheus discovers, and how it is told to scrape it."""

    configs: Sequence[Json]  # scrape configurations
    pods: Sequence[Pod]
    phase: str = "Running"  # of all pods


def cases() -> dict[str, Case]:
    """Return all that is tried, by its name."""
    by_annotation = scrape_configs("prometheus/annotations.yml")
    victoria = chain.from_iterable(map(vm_pod_scrape, load("victoriametrics.yaml")))
    listed = {
        "tap": Case(by_annotation, [pod_named(TAPPED, ONE_PORT)]),
        "victoriametrics": Case(list(victoria), pods()),
        "chart": Case(pod_monitor(chart_monitor()), pods()),
    }
    for name, texts in ANNOTATED.items():
        listed[name] = Case(by_annotation, [pod_named("vllm-0", texts)])
    ended = [pod_named("vllm-batch", ONE_PORT)]
    for path in PLAIN:
        configs = scrape_configs(path)
        listed[path] = Case(configs, pods())
        listed[f"Succeeded {path}"] = Case(configs, ended, "Succeeded")
        listed[f"Failed {path}"] = Case(configs, ended, "Failed")
    return listed


@pytest.fixture(scope="module")
def kept() -> dict[str, Kept]:
    """What one Prometheus keeps of each case, once it has looked at all that it
    discovered.
    """
    files = {}
    configs = []
    for number, (name, case) in enumerate(cases().items()):
        targets = []
        for index, pod in enumerate(case.pods):
            targets += discovered(pod, address(index))
        for target in targets:
            target["labels"]["__meta_kubernetes_pod_phase"] = case.phase
        files[f"{number}.json"] = json.dumps(targets)
        configs += offline(case.configs, f"{number}.json", f"{name}|")
    with PrometheusServer(config={"scrape_configs": configs}, files=files) as server:

        def synced() -> bool:
            with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as answer:
                text = answer.read().decode()
            return all(
                f'pool_sync_total{{scrape_job="{config["job_name"]}"}}' in text
                for config in configs
            )

        # A pool that has not been synchronized has dropped nothing yet.
        eventually(synced)
        answer = server.api("targets")
    # Else all cases would pass that expect nothing.
    assert answer["activeTargets"]
    assert answer["droppedTargets"]
    result = {}
    for config in configs:
        case, _, job = config["job_name"].partition("|")
        result.setdefault(case, {})[job] = [
            target["labels"] | {"__url__": target["scrapeUrl"]}
            for target in answer["activeTargets"]
            if target["scrapePool"] == config["job_name"]
        ]
    return result


def chart_monitor() -> Json:
    """Return the chart's PodMonitor."""
    (monitor,) = render({"podMonitor": {"enabled": True}})
    return monitor


def assert_exactly_the_sidecars(targets: Sequence[Json]) -> None:
    """One target for each pod with a sidecar, no other; with the job and the labels
    that rules join by.
    """
    labels = ("__url__", "pod", "job", "namespace", "container")
    expected = [
        (
            f"http://{address(number)}:{PORT}/metrics",
            pod.name,
            JOB,
            NAMESPACE,
            "specdec-exporter",
        )
        for number, pod in enumerate(pods())
        if pod.serves
    ]
    scraped = [tuple(target[label] for label in labels) for target in targets]
    assert sorted(scraped) == sorted(expected)


def assert_vllm(targets: Sequence[Json]) -> None:
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


@pytest.mark.parametrize("name", ANNOTATED)
def test_annotations_scrape_nothing_twice(kept: dict[str, Kept], name: str) -> None:
    """With prometheus.io/scrape on a pod with two ports, each port is scraped once, by
    one job.
    """
    for job, port in ((JOB, PORT), ("kubernetes-pods", 8000)):
        expected = {
            "__url__": f"http://{address(0)}:{port}/metrics",
            "job": job,
            "namespace": NAMESPACE,
            "pod": "vllm-0",
        }
        (target,) = kept[name][job]
        assert {label: target[label] for label in expected} == expected
    assert len(urls(kept[name])) == 2


def test_annotations_leave_the_tap_alone(kept: dict[str, Kept]) -> None:
    """It relays vLLM's /metrics, which would count everything twice."""
    containers = containers_of(pod_named(TAPPED).spec)
    ports = chain.from_iterable(container["ports"] for container in containers)
    assert {port["name"] for port in ports} == {"http", "specdec-metrics", "tap"}
    assert sorted(url.split(":")[2] for url in urls(kept["tap"])) == [
        "8000/metrics",
        f"{PORT}/metrics",
    ]


def urls(jobs: Kept) -> list[str]:
    """Return what is scraped, by all jobs together."""
    return [target["__url__"] for target in chain.from_iterable(jobs.values())]


@pytest.mark.parametrize("path", PLAIN)
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_not_scraped(
    kept: dict[str, Kept], phase: str, path: str
) -> None:
    """A completed Job's pod keeps its address for a while, and must not count as an
    exporter that is down.
    """
    assert urls(kept[f"{phase} {path}"]) == []


@pytest.mark.parametrize("case", [*PLAIN, "victoriametrics", "chart"])
def test_exactly_the_sidecars_are_found(kept: dict[str, Kept], case: str) -> None:
    """Of all ports of all recipes' pods; vLLM under a job of its own that rules can
    join with.
    """
    sidecars, *others = kept[case].values()
    assert_exactly_the_sidecars(sidecars)
    if case in ("prometheus/kubernetes-sd.yml", "victoriametrics"):
        (vllm,) = others
        assert_vllm(vllm)
        assert {target["namespace"] for target in vllm} == {NAMESPACE}


def test_the_jobs_and_namespaces_are_as_the_rules_need_them(
    kept: dict[str, Kept],
) -> None:
    """Google's job is the name of its object, which selects what VictoriaMetrics' does,
    in any namespace.
    """
    vllm = kept["prometheus/kubernetes-sd.yml"]["vllm"]
    assert {target["job"] for target in vllm} == {"vllm"}
    google = load("google-managed-prometheus.yaml")
    victoria = load("victoriametrics.yaml")
    assert problems_everywhere([*google, *victoria]) == []
    assert [obj["metadata"]["name"] for obj in google] == [JOB, "vllm"]
    assert found_by(google, "endpoints") == found_by(victoria, "podMetricsEndpoints")
    for obj in google:
        labels = obj["spec"]["targetLabels"]["metadata"]
        assert {"pod", "container"} <= set(labels), obj["metadata"]
    for obj in (*victoria, chart_monitor()):
        assert obj["spec"]["namespaceSelector"] == {"any": True}, obj["metadata"]


def found_by(objects: Sequence[Json], key: str) -> list[tuple[Json, list[str]]]:
    """Return selector and ports of each object, whose endpoints are under this key."""
    specs = [obj["spec"] for obj in objects]
    return [(spec["selector"], [each["port"] for each in spec[key]]) for spec in specs]
