"""What docs/act.md shows is what happens."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from act.receiver import act
from act.webhook import alert_document, body_of, calls_in, recorder
from support.alertmanager import amtool

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "act.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def test_the_alert_of_the_quick_start_makes_the_line_that_is_shown() -> None:
    """But for the time."""
    (command,) = (block for block in blocks("sh") if "curl" in block)
    arguments = shlex.split(command)
    (shown,) = map(json.loads, blocks("json"))
    with act() as running:
        assert running.post(arguments[arguments.index("-d") + 1].encode()).status == 200
        (event,) = running.events(1)
    assert {**event, "time": ""} == {**shown, "time": ""}


@pytest.mark.full
def test_alertmanager_takes_the_configuration(tmp_path: Path) -> None:
    """As its own tool says."""
    file = tmp_path / "alertmanager.yml"
    file.write_text(blocks("yaml")[0])
    assert "SUCCESS" in amtool("check-config", str(file))


@pytest.mark.full
def test_the_script_is_a_script(tmp_path: Path) -> None:
    """It does nothing for what a restart would not change, and refuses other models."""
    file = tmp_path / "script"
    (script,) = (block for block in blocks("sh") if block.startswith("#!"))
    file.write_text(script)
    assert subprocess.run(["sh", str(file), "measure", "m", "", "", ""]).returncode == 0
    done = subprocess.run(
        ["sh", str(file), "disable", "m", "0", "", ""], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stdout == "not the model of this machine: m\n"


def test_kubectl_annotates_the_workload_of_the_model_alone(tmp_path: Path) -> None:
    """The script for Kubernetes, with the labels that it names; others are a failure
    that changes nothing.
    """
    (tmp_path / "bin").mkdir()
    recorder(tmp_path / "bin" / "kubectl", tmp_path / "record")
    model = "meta-llama/Llama-3.1-70B-Instruct"
    flags = (
        "--script",
        str(DOCS / "hooks" / "act-kubectl.sh"),
        "--execute",
        "--limit.per-hour",
        "9",
    )
    named = {"model_name": model, "namespace": "prod"}
    with act(
        *flags, PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin", KUBECONFIG="/config"
    ) as running:
        for action, labels in (
            ("decrease_k", named),
            ("increase_k", named),  # within an hour
            ("disable", {**named, "cluster": "eu"}),
            ("disable", {"model_name": model}),
            ("disable", {**named, "model_name": f"prod/{model}", "namespace": ""}),
            ("disable", {**named, "method": "ngram"}),
        ):
            running.post(body_of(alert_document(action, **labels)))
        events = running.events(6)
    assert [event["event"] for event in events] == [
        "acted",
        "skipped",
        "failed",
        "failed",
        "failed",
        "failed",
    ]
    assert "--limit.per-model" in events[1]["why"]
    assert (
        events[2]["output"]
        == f"no workload of model '{model}' in namespace 'prod' of cluster 'eu' "
        "with method ''\n"
    )
    assert events[5]["method"] == "ngram"
    assert events[5]["output"].endswith("with method 'ngram'\n")
    (call,) = calls_in(tmp_path / "record")
    assert call["argv"] == [
        "annotate",
        "--overwrite",
        "--namespace",
        "prod",
        "deployment/vllm-llama",
        "vllm-specdec-exporter/action=decrease_k",
        "vllm-specdec-exporter/recommended-num-speculative-tokens=2",
    ]
    assert call["environment"]["KUBECONFIG"] == "/config"


def test_without_a_k_the_annotation_of_an_earlier_one_goes(tmp_path: Path) -> None:
    """It must not stand beside the new action."""
    recorder(tmp_path / "kubectl", tmp_path / "record")
    arguments = (
        str(DOCS / "hooks" / "act-kubectl.sh"),
        "measure",
        "meta-llama/Llama-3.1-70B-Instruct",
        "",
    )
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert subprocess.run((*arguments, "prod", ""), env=environment).returncode == 0
    (call,) = calls_in(tmp_path / "record")
    assert (
        call["argv"][-1] == "vllm-specdec-exporter/recommended-num-speculative-tokens-"
    )
