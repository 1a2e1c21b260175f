"""Child process of `memory`: polls as fast as it can, and prints what it holds meanwhile as JSON.

Arguments: the server's URL, how many polls, and every how many polls to look.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from memory import POLL_SECONDS
from processes import resident_bytes
from vllm_specdec_exporter.publish.collector import ResultCollector
from vllm_specdec_exporter.serve import command as serve
from vllm_specdec_exporter.serve import configuration as config  # `serve`: what the real process imports
from vllm_specdec_exporter.serve.endpoints import create_app
from vllm_specdec_exporter.serve.exporter import Exporter


def held() -> dict[str, int]:
    """Return what this process holds."""
    gc.collect()
    return {
        "resident": round(resident_bytes(os.getpid())),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "tasks": len(asyncio.all_tasks()),
        "objects": len(gc.get_objects()),
    }


async def main(url: str, polls: int, step: int) -> None:
    """Poll and report."""
    now = 0.0

    def clock() -> float:
        return now

    exporter = Exporter(lambda: config.load({"vllm.url": [url]}, {}), clock=clock)
    runner = web.AppRunner(create_app(exporter))
    await runner.setup()
    registry = CollectorRegistry()
    registry.register(ResultCollector(exporter.latest))
    poller = exporter._pollers[0]
    seen = []
    for done in range(polls + 1):
        if done % step == 0:
            seen.append(held())
        now = done * POLL_SECONDS
        await poller.poll()
        assert poller.latest.up, poller.latest.failure
        if done % 3 == 0:
            generate_latest(registry)
    await poller.close()
    await runner.cleanup()
    sys.stdout.write(json.dumps(seen))


assert serve
asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
