"""Passwords of basic authentication, whose hashes are computed in the background."""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack

import bcrypt
from aiohttp import BasicAuth
from msgspec import Struct

from ...runtime.daemon_threads import in_daemon_thread
from ..peers import Turns
from .document import bcrypt_cost

#: Limit of checks of one client that wait: a scrape and a person. All clients have no
#: more than there are connections.
MAX_OF_ONE_PEER = 2
#: Limit of addresses that are known for a wrong password.
MAX_SUSPECTS = 1024
#: Limit of cached valid credentials: more users than a port for scrapes has.
MAX_CACHED = 100
#: bcrypt ignores the rest of a password, and Python's bcrypt raises an error for longer
#: ones.
_BCRYPT_BYTES = 72


class TooBusyError(Exception):
    """Too many checks of the client wait."""


class _Check(Struct):
    """A check of credentials for requests of which the first is of `peer`."""

    peer: str
    #: Whether each client has disconnected.
    gone: list[Callable[[], bool]] = []
    task: asyncio.Task[bool] | None = None


class Authenticator:
    """Checks credentials.

    One hash is computed at a time; addresses take turns. All those that have given a
    wrong password share one of these turns, so that guesses delay no other address by
    more than two hashes.

    Valid credentials are cached, so that most scrapes need no hash; invalid ones are
    not. If all hashes have the same cost, the check of an unknown user takes
    as long as that of a wrong password.
    """

    def __init__(self) -> None:
        self._users: dict[bytes, bytes] = {}
        self._decoy = b""
        # The cache holds digests with a random key, no passwords.
        self._key = secrets.token_bytes(32)
        self._valid: OrderedDict[bytes, None] = OrderedDict()
        self._hashing = Turns()
        self._suspected = asyncio.Lock()
        self._suspects: OrderedDict[str, None] = OrderedDict()
        # those that wait or are computed, by digest
        self._checks: dict[bytes, _Check] = {}

    def use(self, users: Iterable[tuple[str, str]]) -> None:
        """Replace the users and hashes.

        Cached credentials that are still valid remain.
        """
        self._users = {name.encode(): hashed.encode() for name, hashed in users}
        cost = max(
            (bcrypt_cost(hashed.decode()) for hashed in self._users.values()),
            default=10,
        )
        self._decoy = f"$2b${cost:02d}${'.' * 53}".encode()

    @property
    def needed(self) -> bool:
        """Whether there are users."""
        return bool(self._users)

    async def allows(
        self,
        header: str | None,
        peer: str = "",
        gone: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Return whether an ``Authorization`` header is valid; TooBusyError if too many
        checks wait.

        `peer` is the key of the client; `gone` returns whether it has disconnected.
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
            of_peer = sum(each.peer == peer for each in self._checks.values())
            if of_peer >= MAX_OF_ONE_PEER:
                raise TooBusyError
            check = self._checks[digest] = _Check(peer)
            check.task = asyncio.create_task(
                self._check(digest, user, password, hashed), name="password"
            )
        check.gone.append(gone)
        assert check.task is not None
        return await asyncio.shield(check.task)

    async def _check(
        self, digest: bytes, user: bytes, password: bytes, hashed: bytes | None
    ) -> bool:
        peer = self._checks[digest].peer
        try:
            async with AsyncExitStack() as turn:
                if peer in self._suspects:
                    await turn.enter_async_context(self._suspected)
                await turn.enter_async_context(self._hashing.take(peer))
                if all(gone() for gone in self._checks[digest].gone):
                    raise TooBusyError
                hashed_or_decoy = hashed or self._decoy
                matches = await in_daemon_thread(
                    bcrypt.checkpw, password[:_BCRYPT_BYTES], hashed_or_decoy
                )
        finally:
            del self._checks[digest]
        self._note(peer, matches=matches and hashed is not None)
        # changed meanwhile
        if not matches or hashed is None or self._users.get(user) != hashed:
            return False
        self._valid[digest] = None
        while len(self._valid) > MAX_CACHED:
            self._valid.popitem(last=False)
        return True

    def _note(self, peer: str, *, matches: bool) -> None:
        """Remember whether the last password of an address was wrong."""
        self._suspects.pop(peer, None)
        if not matches:
            self._suspects[peer] = None
        if len(self._suspects) > MAX_SUSPECTS:
            self._suspects.popitem(last=False)

    def _digest(self, user: bytes, hashed: bytes, password: bytes) -> bytes:
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (user, hashed, password):
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()


def parse_header(header: str | None) -> tuple[bytes, bytes] | None:
    """Return user and password of an ``Authorization`` header, `None` for another
    scheme than Basic.
    """
    try:
        # Latin-1 keeps the bytes as they are, and bcrypt needs bytes.
        credentials = BasicAuth.decode(" ".join((header or "").split()), "latin-1")
    except ValueError:
        return None
    return credentials.login.encode("latin-1"), credentials.password.encode("latin-1")
