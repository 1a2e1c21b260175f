"""The load of the benchmark of the tap: clients that stream answers, and note how old
events are.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tap_server import DIGITS, MARK

_SENT = re.compile(re.escape(MARK) + rb"(\d{%d})" % DIGITS)
_SPAN = len(MARK) + DIGITS
_END = b"\r\n0\r\n\r\n"
#: Of a prompt of 2 kB.
_PROMPT = "What is not drafted costs nothing. " * 60
#: Seconds in which clients begin one after the other, so that they are not in step
#: unless the server is.
_SETTLE_SECONDS = 1.0


@dataclass
class Seen:
    """What the clients have seen."""

    #: Whether times are noted, which begins when all clients have begun.
    counts: bool = False
    #: Nanoseconds that events were under way.
    events: list[int] = field(default_factory=list)
    #: Nanoseconds from a request to the first bytes of its answer.
    firsts: list[int] = field(default_factory=list)
    passed: int = 0  # events, those included that were not timed
    begun: int = 0  # answers that have begun
    requests: int = 0  # that were sent


class Client(asyncio.Protocol):
    """One client, which sends a request as soon as the last one is answered."""

    def __init__(
        self, script: dict[str, Any], record: Seen, goes_on: Callable[[], bool]
    ) -> None:
        body = {
            "model": "tiny-llama",
            "temperature": 0.7,
            "stream": True,
            "script": script,
        }
        body |= {
            "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": _PROMPT}],
        }
        text = json.dumps(body, separators=(",", ":")).encode()
        self._request = (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: server\r\nContent-Type: "
            b"application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(text), text)
        )
        self._seen = record
        self._goes_on = goes_on
        self._first = True
        self._sent = 0
        self._tail = b""
        #: Set when the connection is closed.
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._send()

    def _send(self) -> None:
        self._first = True
        self._sent = time.monotonic_ns()
        self._tail = b""
        self._seen.requests += 1
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Note when events came, and send the next request at the end of an answer."""
        received_at = time.monotonic_ns()
        if self._first:
            self._first = False
            assert data.startswith(b"HTTP/1.1 200 "), data[:300]
            self._seen.begun += 1
            if self._seen.counts:
                self._seen.firsts.append(received_at - self._sent)
        data = self._tail + data
        end = 0
        for match in _SENT.finditer(data):
            end = match.end()
            self._seen.passed += 1
            if self._seen.counts:
                self._seen.events.append(received_at - int(match[1]))
        self._tail = data[max(end, len(data) - _SPAN) :]
        if data.endswith(_END):
            if self._goes_on():
                self._send()
            else:
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that the client has ended; a connection closed within an answer is an
        error.
        """
        if self.transport.is_closing() and exc is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(exc or EOFError("closed within an answer"))


async def _begin(
    address: str,
    clients: int,
    script: dict[str, Any],
    record: Seen,
    goes_on: Callable[[], bool],
) -> list[Client]:
    """Begin all clients, one after the other, and return them when each has its first
    bytes.
    """
    host, _, port = address.removeprefix("http://").partition(":")
    loop = asyncio.get_running_loop()
    begun = []
    for _ in range(clients):
        begun.append(
            (
                await loop.create_connection(
                    lambda: Client(script, record, goes_on), host, int(port)
                )
            )[1]
        )
        await asyncio.sleep(_SETTLE_SECONDS / clients)
    while record.begun < clients:  # noqa: ASYNC110 - no event for each client
        await asyncio.sleep(0.05)
    return begun


async def stream(
    address: str, clients: int, seconds: float, script: dict[str, Any]
) -> Seen:
    """Stream for some seconds."""
    record = Seen()
    end = time.monotonic() + _SETTLE_SECONDS + seconds
    begun = await _begin(
        address,
        clients,
        script=script,
        record=record,
        goes_on=lambda: time.monotonic() < end,
    )
    record.counts = True
    await asyncio.gather(*(client.ended for client in begun))
    return record


async def request(address: str, clients: int, requests: int) -> None:
    """Make so many requests, whose answers are short."""
    record = Seen()
    script = {"events": 5, "rate": 1000, "step": False}
    begun = await _begin(
        address,
        clients,
        script=script,
        record=record,
        goes_on=lambda: record.requests < requests,
    )
    await asyncio.gather(*(client.ended for client in begun))


async def hold(address: str, streams: int, look: Callable[[], float]) -> float:
    """Hold so many streams open, with an event a second each, and return what `look`
    gives meanwhile.
    """
    script = {"events": 100_000, "rate": 1, "step": False}
    begun = await _begin(
        address, streams, script=script, record=Seen(), goes_on=lambda: False
    )
    held = look()
    for client in begun:
        client.transport.close()
    await asyncio.gather(*(client.ended for client in begun))
    return held
