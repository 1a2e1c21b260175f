"""`make rules` and `make dashboards`: for a Prometheus and a Grafana with other names."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import promql_parser as promql
import pytest
import yaml

from dashboards.documents import every_panel
from docs.inventory import ROOT
from support.programs import find_program

if TYPE_CHECKING:
    from pathlib import Path

JOB = r"mon\.specdec-(a|b)"
OWN = {
    "job": JOB,
    "cluster": "k8s_cluster",
    "interval": "45s",
    "severities": {"critical": "page"},
    "runbooks": "https://wiki/specdec/",
    "grafana": "https://dash",
    "tags": ["vllm", "team-a"],
    "scrape_interval": "1m",
}


def generate(program: str, folder: Path, config: Any) -> subprocess.CompletedProcess[str]:
    """Write the files of `alerts` or `dashboards` into a folder."""
    own = folder.with_suffix(".yml")
    own.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    command = [sys.executable, f"{program}/generate.py", "--out", str(folder), "--config", str(own)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_committed_names_are_those_of_the_committed_file(tmp_path: Path) -> None:
    config = (ROOT / "alerts" / "mixin.yml").read_text("utf-8")
    for program, made in (("alerts", "alerts/rules"), ("dashboards", "dashboards/json")):
        folder = tmp_path / program
        assert generate(program, folder, config).stderr == ""
        assert {p.name: p.read_text("utf-8") for p in folder.iterdir()} == {
            p.name: p.read_text("utf-8") for p in (ROOT / made).iterdir()
        }


def test_rules_with_other_names(tmp_path: Path) -> None:
    """Prometheus takes them; taken back, they are the committed ones."""
    folder = tmp_path / "rules"
    assert generate("alerts", folder, OWN).stderr == ""
    check = [find_program("promtool", "prometheus"), "check", "rules", *folder.iterdir()]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    labels = set()
    for path in folder.iterdir():
        there = yaml.safe_load((ROOT / "alerts" / "rules" / path.name).read_text("utf-8"))
        text = path.read_text("utf-8")
        here = yaml.safe_load(text)
        assert {group["interval"] for group in here["groups"]} <= {"45s", "3m"}
        assert not re.search(r"labels\.cluster\b|\bcluster=%|by \(cluster\b", text)
        for own, group in zip(here["groups"], there["groups"], strict=True):
            for rule, committed in zip(own["rules"], group["rules"], strict=True):
                labels.add(rule.get("labels", {}).get("severity"))
                back = (
                    rule["expr"]
                    .replace("k8s_cluster", "cluster")
                    .replace('severity="page"', 'severity="critical"')
                )
                assert back.replace(json.dumps(JOB), '"(.+/)?vllm-specdec-exporter"') == committed["expr"]
                assert (
                    rule.get("annotations", {}).get("runbook_url", "https://wiki").startswith("https://wiki")
                )
                assert rule.get("annotations", {}).get("summary") == committed.get("annotations", {}).get(
                    "summary"
                )
    assert labels == {None, "page", "warning", "info", "none"}


def test_dashboards_with_other_names(tmp_path: Path) -> None:
    """Their queries can be parsed; taken back, they are the committed ones."""
    folder = tmp_path / "json"
    assert generate("dashboards", folder, OWN).stderr == ""
    for path in (ROOT / "dashboards" / "json").glob("*.json"):
        text = (folder / path.name).read_text("utf-8")
        document = json.loads(text)
        assert document["tags"] == ["vllm", "team-a"]
        assert {panel["interval"] for panel in every_panel(document) if panel["type"] != "row"} == {"1m"}
        for panel in every_panel(document):
            for target in panel.get("targets", ()):
                promql.parse(re.sub(r"\$\w+", "5m", target["expr"]))
        written = json.dumps(json.dumps(JOB))[1:-1]
        back = text.replace("k8s_cluster", "cluster").replace(written, '\\"(.+/)?vllm-specdec-exporter\\"')
        restored, committed = json.loads(back), json.loads(path.read_text("utf-8"))
        for one in (restored, committed):
            del one["links"], one["tags"]
            for panel in every_panel(one):
                panel.pop("interval", None)
        assert restored == committed


def test_names_that_nothing_would_take_are_refused(tmp_path: Path) -> None:
    read, path = runpy.run_path(f"{ROOT}/alerts/mixin.py")["read"], tmp_path / "mixin.yml"
    for config, words in (
        ({"job": "("}, "is no regular expression"),
        ({"cluster": "a-b"}, "is no name of a label"),
        ({"interval": "often"}, "is no interval, such as 30s"),
        ({"severities": {"sever": "page"}}, "severities has critical, warning and info"),
        ({"grafana": 7}, "grafana is no text: put it in quotes"),
        ({"jop": "x"}, "['jop']; the keys are cluster, grafana, "),
        (["a"], "no map; the keys are"),
    ):
        path.write_text(yaml.safe_dump(config))
        with pytest.raises(ValueError, match=re.escape(words)):
            read(path)
    for program in ("alerts", "dashboards"):
        done = generate(program, tmp_path / "out", "a: [")
        assert (done.returncode, "is no YAML" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "out").exists()
