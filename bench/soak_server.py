"""Child process of `soak`: servers that restart, change and fail in all ways, and come back.

Its argument is how many servers. It prints their ports as JSON, and for each line on its standard input how
often metrics were asked for and which failures were played, as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import random
import re
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from answers import BODIES, CAPTURES, body, growing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Act = Callable[[asyncio.StreamWriter, bytes], Awaitable[None]]

#: Seconds for which a server does the same.
ACT_SECONDS = 1.5
_UPSTREAM = CAPTURES.parent / "upstream"
_MODEL = re.compile(rb'model_name="[^"]*"')
#: Answers of one life, after which the counters begin anew.
_LIFE = 40


def lives() -> list[list[bytes]]:
    """Return the answers of servers of every kind, over a life each."""
    kinds = [body(path) for path in BODIES.values()]
    kinds += [body(CAPTURES / name / "metrics-final.txt") for name in ("dp2", "nospec")]
    kinds += [path.read_bytes() for path in sorted(_UPSTREAM.glob("*.txt"))]
    return [growing(kind, _LIFE) for kind in kinds]


def answer(text: bytes, status: str = "200 OK", *more: str) -> bytes:
    """Return an answer as bytes."""
    kind = "application/openmetrics-text" if text.endswith(b"# EOF\n") else "text/plain"
    head = (f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(text)}", *more, "", "")
    return "\r\n".join(head).encode() + text


def sends(make: Callable[[bytes], bytes]) -> Act:
    """Return an act that sends what is made of a proper answer."""

    async def act(writer: asyncio.StreamWriter, text: bytes) -> None:
        writer.write(make(text))
        await writer.drain()

    return act


async def hang(_writer: asyncio.StreamWriter, _text: bytes) -> None:
    """Say nothing."""
    await asyncio.sleep(60)


async def drip(writer: asyncio.StreamWriter, text: bytes) -> None:
    """Send slower than anybody waits."""
    for byte in answer(text):
        writer.write(bytes((byte,)))
        await writer.drain()
        await asyncio.sleep(0.01)


async def reset(writer: asyncio.StreamWriter, text: bytes) -> None:
    """End in the middle with a reset."""
    writer.write(answer(text)[: len(text) // 2])
    await writer.drain()
    writer.transport.abort()


_TOO_LARGE = answer(b"# nothing of interest\n" * 800_000)


async def endless(writer: asyncio.StreamWriter, _text: bytes) -> None:
    """Send more than anybody takes, without a word on how much."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        writer.write(_TOO_LARGE)
        await writer.drain()


FAILURES: dict[str, Act] = {
    "status": sends(lambda _: answer(b"no\n", "503 Service Unavailable")),
    "redirect": sends(lambda _: answer(b"", "302 Found", "Location: /elsewhere")),
    "hang": hang,
    "drip": drip,
    "reset": reset,
    "cut off": sends(lambda text: answer(text)[: len(text) // 3]),
    "cut off within a line": sends(lambda text: answer(text[: len(text) // 2])),
    "closed": sends(lambda _: b""),
    "no HTTP": sends(lambda _: b"SSH-2.0-OpenSSH_9.2\r\n"),
    "HTML": sends(lambda _: answer(b"<!doctype html><title>login</title>")),
    "empty": sends(lambda _: answer(b"")),
    "noise": sends(lambda _: answer(random.Random(7).randbytes(20_000))),
    "not gzip": sends(lambda text: answer(text, "200 OK", "Content-Encoding: gzip")),
    "gzip": sends(lambda text: answer(gzip.compress(text, 1), "200 OK", "Content-Encoding: gzip")),
    "too large": sends(lambda _: _TOO_LARGE),
    "endless": endless,
    "negative": sends(lambda text: answer(re.sub(rb"(draft\S*_total\S*) \S+", rb"\1 -1", text))),
    "NaN": sends(lambda text: answer(re.sub(rb"(_total\S*) \S+", rb"\1 NaN", text))),
    "twice": sends(lambda text: answer(text + text)),
    "a series lost": sends(lambda text: answer(re.sub(rb"\n\S*accepted_tokens_total\S* \S+", b"", text))),
    "many engines": sends(
        lambda text: answer(
            b"".join(
                b'vllm:spec_decode_num_drafts_total{engine="%d",model_name="m"} 5\n' % n for n in range(300)
            )
        )
    ),
    "refused": hang,  # nobody listens then
}


class Server:
    """One server: in turn it does well in some way and fails in some way.

    Args:
        number: which one; they are at different points of the play.
        kinds: answers by kind of server.
    """

    def __init__(self, number: int, kinds: list[list[bytes]]) -> None:
        self._number = number
        self._kinds = kinds
        self._listener: asyncio.Server | None = None
        self.port = 0
        self.polls = 0
        self.played: Counter[str] = Counter()

    async def listen(self) -> None:
        """Listen, after the first time at the same port."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    @property
    def _step(self) -> int:
        return int(time.monotonic() / ACT_SECONDS) + 7 * self._number

    @property
    def _failure(self) -> str:
        step = self._step
        return list(FAILURES)[step // 2 % len(FAILURES)] if step % 2 else ""

    async def play(self) -> None:
        """Go away and come back when it is time to."""
        while True:
            await asyncio.sleep(0.05)
            gone = self._failure == "refused"
            if gone and self._listener is not None:
                self._listener.close()
                self._listener = None
                self.played["refused"] += 1
            elif not gone and self._listener is None:
                with contextlib.suppress(OSError):
                    await self.listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Cancelled where it hangs when the benchmark ends.
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            if b" /version" in head:
                await sends(lambda _: answer(b'{"version": "0.32.0"}'))(writer, b"")
            else:
                self.polls += 1
                failure = self._failure
                self.played[failure] += bool(failure)
                await FAILURES.get(failure, sends(answer))(writer, self._text())
        writer.close()

    def _text(self) -> bytes:
        turn = self._step // 2
        life = self._kinds[turn % len(self._kinds)]
        # Every life has a model of its own.
        return _MODEL.sub(b'model_name="model-%d"' % turn, life[self.polls % len(life)])


async def main(count: int) -> None:
    """Serve, and tell."""
    kinds = lives()
    servers = [Server(number, kinds) for number in range(count)]
    for server in servers:
        await server.listen()
    plays = [asyncio.create_task(server.play()) for server in servers]
    sys.stdout.write(json.dumps([server.port for server in servers]) + "\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        played = sum((server.played for server in servers), Counter[str]())
        found = {"polls": sum(server.polls for server in servers), "failures": dict(played)}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
    for play in plays:
        play.cancel()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
