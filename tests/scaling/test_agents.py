"""Agents in two clusters, and above them what evaluates the rules: the samples, run for
real.

Above agents is a Prometheus, above vmagents VictoriaMetrics with vmalert. Debian's
vmalert 1.79 is older than `keep_firing_for` (1.92), which is taken out of the rules for
it.
"""

import contextlib
import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from scaling.clusters import (
    EXPORTER,
    MODEL,
    RATIO,
    SILENT,
    Cluster,
    of_cluster,
    sample,
    two_clusters,
    with_rules,
)
from scaling.victoria import PACKAGE, VictoriaMetrics
from support.alertmanager import AlertmanagerServer
from support.programs import eventually, process
from support.prometheus import PrometheusServer

pytestmark = pytest.mark.full

#: How long it may take until what was recorded for the first time is found by the rules
#: that build on it, level by level.
_FIRST = 200.0

Groups = list[dict[str, Any]]


def agent(folder: Path, cluster: Cluster, receiver: str) -> AbstractContextManager[str]:
    """Run Prometheus in agent mode over a cluster."""
    config = of_cluster("remote-write/agent.yml", cluster)
    (remote,) = config["remote_write"]
    remote["url"] = f"{receiver}/api/v1/write"
    path = folder / f"{cluster.name}.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    flags = (
        "--enable-feature=agent --web.listen-address={address} --log.level=warn "
        f"--config.file={path} --storage.agent.path={folder / cluster.name}"
    ).split()
    return process("prometheus", *flags, package="prometheus", ready="/-/ready")


def vmagent(
    folder: Path, cluster: Cluster, receiver: str
) -> AbstractContextManager[str]:
    """Run vmagent over a cluster, with the sample's configuration."""
    config = of_cluster("victoriametrics/vmagent.yml", cluster)
    path = folder / f"{cluster.name}.yml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    flags = (
        "-httpListenAddr={address} -promscrape.config.strictParse "
        f"-promscrape.config={path} -remoteWrite.url={receiver}/api/v1/write "
        f"-remoteWrite.tmpDataPath={folder / cluster.name} "
        "-remoteWrite.flushInterval=200ms"
    ).split()
    return process("vmagent", *flags, package=PACKAGE, ready="/health")


@contextlib.contextmanager
def vmalert(
    folder: Path, store: str, alertmanager: str, rules: dict[str, str]
) -> Iterator[Callable[[], Groups]]:
    """Run vmalert with these rules; gives what tells of its groups."""
    for name, text in rules.items():
        (folder / name).write_text(text, encoding="utf-8")
    flags = (
        "-httpListenAddr={address} -evaluationInterval=1s "
        f"-datasource.url={store} -remoteWrite.url={store} -remoteRead.url={store} "
        f"-notifier.url={alertmanager} -remoteWrite.flushInterval=200ms"
    ).split()
    files = [f"-rule={folder / name}" for name in rules]
    with process("vmalert", *flags, *files, package=PACKAGE, ready="/health") as url:

        def groups() -> Groups:
            with urllib.request.urlopen(f"{url}/api/v1/rules", timeout=10) as answer:
                return list(json.load(answer)["data"]["groups"])

        yield groups


@dataclass(frozen=True)
class Run:
    """What is above the clusters: the store, what tells of its rules, and
    Alertmanager.
    """

    store: PrometheusServer
    groups: Callable[[], Groups]
    alertmanager: AlertmanagerServer
    good: Cluster
    bad: Cluster


@pytest.fixture(scope="module", params=["prometheus", "victoriametrics"])
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    """Simulators, exporters, agents, the store with its rules, and Alertmanager."""
    folder = tmp_path_factory.mktemp("agents")
    with two_clusters() as (good, bad), contextlib.ExitStack() as stack:
        alertmanager = stack.enter_context(AlertmanagerServer(SILENT))
        store: PrometheusServer
        if request.param == "prometheus":
            config, files = with_rules(
                sample("remote-write/central.yml"), alertmanager.address
            )
            grace = "--rules.alert.for-grace-period=10s"
            flags = ("--web.enable-remote-write-receiver", grace)
            store = stack.enter_context(
                PrometheusServer(config=config, files=files, flags=flags)
            )
            start = agent

            def groups() -> Groups:
                return store.api("rules")["groups"]

        else:
            shipped = with_rules({})[1].items()
            files = {
                name: re.sub(r"(?m)^ *keep_firing_for: .*\n", "", text)
                for name, text in shipped
            }
            store = stack.enter_context(VictoriaMetrics("-search.latencyOffset=1s"))
            start = vmagent
            groups = stack.enter_context(
                vmalert(folder, store.url, alertmanager.url, files)
            )
        for cluster in (good, bad):
            stack.enter_context(start(folder, cluster, store.url))
        yield Run(store, groups, alertmanager, good=good, bad=bad)


@pytest.mark.timeout(300)
def test_each_cluster_has_its_own_ratio(run: Run) -> None:
    """One for each cluster, as its exporter says, though job and address are the same
    in both.
    """
    run.store.wait_for(f"count({RATIO}) == 2", _FIRST)
    up = {
        (dict(key)["cluster"], dict(key)["instance"])
        for key in run.store.query("vllm_specdec_up")
    }
    assert up == {(run.good.name, EXPORTER), (run.bad.name, EXPORTER)}
    expected = {
        run.good.name: pytest.approx(run.good.acceptance(), rel=0.1),
        run.bad.name: pytest.approx(run.bad.acceptance(), abs=0.02),
    }

    def ratios() -> dict[str, float]:
        return {
            dict(series)["cluster"]: value
            for series, value in run.store.query(RATIO).items()
        }

    # Once the windows are full, and evaluated three times from engine to model.
    eventually(lambda: ratios() == expected, 90)
    assert run.good.acceptance() > 0.6 > 0.1 > run.bad.acceptance()


@pytest.mark.timeout(300)
def test_every_rule_evaluates(run: Run) -> None:
    """None fails, in particular none for series that it cannot tell apart."""
    run.store.wait_for(RATIO, _FIRST)
    rules = list(chain.from_iterable(group["rules"] for group in run.groups()))
    assert len(rules) > 130
    failing = {
        rule["name"]: rule
        for rule in rules
        if rule.get("lastError")
        or rule["health"] != "ok"
        or rule["lastEvaluation"] < "2000"
    }
    assert failing == {}


@pytest.mark.timeout(300)
def test_an_alert_names_its_cluster_and_spares_the_other(run: Run) -> None:
    """Alertmanager and the link in the alert know where it is, and its texts are filled
    in.
    """
    collapsed = 'alertname="VLLMSpecDecodeCollapsed"'
    run.store.wait_for(f'ALERTS{{{collapsed}, alertstate="firing"}}', _FIRST)
    alerts = eventually(lambda: run.alertmanager.alerts(collapsed))
    for fired in alerts:
        labels = fired["labels"]
        assert labels["cluster"] == run.bad.name, fired
        assert labels["model_name"] == MODEL, fired
        texts = fired["annotations"]
        assert f"var-cluster={run.bad.name}" in texts["dashboard_url"], fired
        assert texts["threshold"].endswith("%"), fired
        assert not re.search(r"<no value>|\{\{", "\n".join(texts.values())), fired
