"""Values of settings: durations, numbers, addresses, headers and others, parsed from
text and masked.

Every parser raises ValueError with a message that names what is allowed, without the
value.
"""

import math
import operator
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, unquote_plus, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from .listen_address import format_address
from .spelling import hint

#: The units of a Prometheus duration, in milliseconds.
_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION = re.compile("".join(f"(?:([0-9]{{1,15}}){unit})?" for unit in _UNITS))


def parse_duration(text: str) -> float:
    """Return the seconds of a Prometheus duration such as ``30s``, ``5m``, ``1h30m`` or
    ``500ms``.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError("a duration needs a unit: such as 500ms, 5s, 5m or 1h30m")
    counts = map(int, match.groups("0"))
    milliseconds: int = sum(map(operator.mul, counts, _UNITS.values()))
    return milliseconds / 1000


@lru_cache(maxsize=256)
def format_duration(seconds: float) -> str:
    """Return the shortest text for `parse_duration` (``90`` is ``1m30s``)."""
    milliseconds = round(seconds * 1000)
    parts = []
    for unit, scale in _UNITS.items():
        count, milliseconds = divmod(milliseconds, scale)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def duration(least: float = 0.001, most: float = math.inf) -> Callable[[str], float]:
    """Return a parser of durations from `least` to `most` seconds."""

    def parse(text: str) -> float:
        seconds = parse_duration(text)
        if not least <= seconds <= most:
            limit = "up"
            if most < math.inf:
                limit = f"to {format_duration(most)}"
            raise ValueError(f"allowed: from {format_duration(least)} {limit}")
        return seconds

    return parse


def format_time(seconds: float, timespec: str = "auto") -> str:
    """Return Unix seconds as RFC 3339 in UTC; `timespec` is that of
    `datetime.isoformat`.
    """
    time = datetime.fromtimestamp(seconds, UTC)
    return time.isoformat(timespec=timespec).replace("+00:00", "Z")


def choice(*allowed: str) -> Callable[[str], str]:
    """Return a parser that accepts only these words."""

    def parse(text: str) -> str:
        if text not in allowed:
            shown = ", ".join(allowed)
            raise ValueError(f"allowed: {shown}{hint(text.lower(), allowed)}")
        return text

    return parse


def boolean(text: str) -> bool:
    """Return the value of ``true`` or ``false``."""
    return choice("true", "false")(text.lower()) == "true"


def file(text: str) -> str:
    """Return the path of a readable file."""
    try:
        with Path(text).open("rb"):
            return text
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error


def number(
    least: float, most: float = sys.float_info.max, allowed: str = ""
) -> Callable[[str], float]:
    """Return a parser of finite numbers within bounds, which `allowed` describes."""
    description = allowed or f"a number of at least {least:g}"
    if not allowed and most < sys.float_info.max:
        description = f"a number from {least:g} to {most:g}"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise ValueError(f"allowed: {description}")
        return value + 0.0  # -0 is 0

    return parse


def share(text: str) -> float:
    """Return a number above 0 and at most 1; ``1:9`` is a ninth."""
    part, colon, total = text.partition(":")
    try:
        ratio = float(part) / float(total if colon else 1)
    except (ValueError, ZeroDivisionError):
        ratio = 0.0
    if not 0 < ratio <= 1:
        raise ValueError("allowed: a number above 0 and at most 1, such as 0.11 or 1:9")
    return ratio


_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT])(i?)B", re.IGNORECASE)
#: Limits of the memory of a model and of a server's GPUs, in bytes; a wrong unit is
#: often beyond them.
_MIN_MEMORY = 1e8
_MAX_MEMORY = 1e14


def memory(text: str) -> float:
    """Return the bytes of an amount of memory, such as ``80GB`` or ``80GiB``."""
    match = _MEMORY.fullmatch(text.strip())
    size = 0.0
    if match is not None:
        base = 1024.0 if match[3] else 1000.0
        size = float(match[1]) * base ** ("KMGT".index(match[2].upper()) + 1)
    if not _MIN_MEMORY <= size <= _MAX_MEMORY:
        raise ValueError(
            "allowed: memory with its unit, such as 80GB (80e9 bytes) or 80GiB (80 "
            "x 2^30), 0.1GB to 100TB"
        )
    return size


def header_name(text: str) -> str:
    """Return the name of a request header."""
    name = text.strip()
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        raise ValueError("the name of a header is expected, such as X-Request-Type")
    return name


def header(text: str) -> tuple[str, str]:
    """Return name and value of a request header, ``Name: value``."""
    name, colon, value = text.partition(":")
    name = name.strip()
    value = value.strip()
    token = name.replace("-", "").replace("_", "")
    is_name = token.isascii() and token.isalnum()
    if not colon or not is_name or not value.isprintable():
        raise ValueError("allowed: Name: value")
    return name, value


def mask_header(text: str) -> str:
    """Return a header without its value."""
    name, colon, _ = text.partition(":")
    # The name of a header is no secret, and helps to find the setting.
    if colon:
        return f"{name}: <secret>"
    return "<secret>"


_SECRET_PARAMETER = re.compile(
    r"([?&][^=&]*(?:token|key|secret|passw|pass(?![a-z])|pwd|credential|jwt|auth|sig)[^=&]*=)([^&]*)",
    re.IGNORECASE,
)
_NOT_IN_HOST = frozenset(' "<>[\\]^`{|}')
_SOCKET_HOST = "http://localhost"
_DISCOVERY = "dns+"  # before the address of a name
_ALLOWED = (
    "not an address; allowed: http://host:port, https://host:port or unix:/path/to.sock"
)


class Target(Struct, frozen=True):
    """The address of a server's metrics."""

    url: str  # the full URL without credentials
    #: Path of the Unix socket to connect to instead of the host in `url`; empty for
    #: none.
    socket: str = ""
    user: str = ""  # user name for basic authentication
    password: str = ""
    discovery: bool = False  # whether every address of the host in `url` is a server

    def __repr__(self) -> str:
        return f"Target({self.name!r})"  # without the password

    @property
    def name(self) -> str:
        """The address for labels and logs: without secrets, and without the default
        path.
        """
        url = mask_query(self.url)
        if self.socket:
            path = url.removeprefix(_SOCKET_HOST)
            shown = f"unix:{self.socket}:{path}"
            return shown.removesuffix(":/metrics")
        if self.discovery:
            url = f"{_DISCOVERY}{url}"
        return url.removesuffix("/metrics")

    @property
    def address(self) -> tuple[str, int, bool]:
        """Host, port, and whether to use TLS."""
        parts = urlsplit(self.url)
        tls = parts.scheme == "https"
        default_port = 443 if tls else 80
        return parts.hostname or "", parts.port or default_port, tls

    @property
    def polled_url(self) -> str:
        """The URL to poll.

        With a model in it, a router such as llama.cpp's must not load the model.
        """
        loads = re.search("[?&]model=", self.url) and "autoload=" not in self.url
        if loads:
            return f"{self.url}&autoload=false"
        return self.url

    def sibling_url(self, name: str) -> str:
        """The URL of `name` beside the metrics; empty if the path of the metrics is not
        ``.../metrics``.
        """
        parts = urlsplit(self.url)
        base, metrics, _ = parts.path.rpartition("/metrics")
        if not metrics:
            return ""
        return parts._replace(path=f"{base}/{name}", query="", fragment="").geturl()


_HOST_AND_PORT = re.compile(
    r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}(?:[/?].*)?"
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|unix:")


def is_address(text: str) -> bool:
    """Return whether a text is written as an address: with a scheme, or as host and
    port.
    """
    text = text.strip()
    return bool(_SCHEME.match(text) or _HOST_AND_PORT.fullmatch(text))


def with_scheme(text: str) -> str:
    """Return an address that has a scheme: http where it is host and port."""
    text = text.strip()
    if _HOST_AND_PORT.fullmatch(text):
        return f"http://{text}"
    return text


def parse_target(text: str) -> Target:
    """Return the target of a URL, of ``host:port``, which means http, or of
    ``unix:/path/to.sock[:/metrics]``.

    The default path is ``/metrics``; any other is kept as it is.
    """
    text = with_scheme(text)
    if text.startswith("unix:"):
        return _parse_socket(text.removeprefix("unix:").removeprefix("//"))
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        # The standard library's message contains the address, possibly with a password.
        raise ValueError(_ALLOWED) from None
    host = parts.hostname or ""
    is_host = host and host.isprintable() and _NOT_IN_HOST.isdisjoint(host)
    if parts.scheme not in ("http", "https") or not is_host or parts.fragment:
        raise ValueError(_ALLOWED)
    if "@" in parts.path + parts.query:
        raise ValueError(
            "an @ in the path; in a password, write %2F for /, %3F for ? and %40 for @"
        )
    location = f"[{host}]" if ":" in host else host
    if port is not None:
        location = format_address(host, port)
    url = parts._replace(netloc=location, path=_metrics_path(parts.path)).geturl()
    return Target(
        url=url,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def _parse_socket(text: str) -> Target:
    socket, _, address = text.partition(":")
    if not socket.startswith("/"):
        raise ValueError(
            "a Unix socket is written unix:/path/to.sock, with /metrics or "
            "another path after a colon"
        )
    # The query would become part of the socket's path, and its secrets be shown.
    if "?" in socket:
        raise ValueError("a query needs a path: unix:/path/to.sock:/metrics?name=value")
    path, question, query = address.partition("?")
    return Target(
        url=f"{_SOCKET_HOST}{_metrics_path(path)}{question}{query}", socket=socket
    )


def parse_servers(text: str) -> Target:
    """Return a target, or the servers behind a name: ``dns+http://name:port``."""
    text = text.strip()
    target = parse_target(text.removeprefix(_DISCOVERY))
    if not text.startswith(_DISCOVERY):
        return target
    if target.socket:
        raise ValueError("dns+ needs a name, as in dns+http://vllm.llm.svc")
    return replace(target, discovery=True)


def mask_query(text: str) -> str:
    """Return an address with the values of secret parameters replaced, going by the
    parameters' names.
    """
    return _SECRET_PARAMETER.sub(r"\1<secret>", text)


def secret_parameters(text: str) -> frozenset[str]:
    """Return the values that `mask_query` replaces, as they are and decoded."""
    values = [value for _, value in _SECRET_PARAMETER.findall(text) if value]
    return frozenset((*values, *map(unquote, values), *map(unquote_plus, values)))


def mask_url(text: str) -> str:
    """Return an address, valid or not, without credentials and secret parameters."""
    text = mask_query(text)
    try:
        parse_target(text)
    except ValueError:
        # Up to the last @, because a password may contain any character.
        return re.sub(r"^(\w+://)?.*@", r"\1<secret>@", text, flags=re.DOTALL)
    return re.sub(r"//[^/]*@", "//<secret>@", text)


def _metrics_path(path: str) -> str:
    if path.strip("/"):
        return path
    return "/metrics"
