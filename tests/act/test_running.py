"""From a decision to an argument list, and how the command is run."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from act.webhook import decision_of
from support.programs import eventually
from vllm_specdec_exporter.commands.act.decision import EventKind
from vllm_specdec_exporter.commands.act.runner import (
    KEPT_OUTPUT,
    ActionResult,
    arguments,
    run_command,
)


def test_the_arguments_of_a_script_are_those_of_the_contract() -> None:
    """Always five, in this order; what is absent is empty. A method follows them."""
    full = decision_of("decrease_k", namespace="prod", cluster="eu")
    assert arguments("/act", full) == ("/act", "decrease_k", "llama", "2", "prod", "eu")
    of_method = decision_of("disable", namespace="prod", method="ngram")
    assert arguments("/act", of_method)[4:] == ("prod", "", "ngram")
    bare = decision_of("switch_method")
    assert arguments("/act", bare) == ("/act", "switch_method", "llama", "", "", "")


@given(*[st.text(max_size=40)] * 3)
def test_values_are_whole_arguments_or_nothing_is_run(
    model: str, namespace: str, cluster: str
) -> None:
    """No value is split, quoted or changed, is an option, or steers a terminal."""
    try:
        decision = decision_of(
            "measure", model_name=model, namespace=namespace, cluster=cluster
        )
    except ValueError:  # lone surrogates are no JSON
        return
    values = (model, namespace, cluster)
    plain = all(
        value.isprintable() and not value.startswith("-") and value.strip() == value
        for value in values
    )
    valid = plain and model != ""
    assert (decision.no_action is None) == valid
    assert not valid or arguments("/act", decision) == (
        "/act",
        "measure",
        model,
        "",
        namespace,
        cluster,
    )
    assert decision.why.isprintable()


# --- running it

FAILED = EventKind.FAILED


def ended(code: int, output: str = "", why: str = "") -> ActionResult:
    """What a line of shell comes to that ends with this code."""
    return ActionResult(
        FAILED if code else EventKind.ACTED,
        why or f"the command ended with {code}",
        exit_code=code,
        output=output,
    )


async def shell(script: str, seconds: float = 20.0, stdin: bytes = b"") -> ActionResult:
    """Run a line of shell, given as an argument of a program like any other."""
    outcome = await run_command(("/bin/sh", "-c", script), stdin, seconds)
    assert outcome.argv == ("/bin/sh", "-c", script)
    return outcome._replace(argv=None)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except FileNotFoundError:
        return False


async def test_what_it_prints_and_how_it_ends() -> None:
    """Both outputs, in the order in which they were written."""
    assert await shell("echo out; echo err >&2") == ended(0, output="out\nerr\n")
    assert await shell("exit 3") == ended(3)
    assert await shell("kill -9 $$") == ended(-9)


async def test_only_the_end_of_the_output_is_kept() -> None:
    """A command that talks without end, and reads nothing, neither fills the memory nor
    blocks.
    """
    ending = await shell(
        "head -c 5000000 /dev/zero | tr '\\0' x; printf '\\377end'",
        stdin=b"x" * 1_000_000,
    )
    assert len(ending.output) == KEPT_OUTPUT
    assert ending.output.endswith("x\N{REPLACEMENT CHARACTER}end")


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("/nonexistent",), "No such file or directory"),
        (("/etc/passwd",), "Permission denied"),
        (("/bin/echo", "a\0b"), "embedded null byte"),
    ],
)
async def test_what_cannot_be_run(argv: tuple[str, ...], why: str) -> None:
    """It is an ending like another, without an exit code."""
    assert await run_command(argv, b"", 5.0) == ActionResult(
        FAILED, f"it cannot be run: {why}", argv
    )


async def test_a_command_that_takes_too_long_is_killed_with_its_children(
    tmp_path: Path,
) -> None:
    """Also those that do not want to end."""
    file = tmp_path / "pids"
    ending = await shell(
        (
            f"trap '' TERM; sh -c 'trap \"\" TERM; sleep 600' & echo $$ $! > {file}; "
            "echo begun; wait; sleep 600"
        ),
        2.0,
    )
    why = "it took longer than 2s and was killed"
    assert ending == ended(-9, "begun\n", why)
    pids = [int(pid) for pid in file.read_text().split()]
    assert len(pids) == 2
    await asyncio.to_thread(eventually, lambda: not any(map(is_alive, pids)))


async def test_what_it_leaves_running_holds_nobody_up(tmp_path: Path) -> None:
    """A child in the background keeps the output open; the command has ended all the
    same.
    """
    file = tmp_path / "pid"
    ending = await shell(f"sleep 600 & echo $! > {file}; echo done", 60.0)
    assert ending == ended(0, "done\n")
    os.kill(int(file.read_text()), 9)
