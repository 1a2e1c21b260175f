"""Answers of real servers for the benchmarks, and a bare server that gives them."""

from __future__ import annotations

import contextlib
import gzip
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
CAPTURES = ROOT / "tests" / "data" / "captures"
ONE_ENGINE = "1 engine, K=4 (real answer)"
BODIES = {
    ONE_ENGINE: CAPTURES / "ngram-phases" / "metrics-final.txt",
    "8 engines, K=5": CAPTURES / "rendered" / "vllm-0.32.0-8engine-k5.classic.txt.gz",
}


def body(path: Path) -> bytes:
    """Return the answer that a capture holds."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def growing(raw: bytes, count: int) -> list[bytes]:
    """Return `count` answers whose counters grow as those of a busy server do."""
    counters = re.compile(rb"^(vllm:(?:spec_decode|generation_tokens)\S*_total\S*) (\S+)$", re.MULTILINE)
    return [
        counters.sub(lambda m, n=n: b"%s %.1f" % (m[1], (float(m[2]) + 1) * n), raw)
        for n in range(1, count + 1)
    ]


def write_growing(folder: Path, count: int = 200) -> None:
    """Write the answers of one busy engine as files into a new folder, for `upstream`."""
    folder.mkdir()
    for n, answer in enumerate(growing(body(BODIES[ONE_ENGINE]), count)):
        (folder / f"{n:03}").write_bytes(answer)


@contextlib.contextmanager
def upstream(path: str) -> Iterator[str]:
    """Run the bare server in a process of its own; gives its URL."""
    command = [sys.executable, str(ROOT / "bench" / "upstream.py"), path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()
