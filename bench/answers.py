"""Answers of real servers for the benchmarks, and bare servers that give them."""

import contextlib
import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from processes import environment

ROOT = Path(__file__).parent.parent
CAPTURES = ROOT / "tests" / "data" / "captures"
ONE_ENGINE = "1 engine, K=4 (real answer)"
BODIES = {
    ONE_ENGINE: CAPTURES / "ngram-phases" / "metrics-final.txt",
    "8 engines, K=5": CAPTURES / "rendered" / "vllm-0.32.0-8engine-k5.classic.txt.gz",
}


def body(path: Path) -> bytes:
    """Return the answer that a capture holds."""
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    return path.read_bytes()


def growing(raw: bytes, count: int) -> list[bytes]:
    """Return `count` answers whose counters grow as those of a busy server do.

    All by the same factor, so that totals stay the sums over positions: a sample that
    contradicts itself has findings, which cost more than a poll of a real server.
    """
    counters = re.compile(
        rb"^(vllm:(?:spec_decode|generation_tokens)\S*_total\S*) (\S+)$", re.MULTILINE
    )
    return [
        counters.sub(lambda m, n=n: b"%s %.1f" % (m[1], float(m[2]) * n), raw)
        for n in range(1, count + 1)
    ]


def write_growing(folder: Path, count: int = 200) -> Path:
    """Write the answers of one busy engine as files into a new folder, for `Servers`;
    returns the folder.
    """
    folder.mkdir()
    for n, answer in enumerate(growing(body(BODIES[ONE_ENGINE]), count)):
        (folder / f"{n:03}").write_bytes(answer)
    return folder


class Servers:
    """Bare servers in a process of their own, at `urls`."""

    def __init__(self, stdin: IO[str], stdout: IO[str]) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self.urls = [
            f"http://127.0.0.1:{port}" for port in json.loads(stdout.readline())
        ]

    def polled(self, order: str = "") -> list[list[float]]:
        """Return when each was polled since the last call, and give them an order; see
        `upstream`.
        """
        self._stdin.write(order + "\n")
        self._stdin.flush()
        arrivals: list[list[float]] = json.loads(self._stdout.readline())
        return arrivals


@contextlib.contextmanager
def servers(path: Path | None, count: int = 1) -> Iterator[Servers]:
    """Run bare servers that give the answers of a file or folder; without one, every
    request hangs.
    """
    program = str(ROOT / "bench" / "upstream.py")
    command = [sys.executable, program, str(path or ""), str(count)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Servers(process.stdin, process.stdout)
        finally:
            process.kill()


@contextlib.contextmanager
def upstream(path: Path | None) -> Iterator[str]:
    """Run one bare server; gives its URL."""
    with servers(path) as started:
        yield started.urls[0]
