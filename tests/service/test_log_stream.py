"""The stream of log lines: nobody waits for what is behind standard error, and lines stay lines."""

import os
import pty
import subprocess
import sys
from pathlib import Path

_WRITES = """
import logging, resource, sys
from vllm_specdec_exporter.serve.logs import LineHandler

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

log = logging.getLogger("test")
log.addHandler(LineHandler(2))
"""


def test_a_paused_terminal() -> None:
    """It takes a few kilobytes and then nothing; a thousand lines are logged all the same, at once."""
    reads, writes = pty.openpty()
    try:
        code = _WRITES + "for number in range(1000): log.error('%d ' % number + 'x' * 900)\nprint('done')"
        done = subprocess.run(
            (sys.executable, "-c", code), stdout=subprocess.PIPE, stderr=writes, timeout=240, check=True
        )
        assert done.stdout == b"done\n"
        assert os.read(reads, 6) == b"0 xxxx"
    finally:
        os.close(reads)
        os.close(writes)


def test_a_disk_that_fills_up_within_a_line(tmp_path: Path) -> None:
    """The line that was cut stands alone; what comes once there is room begins anew, and tells of it."""
    file = tmp_path / "log"
    code = _WRITES + "limit(20); log.error('a line that does not fit'); limit(1000); log.error('another')"
    with file.open("wb") as stream:
        subprocess.run((sys.executable, "-c", code), stderr=stream, timeout=240, check=True)
    assert file.read_text().splitlines() == [
        "a line that does not",
        "log lines dropped: output blocked",
        "another",
    ]
