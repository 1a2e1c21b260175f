"""From a decision to an argument list, and how the command is run."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from act.webhook import alert_of, calls_in, decision_of, recorder
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


class TestScript:
    def test_the_arguments_are_those_of_the_contract(self) -> None:
        """Always five, in this order; what is absent is empty."""
        full = decision_of("decrease_k", namespace="prod", cluster="eu")
        assert argv_of(Script("/act"), full) == ("/act", "decrease_k", "llama", "2", "prod", "eu")
        bare = decision_of("switch_method", model_name="")
        assert argv_of(Script("/act"), bare) == ("/act", "switch_method", "", "", "", "")

    @given(*[st.text(max_size=40)] * 3)
    def test_values_are_whole_arguments_or_nothing_is_run(
        self, model: str, namespace: str, cluster: str
    ) -> None:
        """No value is split, quoted or changed; none can be an option, or steer a terminal."""
        try:
            found = decide(alert_of("measure", model_name=model, namespace=namespace, cluster=cluster))
        except ValueError:  # lone surrogates are no JSON
            return
        values = (model, namespace, cluster)
        harmless = all(value.isprintable() and not value.startswith("-") for value in values)
        assert isinstance(found, Decision) == harmless
        if isinstance(found, Decision):
            assert argv_of(Script("/act"), found) == ("/act", "measure", model, "", namespace, cluster)

    async def test_a_shell_would_have_been_delighted(self, tmp_path: Path) -> None:
        """Metacharacters reach a real program verbatim, as one argument."""
        program = recorder(tmp_path / "program", tmp_path / "record")
        hostile = "$(touch owned) `touch owned`; touch owned | & > owned '\" \\ * ~ #é {a,b} %s !!"
        found = Script(str(program)).invocation(decision_of("disable", model_name=hostile))
        assert isinstance(found, Invocation)

        ending = await run(found, 20.0, {"PATH": "/usr/bin:/bin"})

        assert ending.problem == ""
        (call,) = calls_in(tmp_path / "record")
        assert call["argv"] == ["disable", hostile, "0", "", ""]
        assert json.loads(call["stdin"])["labels"]["model_name"] == hostile
        assert {path.name for path in sorted(tmp_path.glob("*"))} == {"program", "record"}  # noqa: ASYNC240
        assert not Path("owned").exists()  # noqa: ASYNC240


class TestKubernetes:
    executor = Kubernetes({"llama": WORKLOAD})

    def test_a_k_of_an_earlier_decision_is_taken_away(self) -> None:
        """An action without a K must not stand beside the K of another."""
        assert f"{PREFIX}recommended-num-speculative-tokens-" in argv_of(
            self.executor, decision_of("switch_method")
        )

    def test_restart_patches_the_pod_template(self) -> None:
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

    def test_what_names_no_k_restarts_nothing(self) -> None:
        """There is nothing to roll out."""
        executor = Kubernetes({"llama": WORKLOAD}, restart=True)
        for action in ("measure", "switch_method"):
            assert "annotate" in argv_of(executor, decision_of(action))

    def test_what_is_of_no_known_workload_says_why(self) -> None:
        """A model that none is given for, or another deployment of the same model."""
        for labels, kind, why in (
            ({"model_name": "ours"}, EventKind.SKIPPED, "no --kubernetes.workload is given for model 'ours'"),
            ({"namespace": "a"}, EventKind.REJECTED, "namespace 'a', and --kubernetes.workload has 'prod'"),
            ({"cluster": "eu"}, EventKind.REJECTED, "cluster 'eu', and --kubernetes.workload has ''"),
        ):
            found = self.executor.invocation(decision_of("disable", **labels))
            assert isinstance(found, NoAction)
            assert (found.kind, why in found.why) == (kind, True), found

    def test_a_workload_is_one_in_whatever_cluster_its_alerts_are(self) -> None:
        """Limits and contradictions are of what kubectl changes, and it has one context."""
        known = {"llama": WORKLOAD, "eu-llama": replace(WORKLOAD, cluster="eu")}
        one, other = ModelKey("", "prod", "llama"), ModelKey("eu", "prod", "eu-llama")
        assert Kubernetes(known).target_of(one) == Kubernetes(known).target_of(other) != one

    @given(st.text(min_size=1, max_size=40))
    def test_values_never_leave_their_annotation(self, alertname: str) -> None:
        """Whatever the alert's name, kubectl gets the same number of arguments, each behind its own name."""
        try:
            found = decide(alert_of("disable", alertname=alertname))
        except ValueError:  # lone surrogates are no JSON
            return
        if isinstance(found, Decision):
            argv = argv_of(self.executor, found)
            assert len(argv) == 10
            assert argv[8] == f"{PREFIX}alert={alertname}"


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


async def test_standard_input() -> None:
    """It need not be read, however long it is."""
    assert (await shell("wc -c", stdin=b"x" * 1_000_000)).output.strip() == "1000000"
    assert await shell("exit 0", stdin=b"x" * 1_000_000) == CommandResult(0, "", "")


async def test_only_the_end_of_the_output_is_kept() -> None:
    """A command that talks without end neither fills the memory nor waits for a reader."""
    ending = await shell("head -c 5000000 /dev/zero | tr '\\0' x; printf '\\377end'")
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


async def test_it_has_a_process_group_of_its_own() -> None:
    """Ctrl-C in the receiver's terminal does not reach it."""
    ending = await shell("cut -d' ' -f5 /proc/$$/stat; echo $$")
    group, pid = ending.output.split()
    assert group == pid
