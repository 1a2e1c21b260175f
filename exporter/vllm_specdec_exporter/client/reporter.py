"""The reporter: queues observations, and pushes them to the exporter from a background thread."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import Counter, deque
from typing import TYPE_CHECKING

from ..requests.push_schema import MAX_PUSH, MAX_REQUESTS, encode, join
from .delivery import Address, DeliveryOutcome

if TYPE_CHECKING:
    import ssl
    from typing import Self

    from ..requests.observation import Observation
    from ..requests.push_schema import PushedRequest

_LOG = logging.getLogger(__package__)

#: Pause between two attempts of a push, in seconds: it doubles each time, up to the limit.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0


class Reporter:
    """Pushes observations to an exporter.

    `report` never blocks and never raises. Failures are counted, and their reason is logged once (logger
    ``vllm_specdec_exporter.client``). Thread-safe. After a fork, the child starts with an empty queue and
    counts of 0, and the parent pushes what was queued before.

    Args:
        url: of the exporter, such as ``http://127.0.0.1:9850``.
        token: the bearer token of ``--push.bearer-token-file``.
        token_file: a file with the token, read for every push; instead of `token`.
        tls: TLS settings for https; by default the certificate is verified.
        batch: requests in one push, 1 to 1000.
        interval: maximum age of a request in an incomplete batch, in seconds.
        queue: limit of queued requests; beyond it, the oldest are dropped.
        timeout: of the connection and of the response, in seconds.
        patience: how long a push is retried while the exporter cannot be reached, in seconds.

    Attributes:
        sent: requests that the exporter accepted.
        failed: requests whose push failed or has an unknown outcome.
        dropped: requests dropped from a full queue, or reported after `close`.
        unobserved: requests that passed without an observation, by reason.

    Raises:
        ValueError: an invalid argument; the message names it.
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
        if not 1 <= batch <= MAX_REQUESTS:
            raise ValueError(f"batch: {batch}; allowed: 1 to {MAX_REQUESTS}")
        numbers = {"interval": interval, "queue": queue, "timeout": timeout, "patience": patience}
        for name, number in numbers.items():
            if not 0 < number < float("inf"):
                raise ValueError(f"{name}: {number}; a number above 0 is needed")
        self._address = Address(url, token, os.fspath(token_file), tls, timeout)
        self._batch, self._interval, self._patience = batch, interval, patience
        self._queue_limit = queue
        self._deadline: float | None = None
        self._reset()
        _REPORTERS.add(self)

    def _reset(self) -> None:
        """Initialize the state; also in the child of a fork, which lacks the thread."""
        # Reentrant: garbage collection may close a stream, and report it, in any line here.
        self._changed = threading.Condition(threading.RLock())
        self._queue: deque[tuple[float, Observation | PushedRequest]] = deque()
        self._thread: threading.Thread | None = None
        self._in_progress = 0
        self._flushing = False
        self._last_reason = ""
        self.sent = self.rejected = self.failed = self.dropped = 0
        self.unobserved: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """Requests that are queued or being pushed."""
        return len(self._queue) + self._in_progress

    def report(self, item: Observation | PushedRequest) -> None:
        """Queue an observation, or a request that other code observed, for the next push."""
        with self._changed:
            if self._deadline is not None:
                self.dropped += 1
                return
            if len(self._queue) >= self._queue_limit:
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
        """Push queued requests within `timeout` seconds; return whether the queue is empty."""
        with self._changed:
            self._flushing = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self.waiting, timeout)
            self._flushing = False
            return done

    def close(self, timeout: float = 2.0) -> None:
        """Push queued requests once within `timeout` seconds, and stop. The rest counts as failed."""
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

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="vllm-specdec-exporter reporter", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter shuts down, or there are too many threads
            self.dropped += len(self._queue)
            self._queue.clear()
        else:
            self._thread = thread

    # --- in the thread

    def _run(self) -> None:
        while items := self._next():
            try:
                self._push(items)
            except Exception:  # noqa: BLE001 - the next pushes may succeed
                _LOG.exception("a push failed")
                self._count(failed=self._in_progress)
            items.clear()  # frees them while the thread waits

    def _next(self) -> list[tuple[float, Observation | PushedRequest]]:
        """Return the next batch when it is due; empty after `close`."""
        with self._changed:
            while not self._is_due():
                if self._deadline is not None:
                    return []
                self._changed.wait(self._pause())
            if self._deadline is not None and time.monotonic() >= self._deadline:
                return []
            count = min(self._batch, len(self._queue))
            self._in_progress = count
            return [self._queue.popleft() for _ in range(count)]

    def _is_due(self) -> bool:
        if not self._queue:
            return False
        urgent = self._flushing or self._deadline is not None or len(self._queue) >= self._batch
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
                self._log(str(error))
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
        """Push these requests, with retries until `until`."""
        body, count, pause = join(requests), len(requests), _FIRST_PAUSE
        while True:
            done = self._address.push(body, count)
            if done.outcome is not DeliveryOutcome.RETRY or self._deadline is not None:
                break
            if time.monotonic() + pause > until:
                break
            self._log(done.reason)
            with self._changed:
                self._changed.wait_for(lambda: self._deadline is not None, pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._log(done.reason)
        if done.outcome is DeliveryOutcome.ACCEPTED:
            self._count(sent=count - done.rejected, rejected=done.rejected)
        else:
            self._count(failed=count)

    def _count(self, sent: int = 0, rejected: int = 0, failed: int = 0) -> None:
        with self._changed:
            self.sent += sent
            self.rejected += rejected
            self.failed += failed
            self._in_progress -= sent + rejected + failed
            self._changed.notify_all()

    def _log(self, reason: str) -> None:
        """Log the reason of a failure if it has changed; an empty one means success."""
        if reason == self._last_reason:
            return
        if reason:
            _LOG.warning("cannot push to %s: %s", self._address.url, reason)
        else:
            _LOG.info("pushing to %s again", self._address.url)
        self._last_reason = reason


_REPORTERS: weakref.WeakSet[Reporter] = weakref.WeakSet()


def _close_all() -> None:
    for reporter in list(_REPORTERS):
        reporter.close()


def _after_fork() -> None:
    for reporter in list(_REPORTERS):
        reporter._reset()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
