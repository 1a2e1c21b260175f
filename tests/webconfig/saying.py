"""The least that a listener can serve: one word, and who hears it."""

from __future__ import annotations

import asyncio


class Says(asyncio.Protocol):
    """Says one word to whoever connects, and hangs up."""

    def __init__(self, word: bytes) -> None:
        self._word = word

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._word)
        transport.close()


async def hear(address: str) -> bytes:
    """Return the word that is said at an address, as a listener names it."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection("::1" if ":" in host else "127.0.0.1", int(port))
    word = await reader.read()
    writer.close()
    await writer.wait_closed()
    return word
