"""A real Prometheus for the benchmarks: in a folder that holds its configuration, and takes its data."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from processes import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def prometheus(folder: Path) -> Iterator[tuple[str, int]]:
    """Run Prometheus with `prometheus.yml` and `data` of a folder; gives its URL and its process's number."""
    program = shutil.which("prometheus")
    assert program, "prometheus is missing: apt-get install prometheus"
    address = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    with subprocess.Popen(command) as process:
        try:
            while True:
                assert process.poll() is None, "Prometheus ended"
                with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/-/ready"):
                    break
                time.sleep(0.1)
            yield f"http://{address}", process.pid
        finally:
            process.terminate()


def ask(url: str, path: str, **parameters: str) -> Any:
    """Return the `data` of an answer of Prometheus's API."""
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}") as answer:
        return json.load(answer)["data"]
