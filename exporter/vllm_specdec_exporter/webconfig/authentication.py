"""Basic authentication: who may ask."""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING

import bcrypt

from .document import bcrypt_cost
from .worker import StoppedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .worker import Worker

#: Good credentials that are remembered.
MAX_REMEMBERED = 100

#: Credentials that may wait for their turn to be checked.
MAX_WAITING = 16

#: bcrypt looks at no more of a password, and Python's refuses longer ones.
_BCRYPT_BYTES = 72


class TooBusyError(Exception):
    """These credentials are not checked: too many wait for the same, or this is the end."""


class Authenticator:
    """Tells whether credentials are those of a user.

    Only one hash is computed at a time, away from the event loop. Good credentials are remembered, so that
    a scrape does not cost a hash. Bad ones are not, and an unknown user takes as long as a wrong password.

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

    def use(self, users: Iterable[tuple[str, str]]) -> None:
        """Take these users and hashes, and no others, from now on; who stays is still known."""
        self._users = {name.encode(): hashed.encode() for name, hashed in users}
        cost = max((bcrypt_cost(hashed.decode()) for hashed in self._users.values()), default=10)
        self._decoy = f"$2b${cost:02d}${'.' * 53}".encode()

    @property
    def needed(self) -> bool:
        """Whether there are users at all."""
        return bool(self._users)

    async def allows(self, header: str | None) -> bool:
        """Tell whether the value of an ``Authorization`` header is that of a user.

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
        if self._worker.waiting >= MAX_WAITING:
            raise TooBusyError
        try:
            good = await self._worker.run(self._check, digest, hashed, password)
        except StoppedError as error:
            raise TooBusyError from error
        return good and self._remember(digest, user, hashed)

    def _check(self, digest: bytes, hashed: bytes | None, password: bytes) -> bool:
        """Runs in the worker."""
        if digest in self._good:  # whoever waited before this one brought the same
            return True
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
