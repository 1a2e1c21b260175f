"""Programs that answer over HTTP, for tests: on a free port, from entering to leaving a context."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

from ports import free_port
from prometheus.exporter_process import answers
from prometheus_server import PrometheusError, find_program

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_SECONDS = 30.0
_STOP_SECONDS = 10.0


@contextlib.contextmanager
def process(program: str, *flags: str, package: str, ready: str) -> Iterator[str]:
    """Run a program on a free port, and yield its URL once it answers.

    Args:
        program: its name.
        flags: what it is told, beside its address; `{address}` in one is that.
        package: the Debian package that it is in.
        ready: the path that answers once it is.

    Raises:
        PrometheusError: it is not installed, or did not become ready.
    """
    address = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryFile("w+b") as log:
        running = subprocess.Popen(
            [find_program(program, package), *(flag.format(address=address) for flag in flags)],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            end = time.monotonic() + _START_SECONDS
            while not answers(f"http://{address}{ready}"):
                if running.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    msg = f"{program} did not start: {log.read()[-2000:].decode('utf-8', 'replace')}"
                    raise PrometheusError(msg)
                time.sleep(0.05)
            yield f"http://{address}"
        finally:
            running.send_signal(signal.SIGTERM)
            try:
                running.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
