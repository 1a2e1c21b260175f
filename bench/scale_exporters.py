"""Many exporters in one process, for `bench/scale.py`: what a real one said over two hours, played back.

Run with a folder of recorded answers and the seconds between two, it serves ``/ENGINE/MODEL`` on a free port,
which is printed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest

from vllm_specdec_exporter.commands.simulate import Simulation, SimulationConfig, SimulatorServer
from vllm_specdec_exporter.publish.collector import ResultCollector
from vllm_specdec_exporter.serve import configuration as config
from vllm_specdec_exporter.serve.exporter import Exporter

#: What is recorded: a scrape every fifteen seconds over two hours, as a block of Prometheus holds it.
FRAMES, INTERVAL_SECONDS, POLL_SECONDS = 480, 15.0, 5.0
K = 5
MODEL = "the-model"
#: Windows that are full in the first frame.
_WARM_SECONDS = 600.0
_SPECULATION = json.dumps({"method": "eagle3", "num_speculative_tokens": K})


async def record(frames: int = FRAMES) -> list[bytes]:
    """Return what the exporter of a busy simulated server says, scrape by scrape."""
    simulation = Simulation(SimulationConfig(model=MODEL, num_speculative_tokens=K), seed=1)
    async with SimulatorServer(simulation, speed=0) as server:
        now = 0.0

        def clock() -> float:
            return now

        flags = {"vllm.url": [server.url], "spec.config": _SPECULATION}
        exporter = Exporter(lambda: config.load(flags, {}), clock=clock)
        registry = CollectorRegistry()
        registry.register(ResultCollector(exporter.latest))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        poller = exporter._pollers[0]

        async def pass_time(seconds: float) -> None:
            nonlocal now
            end = now + seconds
            while now < end:
                await server.advance(POLL_SECONDS)
                now += POLL_SECONDS
                await poller.poll()
                assert poller.latest.up, poller.latest.failure

        await pass_time(_WARM_SECONDS)
        found = []
        for _ in range(frames):
            await pass_time(INTERVAL_SECONDS)
            found.append(generate_latest(registry))
        await poller.close()
    return found


async def serve(frames: list[bytes], interval: float) -> None:
    """Play the frames back until the process is ended.

    Every engine is at another place of the two hours. An engine that comes to their end begins anew, as one
    that restarts does.

    Args:
        frames: what there is to say.
        interval: seconds until the next one is said.
    """
    start = time.monotonic()
    room = len(frames) // 2

    async def answer(request: web.Request) -> web.Response:
        engine, model = int(request.match_info["engine"]), request.match_info["model"]
        passed = int((time.monotonic() - start) / interval)
        frame = frames[(engine * 37 % room + passed) % len(frames)]
        text = frame.replace(MODEL.encode(), f"model-{model}".encode())
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.router.add_get("/{engine}/{model}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    recorded = [path.read_bytes() for path in sorted(Path(sys.argv[1]).iterdir())]
    asyncio.run(serve(recorded, float(sys.argv[2])))
