"""docker-compose.yml as it runs: from the simulated vLLM to the receiver of alerts, without Docker."""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from docker.dockerfile import ROOT
from docker.topology import Topology, started
from support.programs import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    """All services but Grafana, which is in no package; all are healthy by their own health checks."""
    with started(tmp_path_factory.mktemp("compose"), "grafana") as running:
        yield running


def ask(topology: Topology, service: str, path: str, **parameters: str) -> Any:
    url = f"{topology.nodes[service].url}{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def value(topology: Topology, expression: str) -> list[float]:
    found = ask(topology, "prometheus", "/api/v1/query", query=expression)["data"]["result"]
    return [float(one["value"][1]) for one in found]


def events(topology: Topology) -> list[dict[str, Any]]:
    """What act wrote."""
    return [json.loads(line) for line in topology.nodes["act"].lines() if line.startswith("{")]


def test_prometheus_has_the_rules(topology: Topology) -> None:
    """Every file, and none of their rules fails."""
    groups = ask(topology, "prometheus", "/api/v1/rules")["data"]["groups"]
    loaded = {group["file"].rpartition("/")[2] for group in groups}
    assert loaded == {path.name for path in (ROOT / "alerts" / "rules").glob("*.yml")}
    eventually(lambda: value(topology, "sum(prometheus_rule_evaluations_total) or vector(1)"))
    assert [rule for group in groups for rule in group["rules"] if rule.get("lastError")] == []


def test_prometheus_sees_the_simulated_vllm_through_the_exporter(topology: Topology) -> None:
    """Under the jobs that rules and dashboards query, with the model, the method and the K of .env."""
    for job in ("vllm-specdec-exporter", "vllm"):
        eventually(lambda job=job: value(topology, f'up{{job="{job}"}}') == [1.0])  # type: ignore[misc]
    eventually(lambda: value(topology, "vllm_specdec_num_speculative_tokens") == [4.0])
    assert value(topology, 'vllm_specdec_info{model_name="Qwen/Qwen3-8B",method="eagle3"}') == [1.0]
    assert value(topology, 'count(vllm:num_requests_running{job="vllm"})') == [1.0]


def test_only_the_watchdog_fires_and_it_reaches_act(topology: Topology) -> None:
    """The demo begins healthy. Rules, Alertmanager and the route to the receiver work."""
    name = "VLLMSpecDecodeWatchdog"
    eventually(lambda: value(topology, f'ALERTS{{alertname="{name}"}}') == [1.0])
    firing = ask(topology, "prometheus", "/api/v1/alerts")["data"]["alerts"]
    assert {one["labels"]["alertname"] for one in firing if one["state"] == "firing"} == {name}
    (event, *_) = eventually(lambda: [one for one in events(topology) if one["alertname"] == name])
    assert event["event"] == "skipped"  # it has no action


def test_a_decision_reaches_act_which_only_logs_it(topology: Topology) -> None:
    """It arrives with its action and K, nothing is executed, and its end arrives too."""
    labels = {"alertname": "VLLMSpecDecodeKChangeAdvised", "severity": "info", "subject": "decision"}
    labels |= {"model_name": "Qwen/Qwen3-8B", "action": "decrease_k", "recommended_k": "2"}
    url = f"{topology.nodes['alertmanager'].url}/api/v2/alerts"

    def about(kind: str, **times: str) -> list[dict[str, Any]]:
        body = json.dumps([{"labels": labels, **times}]).encode()
        sent = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(sent, timeout=10):
            pass
        found = ("decrease_k", kind)
        return eventually(lambda: [e for e in events(topology) if (e["action"], e["event"]) == found])

    (event, *_) = about("would_act")
    assert (event["recommended_k"], event["command"]) == ("2", None)
    assert about("resolved", endsAt=datetime.now(UTC).isoformat())


def test_health_checks_notice(topology: Topology) -> None:
    """Each one fails where nothing listens, so that it says something where it succeeds."""
    for node in topology.nodes.values():
        nowhere = type(node)(node.name, node.service, 1, node.root, node.log)
        assert not topology.healthy(nowhere), node.name
