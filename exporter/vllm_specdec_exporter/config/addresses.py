"""Listen addresses: from text to host and port, back again, and to where this machine reaches them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit


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


_SECRET_PARAMETER = re.compile(
    r"([?&][^=&]*(?:token|key|secret|password|auth|sig)[^=&]*=)[^&]*", re.IGNORECASE
)
_NOT_IN_HOST = frozenset(' "<>[\\]^`{|}')
_SOCKET_HOST = "http://localhost"
_ALLOWED = "not an address; allowed: http://host:port, https://host:port or unix:/path/to.sock"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a server's metrics are.

    Attributes:
        url: the full address without credentials, for requests.
        socket: path of the Unix socket to connect to instead of the host in `url`.
        user: user name for basic authentication.
        password: and its password.
    """

    url: str
    socket: str = ""
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """The address as labels and logs show it: without secrets, and without the usual path."""
        url = mask_query(self.url)
        if self.socket:
            path = url.removeprefix(_SOCKET_HOST)
            return f"unix:{self.socket}" + ("" if path == "/metrics" else f":{path}")
        return url.removesuffix("/metrics")

    @property
    def address(self) -> tuple[str, int, bool]:
        """Host and port to connect to, and whether with TLS."""
        parts = urlsplit(self.url)
        tls = parts.scheme == "https"
        return parts.hostname or "", parts.port or (443 if tls else 80), tls

    @property
    def version_url(self) -> str:
        """The address at which vLLM tells its version, empty where it cannot be guessed."""
        scheme, host, path, _, _ = urlsplit(self.url)
        base, found, _ = path.rpartition("/metrics")
        return urlunsplit((scheme, host, f"{base}/version", "", "")) if found else ""


def parse_target(text: str) -> Target:
    """Return the target that `text` names: a URL, or ``unix:/path/to.sock[:/metrics]``.

    Without a path, ``/metrics`` is meant; a trailing slash there is dropped, because vLLM answers that
    address with another content.

    Raises:
        ValueError: not such an address; the message says what is allowed.
    """
    text = text.strip()
    if text.startswith("unix:"):
        socket, _, path = text.removeprefix("unix:").removeprefix("//").partition(":")
        if not socket.startswith("/"):
            msg = "a Unix socket is written unix:/path/to.sock, with /metrics or another path after a colon"
            raise ValueError(msg)
        if "?" in socket:  # its query would be shown as a part of the path, secrets and all
            msg = "a query stands behind a path: unix:/path/to.sock:/metrics?name=value"
            raise ValueError(msg)
        path, question, query = path.partition("?")
        return Target(url=f"{_SOCKET_HOST}{_path(path)}{question}{query}", socket=socket)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        # The error of the standard library would repeat the address, and with it a password.
        raise ValueError(_ALLOWED) from None
    hostname = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not _is_host(hostname) or parts.fragment:
        raise ValueError(_ALLOWED)
    if "@" in parts.path + parts.query:
        msg = "an @ in the path; in a password, write %2F for /, %3F for ? and %40 for @"
        raise ValueError(msg)
    if port is not None:
        location = format_address(hostname, port)
    else:
        location = f"[{hostname}]" if ":" in hostname else hostname
    return Target(
        url=urlunsplit((parts.scheme, location, _path(parts.path), parts.query, "")),
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def mask_query(text: str) -> str:
    """Return an address without the values of those parameters whose names speak of secrets."""
    return _SECRET_PARAMETER.sub(r"\1<secret>", text)


def _is_host(text: str) -> bool:
    return bool(text) and text.isprintable() and _NOT_IN_HOST.isdisjoint(text)


def _path(path: str) -> str:
    path = path.rstrip("/")
    return path or "/metrics"
