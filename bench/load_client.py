"""Child process of `load` and `peers`: asks over and over, and prints how long answers took as JSON.

Its argument is what it is told, as JSON: `address`, `path`, `rate` (a second, over all clients; 0: as fast as
answers come), `seconds`, `clients` (connections that are kept, as Prometheus keeps its own), `gzip`.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Answer:
    """What matters of an answer: its status, the size of its body, and whether the connection goes on."""

    status: int
    size: int
    keeps: bool


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> Answer:
    """Send a request, and read the whole answer."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head.split(None, 2)[1])
    keeps = head.startswith(b"http/1.1") and b"connection: close" not in head
    if b"transfer-encoding: chunked" in head:
        size = 0
        while more := int(await reader.readline(), 16):
            await reader.readexactly(more + 2)
            size += more
        await reader.readexactly(2)
        return Answer(status, size, keeps)
    if b"content-length:" not in head:
        return Answer(status, len(await reader.read(-1)), keeps=False)
    size = int(head.partition(b"content-length:")[2].split(None, 1)[0])
    await reader.readexactly(size)
    return Answer(status, size, keeps)


async def main(told: dict[str, Any]) -> None:
    """Ask, and report."""
    parts = urlsplit(told["address"])
    encoding = "gzip" if told.get("gzip") else "identity"
    request = (
        f"GET {told.get('path', '/metrics')} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Accept: text/plain;version=0.0.4\r\nAccept-Encoding: {encoding}\r\n\r\n"
    ).encode()
    rate, clients = told["rate"], told["clients"]
    took: list[float] = []
    sizes: list[int] = []
    failures = 0
    begin = time.monotonic()
    end = begin + told["seconds"]

    async def client(number: int) -> None:
        nonlocal failures
        pair = None
        due = begin + (number / rate if rate else 0.0)
        while (at := time.monotonic()) < end and due < end:
            if rate:
                await asyncio.sleep(max(0.0, due - at))
                start, due = due, due + clients / rate  # what waits for its turn has waited
            else:
                start = at
            try:
                if pair is None:
                    pair = await asyncio.open_connection(parts.hostname, parts.port)
                answer = await asyncio.wait_for(ask(*pair, request), 10)
                failures += answer.status != 200
                took.append(time.monotonic() - start)
                sizes.append(answer.size)
                if not answer.keeps:
                    pair[1].close()
                    pair = None
            except (OSError, EOFError, TimeoutError, ValueError):
                failures += 1
                if pair is not None:
                    pair[1].close()
                pair = None
        if pair is not None:
            pair[1].close()

    await asyncio.gather(*(client(n) for n in range(clients)))
    over = time.monotonic() - begin
    cuts = statistics.quantiles(took, n=100, method="inclusive") if len(took) > 1 else [0.0] * 99
    report = {
        "answers": len(took),
        "failures": failures,
        "seconds": over,
        "median": cuts[49],
        "p99": cuts[98],
        "longest": max(took, default=0.0),
        "size": statistics.median(sizes) if sizes else 0,
    }
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
