"""Child process of the benchmarks: bare servers in one process, which note when they
were polled.

Its arguments are a file or a folder of answers, which are given in turn, and how many
servers; without a path every request hangs. `{label}` in an answer is replaced by a
number that grows by one every tenth poll. It prints the ports as JSON. Of a line ``slow
COUNT SECONDS`` on its standard input it takes how many of the servers answer how late;
after each line it prints when each was polled since the last one.
"""

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path


async def main(answers: list[bytes], count: int) -> None:
    """Serve until standard input ends."""
    arrivals: list[list[float]] = [[] for _ in range(count)]
    polls = [0] * count
    slow = 0
    seconds = 0.0

    async def serve(
        number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer on a connection until its other end closes it, as vLLM does between
        polls.
        """
        with contextlib.suppress(OSError, EOFError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                if not answers:
                    await asyncio.sleep(3600)
                if b" /metrics" not in head:
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                    continue
                arrivals[number].append(time.monotonic())
                polls[number] += 1
                if number < slow:
                    await asyncio.sleep(seconds)
                text = answers[polls[number] % len(answers)].replace(
                    b"{label}", b"%d" % (polls[number] // 10)
                )
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n")
                writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(text), text))
                await writer.drain()
        writer.close()

    ports = []
    for number in range(count):
        server = await asyncio.start_server(
            lambda r, w, n=number: serve(n, r, w), "127.0.0.1", 0
        )
        ports.append(server.sockets[0].getsockname()[1])
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line.startswith("slow"):
            slow = int(line.split()[1])
            seconds = float(line.split()[2])
        sys.stdout.write(json.dumps(arrivals) + "\n")
        sys.stdout.flush()
        for times in arrivals:
            times.clear()


def read(path: Path) -> list[bytes]:
    """Return the content of a file, or of every file in a folder."""
    files = [path]
    if path.is_dir():
        files = sorted(path.iterdir())
    return [file.read_bytes() for file in files]


if sys.argv[1]:
    bodies = read(Path(sys.argv[1]))
else:
    bodies = []
asyncio.run(main(bodies, int(sys.argv[2])))
