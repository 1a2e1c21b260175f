"""Who may send alerts: a bearer token (RFC 6750) from a file, compared in constant time."""

from __future__ import annotations

import hmac
import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LONGEST = 64 * 1024


class TokenError(Exception):
    """A token file that holds no usable token. The message is one line that says why."""


class TokenFile:
    """The token in a file, read anew when the file changes.

    Args:
        path: the file; its content without the white space around it is the token.

    Raises:
        TokenError: it cannot be read, or holds no token.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = b""
        self._refresh()

    def accepts(self, header: str) -> bool:
        """Tell whether the value of an Authorization header carries the token.

        Raises:
            TokenError: the file changed to something that holds no usable token; then nobody is accepted.
        """
        self._refresh()
        scheme, _, credentials = header.partition(" ")
        given = credentials.strip().encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, self._token) and scheme.lower() == "bearer"

    def _refresh(self) -> None:
        try:
            found = self._path.stat()
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
            if stamp == self._seen:
                return
            with self._path.open("rb") as stream:
                body = stream.read(_LONGEST + 1)
        except OSError as error:
            self._seen = None
            msg = f"cannot be read: {error.strerror}"
            raise TokenError(msg) from error
        token = body.strip()
        if not token or len(body) > _LONGEST or not all(0x21 <= byte <= 0x7E for byte in token):
            self._seen = None
            msg = "holds no token: one word of printable ASCII is expected"
            raise TokenError(msg)
        self._token, self._seen = token, stamp


def is_loopback(host: str) -> bool:
    """Tell whether an address to listen on is for this machine alone; an empty one is for all."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
