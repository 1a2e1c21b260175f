"""Turns of the polls: requests are answered before the next poll.

All polls share one thread with scrapes and probes. Left alone, every poll that is due
begins, and every response that has arrived is judged, before the loop looks at its
connections again: with a thousand servers and too little processor time nobody is ever
answered. So one poll begins or one response is judged in each turn of the loop. A poll
that waits for its turn has sent nothing, so its server is not called slow.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from ..runtime import logs
from ..runtime.daemon_threads import in_daemon_thread

T = TypeVar("T")

#: Large responses that wait for each other: with more of them another poll only grows
#: the heap.
MAX_LARGE = 16
#: Servers whose turns lie within so many seconds are polled at the same time, up to so
#: many. Alone, each poll finds the caches of the processor filled by other programs,
#: and takes half as long again; behind a larger burst, scrapes would wait.
_TOGETHER_SECONDS = 0.4
_MOST_TOGETHER = 8
#: Seconds between two lines of the log on polls that were left out.
_LOG_SECONDS = 60.0


def polled_together(servers: int, interval: float) -> int:
    """Return how many servers are polled at the same time, each `interval` seconds."""
    neighbours = int(servers * _TOGETHER_SECONDS / interval)
    return max(1, min(_MOST_TOGETHER, neighbours))


class PollTurns:
    """Lets the polls of one exporter take turns; `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Locks are given in the order of waiting.
        self._beginning = asyncio.Lock()
        self._turn = asyncio.Lock()
        self._large = asyncio.Lock()
        self._room = asyncio.Semaphore(MAX_LARGE)
        self._left_out = 0
        self._logged_at: float | None = None

    async def begin(self) -> None:
        """Wait until a poll may begin: in the order in which they are due, so that none
        starves.
        """
        # Only the first of them waits for a turn: what has been received goes before.
        async with self._beginning, self._room:
            await self.take()

    async def take(self) -> None:
        """Wait for a turn of the loop in which nothing else of a poll was done."""
        await self._turn.acquire()
        asyncio.get_running_loop().call_soon(self._turn.release)

    async def large(self, function: Callable[[], T]) -> T:
        """Return the result of work on a large response, done in a thread, one after
        another: threads take the interpreter from each other and from the loop.
        """
        async with self._room, self._large:
            return await in_daemon_thread(function)

    def leave_out(self, polls: int = 1) -> None:
        """Count polls that were left out, and log that there are some."""
        self._left_out += polls
        time_now = self._clock()
        if self._logged_at is None or time_now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = time_now
            logs.log(
                logging.WARNING,
                "polls are left out",
                polls=self._left_out,
                why="the exporter has too little processor time or memory for its "
                "servers",
            )
            self._left_out = 0
