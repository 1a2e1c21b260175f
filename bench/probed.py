"""The real `serve` with one task more: how late its event loop runs what is due.

The first argument is a file; SIGUSR1 writes there as JSON what was seen since the last time.
"""

from __future__ import annotations

import asyncio
import json
import signal
import statistics
import sys
from pathlib import Path

from vllm_specdec_exporter import cli
from vllm_specdec_exporter.serve.exporter import Exporter

#: Seconds between two looks.
EVERY = 0.005


def watch(file: Path) -> None:
    """Begin to look, in the loop that runs."""
    loop = asyncio.get_running_loop()
    late: list[float] = []

    def look(due: float) -> None:
        late.append(max(0.0, loop.time() - due))
        loop.call_at(loop.time() + EVERY, look, loop.time() + EVERY)

    def tell() -> None:
        cuts = statistics.quantiles(late, n=100, method="inclusive")
        report = {"looks": len(late), "median": cuts[49], "p99": cuts[98], "longest": max(late)}
        file.with_suffix(".new").write_text(json.dumps(report), encoding="utf-8")
        file.with_suffix(".new").rename(file)
        late.clear()

    loop.add_signal_handler(signal.SIGUSR1, tell)
    look(loop.time())


if __name__ == "__main__":
    target = Path(sys.argv.pop(1))
    begin = Exporter.start
    watching: list[Path] = []

    def start(exporter: Exporter) -> None:
        """Start the exporter, and the first time the watch."""
        if not watching:
            watching.append(target)
            watch(target)
        begin(exporter)

    Exporter.start = start  # type: ignore[method-assign]
    sys.exit(cli.main())
