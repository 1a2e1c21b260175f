"""Basic authentication: bcrypt hashes are checked in a background thread, in turn for each client."""

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
    """The thread is stopped."""


class BackgroundThread:
    """Runs functions one after the other in a daemon thread.

    Python waits at exit for the threads of `asyncio.to_thread`, also for one that hangs in a read from a dead
    file server or computes a bcrypt hash for 20 s.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending: set[asyncio.Future[Any]] = set()
        self._stopped = False

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Return the result of `function`, or raise its exception, or StoppedError if `stop` was called.

        RuntimeError stands for an exception that a future does not take, and if no thread can be started.
        """
        if self._stopped:
            raise StoppedError
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                if not future.cancelled():
                    _settle(loop, future, function(*args), None)
            except BaseException as error:  # noqa: BLE001 - raised in the caller; includes panics in Rust
                _settle(loop, future, None, _as_exception(error))

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
        """Start no more functions, and raise `StoppedError` in all callers."""
        self._stopped = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._jobs.get_nowait()
        self._jobs.put(None)
        for future in self._pending:
            if not future.done():
                future.set_exception(StoppedError())

    def join(self, seconds: float) -> bool:
        """Wait for the thread after `stop`; return whether it has ended."""
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _as_exception(error: BaseException) -> Exception:
    """Wrap exceptions that would end the event loop or that a future does not take."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def _settle(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], found: object, error: Exception | None
) -> None:
    def settle() -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(found)

    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(settle)


Item = TypeVar("Item")
#: Limits of the queue: entries in all, and of one client.
MAX_WAITING = 16
MAX_OF_ONE_PEER = 2


class TooBusyError(Exception):
    """The queue is full, or authentication is stopped."""


class FairQueue(Generic[Item]):
    """A queue that serves the clients in round robin."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Item]] = OrderedDict()

    def put(self, peer: str, item: Item) -> Item | None:
        """Add `item` of `peer`, or raise TooBusyError; return the item that was removed to make room.

        That is the last one of the client with the most, which has at least two more than `peer`.
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
        """Remove and return the next item, `None` if the queue is empty."""
        if not self._waiting:
            return None
        peer, items = self._waiting.popitem(last=False)
        item = items.popleft()
        if items:
            self._waiting[peer] = items  # behind all others
        return item


MAX_CACHED = 100  # limit of cached valid credentials
#: bcrypt ignores the rest of a password, and Python's bcrypt raises an error for longer ones.
_BCRYPT_BYTES = 72


@dataclass(eq=False, slots=True)
class _Check:
    """Credentials that are being checked or queued; `gone` tells whether each client has disconnected."""

    digest: bytes
    user: bytes
    hashed: bytes | None
    password: bytes
    answer: asyncio.Future[bool]
    gone: list[Callable[[], bool]] = field(default_factory=list)


class Authenticator:
    """Checks credentials.

    Hashes are computed in `worker`, one at a time, in round robin of the clients. Valid credentials are
    cached, so that most scrapes need no hash; invalid ones are not. If all hashes have the same cost, the
    check of an unknown user takes as long as that of a wrong password.
    """

    def __init__(self, worker: BackgroundThread) -> None:
        self._worker = worker
        self._users: dict[bytes, bytes] = {}
        self._decoy = b""
        # The cache holds digests with a random key, no passwords.
        self._key = secrets.token_bytes(32)
        self._valid: OrderedDict[bytes, None] = OrderedDict()
        self._checks: dict[bytes, _Check] = {}
        self._queue: FairQueue[_Check] = FairQueue()
        self._checking: asyncio.Task[None] | None = None

    def use(self, users: Iterable[tuple[str, str]]) -> None:
        """Replace the users and hashes. Cached credentials that are still valid remain."""
        self._users = {name.encode(): hashed.encode() for name, hashed in users}
        cost = max((bcrypt_cost(hashed.decode()) for hashed in self._users.values()), default=10)
        self._decoy = f"$2b${cost:02d}${'.' * 53}".encode()

    @property
    def needed(self) -> bool:
        """Whether there are users."""
        return bool(self._users)

    async def allows(
        self, header: str | None, peer: str = "", gone: Callable[[], bool] = lambda: False
    ) -> bool:
        """Return whether an ``Authorization`` header is valid; TooBusyError if the queue is full.

        `peer` is the key of the client for the round robin; `gone` returns whether it has disconnected.
        """
        credentials = parse_header(header)
        if credentials is None:
            return False
        user, password = credentials
        hashed = self._users.get(user)
        digest = self._digest(user, hashed or self._decoy, password)
        if digest in self._valid:
            self._valid.move_to_end(digest)
            return True
        check = self._checks.get(digest)  # shared by requests with the same credentials
        if check is None:
            answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            answer.add_done_callback(_retrieve)
            check = _Check(digest, user, hashed, password, answer)
            self._enqueue(peer, check)
        check.gone.append(gone)
        return await asyncio.shield(check.answer)

    def _enqueue(self, peer: str, check: _Check) -> None:
        removed = self._queue.put(peer, check)
        if removed is not None:
            self._settle(removed, TooBusyError())
        self._checks[check.digest] = check
        if self._checking is None:
            self._checking = asyncio.create_task(self._check_all(), name="passwords")

    async def _check_all(self) -> None:
        while (check := self._queue.next()) is not None:
            if all(gone() for gone in check.gone):
                self._settle(check, TooBusyError())
                continue
            try:
                valid = await self._worker.run(self._matches, check.hashed, check.password)
                self._settle(check, valid and self._cache(check.digest, check.user, check.hashed))
            except StoppedError:
                self._settle(check, TooBusyError())
            except Exception as error:  # noqa: BLE001 - raised in the caller
                self._settle(check, error)
        self._checking = None

    def _settle(self, check: _Check, found: bool | Exception) -> None:
        del self._checks[check.digest]
        if isinstance(found, Exception):
            check.answer.set_exception(found)
        else:
            check.answer.set_result(found)

    def _matches(self, hashed: bytes | None, password: bytes) -> bool:
        """Run in the worker."""
        matches = bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed or self._decoy)
        return matches and hashed is not None

    def _cache(self, digest: bytes, user: bytes, hashed: bytes | None) -> bool:
        if self._users.get(user) != hashed:
            return False  # the user was changed or removed meanwhile
        self._valid[digest] = None
        while len(self._valid) > MAX_CACHED:
            self._valid.popitem(last=False)
        return True

    def _digest(self, user: bytes, hashed: bytes, password: bytes) -> bytes:
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (user, hashed, password):
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()


def _retrieve(answer: asyncio.Future[bool]) -> None:
    """Mark an exception as retrieved: all clients may have disconnected."""
    if not answer.cancelled():
        answer.exception()


def parse_header(header: str | None) -> tuple[bytes, bytes] | None:
    """Return user and password of an ``Authorization`` header, `None` for another scheme than Basic."""
    kind, _, coded = (header or "").strip().partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(coded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None
