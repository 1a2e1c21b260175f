"""Texts of responses: made once for all who wait, and limited in their sum until they
are sent.

A client that asks for a long page and does not read it keeps the page in memory. Many
of them would keep many.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from weakref import WeakSet

from aiohttp import web

from ..listener.peers import Turns, peer_key

#: Bytes of texts that clients have not taken. The next text is made below it, so with
#: one of 10 MiB they are at most 26 MiB; half of them for one address.
MAX_UNSENT = 16 * 1024 * 1024
_SHARE_OF_ONE_PEER = 0.5
#: Time that clients have to take a text when the room is needed, in seconds.
PATIENCE_SECONDS = 5.0
#: Bytes that are sent at a time: asyncio copies what the system does not take at once.
_PIECE = 32 * 1024
#: zlib's `wbits` for gzip, and the level of Prometheus' own library.
_GZIP = zlib.MAX_WBITS | 16
_LEVEL = 6
#: Longest time to encode metrics before other tasks run, in seconds.
_SLICE_SECONDS = 0.0005


class TooManyUnsentError(Exception):
    """Too much waits for clients that do not read; `peer` asked for more."""

    def __init__(self, peer: str) -> None:
        super().__init__()
        self.peer = peer


class _Text:
    """A text, which is in memory as long as a response has it."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.size = sum(map(len, pieces))
        self.made_at = time.monotonic()
        #: The connections that have not taken it, with their peers.
        self.readers: dict[asyncio.Transport | None, str] = {}

    def is_for(self, peer: str) -> bool:
        """Return whether a client of `peer` has not taken it."""
        return peer in self.readers.values()

    def drop(self) -> None:
        """End the connections that have not taken it."""
        for transport in self.readers:
            if transport is not None:
                transport.abort()


class Texts:
    """Makes texts, at most half of the time, whatever is requested; addresses take
    turns.

    What a request gets was always made after it arrived.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, asyncio.Task[_Text]] = {}
        self._turns = Turns()
        self._rests_until = 0.0
        self._unsent = WeakSet[_Text]()

    async def respond(
        self,
        request: web.Request,
        key: Hashable,
        make: Callable[[], Awaitable[list[bytes]]],
        headers: Mapping[str, str],
    ) -> web.StreamResponse:
        """Return a response with the pieces that `make` returns, which are the same for
        all requests with this key; status 503 if too many are unsent.
        """
        peer = _peer(request)
        while True:
            task = self._waiting.get(key)
            if task is None:
                task = asyncio.create_task(self._make(key, peer, make), name="text")
                self._waiting[key] = task
            try:
                # A client that leaves must not cancel the others.
                text = await asyncio.shield(task)
            except TooManyUnsentError as error:
                if error.peer != peer:
                    continue  # another address asked first, and has too many
                return web.Response(
                    status=503,
                    text="too many responses wait for clients that do not read them\n",
                    headers={"Retry-After": "5"},
                )
            return _Response(request, text, headers)

    async def _make(
        self, key: Hashable, peer: str, make: Callable[[], Awaitable[list[bytes]]]
    ) -> _Text:
        async with self._turns.take(peer):
            await asyncio.sleep(self._rests_until - time.monotonic())
            # Requests that have arrived until now share this one.
            del self._waiting[key]
            self._make_room(peer)
            start = time.monotonic()
            try:
                text = _Text(await make())
            finally:
                end = time.monotonic()
                self._rests_until = end + (end - start)
            self._unsent.add(text)
            return text

    def _make_room(self, peer: str) -> None:
        """Drop the oldest text if there are too many, or raise TooManyUnsentError."""
        unsent = list(self._unsent)
        of_peer = [text for text in unsent if text.is_for(peer)]
        if _size(of_peer) >= MAX_UNSENT * _SHARE_OF_ONE_PEER:
            unsent = of_peer
        elif _size(unsent) < MAX_UNSENT:
            return
        oldest = min(unsent, key=lambda text: text.made_at)
        if time.monotonic() - oldest.made_at < PATIENCE_SECONDS:
            raise TooManyUnsentError(peer)
        self._unsent.discard(oldest)
        oldest.drop()


class _Response(web.StreamResponse):
    """A response whose text is shared, and is nowhere in one piece."""

    def __init__(
        self, request: web.Request, text: _Text, headers: Mapping[str, str]
    ) -> None:
        super().__init__(headers=headers)
        self.content_length = text.size
        self._transport = request.transport
        self._text: _Text | None = text
        text.readers[self._transport] = _peer(request)

    async def write_eof(self, data: bytes = b"") -> None:
        """Send the text, and end the response."""
        text = self._text
        self._text = None  # aiohttp keeps the response for a while
        if text is not None:
            try:
                if not self._must_be_empty_body:
                    await self._send(text)
            finally:
                text.readers.pop(self._transport, None)
        await super().write_eof(data)

    async def _send(self, text: _Text) -> None:
        for piece in text.pieces:
            for start in range(0, len(piece), _PIECE):
                await self.write(piece[start : start + _PIECE])


def _peer(request: web.Request) -> str:
    return peer_key(request.remote or "")


def _size(texts: Iterable[_Text]) -> int:
    return sum(text.size for text in texts)


async def in_pieces(blocks: Iterable[bytes], *, gzip: bool) -> list[bytes]:
    """Return the pieces of a text; a large one does not block other tasks."""
    # Compressed piece by piece: a large text would block the loop for its whole length.
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP) if gzip else None
    pieces: list[bytes] = []
    start = time.monotonic()
    for block in blocks:
        pieces.append(packer.compress(block) if packer else block)
        if time.monotonic() - start >= _SLICE_SECONDS:
            await asyncio.sleep(0)
            start = time.monotonic()
    if packer:
        pieces.append(packer.flush())
    return pieces
