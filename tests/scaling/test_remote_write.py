"""Agents in two clusters and a central Prometheus that evaluates the rules: the samples, run for real."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from scaling.clusters import (
    EXPORTER,
    MODEL,
    Cluster,
    acceptance_of,
    of_cluster,
    sample,
    two_clusters,
    with_rules,
)
from support.alertmanager import AlertmanagerServer
from support.programs import eventually, process
from support.prometheus import PrometheusServer

pytestmark = pytest.mark.full

#: An Alertmanager that keeps what it gets to itself.
_SILENT = {"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]}


@contextlib.contextmanager
def agent(folder: Path, cluster: Cluster, receiver: str) -> Iterator[None]:
    """Run Prometheus in agent mode over a cluster."""
    config = of_cluster("remote-write/agent.yml", cluster)
    (remote,) = config["remote_write"]
    remote["url"] = f"{receiver}/api/v1/write"
    path = folder / f"{cluster.name}.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    with process(
        "prometheus",
        "--enable-feature=agent",
        f"--config.file={path}",
        f"--storage.agent.path={folder / cluster.name}",
        "--web.listen-address={address}",
        "--log.level=warn",
        package="prometheus",
        ready="/-/ready",
    ):
        yield


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[PrometheusServer, AlertmanagerServer, Cluster, Cluster]]:
    """Simulators, exporters, agents, the central Prometheus and its Alertmanager."""
    folder = tmp_path_factory.mktemp("agents")
    with two_clusters() as (good, bad), AlertmanagerServer(_SILENT) as alertmanager:
        config, files = with_rules(
            sample("remote-write/central.yml"), alertmanager.url.removeprefix("http://")
        )
        flags = ("--web.enable-remote-write-receiver", "--rules.alert.for-grace-period=10s")
        with (
            PrometheusServer(config=config, files=files, flags=flags) as central,
            agent(folder, good, central.url),
            agent(folder, bad, central.url),
        ):
            yield central, alertmanager, good, bad


Run = tuple[PrometheusServer, AlertmanagerServer, Cluster, Cluster]


def test_clusters_are_told_apart_though_all_else_is_the_same(run: Run) -> None:
    """The exporters have the same job and address; every series has its cluster, and each is there."""
    central, _, good, bad = run
    for cluster in (good, bad):
        found = central.wait_for(f'vllm_specdec_up{{cluster="{cluster.name}"}} == 1')
        assert [dict(series)["instance"] for series in found] == [EXPORTER]
    assert central.value('count(vllm_specdec_up{cluster=""})') is None


def test_a_model_is_judged_in_each_cluster_by_itself(run: Run) -> None:
    """The central rules give one ratio per cluster: what its exporter says, not a mixture."""
    central, _, good, bad = run
    recorded = "model:vllm_specdec_acceptance:ratio_rate5m"

    def ratios() -> dict[str, float]:
        return {dict(series)["cluster"]: value for series, value in central.query(recorded).items()}

    # Once the windows are full.
    eventually(lambda: ratios() == acceptance_of(good, bad), 90)
    assert ratios()[good.name] > 0.6 > 0.1 > ratios()[bad.name]


def test_an_alert_names_its_cluster_and_spares_the_other(run: Run) -> None:
    """Prometheus, Alertmanager and the link in the alert all know where it is; the good cluster is silent."""
    central, alertmanager, _, bad = run
    firing = 'ALERTS{alertname="VLLMSpecDecodeCollapsed", alertstate="firing"}'
    clusters = {dict(series)["cluster"] for series in central.wait_for(firing, 90)}
    assert clusters == {bad.name}
    told = eventually(lambda: alertmanager.alerts('alertname="VLLMSpecDecodeCollapsed"'))
    assert {alert["labels"]["cluster"] for alert in told} == {bad.name}
    assert {alert["labels"]["model_name"] for alert in told} == {MODEL}
    assert all(f"var-cluster={bad.name}" in alert["annotations"]["dashboard_url"] for alert in told)


def test_all_rules_evaluate_over_what_agents_send(run: Run) -> None:
    """No rule fails, in particular none for series that it cannot tell apart."""
    central, _, _, _ = run
    rules = [rule for group in central.api("rules")["groups"] for rule in group["rules"]]
    assert len(rules) > 100
    assert not [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] == "err"]
