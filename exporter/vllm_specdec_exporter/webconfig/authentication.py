"""Basic authentication: who may ask."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import bcrypt

from .document import bcrypt_cost
from .turns import MAX_WAITING, TooBusyError, Turns
from .worker import StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .worker import Worker

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

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._users: dict[bytes, bytes] = {}
        self._decoy = b""
        # What is remembered is a digest under a key of this process: no password stays in memory for it.
        self._key = secrets.token_bytes(32)
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._checks: dict[bytes, _Check] = {}
        self._turns: Turns[_Check] = Turns()
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
