"""Child process of `targets`: many servers in one, which take down when they were polled.

Its argument is how many. It prints their ports as JSON. Of a line ``slow COUNT SECONDS`` on its standard
input it takes how many of them answer how late; after each line it prints when each was polled since the
last one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time

from answers import BODIES, ONE_ENGINE, body, growing


async def main(count: int) -> None:
    """Serve, and tell."""
    answers = [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)
        for text in growing(body(BODIES[ONE_ENGINE]), 50)
    ]
    arrivals: list[list[float]] = [[] for _ in range(count)]
    polls = [0] * count
    slow, seconds = 0, 0.0

    async def serve(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer on a connection until its other end closes it, as vLLM does between polls."""
        with contextlib.suppress(OSError, EOFError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                if b" /version" in head:
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                else:
                    arrivals[number].append(time.monotonic())
                    polls[number] += 1
                    if number < slow:
                        await asyncio.sleep(seconds)
                    writer.write(answers[polls[number] % len(answers)])
                await writer.drain()
        writer.close()

    def listener(number: int) -> object:
        return asyncio.start_server(lambda r, w: serve(number, r, w), "127.0.0.1", 0)

    servers = [await listener(number) for number in range(count)]  # type: ignore[misc]
    sys.stdout.write(json.dumps([server.sockets[0].getsockname()[1] for server in servers]) + "\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line.startswith("slow"):
            slow, seconds = int(line.split()[1]), float(line.split()[2])
        sys.stdout.write(json.dumps(arrivals) + "\n")
        sys.stdout.flush()
        for times in arrivals:
            times.clear()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
