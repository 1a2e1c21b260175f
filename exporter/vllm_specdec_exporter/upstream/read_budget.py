"""Memory for responses that are being read: one sum for all servers.

Each response has a limit of its own, but a hundred of them at once have none. A poll
takes what it receives from the sum, and gives it back when the response was parsed;
while too much is taken, it waits. Its server then waits too, because nothing is read.
Those of the usual size are read beside the sum: a few large ones, whose servers hang,
must not hold them up.
"""

import asyncio
from itertools import islice

#: Bytes of all responses but the oldest, without the shares: half a large one.
MAX_READ = 8 * 1024 * 1024
#: Bytes of a response that are read without waiting: the usual ones have up to 390 kB.
SHARE = 512 * 1024
#: Responses with a share, the oldest ones. With 15 shares, `MAX_READ` and the 16 MiB of
#: the oldest, 31.5 MiB are held at most.
SHARES = 16


class ReadBudget:
    """Bytes of responses that are held, by who reads them, the oldest first."""

    def __init__(self, limit: int = MAX_READ, share: int = SHARE) -> None:
        self._limit = limit
        self._share = share
        self._held: dict[object, int] = {}
        self._total = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def take(self, reader: object, size: int) -> None:
        """Take so many more bytes for a reader, as soon as there are so many.

        The oldest reader never waits, so that no two wait for each other. Its response
        is limited by the client. The next ones do not wait for their shares.
        """
        self._held.setdefault(reader, 0)
        while not self._has_room(reader, size):
            freed = asyncio.get_running_loop().create_future()
            self._waiting.append(freed)
            await freed
        self._held[reader] += size
        self._total += size

    def _has_room(self, reader: object, size: int) -> bool:
        oldest = next(iter(self._held))
        if oldest is reader:
            return True
        sharing = tuple(islice(self._held, 1, SHARES))
        if reader in sharing and self._held[reader] + size <= self._share:
            return True
        shares = sum(min(self._held[each], self._share) for each in sharing)
        counted = self._total - self._held[oldest] - shares
        return counted + size <= self._limit

    def release(self, reader: object) -> None:
        """Give back what a reader holds, if anything."""
        self._total -= self._held.pop(reader, 0)
        waiting = self._waiting
        self._waiting = []
        for freed in waiting:
            if not freed.done():  # cancelled
                freed.set_result(None)
