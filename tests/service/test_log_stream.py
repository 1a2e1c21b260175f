"""The stream of log lines: nobody waits for what is behind standard error, and lines stay lines."""

import logging
import os
import pty
import subprocess
import sys
from pathlib import Path

from vllm_specdec_exporter.serve import logs

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


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """Lines are lost without an error; what comes once there is room is written."""
    file = tmp_path / "log"
    code = _WRITES + "limit(0); log.error('lost'); log.handlers[0].flush(); limit(1000); log.error('another')"
    with file.open("wb") as stream:
        subprocess.run((sys.executable, "-c", code), stderr=stream, timeout=240, check=True)
    assert file.read_text().splitlines() == ["another"]


def test_a_field_without_a_value() -> None:
    """It is left out."""
    record = logging.LogRecord("", logging.INFO, "", 0, "payoff", None, None)
    record.fields = {"speedup": None, "k": 0, "why": ""}
    assert logs.LogfmtFormatter().format(record).endswith(' level=info msg=payoff k=0 why=""')
    assert "speedup" not in logs.JsonFormatter().format(record)
