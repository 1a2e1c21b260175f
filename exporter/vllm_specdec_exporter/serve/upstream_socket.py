"""The socket of a connection to a server: it limits what is received beside the body of a response."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any

MAX_OVERHEAD = 64 * 1024  # limit of what is received beside a body, in bytes: an answer of vLLM has 200
_FRAMING = 1.25  # bytes that are received for each of a body, at most: in chunks of 30 bytes and more


class CountedSocket(socket.socket):
    """A socket that ends an exchange with too much beside its body: heads, framing, interim answers."""

    overhead = 0.0  # bytes that were received, less those of the body with its usual framing
    body: Callable[[], int] | None = None  # returns the size of the body so far, once its head was received

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive, for connections without TLS."""
        received = super().recv(self._allowed(size), flags)
        self.overhead += len(received)
        return received

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        """Receive, for those with TLS."""
        received = super().recv_into(buffer, self._allowed(size or len(buffer)), flags)
        self.overhead += received
        return received

    def _allowed(self, size: int) -> int:
        if self.overhead - _FRAMING * (self.body() if self.body else 0) > MAX_OVERHEAD:
            raise OSError(errno.EMSGSIZE, "too much beside the body")
        # Little until the size of the body can be counted.
        return size if self.body else min(size, MAX_OVERHEAD)
