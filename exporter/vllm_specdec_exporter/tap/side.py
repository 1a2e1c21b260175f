"""One end of a connection: what that towards the client and that towards the server have in common."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import cast


class Side(asyncio.Protocol):
    """What both ends have in common."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.peer: Side | None = None
        self.ended = False  # it sends no more
        self.full = False  # it takes no more for now

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self.transport = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        """Read no more from the other end: this one does not take it."""
        self.full = True
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the other end again."""
        self.full = False
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def end(self, error: BaseException | None) -> None:
        """End this connection as the other one ended: in order, after what is still to be sent, or broken."""
        if self.transport is None:
            return
        if error is None:
            self.transport.close()
        else:
            break_off(self.transport)


def break_off(transport: asyncio.Transport) -> None:
    """End a connection with a reset, where there is such a thing: in order, it might look complete."""
    with contextlib.suppress(OSError):
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
