"""The rules in vmalert, over what vmagents of two clusters write to VictoriaMetrics: run for real.

Debian's vmalert 1.79 is older than `keep_firing_for` (1.92), which is taken out of the rules for it.
"""

import contextlib
import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scaling.clusters import (
    EXPORTER,
    RULES,
    SAMPLES,
    Cluster,
    acceptance_of,
    of_cluster,
    two_clusters,
    with_rules,
)
from scaling.victoria import PACKAGE, VictoriaMetrics
from support.alertmanager import AlertmanagerServer
from support.programs import ProgramError, eventually, find_program, process
from support.prometheus import Series

pytestmark = pytest.mark.full

#: How long it may take until what was recorded for the first time is found by the rules that build on it,
#: level by level.
_FIRST = 200.0
_SILENT = {"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]}
RATIO = "model:vllm_specdec_acceptance:ratio_rate5m"


@contextlib.contextmanager
def vmagent(folder: Path, cluster: Cluster, receiver: str) -> Iterator[None]:
    """Run vmagent over a cluster, with the sample's configuration."""
    path = folder / f"{cluster.name}.yml"
    path.write_text(yaml.safe_dump(of_cluster("victoriametrics/vmagent.yml", cluster)), encoding="utf-8")
    with process(
        "vmagent",
        "-httpListenAddr={address}",
        f"-promscrape.config={path}",
        "-promscrape.config.strictParse",
        f"-remoteWrite.url={receiver}/api/v1/write",
        f"-remoteWrite.tmpDataPath={folder / cluster.name}",
        "-remoteWrite.flushInterval=200ms",
        package=PACKAGE,
        ready="/health",
    ):
        yield


@contextlib.contextmanager
def vmalert(folder: Path, store: str, alertmanager: str, rules: dict[str, str]) -> Iterator[str]:
    """Run vmalert with these rules; gives its URL."""
    for name, text in rules.items():
        (folder / name).write_text(text, encoding="utf-8")
    with process(
        "vmalert",
        "-httpListenAddr={address}",
        *(f"-rule={folder / name}" for name in rules),
        f"-datasource.url={store}",
        f"-remoteWrite.url={store}",
        f"-remoteRead.url={store}",
        f"-notifier.url={alertmanager}",
        "-evaluationInterval=1s",
        "-remoteWrite.flushInterval=200ms",
        package=PACKAGE,
        ready="/health",
    ) as url:
        yield url


def known_to_debian(rules: dict[str, str]) -> dict[str, str]:
    """Return rules without what vmalert 1.79 does not know."""
    found = {}
    for name, text in rules.items():
        document = yaml.safe_load(text)
        for group in document["groups"]:
            for rule in group["rules"]:
                rule.pop("keep_firing_for", None)
        found[name] = yaml.safe_dump(document)
    return found


Run = tuple[VictoriaMetrics, str, AlertmanagerServer, Cluster, Cluster]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Simulators, exporters, agents, the store, vmalert and Alertmanager."""
    folder = tmp_path_factory.mktemp("vmalert")
    _, files = with_rules({})
    with (
        two_clusters() as (good, bad),
        AlertmanagerServer(_SILENT) as alertmanager,
        VictoriaMetrics("-search.latencyOffset=1s") as store,
        vmagent(folder, good, store.url),
        vmagent(folder, bad, store.url),
        vmalert(folder, store.url, alertmanager.url, known_to_debian(files)) as alerts,
    ):
        yield store, alerts, alertmanager, good, bad


def wait_for(store: VictoriaMetrics, expression: str, seconds: float) -> set[str]:
    """Wait until an expression yields something, and return the clusters of what it does."""

    def yields() -> dict[Series, float]:
        store.flush()  # with which it looks for new series at once, and not only every ten seconds
        return store.query(expression)

    found = eventually(yields, seconds)
    return {dict(series).get("cluster", "") for series in found}


def groups(url: str) -> list[dict[str, Any]]:
    """Return what vmalert tells of its groups."""
    with urllib.request.urlopen(f"{url}/api/v1/rules", timeout=10) as answer:
        return list(json.load(answer)["data"]["groups"])


def test_vmalert_takes_the_files_but_for_what_it_is_too_old_for(tmp_path: Path) -> None:
    """The only thing in the rules that Debian's vmalert refuses is `keep_firing_for`."""
    files = {path.name: path.read_text("utf-8") for path in RULES.glob("*.yml")}
    with (
        pytest.raises(ProgramError, match="unknown fields in rule: keep_firing_for"),
        vmalert(tmp_path, "http://127.0.0.1:9", "http://127.0.0.1:9", files),
    ):
        pass
    with vmalert(tmp_path, "http://127.0.0.1:9", "http://127.0.0.1:9", known_to_debian(files)) as url:
        loaded = [rule for group in groups(url) for rule in group["rules"]]
    rules = [
        rule for text in files.values() for group in yaml.safe_load(text)["groups"] for rule in group["rules"]
    ]
    assert len(loaded) == len(rules)


def test_vmagent_wants_a_configuration_without_remote_write() -> None:
    """It refuses the agent's sample for that field, and nothing else; its own sample it takes."""

    def check(path: str) -> str:
        flags = ("-dryRun", f"-promscrape.config={SAMPLES / path}")
        done = subprocess.run([find_program("vmagent", PACKAGE), *flags], capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stderr

    assert re.findall(r"field (\w+) not found", check("remote-write/agent.yml")) == ["remote_write"]
    assert not check("victoriametrics/vmagent.yml")


@pytest.mark.timeout(300)
def test_each_cluster_has_its_own_ratio(run: Run) -> None:
    """Vmalert records for each cluster what its exporter says, though job and address are the same."""
    store, _, _, good, bad = run
    wait_for(store, f"count({RATIO}) == 2", _FIRST)
    assert {dict(series)["instance"] for series in store.query("vllm_specdec_up")} == {EXPORTER}

    def ratios() -> dict[str, float]:
        return {dict(series)["cluster"]: value for series, value in store.query(RATIO).items()}

    # Once the windows are full, and evaluated three times from engine to model.
    eventually(lambda: ratios() == acceptance_of(good, bad), 90)


@pytest.mark.timeout(300)
def test_every_rule_evaluates(run: Run) -> None:
    """Vmalert has evaluated all of them, and none failed."""
    store, alerts, _, _, _ = run
    wait_for(store, RATIO, _FIRST)
    rules = [rule for group in groups(alerts) for rule in group["rules"]]
    assert len(rules) > 130
    assert not [(rule["name"], rule["lastError"]) for rule in rules if rule["lastError"]]
    assert {rule["health"] for rule in rules} == {"ok"}
    assert all(rule["lastEvaluation"] > "2000" for rule in rules)


@pytest.mark.timeout(300)
def test_an_alert_names_its_cluster_and_spares_the_other(run: Run) -> None:
    """The alert of the bad cluster reaches Alertmanager with its cluster and its texts filled in."""
    store, _, alertmanager, _, bad = run
    firing = 'ALERTS{alertname="VLLMSpecDecodeCollapsed", alertstate="firing"}'
    assert wait_for(store, firing, _FIRST) == {bad.name}
    told = eventually(lambda: alertmanager.alerts('alertname="VLLMSpecDecodeCollapsed"'))
    assert {alert["labels"]["cluster"] for alert in told} == {bad.name}
    for alert in told:
        assert f"var-cluster={bad.name}" in alert["annotations"]["dashboard_url"]
        assert alert["annotations"]["threshold"].endswith("%")
        assert not [text for text in alert["annotations"].values() if "<no value>" in text or "{{" in text]
