"""From a decision to an argument list, and how the command is run."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from act.webhook import alert_of, decision_of
from support.programs import eventually
from vllm_specdec_exporter.commands.act.decision import Decision, EventKind, ModelKey, NoAction, decide
from vllm_specdec_exporter.commands.act.process import (
    KEPT_OUTPUT,
    CommandResult,
    Invocation,
    Kubernetes,
    Script,
    Workload,
    run,
)

WORKLOAD = Workload("prod", "deployment", "vllm-llama")
PREFIX = "vllm-specdec-exporter/"


def argv_of(executor: Kubernetes | Script, decision: Decision) -> tuple[str, ...]:
    """What is run for a decision."""
    found = executor.invocation(decision)
    assert isinstance(found, Invocation), found
    return found.argv


def test_the_arguments_of_a_script_are_those_of_the_contract() -> None:
    """Always five, in this order; what is absent is empty."""
    full = decision_of("decrease_k", namespace="prod", cluster="eu")
    assert argv_of(Script("/act"), full) == ("/act", "decrease_k", "llama", "2", "prod", "eu")
    bare = decision_of("switch_method", model_name="")
    assert argv_of(Script("/act"), bare) == ("/act", "switch_method", "", "", "", "")


@given(*[st.text(max_size=40)] * 3)
def test_values_are_whole_arguments_or_nothing_is_run(model: str, namespace: str, cluster: str) -> None:
    """No value is split, quoted or changed; none can be an option, or steer a terminal."""
    try:
        found = decide(alert_of("measure", model_name=model, namespace=namespace, cluster=cluster))
    except ValueError:  # lone surrogates are no JSON
        return
    values = (model, namespace, cluster)
    assert isinstance(found, Decision) == all(one.isprintable() and not one.startswith("-") for one in values)
    if isinstance(found, Decision):
        assert argv_of(Script("/act"), found) == ("/act", "measure", model, "", namespace, cluster)
    else:
        assert found.why.isprintable()


def test_restart_patches_the_pod_template() -> None:
    """That is what makes a rollout."""
    argv = argv_of(Kubernetes({"llama": WORKLOAD}, "east", restart=True), decision_of("disable"))
    assert argv[:-1] == (
        *("kubectl", "--context", "east", "--namespace", "prod"),
        *("patch", "deployment/vllm-llama", "--type", "strategic", "--patch"),
    )
    annotations = {
        f"{PREFIX}action": "disable",
        f"{PREFIX}recommended-num-speculative-tokens": "0",
        f"{PREFIX}alert": "VLLMSpecDecodeDisable",
        f"{PREFIX}decided-at": "2026-03-01T12:00:00.500000Z",
    }
    assert json.loads(argv[-1]) == {"spec": {"template": {"metadata": {"annotations": annotations}}}}


def test_what_names_no_k_restarts_nothing() -> None:
    """It takes away the K of an earlier decision, which must not stand beside it."""
    for action in ("measure", "switch_method"):
        argv = argv_of(Kubernetes({"llama": WORKLOAD}, restart=True), decision_of(action))
        assert {"annotate", f"{PREFIX}recommended-num-speculative-tokens-"} < set(argv)


def test_what_is_of_no_known_workload_says_why() -> None:
    """A model that none is given for, or another deployment of the same model."""
    for labels, kind, why in (
        ({"model_name": "ours"}, EventKind.SKIPPED, "no --kubernetes.workload is given for model 'ours'"),
        ({"namespace": "a"}, EventKind.REJECTED, "namespace 'a', and --kubernetes.workload has 'prod'"),
        ({"cluster": "eu"}, EventKind.REJECTED, "cluster 'eu', and --kubernetes.workload has ''"),
    ):
        found = Kubernetes({"llama": WORKLOAD}).invocation(decision_of("disable", **labels))
        assert isinstance(found, NoAction)
        assert (found.kind, why in found.why) == (kind, True), found


def test_a_workload_is_one_in_whatever_cluster_its_alerts_are() -> None:
    """Limits and contradictions are of what kubectl changes, and it has one context."""
    known = {"llama": WORKLOAD, "eu-llama": replace(WORKLOAD, cluster="eu")}
    one, other = ModelKey("", "prod", "llama"), ModelKey("eu", "prod", "eu-llama")
    assert Kubernetes(known).target_of(one) == Kubernetes(known).target_of(other) != one


# --- running it

VARIABLES = {"PATH": os.environ["PATH"]}


async def shell(script: str, seconds: float = 20.0, stdin: bytes = b"") -> CommandResult:
    """Run a line of shell, given as an argument of a program like any other."""
    return await run(Invocation(("/bin/sh", "-c", script), stdin), seconds, VARIABLES)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_what_it_prints_and_how_it_ends() -> None:
    """Both outputs, in the order in which they were written."""
    assert await shell("echo out; echo err >&2") == CommandResult(0, "out\nerr\n", "")
    assert await shell("exit 3") == CommandResult(3, "", "it ended with 3")
    assert await shell("kill -9 $$") == CommandResult(-9, "", "it ended with -9")


async def test_only_the_end_of_the_output_is_kept() -> None:
    """A command that talks without end, and reads nothing, neither fills the memory nor blocks."""
    ending = await shell("head -c 5000000 /dev/zero | tr '\\0' x; printf '\\377end'", stdin=b"x" * 1_000_000)
    assert len(ending.output) == KEPT_OUTPUT
    assert ending.output.endswith("x\N{REPLACEMENT CHARACTER}end")


async def test_what_cannot_be_run() -> None:
    """It is an ending like another, without an exit code."""
    for argv, why in (
        (("/nonexistent",), "No such file or directory"),
        (("/etc/passwd",), "Permission denied"),
        (("/bin/echo", "a\0b"), "embedded null byte"),
    ):
        found = await run(Invocation(argv), 5.0, VARIABLES)
        assert found == CommandResult(None, "", f"it cannot be run: {why}"), argv


async def test_a_command_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    """Also those that do not want to end."""
    file = tmp_path / "pids"
    ending = await shell(
        f"trap '' TERM; sh -c 'trap \"\" TERM; sleep 600' & echo $$ $! > {file}; echo begun; wait; sleep 600",
        2.0,
    )
    assert ending == CommandResult(-9, "begun\n", "it took longer than 2s and was killed")
    pids = [int(pid) for pid in file.read_text().split()]
    assert len(pids) == 2
    await asyncio.to_thread(eventually, lambda: not any(map(is_alive, pids)))


async def test_what_it_leaves_running_holds_nobody_up(tmp_path: Path) -> None:
    """A child in the background keeps the output open; the command has ended all the same."""
    file = tmp_path / "pid"
    ending = await shell(f"sleep 600 & echo $! > {file}; echo done", 60.0)
    assert ending == CommandResult(0, "done\n", "")
    os.kill(int(file.read_text()), 9)


async def test_one_that_is_no_longer_wanted_is_killed(tmp_path: Path) -> None:
    """Cancelling it leaves nothing behind."""
    file = tmp_path / "pid"
    task = asyncio.ensure_future(shell(f"echo $$ > {file}; sleep 60"))
    while not (file.exists() and file.read_text()):  # noqa: ASYNC110 - another program writes it
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_alive(int(file.read_text()))
