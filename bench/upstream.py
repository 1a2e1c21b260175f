"""A bare HTTP server for the benchmarks: answers every request with one body, or accepts and hangs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path


async def main(bodies: list[bytes]) -> None:
    """Serve the bodies in turn on a free port, which is printed; without any, every request hangs.

    `{label}` in the body is replaced by a number that grows by one every tenth request.
    """
    requests = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        with contextlib.suppress(OSError, EOFError):  # whoever asked may leave at any time
            head = await reader.readuntil(b"\r\n\r\n")
            if not bodies:
                await asyncio.sleep(3600)
                return
            requests += b" /metrics" in head
            text = bodies[requests % len(bodies)].replace(b"{label}", b"%d" % (requests // 10))
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(text)
            )
            writer.write(text)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def read(path: Path) -> list[bytes]:
    """Return the content of a file, or of every file in a folder."""
    return [file.read_bytes() for file in (sorted(path.iterdir()) if path.is_dir() else [path])]


asyncio.run(main(read(Path(sys.argv[1])) if sys.argv[1] else []))
