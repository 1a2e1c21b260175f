"""`make dashboards`: the dashboards for a Prometheus with other names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import promql_parser as promql

from dashboards.documents import every_panel
from docs.inventory import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def generate(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "dashboards/generate.py", *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_names_are_those_of_the_flags_and_all_else_stays(tmp_path: Path) -> None:
    job = r"mon\.specdec-(a|b)"
    flags = ("--job", job, "--cluster", "k8s_cluster", "--tags", "vllm,team-a", "--interval", "1m")
    assert generate("--out", str(tmp_path), *flags).stderr == ""
    for path in (ROOT / "dashboards" / "json").glob("*.json"):
        text = (tmp_path / path.name).read_text("utf-8")
        document = json.loads(text)
        assert document["tags"] == ["vllm", "team-a"]
        assert {panel["interval"] for panel in every_panel(document) if panel["type"] != "row"} == {"1m"}
        for panel in every_panel(document):
            for target in panel.get("targets", ()):
                promql.parse(re.sub(r"\$\w+|\[\[\w+\]\]", "5m", target["expr"]))
        # Taken back, it is what is committed.
        written = json.dumps(json.dumps(job))[1:-1]
        back = text.replace("k8s_cluster", "cluster").replace(written, '\\"(.+/)?vllm-specdec-exporter\\"')
        restored = json.loads(back)
        restored["tags"] = (committed := json.loads(path.read_text("utf-8")))["tags"]
        for one in (restored, committed):
            one.pop("links")
            for panel in every_panel(one):
                panel.pop("interval", None)
        assert restored == committed


def test_names_that_nothing_would_take_are_refused(tmp_path: Path) -> None:
    for flags, words in (
        (("--job", "("), "is no regular expression"),
        (("--cluster", "a-b"), "is no name of a label"),
        (("--interval", "often"), "is no interval, such as 30s"),
    ):
        done = generate("--out", str(tmp_path), *flags)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    assert "need --out" in generate("--job", "x").stderr
    assert not list(tmp_path.iterdir())
