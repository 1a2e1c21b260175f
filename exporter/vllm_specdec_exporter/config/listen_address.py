"""Where this program listens: host and port as text.

`health` needs no more of the settings, and runs every few seconds: this module imports
nothing.
"""


def parse_listen_address(text: str) -> tuple[str, int]:
    """Return host and port of ``:9850``, ``127.0.0.1:9850`` or ``[::1]:9850``."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    valid_port = port.isdecimal() and len(port) <= 5 and int(port) <= 65535
    if not colon or not valid_port or (":" in host and not bracketed):
        raise ValueError(
            "allowed: host:port with a port from 0 to 65535, such as :9850, "
            "127.0.0.1:9850 or [::1]:9850"
        )
    return host.strip("[]"), int(port)


def format_address(host: str, port: int) -> str:
    """Return host and port as text, the inverse of `parse_listen_address`."""
    if ":" in host:
        return f"[{host}]:{port}"
    return f"{host}:{port}"


def loopback_hosts(host: str) -> tuple[str, ...]:
    """Return where to connect to a listener on `host`, in the order to try."""
    if not host:
        return ("127.0.0.1", "::1")
    wildcards = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not listened on
    return (wildcards.get(host, host),)
