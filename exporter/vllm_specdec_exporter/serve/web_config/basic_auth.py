"""A worker: a thread for what would hold up the event loop."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import queue
import secrets
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import bcrypt

from .document import bcrypt_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


T = TypeVar("T")


class StoppedError(Exception):
    """The worker does nothing more."""


class BackgroundThread:
    """Runs functions one after the other in a thread that does not hold up the end of the process.

    The threads of `asyncio.to_thread` do: Python waits for them at exit, also for one that hangs in a read
    from a dead file server or computes a bcrypt hash of twenty seconds.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending: set[asyncio.Future[Any]] = set()
        self._stopped = False

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Return what `function` returns, or raise what it raises.

        Raises:
            StoppedError: `stop` was called, before or meanwhile.
            RuntimeError: `function` raised what is no `Exception`.
        """
        if self._stopped:
            raise StoppedError
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                if not future.cancelled():
                    found = function(*args)
                    _tell(loop, future, found, None)
            except BaseException as error:  # noqa: BLE001 - whoever asked is told: a panic in Rust is one too
                _tell(loop, future, None, _exception(error))

        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._pending.add(future)
        try:
            self._jobs.put(job)
            return await future
        finally:
            self._pending.discard(future)

    def stop(self) -> None:
        """Begin nothing more, and let nobody wait any longer."""
        self._stopped = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._jobs.get_nowait()
        self._jobs.put(None)
        for future in self._pending:
            if not future.done():
                future.set_exception(StoppedError())

    def join(self, seconds: float) -> bool:
        """Wait so long for what was under way when it was stopped; return whether it has ended."""
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _exception(error: BaseException) -> Exception:
    """Return what whoever asked can bear: the others would end the event loop, or go past every handler."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    found = RuntimeError(f"{type(error).__name__}: {error}")
    found.__cause__ = error
    return found


def _tell(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], found: object, error: Exception | None
) -> None:
    def settle() -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(found)

    with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
        loop.call_soon_threadsafe(settle)


Item = TypeVar("Item")

#: How many may wait in all, and how many of one peer.
MAX_WAITING = 16
MAX_OF_ONE_PEER = 2


class TooBusyError(Exception):
    """No turn: too many wait for the same, or this is the end."""


class FairQueue(Generic[Item]):
    """A queue that serves one peer after the other, so that none keeps the others waiting by its number."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Item]] = OrderedDict()

    def put(self, peer: str, item: Item) -> Item | None:
        """Let `item` of `peer` wait.

        Returns:
            The item that waits no more, as there was no room for both: one of a peer with more than this one.

        Raises:
            TooBusyError: there is no room.
        """
        own = len(self._waiting.get(peer, ()))
        if own >= MAX_OF_ONE_PEER:
            raise TooBusyError
        displaced = None
        if sum(map(len, self._waiting.values())) >= MAX_WAITING:
            most = max(self._waiting.values(), key=len)
            if len(most) <= own + 1:
                raise TooBusyError
            displaced = most.pop()
        self._waiting.setdefault(peer, deque()).append(item)
        return displaced

    def next(self) -> Item | None:
        """Return whose turn it is, `None` when nobody waits."""
        if not self._waiting:
            return None
        peer, items = self._waiting.popitem(last=False)
        item = items.popleft()
        if items:
            self._waiting[peer] = items  # behind all others
        return item


#: Good credentials that are remembered.
MAX_REMEMBERED = 100

#: bcrypt looks at no more of a password, and Python's refuses longer ones.
_BCRYPT_BYTES = 72


__all__ = ["MAX_REMEMBERED", "MAX_WAITING", "Authenticator", "TooBusyError", "parse_header"]


@dataclass(eq=False, slots=True)
class _Check:
    """Credentials that are being checked, or wait for it, and whether those who brought them have gone."""

    digest: bytes
    user: bytes
    hashed: bytes | None
    password: bytes
    answer: asyncio.Future[bool]
    gone: list[Callable[[], bool]] = field(default_factory=list)


class Authenticator:
    """Tells whether credentials are those of a user.

    Only one hash is computed at a time, away from the event loop, for one peer after the other. Good
    credentials are remembered, so that a scrape does not cost a hash. Bad ones are not. An unknown user takes
    as long as a wrong password where all hashes have one cost.

    Args:
        worker: where hashes are computed.
    """

    def __init__(self, worker: BackgroundThread) -> None:
        self._worker = worker
        self._users: dict[bytes, bytes] = {}
        self._decoy = b""
        # What is remembered is a digest under a key of this process: no password stays in memory for it.
        self._key = secrets.token_bytes(32)
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._checks: dict[bytes, _Check] = {}
        self._turns: FairQueue[_Check] = FairQueue()
        self._checking: asyncio.Task[None] | None = None

    def use(self, users: Iterable[tuple[str, str]]) -> None:
        """Take these users and hashes, and no others, from now on; who stays is still known."""
        self._users = {name.encode(): hashed.encode() for name, hashed in users}
        cost = max((bcrypt_cost(hashed.decode()) for hashed in self._users.values()), default=10)
        self._decoy = f"$2b${cost:02d}${'.' * 53}".encode()

    @property
    def needed(self) -> bool:
        """Whether there are users at all."""
        return bool(self._users)

    async def allows(
        self, header: str | None, peer: str = "", gone: Callable[[], bool] = lambda: False
    ) -> bool:
        """Tell whether the value of an ``Authorization`` header is that of a user.

        Args:
            header: the value.
            peer: who asks: nobody waits for more than a turn of each other peer.
            gone: tells when nobody waits for the answer any more.

        Raises:
            TooBusyError: too many others wait for the same.
        """
        credentials = parse_header(header)
        if credentials is None:
            return False
        user, password = credentials
        hashed = self._users.get(user)
        digest = self._digest(user, hashed or self._decoy, password)
        if digest in self._good:
            self._good.move_to_end(digest)
            return True
        check = self._checks.get(digest)  # whoever brings the same shares the answer
        if check is None:
            answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            answer.add_done_callback(_noted)
            check = _Check(digest, user, hashed, password, answer)
            self._wait(peer, check)
        check.gone.append(gone)
        return await asyncio.shield(check.answer)

    def _wait(self, peer: str, check: _Check) -> None:
        displaced = self._turns.put(peer, check)
        if displaced is not None:
            self._settle(displaced, TooBusyError())
        self._checks[check.digest] = check
        if self._checking is None:
            self._checking = asyncio.create_task(self._check_all(), name="passwords")

    async def _check_all(self) -> None:
        while (check := self._turns.next()) is not None:
            if all(gone() for gone in check.gone):
                self._settle(check, TooBusyError())
                continue
            try:
                good = await self._worker.run(self._matches, check.hashed, check.password)
                self._settle(check, good and self._remember(check.digest, check.user, check.hashed))
            except StoppedError:
                self._settle(check, TooBusyError())
            except Exception as error:  # noqa: BLE001 - handed over to whoever asked; others wait for their turn
                self._settle(check, error)
        self._checking = None

    def _settle(self, check: _Check, found: bool | Exception) -> None:
        del self._checks[check.digest]
        if isinstance(found, Exception):
            check.answer.set_exception(found)
        else:
            check.answer.set_result(found)

    def _matches(self, hashed: bytes | None, password: bytes) -> bool:
        """Runs in the worker."""
        matches = bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed or self._decoy)
        return matches and hashed is not None

    def _remember(self, digest: bytes, user: bytes, hashed: bytes | None) -> bool:
        if self._users.get(user) != hashed:
            return False  # the user was changed or removed meanwhile
        self._good[digest] = None
        while len(self._good) > MAX_REMEMBERED:
            self._good.popitem(last=False)
        return True

    def _digest(self, user: bytes, hashed: bytes, password: bytes) -> bytes:
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (user, hashed, password):
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()


def _noted(answer: asyncio.Future[bool]) -> None:
    """Look at an error that nobody may have waited for, or asyncio would log it."""
    if not answer.cancelled():
        answer.exception()


def parse_header(header: str | None) -> tuple[bytes, bytes] | None:
    """Return user and password of an ``Authorization`` header of the basic kind, `None` of another."""
    kind, _, coded = (header or "").strip().partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(coded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None
