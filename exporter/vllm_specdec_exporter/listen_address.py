"""Listen addresses: from text to host and port, back again, and to where this machine reaches them."""

from __future__ import annotations


def parse_listen_address(text: str) -> tuple[str, int]:
    """Return host and port of ``:9850``, ``127.0.0.1:9850`` or ``[::1]:9850``.

    Raises:
        ValueError: not such an address.
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if (
        not colon
        or not (port.isdecimal() and len(port) <= 5)
        or int(port) > 65535
        or (":" in host and not bracketed)
    ):
        msg = "allowed: host:port with a port from 0 to 65535, such as :9850, 127.0.0.1:9850 or [::1]:9850"
        raise ValueError(msg)
    return host.strip("[]"), int(port)


def format_address(host: str, port: int) -> str:
    """Return host and port as one writes them, the other way round of `parse_listen_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def loopback_hosts(host: str) -> tuple[str, ...]:
    """Return the hosts at which this machine reaches what listens on `host`, the likeliest first."""
    if not host:
        return ("127.0.0.1", "::1")
    wildcards = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not listened on
    return (wildcards.get(host, host),)
