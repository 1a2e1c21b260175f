"""The reporter: takes observations at once, and pushes them to the exporter from a thread of its own."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import Counter, deque
from typing import TYPE_CHECKING

from ..requests.push_schema import MAX_PUSH, MOST_REQUESTS, encode, join
from .delivery import Address, Delivered, DeliveryOutcome

if TYPE_CHECKING:
    import ssl
    from types import TracebackType
    from typing import Self

    from ..requests.observation import Observation
    from ..requests.push_schema import PushedRequest

_LOG = logging.getLogger(__package__)

#: Seconds from one try at a push to the next: twice as long each time.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0


class Reporter:
    """Pushes observations to an exporter.

    Whoever reports never waits and never sees an error. What cannot be pushed is counted, and its reason
    logged once (logger ``vllm_specdec_exporter.client``). May be used from any thread. After a fork, the
    child begins with an empty queue and counts of 0, and the parent pushes what was queued before.

    Args:
        url: of the exporter, such as ``http://127.0.0.1:9850``.
        token: the bearer token of ``--push.bearer-token-file``.
        token_file: a file that holds it, read anew for every push; instead of `token`.
        tls: TLS settings for https; by default those that verify the certificate.
        batch: requests in one push, 1 to 1000.
        interval: seconds that a request waits for others to be pushed with it.
        queue: requests that may wait; the oldest give way to new ones.
        timeout: seconds to wait for the connection, and for an answer.
        patience: seconds over which a push is tried again while the exporter cannot be reached.

    Attributes:
        sent: requests that the exporter took.
        rejected: requests that it could not use.
        failed: requests that could not be pushed, or of which nobody knows whether they were.
        dropped: requests that gave way to newer ones, or came after the end.
        unobserved: requests that passed without an observation, by reason.

    Raises:
        ValueError: an argument that makes no sense; the message says which.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        token_file: str | os.PathLike[str] = "",
        tls: ssl.SSLContext | None = None,
        batch: int = 100,
        interval: float = 5.0,
        queue: int = 10_000,
        timeout: float = 5.0,
        patience: float = 60.0,
    ) -> None:
        if not 1 <= batch <= MOST_REQUESTS:
            msg = f"batch: {batch}; allowed: 1 to {MOST_REQUESTS}"
            raise ValueError(msg)
        numbers = {"interval": interval, "queue": queue, "timeout": timeout, "patience": patience}
        for name, number in numbers.items():
            if not 0 < number < float("inf"):
                msg = f"{name}: {number}; a number above 0 is needed"
                raise ValueError(msg)
        self._address = Address(url, token, os.fspath(token_file), tls, timeout)
        self._batch, self._interval, self._patience = batch, interval, patience
        self._most = queue
        self._deadline: float | None = None
        self._begin()
        _REPORTERS.add(self)

    def _begin(self) -> None:
        """Begin with nothing: now, and after a fork, whose child has neither the thread nor its locks."""
        # Reentrant: the collection of garbage may close a stream, and report it, within any line here.
        self._changed = threading.Condition(threading.RLock())
        self._queue: deque[tuple[float, Observation | PushedRequest]] = deque()
        self._thread: threading.Thread | None = None
        self._under_way = 0
        self._hurry = False
        self._said = ""
        self.sent = self.rejected = self.failed = self.dropped = 0
        self.unobserved: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """Requests that wait to be pushed, or are being pushed."""
        return len(self._queue) + self._under_way

    def report(self, item: Observation | PushedRequest) -> None:
        """Push an observation, or a request that something else observed, with the next batch."""
        with self._changed:
            if self._deadline is not None:
                self.dropped += 1
                return
            if len(self._queue) >= self._most:
                self._queue.popleft()
                self.dropped += 1
            self._queue.append((time.monotonic(), item))
            if self._thread is None:
                self._start()
            if len(self._queue) in (1, self._batch):
                self._changed.notify_all()

    def note_unobserved(self, reason: str) -> None:
        """Count a request that passed without an observation."""
        with self._changed:
            self.unobserved[reason] += 1

    def flush(self, timeout: float = 5.0) -> bool:
        """Push what waits, for `timeout` seconds at most; return whether nothing waits any more."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self.waiting, timeout)
            self._hurry = False
            return done

    def close(self, timeout: float = 2.0) -> None:
        """Push what waits, once and for `timeout` seconds at most, and end. Whatever is left has failed."""
        with self._changed:
            if self._deadline is None:
                self._deadline = time.monotonic() + timeout
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        with self._changed:
            self.failed += len(self._queue)
            self._queue.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="vllm-specdec-exporter reporter", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread may begin any more: the interpreter ends, or there are too many
            self.dropped += len(self._queue)
            self._queue.clear()
        else:
            self._thread = thread

    # --- in the thread

    def _run(self) -> None:
        while items := self._next():
            try:
                self._push(items)
            except Exception:  # noqa: BLE001 - the program goes on, and so do the next pushes
                _LOG.exception("a push failed")
                self._count(failed=self._under_way)
            items.clear()  # nothing is kept while it waits

    def _next(self) -> list[tuple[float, Observation | PushedRequest]]:
        """Wait for the next batch; nothing means the end."""
        with self._changed:
            while not self._is_due():
                if self._deadline is not None:
                    return []
                self._changed.wait(self._pause())
            if self._deadline is not None and time.monotonic() >= self._deadline:
                return []
            count = min(self._batch, len(self._queue))
            self._under_way = count
            return [self._queue.popleft() for _ in range(count)]

    def _is_due(self) -> bool:
        if not self._queue:
            return False
        urgent = self._hurry or self._deadline is not None or len(self._queue) >= self._batch
        return urgent or time.monotonic() >= self._queue[0][0] + self._interval

    def _pause(self) -> float | None:
        if not self._queue:
            return None
        return max(0.0, self._queue[0][0] + self._interval - time.monotonic())

    def _push(self, items: list[tuple[float, Observation | PushedRequest]]) -> None:
        until = time.monotonic() + self._patience
        requests: list[bytes] = []
        for _, item in items:
            try:
                requests.append(encode(item))
            except ValueError as error:
                self._say(str(error))
                self._count(failed=1)
        while requests:
            size, count = 0, 0
            for request in requests:
                size += len(request) + 1
                if count and size > MAX_PUSH:
                    break
                count += 1
            self._deliver(requests[:count], until)
            del requests[:count]

    def _deliver(self, requests: list[bytes], until: float) -> None:
        """Push these requests, again and again until they are taken or it is too late."""
        body, count, pause = join(requests), len(requests), _FIRST_PAUSE
        while True:
            done = self._address.push(body, count)
            if done.fate is not DeliveryOutcome.LATER or self._deadline is not None:
                break
            if time.monotonic() + pause > until:
                break
            self._say(done.why)
            with self._changed:
                self._changed.wait_for(lambda: self._deadline is not None, pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._settle(done, count)

    def _settle(self, done: Delivered, count: int) -> None:
        self._say(done.why)
        if done.fate is DeliveryOutcome.TAKEN:
            self._count(sent=count - done.rejected, rejected=done.rejected)
        else:
            self._count(failed=count)

    def _count(self, sent: int = 0, rejected: int = 0, failed: int = 0) -> None:
        with self._changed:
            self.sent += sent
            self.rejected += rejected
            self.failed += failed
            self._under_way -= sent + rejected + failed
            self._changed.notify_all()

    def _say(self, why: str) -> None:
        """Log what stands in the way when it is something else than before."""
        if why == self._said:
            return
        if why:
            _LOG.warning("cannot push to %s: %s", self._address.url, why)
        else:
            _LOG.info("pushing to %s again", self._address.url)
        self._said = why


_REPORTERS: weakref.WeakSet[Reporter] = weakref.WeakSet()


def _close_all() -> None:
    for reporter in list(_REPORTERS):
        reporter.close()


def _after_fork() -> None:
    for reporter in list(_REPORTERS):
        reporter._begin()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
