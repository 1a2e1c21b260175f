"""Bearer tokens (RFC 6750): reading one from a file, and checking one that a client has sent."""

from __future__ import annotations

import hmac
from pathlib import Path

_MAX_BYTES = 64 * 1024  # limit of a file: servers accept no header of that length


class TokenError(ValueError):
    """A file without a token. The message is one line with the reason, without the path."""


def read_token(path: str | Path) -> str:
    """Return the token in a file, or raise TokenError."""
    try:
        with Path(path).open("rb") as stream:
            body = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise TokenError(f"cannot be read: {error.strerror}") from error
    return parse_token(body)


def parse_token(body: bytes) -> str:
    """Return the token that is the content of a file, or raise TokenError."""
    token = body.strip()
    if not token or len(body) > _MAX_BYTES or not all(0x21 <= byte <= 0x7E for byte in token):
        raise TokenError("holds no token: one word of printable ASCII is expected")
    return token.decode("ascii")


def is_authorized(header: str, token: str) -> bool:
    """Return whether an ``Authorization`` header has the token, in a time that tells nothing of it."""
    scheme, _, given = header.strip().partition(" ")
    matches = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), token.encode())
    return matches and scheme.lower() == "bearer"
