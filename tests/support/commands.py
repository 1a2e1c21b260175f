"""Running the real command in tests of the command line."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from support.programs import COMMAND, clean_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECONDS = 60.0


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str = ""


def run(*words: str, command: Sequence[str] = (COMMAND,), **environment: str) -> Outcome:
    """Run a command to its end, with pipes for its output."""
    done = subprocess.run(
        [*command, *words],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env=clean_environment(**environment),
        timeout=_SECONDS,
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def run_in_terminal(*words: str, **environment: str) -> Outcome:
    """Run a command to its end in a pseudo-terminal, where `out` is all that it showed."""
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
