"""Two clusters, the same model at the same addresses: in one drafts are accepted, in
the other they are not.

The samples of `docs/scaling/` run over them as they are, but for addresses and for
time: what takes a minute in production takes a second.
"""

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from alerts.promtool import RULES
from support.exporter import RunningExporter, running_exporter
from support.programs import simulator
from support.repository import ROOT, data_of
from vllm_specdec_exporter.commands.demo import faster_rules

Config = dict[str, Any]

SAMPLES = ROOT / "docs/scaling"
FACTOR = 60.0
MODEL = "the-model"
#: The acceptance ratio of a model.
RATIO = "model:vllm_specdec_acceptance:ratio_rate5m"
#: An Alertmanager that keeps what it gets to itself.
SILENT: Config = {"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]}
#: What both clusters' targets are called: pod networks often begin alike.
EXPORTER = "10.0.0.1:9850"
SERVER = "10.0.0.1:8000"
_WINDOW = "5s"


@dataclass(frozen=True)
class Cluster:
    """A simulated server and its exporter."""

    name: str
    server: str  # its URL
    exporter: RunningExporter

    @property
    def targets(self) -> dict[str, str]:
        """Addresses by job."""
        return {
            "vllm-specdec-exporter": self.exporter.address,
            "vllm": self.server.removeprefix("http://"),
        }

    def acceptance(self) -> float:
        """Return the acceptance ratio that the exporter itself tells."""
        (target,) = self.exporter.snapshot(f"?window={_WINDOW}")["targets"]
        return float(target["engines"][0]["windows"][0]["acceptance_ratio"])


@contextlib.contextmanager
def two_clusters() -> Iterator[tuple[Cluster, Cluster]]:
    """Run the good and the bad cluster."""
    with _cluster("eu-1", "healthy") as good, _cluster("us-1", "collapse") as bad:
        yield good, bad


@contextlib.contextmanager
def _cluster(name: str, phase: str) -> Iterator[Cluster]:
    flags = ("--model", MODEL, "--seed", "1")
    with simulator(*flags) as server:
        request = urllib.request.Request(
            f"{server}/simulator/phase",
            json.dumps({"phase": phase}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=5):
            pass
        settings = (
            f"--vllm.url {server} --poll.interval 500ms --window {_WINDOW} "
            f"--judgement.window {_WINDOW} --spec.config"
        ).split()
        speculation = '{"method": "eagle3", "num_speculative_tokens": 4}'
        with running_exporter(*settings, speculation, fast=False) as exporter:
            yield Cluster(name, server, exporter)


def sample(path: str) -> Config:
    """Return a sample of `docs/scaling/` in the time of the tests, without its rules
    and its Alertmanager.
    """
    config: Config = data_of(SAMPLES / path)
    times = config["global"]
    for name in ("scrape_interval", "evaluation_interval"):
        if name in times:
            times[name] = "1s"
    if "scrape_interval" in times:
        times["scrape_timeout"] = "1s"
    # Paths and addresses of production, which are not here.
    for name in ("rule_files", "alerting"):
        config.pop(name, None)
    return config


def of_cluster(path: str, cluster: Cluster) -> Config:
    """Return the sample of a cluster, over this one."""
    config = sample(path)
    assert set(config["global"]["external_labels"]) == {"cluster"}
    config["global"]["external_labels"]["cluster"] = cluster.name
    for job in config["scrape_configs"]:
        (targets,) = job["static_configs"]
        job["relabel_configs"] = [
            {"target_label": "instance", "replacement": targets["targets"][0]}
        ]
        # Both clusters have the same address, as pod networks do.
        targets["targets"] = [cluster.targets[job["job_name"]]]
    return config


def with_rules(config: Config, alertmanager: str = "") -> tuple[Config, dict[str, str]]:
    """Return a configuration that evaluates all rules, and the files of the rules."""
    files = {
        path.name: faster_rules(path.read_text("utf-8"), FACTOR)
        for path in RULES.glob("*.yml")
    }
    alerting = {}
    if alertmanager:
        targets = [{"static_configs": [{"targets": [alertmanager]}]}]
        alerting["alertmanagers"] = targets
    return {**config, "rule_files": sorted(files), "alerting": alerting}, files
