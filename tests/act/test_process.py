"""Running one command."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from support.programs import eventually
from vllm_specdec_exporter.commands.act.process import KEPT_OUTPUT, CommandResult, Invocation, run

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
    ending = await shell("ps -o pgid= -p $$; echo $$")
    group, pid = ending.output.split()
    assert group == pid
