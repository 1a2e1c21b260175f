"""Processes: one command run to its end, or to the end of its time, with all that it started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..duration import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .commandline import Invocation

#: How much of the end of the output is kept, in bytes.
KEPT = 2048

#: Seconds between asking a command to end and killing it.
_GRACE = 1.0
#: Seconds between two looks whether a command has ended.
_BEAT = 0.02
_CHUNK = 64 * 1024
#: Reads behind a command's end; what it left running may write for ever.
_LAST_READS = 32


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended.

    Attributes:
        exit_code: minus the signal's number if by one; ``None`` where it did not start.
        output: the end of what it printed, to both of its outputs.
        problem: why it failed; empty where it ended with 0.
    """

    exit_code: int | None
    output: str
    problem: str


async def run(invocation: Invocation, seconds: float, variables: Mapping[str, str]) -> Ending:
    """Run a command in a process group of its own, without a shell.

    After `seconds`, or when this is cancelled, the group is asked to end, and killed a second later. What a
    command leaves running when it ends by itself is left alone.

    Args:
        invocation: what to run.
        seconds: how long it may take.
        variables: the environment to choose from.
    """
    tail = _Tail()
    try:
        try:
            process = _start(invocation, variables, tail.write_end)
        except (OSError, ValueError) as error:  # the latter for what no argument can hold
            return Ending(None, "", f"it cannot be run: {getattr(error, 'strerror', None) or error}")
        tail.follow()
        late = False
        try:
            async with asyncio.timeout(seconds):
                await _exit(process)
        except TimeoutError:
            late = True
        finally:
            if process.poll() is None:
                await asyncio.shield(_end(process))
        output = tail.finish()
    finally:
        tail.close()
    code = process.returncode
    if late:
        return Ending(code, output, f"it took longer than {format_duration(seconds)} and was killed")
    return Ending(code, output, f"it ended with {code}" if code else "")


def _start(invocation: Invocation, variables: Mapping[str, str], output: int) -> subprocess.Popen[bytes]:
    # A file, not a pipe: nobody has to read it for the command to go on.
    with tempfile.TemporaryFile() as stdin:
        stdin.write(invocation.stdin)
        stdin.seek(0)
        return subprocess.Popen(  # noqa: S603 - an argument list, from checked values
            invocation.argv,
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=invocation.environment(variables),
            start_new_session=True,
        )


async def _exit(process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:  # noqa: ASYNC110 - the system tells nobody else
        await asyncio.sleep(_BEAT)


async def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the whole group to end, and kill what is left of it a second later."""
    _signal(process.pid, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GRACE):
            await _exit(process)
    _signal(process.pid, signal.SIGKILL)
    await _exit(process)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class _Tail:
    """The end of what is written to a pipe."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._kept = bytearray()
        self._loop = asyncio.get_running_loop()

    def follow(self) -> None:
        """Begin to read, once the command has the other end."""
        self._close_write_end()
        self._loop.add_reader(self._read_end, self._read)

    def finish(self) -> str:
        """Return the end of what was written by now."""
        for _ in range(_LAST_READS):
            if not self._read():
                break
        return self._kept.decode("utf-8", "replace")

    def close(self) -> None:
        """Close the pipe."""
        self._loop.remove_reader(self._read_end)
        self._close_write_end()
        os.close(self._read_end)

    def _read(self) -> bool:
        """Read a part; tell whether there was any."""
        try:
            chunk = os.read(self._read_end, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._loop.remove_reader(self._read_end)
        self._kept += chunk
        del self._kept[:-KEPT]
        return bool(chunk)

    def _close_write_end(self) -> None:
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1
