"""A job that many callers want at once: they share a run, which begins after they
called.
"""

import asyncio
from collections.abc import Awaitable, Callable

#: Runs the job; `log` writes how it ended.
Job = Callable[[Callable[..., None]], Awaitable[None]]


class SharedRun:
    """Runs a job on request, at most once in `seconds`; `clock` is monotonic, in
    seconds.

    Attributes:
        waiting: number of callers that wait.
    """

    def __init__(self, job: Job, seconds: float, clock: Callable[[], float]) -> None:
        self._job = job
        self._seconds = seconds
        self._clock = clock
        self._next: asyncio.Task[None] | None = None
        self._began_at: float | None = None
        self.waiting = 0

    async def request(self, log: Callable[..., None]) -> None:
        """Wait for the next run, or raise its exception."""
        if self._next is None:
            self._next = asyncio.create_task(self._run(log), name="shared run")
            # Marked as retrieved: all callers may have been cancelled.
            self._next.add_done_callback(
                lambda task: task.cancelled() or task.exception()
            )
        self.waiting += 1
        try:
            # a cancelled caller must not cancel the others
            await asyncio.shield(self._next)
        finally:
            self.waiting -= 1

    def cancel(self) -> None:
        """Cancel the run that has not begun."""
        if self._next is not None:
            self._next.cancel()

    async def _run(self, log: Callable[..., None]) -> None:
        if self._began_at is not None:
            await asyncio.sleep(self._began_at + self._seconds - self._clock())
        # Callers from here on want what happens after their call: the next run.
        self._next = None
        self._began_at = self._clock()
        await self._job(log)
