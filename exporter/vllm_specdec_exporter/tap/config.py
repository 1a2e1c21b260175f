"""What the tap was told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..target import Target


@dataclass(frozen=True, slots=True)
class TapConfig:
    """What the tap was told.

    Attributes:
        listen: host and port to listen on; an empty host is every address.
        upstream: the server.
        server_name: the name to expect in its certificate instead of the address's host.
        ask_for_usage: whether to ask streams for their usage, and take the extra event out again.
        drain_seconds: how long requests under way may go on when the tap ends.
        cert_file: certificate for clients, PEM; empty for plain HTTP.
        key_file: its private key.
    """

    listen: tuple[str, int]
    upstream: Target
    server_name: str = ""
    ask_for_usage: bool = False
    drain_seconds: float = 25.0
    cert_file: str = ""
    key_file: str = ""
