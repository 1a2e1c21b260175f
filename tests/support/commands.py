"""Running the real command in tests of the command line."""

import asyncio
import contextlib
import io
import os
import pty
import select
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from unittest import mock

from support.programs import COMMAND, clean_environment
from vllm_specdec_exporter import cli

_SECONDS = 240.0


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str = ""


def run(
    *words: str,
    command: Sequence[str] = (COMMAND,),
    within: float = _SECONDS,
    **environment: str,
) -> Outcome:
    """Run a command to its end, with pipes for its output; `within` so many seconds, or
    it hangs.
    """
    done = subprocess.run(
        [*command, *words],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=clean_environment(**environment),
        timeout=within,
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


@contextlib.contextmanager
def started(*words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command with pipes for its output; at the end it is killed where it still
    runs.
    """
    process = subprocess.Popen(
        [COMMAND, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(**environment),
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def run_in_terminal(*words: str, **environment: str) -> Outcome:
    """Run a command to its end in a pseudo-terminal, where `out` is all that it
    showed.
    """
    master, slave = pty.openpty()
    try:
        process = subprocess.Popen(
            [COMMAND, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=clean_environment(TERM="xterm-256color", **environment),
        )
        os.close(slave)
        shown = bytearray()
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            readable, _, _ = select.select([master], [], [], 0.1)
            try:
                chunk = os.read(master, 65536) if readable else None
            except OSError:  # Linux says so when the other side is closed
                break
            if chunk == b"":
                break
            shown += chunk or b""
        return Outcome(process.wait(_SECONDS), shown.decode().replace("\r\n", "\n"))
    finally:
        os.close(master)


def run_here(*words: str, **environment: str) -> Outcome:
    """Run the command within this process: much faster, for what needs no process of
    its own.
    """
    # With a buffer beneath, as the real streams have: some commands write bytes.
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.dict(os.environ, clean_environment(**environment), clear=True),
    ):
        try:
            code = cli.main(words)
        except SystemExit as end:  # as argparse does
            code = int(end.code or 0)
    texts = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return Outcome(code, *texts)


@contextlib.contextmanager
def without_waiting(module: ModuleType) -> Iterator[None]:
    """Let no time pass for a command's module but what it sleeps, and that at once."""
    clock = 1000.0

    async def sleep(seconds: float) -> None:
        nonlocal clock
        clock += seconds
        await asyncio.tasks.sleep(0)

    its_time = SimpleNamespace(time=time.time, monotonic=lambda: clock)
    its_asyncio = SimpleNamespace(**{**vars(asyncio), "sleep": sleep})
    with mock.patch.multiple(module, time=its_time, asyncio=its_asyncio):
        yield


def wrong_refusals(
    command: str,
    table: Iterable[tuple[Sequence[str], str]],
    code: int = 2,
    **environment: str,
) -> list[str]:
    """Return what is wrong with how a command refuses words: without output, in one
    line that says why.
    """
    wrong = []
    for arguments, why in table:
        outcome = run_here(command, *arguments, **environment)
        line, end, more = outcome.err.partition("\n")
        is_one_line = (end, more) == ("\n", "")
        begins = line.startswith(f"vllm-specdec-exporter {command}: error: ")
        is_silent_failure = (outcome.code, outcome.out) == (code, "")
        if not (is_silent_failure and is_one_line and begins and why in outcome.err):
            wrong.append(f"{' '.join(arguments)[:200]}: wanted {why!r}, got {outcome}")
    return wrong
