"""How to reach a Grafana: its address, the token, and whom to trust."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a Grafana.

    Attributes:
        url: its address, with the path of a sub-path installation, without a slash behind it.
        token: of a service account; empty for none.
        ca_file: certificates to trust instead of the system's.
        insecure: whether to accept any certificate.
        org_id: the organization, where the token does not say it.
        timeout: seconds that a request may take.
    """

    url: str
    token: str = field(default="", repr=False)
    ca_file: str = ""
    insecure: bool = False
    org_id: int | None = None
    timeout: float = 30.0


def read_token(path: str) -> str:
    """Return the token in a file, without the white space around it.

    Raises:
        ValueError: the file cannot be read, or holds none.
    """
    try:
        token = Path(path).read_text("ascii").strip()
    except OSError as error:
        msg = f"cannot be read: {error.strerror}"
        raise ValueError(msg) from error
    except UnicodeDecodeError:
        token = ""
    if not token or not all("!" <= character <= "~" for character in token):
        msg = "does not hold one token: one word of ASCII is expected"
        raise ValueError(msg)
    return token


def parse_url(text: str) -> str:
    """Return a Grafana's address as `Connection` takes it.

    Raises:
        ValueError: not such an address; the message does not repeat it.
    """
    try:
        parts = urlsplit(text.strip())
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fine = False
    if not fine or parts.query or parts.fragment or not text.strip().isprintable() or " " in text.strip():
        msg = "allowed: http://host:port or https://host/sub/path"
        raise ValueError(msg)
    if "@" in parts.netloc:
        msg = "no user and password here: Grafana is asked with the token of a service account"
        raise ValueError(msg)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
