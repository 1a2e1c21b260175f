"""Clients as limits see them: by address, and one address after the other."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


def peer_key(address: str) -> str:
    """Return the key of a client for limits: its IPv4 address, or its /64 network in
    IPv6.
    """
    with contextlib.suppress(ValueError):
        ip = ipaddress.ip_address(address)
        ip = getattr(ip, "ipv4_mapped", None) or ip
        if ip.version == 4:
            return str(ip)
        return str(ipaddress.ip_network((int(ip), 64), strict=False))
    return address


class Turns:
    """A lock for which peers take turns: one that waits many times delays another by
    one turn.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # in the order of waiting
        self._of_peer = WeakValueDictionary[str, asyncio.Lock]()

    @asynccontextmanager
    async def take(self, peer: str) -> AsyncIterator[None]:
        """Hold the lock within the block."""
        # Only the one that holds the lock of its peer waits for a turn.
        async with self._of_peer.setdefault(peer, asyncio.Lock()), self._turn:
            yield
