"""The real exporter with a tap, as a process, between clients and servers that live
here.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from support.exporter import Metrics, RunningExporter, running_exporter
from support.ports import free_port
from tap.ends import HOST, PATIENCE, End, Server, connect, passes, reaches
from tap.streams import ANSWERED_PLAIN, ASKED, ASKED_PLAIN, BEGUN


@dataclass
class Process:
    """An exporter with a tap."""

    exporter: RunningExporter
    port: int  # where its tap listens

    async def metrics(self, *names: str) -> Metrics:
        """Return what /metrics says."""
        return await asyncio.to_thread(self.exporter.metrics, *names)

    async def becomes(
        self, condition: Callable[[Metrics], object], *names: str
    ) -> None:
        """Wait until /metrics says so."""
        async with asyncio.timeout(PATIENCE):
            while not condition(await self.metrics(*names)):  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.05)

    async def says(self, text: str) -> None:
        """Wait until it is in the log."""
        async with asyncio.timeout(PATIENCE):
            while text not in self.exporter.log():
                assert self.exporter.process.poll() is None, self.exporter.log()
                await asyncio.sleep(0.05)

    async def reload(self, config: str, says: str) -> None:
        """Change the configuration, and wait for what the log says of that."""
        self.exporter.configure(config)
        self.exporter.send(signal.SIGHUP)
        await self.says(says)

    async def starts(self, config: str | None = None) -> None:
        """Wait until it stands by no longer, after a change of the configuration."""
        if config is not None:
            self.exporter.configure(config)
            self.exporter.send(signal.SIGHUP)
        async with asyncio.timeout(PATIENCE):
            while not await asyncio.to_thread(self._has_started):  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.05)

    def _has_started(self) -> bool:
        try:
            return self.exporter.get("/config").status == 200
        except OSError:  # between two listeners
            return False

    async def exit_code(self) -> int:
        """Wait for its end."""
        return await asyncio.to_thread(self.exporter.process.wait, PATIENCE)

    async def ask(
        self, client: End, server: End, request: bytes, answer: bytes
    ) -> None:
        """Ask and answer on an open connection, byte for byte."""
        await passes(client, server, request)
        await passes(server, client, answer)


@asynccontextmanager
async def process(
    *flags: str, upstream: str, listens: bool = True, **more: Any
) -> AsyncIterator[Process]:
    """Run the exporter until it answers, and its tap too if it `listens`; the loop goes
    on meanwhile.
    """
    port = free_port()
    web = free_port()
    arguments = [
        "--web.listen-address",
        f"{HOST}:{web}",
        "--tap.listen-address",
        f"{HOST}:{port}",
    ]
    # No polls where a test does not ask for them: they would reach its server.
    if not any(flag.startswith("--vllm.url") for flag in flags):
        arguments += ["--vllm.url", f"http://{HOST}:1"]
    if upstream:
        arguments += ["--tap.upstream", upstream]
    with contextlib.ExitStack() as stack:
        exporter = running_exporter(*arguments, *flags, **more)
        running = Process(await asyncio.to_thread(stack.enter_context, exporter), port)
        if listens:
            await running.says("tap listening")
        yield running


async def both(running: Process, upstream: Server, first: bytes) -> tuple[End, End]:
    """Return both ends of a new connection, after the client sent `first` and the
    server read it.
    """
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                client = await connect(running.port)
                break
            # until it listens again, where another takes its place
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)
    return client, await reaches(client, upstream, first)


async def answered(running: Process, upstream: Server) -> tuple[End, End]:
    """Return both ends of a new connection whose first request was answered."""
    client, server = await both(running, upstream, ASKED_PLAIN)
    await passes(server, client, ANSWERED_PLAIN)
    return client, server


async def begun(running: Process, upstream: Server) -> tuple[End, End]:
    """Return both ends of a new connection with a stream whose first events have
    arrived.
    """
    client, server = await both(running, upstream, ASKED)
    await passes(server, client, BEGUN)
    return client, server


def numbers(metrics: Metrics, name: str) -> dict[str, float]:
    """The values of a metric other than 0, by the values of its labels."""
    return {
        ",".join(value for _, value in sorted(key)): value
        for key, value in metrics.values(name).items()
        if value
    }
