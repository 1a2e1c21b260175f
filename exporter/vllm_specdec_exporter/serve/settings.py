"""Settings of the connections: to the servers, and of the tap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..config.values import Target


@dataclass(frozen=True)
class UpstreamConfig:
    """How to talk to the servers.

    Attributes:
        targets: the servers to poll.
        ca_file: certificates to trust instead of the system's.
        cert_file: client certificate, with `key_file`.
        key_file: its private key.
        server_name: the name to expect in the server's certificate instead of the address's host.
        insecure_skip_verify: whether to accept any certificate.
        bearer_token_file: file whose content is sent as bearer token; read anew for every poll.
        headers: further request headers.
        timeout: seconds that a whole poll may take.
    """

    targets: tuple[Target, ...] = ()
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""
    insecure_skip_verify: bool = False
    bearer_token_file: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    timeout: float = 4.0

    def request_headers(self, own: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return `own` headers but for those that are configured too, and all that are: names may repeat."""
        names: dict[str, str] = {}
        for name, _ in self.headers:
            names.setdefault(name.lower(), name)
        kept = [(name, value) for name, value in own.items() if name.lower() not in names]
        # One spelling of each name, or aiohttp would take the last of them for the only one.
        return [*kept, *((names[name.lower()], value) for name, value in self.headers)]


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
