"""Child process of the benchmark: polls as fast as it can and prints its resident memory as JSON.

Arguments: the server's URL, how many polls, and every how many polls to look.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import sys
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from vllm_specdec_exporter import config, serve  # `serve`: what the real process imports
from vllm_specdec_exporter.collector import ResultCollector
from vllm_specdec_exporter.exporter import Exporter
from vllm_specdec_exporter.server import create_app


def resident_kib() -> int:
    """Return this process's resident memory in KiB."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


async def main(url: str, polls: int, step: int) -> None:
    """Poll and report. The clock advances five seconds a poll, so that the windows are full."""
    ticks = itertools.count(step=5)
    now = 0.0

    def clock() -> float:
        return now

    exporter = Exporter(lambda: config.load({"vllm.url": [url]}, {}), clock=clock)
    runner = web.AppRunner(create_app(exporter))
    await runner.setup()
    registry = CollectorRegistry()
    registry.register(ResultCollector(exporter.latest))
    poller = exporter._pollers[0]
    seen = {}
    for done in range(polls + 1):
        if done % step == 0:
            gc.collect()
            seen[done] = resident_kib()
        now = float(next(ticks))
        await poller.poll()
        assert poller.latest.up, poller.latest.failure
        if done % 3 == 0:
            generate_latest(registry)
    await poller.close()
    await runner.cleanup()
    sys.stdout.write(json.dumps(seen))


assert serve
asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
