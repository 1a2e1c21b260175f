"""A scripted server for the benchmark of the tap: answers as vLLM does, as fast as it can, or at a set pace.

What to answer is in the request's field `script`. Each event of a stream has the moment at which it was sent
in it, on the machine's monotonic clock, so that whoever reads it knows how long it was under way.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import math
import select
import socket
import sys
import time
from itertools import count
from typing import Any

#: What is in front of the moment of sending in an event, and its digits.
MARK, DIGITS = b'"sent":"', 20

STEPS = 60
_ID = "chatcmpl-" + "0123456789abcdef" * 2
_RECORD = {
    "num_spec_steps": STEPS,
    "num_draft_tokens": 4 * STEPS,
    "num_accepted_draft_tokens": 2 * STEPS,
    "acceptance_histogram": [0, 0, STEPS, 0, 0],
    "mean_acceptance_length": 3.0,
    "draft_acceptance_rate": 0.5,
    "per_step_drafted": [4] * STEPS,
    "per_step_accepted": [2] * STEPS,
}
_USAGE = {"prompt_tokens": 500, "total_tokens": 680, "completion_tokens": 3 * STEPS}
_METRICS = {"speculative_decoding": _RECORD}


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def _part(**fields: object) -> dict[str, Any]:
    head = {"id": _ID, "object": "chat.completion.chunk", "created": 1700000000, "model": "tiny-llama"}
    return head | fields


_TOKEN = _event(
    _part(
        choices=[{"index": 0, "delta": {"content": " token"}, "logprobs": None, "finish_reason": None}],
        sent="0" * DIGITS,
    )
)
_BEFORE, _AFTER = _chunk(_TOKEN).split(b"0" * DIGITS)
_LAST = _chunk(_event(_part(choices=[{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}])))
_USED = _chunk(_event(_part(choices=[], usage=_USAGE, metrics=_METRICS)))
_DONE = _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 06 Jan 2025 00:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
_MESSAGE = {"index": 0, "message": {"role": "assistant", "content": " token" * 40}, "finish_reason": "stop"}
_ANSWER = json.dumps(
    _part(object="chat.completion", choices=[_MESSAGE], usage=_USAGE, metrics=_METRICS)
).encode()
_WHOLE = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 06 Jan 2025 00:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(_ANSWER), _ANSWER)
)
EVENT_BYTES = len(_BEFORE) + DIGITS + len(_AFTER)
#: As many events as are sent at once where nothing is paced: what 64 KiB hold.
_MANY = (_BEFORE + b"0" * DIGITS + _AFTER) * (65536 // EVENT_BYTES)


class Connection:
    """One client."""

    def __init__(self, server: Server, sock: socket.socket) -> None:
        self._server, self._sock = server, sock
        self._buffer = b""
        self._missing = 0
        self._out = b""
        self._left = 0
        self._fast = 0
        self._pace = 0
        self._ending = b""
        self._script: dict[str, Any] = {}

    def readable(self) -> None:
        """Take what the client sends."""
        try:
            data = self._sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._server.forget(self._sock)
        elif self._missing > len(data):  # within a large body, of which only the beginning counts
            self._missing -= len(data)
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        if not self._missing:
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            self._missing = length - len(body)
            if self._missing > 0:
                return
        self._buffer, self._missing = b"", 0
        # The script is the last of the fields that the client writes, except in large requests.
        self._script = json.loads(body.partition(b'"script":')[2].partition(b"}")[0] + b"}")
        self._answer(asked=b'"include_usage":true' in body)

    def _answer(self, *, asked: bool) -> None:
        events = self._script.get("events", 0)
        if not events:
            self._send(_WHOLE)
            return
        self._ending = _LAST + (_USED if asked else b"") + _DONE
        self._left = events
        rate = self._script.get("rate", 0)
        if not rate:
            self._fast = math.ceil(events * EVENT_BYTES / len(_MANY))
            self._send(_HEAD)
            self.writable()
            return
        self._pace = round(1e9 / rate)
        now = time.monotonic_ns()
        if self._script.get("step"):  # all streams at the same moments, as an engine's steps are
            now = math.ceil(now / self._pace) * self._pace
        self._send(_HEAD)
        self._server.later(now, self)

    def due(self, at: int) -> None:
        """Send the event that was due at `at`."""
        event = _BEFORE + b"%020d" % time.monotonic_ns() + _AFTER
        self._left -= 1
        self._send(event if self._left else event + self._ending)
        if self._left:
            self._server.later(at + self._pace, self)

    def _send(self, data: bytes) -> None:
        self._out = data = self._out + data if self._out else data
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._server.forget(self._sock)
            return
        self._out = data[sent:]
        self._server.wait_to_write(self._sock, waits=bool(self._out))

    def writable(self) -> None:
        """Go on with what could not be sent at once, or with a stream that has no pace."""
        self._send(b"")
        while self._fast and not self._out:
            self._fast -= 1
            self._send(_MANY if self._fast else _MANY + self._ending)


class Server:
    """All connections, and when each is to send next."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self._epoll.register(self._listener, select.EPOLLIN)
        self._open: dict[int, tuple[socket.socket, Connection]] = {}
        self._writing: set[int] = set()
        self._heap: list[tuple[int, int, Connection]] = []
        self._numbers = count()
        self.port = self._listener.getsockname()[1]

    def later(self, at: int, connection: Connection) -> None:
        """Have a connection send at `at`, in nanoseconds."""
        heapq.heappush(self._heap, (at, next(self._numbers), connection))

    def wait_to_write(self, sock: socket.socket, *, waits: bool) -> None:
        """Tell a connection when it can send on."""
        number = sock.fileno()
        if waits == (number in self._writing):
            return
        (self._writing.add if waits else self._writing.discard)(number)
        self._epoll.modify(number, select.EPOLLIN | (select.EPOLLOUT if waits else 0))

    def forget(self, sock: socket.socket) -> None:
        """Close a connection."""
        number = sock.fileno()
        if number < 0:
            return
        self._open.pop(number, None)
        self._writing.discard(number)
        with contextlib.suppress(OSError):
            self._epoll.unregister(number)
        sock.close()

    def run(self) -> None:
        """Serve for good."""
        poller = self._epoll.fileno()
        while True:
            wait = None if not self._heap else max(0.0, (self._heap[0][0] - time.monotonic_ns()) / 1e9)
            # epoll itself waits for whole milliseconds.
            select.select([poller], [], [], wait)
            for number, events in self._epoll.poll(0):
                if number == self._listener.fileno():
                    self._accept()
                elif number in self._open:
                    connection = self._open[number][1]
                    if events & ~select.EPOLLOUT:
                        connection.readable()
                    if events & select.EPOLLOUT:
                        connection.writable()
            while self._heap and self._heap[0][0] <= time.monotonic_ns():
                at, _, connection = heapq.heappop(self._heap)
                connection.due(at)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open[sock.fileno()] = (sock, Connection(self, sock))
        self._epoll.register(sock, select.EPOLLIN)


if __name__ == "__main__":
    server = Server()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.run()
