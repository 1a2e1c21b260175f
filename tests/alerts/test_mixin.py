"""`make rules` and `make dashboards` for Prometheus and Grafana with other names."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from alerts import promtool
from alerts.histories import pods
from alerts.world import Phase
from dashboards.documents import every_panel
from support.programs import find_program
from support.published import RUNBOOKS
from support.repository import ROOT

JOB = r"mon\.specdec-(a|b)"
OWN = {
    "job": JOB,
    "cluster": "k8s_cluster",
    "interval": "45s",
    "severities": {"critical": "wakes"},
    "runbooks": "https://wiki/specdec/",
    "grafana": "https://dash",
    "tags": ["vllm", "team-a"],
    "scrape_interval": "1m",
}


def generate(
    program: str, folder: Path, config: Any, *flags: str
) -> subprocess.CompletedProcess[str]:
    """Write the files of `alerts` or `dashboards` into a folder."""
    own = folder.with_suffix(".yml")
    own.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    command = [
        sys.executable,
        f"{program}/generate.py",
        "--out",
        str(folder),
        "--config",
        str(own),
        *flags,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_committed_names_are_those_of_the_committed_file(tmp_path: Path) -> None:
    config = (ROOT / "alerts" / "mixin.yml").read_text("utf-8")
    for program, made in (
        ("alerts", "alerts/rules"),
        ("dashboards", "dashboards/json"),
    ):
        folder = tmp_path / program
        assert generate(program, folder, config).stderr == ""
        assert {p.name: p.read_text("utf-8") for p in folder.iterdir()} == {
            p.name: p.read_text("utf-8") for p in (ROOT / made).iterdir()
        }


def test_rules_with_other_names(tmp_path: Path) -> None:
    """Prometheus takes them; taken back, they are the committed ones."""
    folder = tmp_path / "rules"
    # Addresses of the command go before those of the file.
    there = {"runbooks": "https://elsewhere", "grafana": "https://elsewhere"}
    flags = ("--runbooks", OWN["runbooks"], "--grafana", OWN["grafana"])
    assert generate("alerts", folder, OWN | there, *flags).stderr == ""
    check = [
        find_program("promtool", "prometheus"),
        "check",
        "rules",
        *folder.iterdir(),
    ]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for path in folder.iterdir():
        text = path.read_text("utf-8")
        assert {group["interval"] for group in yaml.safe_load(text)["groups"]} <= {
            "45s",
            "15s",
            "3m",
            "4m",
        }
        assert not re.search(r"labels\.cluster\b|\bcluster=%|by \(cluster\b|«", text)
        for own, name in (
            ("k8s_cluster", "cluster"),
            (json.dumps(JOB), '"(.+/)?vllm-specdec-exporter"'),
            ("wakes", "critical"),
            ("https://wiki/specdec", RUNBOOKS),
            ("https://dash/", "https://grafana.example.com/"),
        ):
            text = text.replace(own, name)
        committed = yaml.safe_load(
            (ROOT / "alerts" / "rules" / path.name).read_text("utf-8")
        )
        back = yaml.safe_load(text)
        for group in (*committed["groups"], *back["groups"]):
            group.pop("interval", None)
        assert back == committed


def test_severities_may_trade_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ticket still waits while the page fires, and programs still get the decision.

    Where names were replaced one after another, a page of critical became warning, then
    info, then none.
    """
    traded = {"critical": "warning", "warning": "info", "info": "none"}
    written = generate("alerts", tmp_path / "rules", {"severities": traded})
    assert written.stderr == ""
    world = pods(
        (Phase(120, speedup=0.5, basis="measured", acceptance=(0.3, 0.1, 0.05)),)
    )()
    firing = (
        "count by (alertname, severity, action) "
        "(ALERTS{alertname=~'VLLMSpecDecode(Harmful|Disable)',alertstate='firing'})"
    )
    samples = {
        '{alertname="VLLMSpecDecodeHarmful", severity="warning"}': 1.0,
        '{alertname="VLLMSpecDecodeDisable", severity="info", action="disable"}': 1.0,
        '{alertname="VLLMSpecDecodeDisable", severity="none", action="disable"}': 1.0,
    }
    monkeypatch.setattr(promtool, "RULES", tmp_path / "rules")
    promtool._all_groups.cache_clear()
    try:
        history = promtool.History(
            "traded", world, [promtool.Query(100, firing, samples)]
        )
        wanted = {"VLLMSpecDecodeHarmful", "VLLMSpecDecodeDisable"}
        assert promtool.verify(tmp_path, history, rules=wanted, texts=False) == ""
    finally:
        promtool._all_groups.cache_clear()


def test_alertmanagers_routes_have_the_same_names(tmp_path: Path) -> None:
    """Those of the rules, also where they trade places; comments and receivers stay."""
    own = tmp_path / "alertmanager.yml"
    traded = {"critical": "warning", "warning": "info", "info": "hint"}
    names = {"severities": traded, "cluster": "k8s_cluster"}
    done = generate("alerts", tmp_path / "rules", names, f"--alertmanager={own}")
    assert done.stderr == ""

    def renamed(line: re.Match[str]) -> str:
        before, severity, values = line[0].partition("severity=")
        values = re.sub("critical|warning|info", lambda word: traded[word[0]], values)
        return (before + severity + values).replace("[cluster", "[k8s_cluster")

    committed = (ROOT / "alerts" / "alertmanager.yml").read_text("utf-8")
    assert own.read_text("utf-8") == re.sub(r"(?m)^[^#\n]+", renamed, committed)


def test_dashboards_with_other_names(tmp_path: Path) -> None:
    """Their queries can be parsed; taken back, they are the committed ones."""
    folder = tmp_path / "json"
    assert generate("dashboards", folder, OWN).stderr == ""
    for path in (ROOT / "dashboards" / "json").glob("*.json"):
        text = (folder / path.name).read_text("utf-8")
        document = json.loads(text)
        assert document["tags"] == ["vllm", "team-a"]
        assert {
            panel["interval"]
            for panel in every_panel(document)
            if panel["type"] != "row"
        } == {"1m"}
        for panel in every_panel(document):
            for target in panel.get("targets", ()):
                promql.parse(re.sub(r"\$\w+", "5m", target["expr"]))
        written = json.dumps(json.dumps(JOB))[1:-1]
        back = text.replace("k8s_cluster", "cluster").replace("wakes", "critical")
        back = back.replace(written, '\\"(.+/)?vllm-specdec-exporter\\"')
        restored = json.loads(back)
        committed = json.loads(path.read_text("utf-8"))
        for one in (restored, committed):
            del one["links"], one["tags"]
            for panel in every_panel(one):
                panel.pop("interval", None)
        assert restored == committed


def test_names_that_nothing_would_take_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(f"{ROOT}/alerts")
    read = importlib.import_module("mixin").read
    path = tmp_path / "mixin.yml"
    for config, words in (
        ({"job": "("}, "is no regular expression"),
        ({"cluster": "a-b"}, "is no name of a label"),
        ({"interval": "often"}, "is no interval, such as 30s"),
        (
            {"severities": {"sever": "page"}},
            "severities has critical, warning and info",
        ),
        ({"severities": {"info": 'a"b'}}, "is not made of letters, digits, _ and -"),
        ({"severities": {"info": "warning"}}, "two severities have one name"),
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
