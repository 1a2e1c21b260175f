"""The real command as a process, for tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The console script, as installed beside the Python that runs the tests.
COMMAND = str(Path(sys.executable).with_name("vllm-specdec-exporter"))

_START_SECONDS = 30.0
_STOP_SECONDS = 10.0


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without anything that would set the command up or colour it."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("VLLM_SPECDEC_EXPORTER_") and name not in ("NO_COLOR", "FORCE_COLOR")
    }
    return {**kept, "PYTHONUNBUFFERED": "1", **more}


def answers(url: str) -> bool:
    """Tell whether an address answers with success."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextlib.contextmanager
def simulator(*flags: str) -> Iterator[str]:
    """Run `simulate` on a free port, and yield its address once it answers."""
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [COMMAND, "simulate", "--web.listen-address", address, *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=clean_environment(),
    )
    try:
        end = time.monotonic() + _START_SECONDS
        while not answers(f"http://{address}/metrics"):
            assert process.poll() is None, "the simulator ended"
            assert time.monotonic() < end, "the simulator did not start"
            time.sleep(0.05)
        yield f"http://{address}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_STOP_SECONDS)


@contextlib.contextmanager
def exporter(*flags: str, command: tuple[str, ...] = (COMMAND,)) -> Iterator[str]:
    """Run `serve` on a free port, and yield its host:port once it answers."""
    address = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*command, "serve", "--web.listen-address", address, *flags],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=clean_environment(),
        )
        try:
            end = time.monotonic() + _START_SECONDS
            while not answers(f"http://{address}/-/ready"):
                log.seek(0)
                assert process.poll() is None, log.read()
                assert time.monotonic() < end, f"the exporter did not start: {log.read()}"
                time.sleep(0.05)
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
