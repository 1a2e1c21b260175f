"""The load of the benchmark of the tap: clients of an API, all in this process, which tell how long it took.

    python bench/tap_client.py 127.0.0.1:8000 '{"clients": 32, "seconds": 5, "script": {"events": 100}}'

Prints as JSON what `Load.report` returns. With `hold`, it says `held` when each stream has begun, and ends at
a line from standard input.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import select
import socket
import sys
import time
from typing import Any

from tap_server import DIGITS, MARK

_END = b"0\r\n\r\n"
_SPAN = len(MARK) + DIGITS
_PROMPT = "What is not drafted costs nothing. " * 60


def request(script: dict[str, Any], *, ask: bool, size: int) -> bytes:
    """Return a chat request for what `script` says, of about `size` bytes, 2 kB at least."""
    body: dict[str, Any] = {"model": "tiny-llama", "temperature": 0.7}
    if script.get("events"):
        body["stream"] = True
        if ask:
            body["stream_options"] = {"include_usage": True}
    body["script"] = script
    body["messages"] = [{"role": "user", "content": _PROMPT + "A" * max(0, size - len(_PROMPT))}]
    text = json.dumps(body, separators=(",", ":")).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: server\r\nUser-Agent: bench\r\nAccept: */*\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text


class Client:
    """One client, which sends a request as soon as the last one is answered."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.sock: socket.socket | None = None
        self._left = b""
        self._tail = b""
        self._length = -1
        self._first = True
        self._sent = 0

    def begin(self) -> None:
        """Send the next request."""
        self._tail, self._length, self._first = b"", -1, True
        self._sent = time.monotonic_ns()
        if self.sock is None:
            self.sock = socket.create_connection(self._load.address)
            self.sock.setblocking(False)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._load.follow(self)
        self._left = self._load.request
        self.writable()

    def writable(self) -> None:
        """Send what is left of the request."""
        assert self.sock is not None  # it has begun
        waited = len(self._left) < len(self._load.request)
        with contextlib.suppress(BlockingIOError):
            self._left = self._left[self.sock.send(self._left) :]
        if self._left or waited:
            self._load.wait_to_write(self.sock, waits=bool(self._left))

    def readable(self) -> None:
        """Take what came."""
        assert self.sock is not None  # it has begun
        data = self.sock.recv(1 << 18)
        now = time.monotonic_ns()
        assert data, "the connection was closed within an answer"
        if self._first:
            self._first = False
            assert data.startswith(b"HTTP/1.1 200 "), data[:300]
            if now >= self._load.settled or not self._load.paced:
                self._load.answers.append(now - self._sent)
            self._load.begun += 1
        self._load.bytes += len(data)
        if self._load.streams:
            self._take_events(data, now)
        else:
            self._take_whole(data)

    def _take_events(self, data: bytes, now: int) -> None:
        data = self._tail + data
        if self._load.paced:
            seen, at = 0, data.find(MARK)
            while 0 <= at <= len(data) - _SPAN:
                self._load.passed += 1
                if now >= self._load.settled:
                    self._load.events.append(now - int(data[at + len(MARK) : at + _SPAN]))
                seen = at + _SPAN
                at = data.find(MARK, seen)
            self._tail = data[max(seen, len(data) - _SPAN) :]
        else:
            self._tail = data[-_SPAN:]
        if data.endswith(_END):
            self._end()

    def _take_whole(self, data: bytes) -> None:
        if self._length < 0:
            self._tail += data
            head, end, body = self._tail.partition(b"\r\n\r\n")
            if not end:
                return
            self._length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]) - len(body)
        else:
            self._length -= len(data)
        if self._length == 0:
            self._end()

    def _end(self) -> None:
        self._load.ended += 1
        if not self._load.keep and self.sock is not None:
            self._load.leave(self.sock)
            self.sock = None
        if self._load.goes_on():
            self.begin()
        else:
            self._load.left -= 1


class Load:
    """All clients, until the time is over or the requests are made."""

    def __init__(self, address: str, told: dict[str, Any]) -> None:
        host, _, port = address.partition(":")
        self.address = host, int(port)
        script = told["script"]
        self.streams = bool(script.get("events"))
        self.paced = bool(script.get("rate"))
        self.request = request(script, ask=told.get("ask", True), size=told.get("size", 0))
        self.keep = told.get("keep", True)
        self.seconds, self.requests = told.get("seconds", 1e9), told.get("requests", 1 << 62)
        self.hold = told.get("hold", False)
        self.answers: list[int] = []
        self.events: list[int] = []
        self.bytes = self.passed = self.begun = self.ended = 0
        self._clients = [Client(self) for _ in range(told.get("clients", 1))]
        self.left = len(self._clients)
        self._epoll = select.epoll()
        self._known: dict[int, Client] = {}
        # They begin one after the other, so that they are not in step unless the server is.
        settle = told.get("settle", 0.1)
        start = time.monotonic()
        self._starts = [(start + settle * n / self.left, n) for n in range(self.left)]
        self._started = start
        #: From when on events count, in nanoseconds: when all have begun.
        self.settled = int((start + settle) * 1e9)

    def follow(self, client: Client) -> None:
        """Look at a client's connection."""
        assert client.sock is not None  # it has just connected
        self._known[client.sock.fileno()] = client
        self._epoll.register(client.sock, select.EPOLLIN)

    def wait_to_write(self, sock: socket.socket, *, waits: bool) -> None:
        """Tell a client when it can send on."""
        self._epoll.modify(sock, select.EPOLLIN | (select.EPOLLOUT if waits else 0))

    def leave(self, sock: socket.socket) -> None:
        """Close a connection."""
        self._epoll.unregister(sock)
        del self._known[sock.fileno()]
        sock.close()

    def goes_on(self) -> bool:
        """Tell whether there are further requests to make."""
        if time.monotonic() - self._started > self.seconds:
            return False
        return bool(self.ended + self.left <= self.requests)

    def run(self) -> None:
        """Make all requests."""
        while self.left and not (self.hold and self.begun == len(self._clients)):
            now = time.monotonic()
            while self._starts and self._starts[0][0] <= now:
                self._clients[heapq.heappop(self._starts)[1]].begin()
            wait = max(0.0, self._starts[0][0] - now) if self._starts else 60.0
            assert select.select([self._epoll.fileno()], [], [], wait)[0] or self._starts, "no answer"
            for number, events in self._epoll.poll(0):
                if events & select.EPOLLOUT:
                    self._known[number].writable()
                if events & ~select.EPOLLOUT:
                    self._known[number].readable()
        self.took = time.monotonic() - self._started

    def report(self) -> dict[str, Any]:
        """Return what was measured: times in milliseconds, as (median, 99th percentile, longest)."""
        return {
            "seconds": self.took,
            "requests": self.ended,
            "bytes": self.bytes,
            "events": self.passed,
            "timed_events": len(self.events),
            "timed_answers": len(self.answers),
            "answer_ms": spread(self.answers),
            "event_ms": spread(self.events),
        }


def spread(nanoseconds: list[int]) -> tuple[float, float, float]:
    """Return median, 99th percentile and maximum in milliseconds; zeros for nothing."""
    found = sorted(nanoseconds) or [0]
    last = len(found) - 1
    return found[last // 2] / 1e6, found[round(last * 0.99)] / 1e6, found[last] / 1e6


def main() -> None:
    """Run one load."""
    load = Load(sys.argv[1], json.loads(sys.argv[2]))
    load.run()
    if load.hold:
        sys.stdout.write("held\n")
        sys.stdout.flush()
        sys.stdin.readline()
        return
    sys.stdout.write(json.dumps(load.report()))


if __name__ == "__main__":
    main()
