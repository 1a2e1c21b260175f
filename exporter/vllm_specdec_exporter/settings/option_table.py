"""The option table: every setting of `serve`, declared once in `options.toml`.

Flags, environment variables, keys of the YAML file, the help and
`docs/reference/configuration.md` come from it. Other commands use its rows for the same
settings.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from ..config import values
from ..config.listen_address import parse_listen_address
from ..config.options import Option
from ..config.tables import read_table
from ..config.thresholds import parse_threshold
from ..economics.hardware import parse_machine
from ..economics.speculative_config import parse_speculations
from ..observe.settings import DEFAULT_WINDOWS
from ..per_request.grouping import TEMPERATURE_BOUNDS, parse_rule
from .web_options import WEB_OPTIONS


def parse_upstream(text: str) -> values.Target:
    """Return the server that the tap relays to; raise ValueError unless it is an
    address without a path.
    """
    target = values.parse_target(text)
    # Of the text: the target has the default path, too, which must not be given.
    path, query = _path_and_query(values.with_scheme(text), target.socket)
    if path.strip("/") or query or target.user:
        raise ValueError(
            "allowed: http://host:port, https://host:port or unix:/path/to.sock, "
            "without path or user"
        )
    return target


def _path_and_query(address: str, socket: str) -> tuple[str, str]:
    if socket:
        path, _, query = address.partition(f"{socket}:")[2].partition("?")
        return path, query
    parts = urlsplit(address)
    return parts.path, parts.query


def _tenant(text: str) -> str:
    name = text.strip()
    if not name or not name.isprintable():
        raise ValueError("the name of a tenant is expected, as in the header")
    return name


def _optional_header_name(text: str) -> str:
    return values.header_name(text) if text.strip() else ""


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "text": str,
    "file": values.file,
    "bool": values.boolean,
    "address": parse_listen_address,
    "servers": values.parse_servers,
    "upstream": parse_upstream,
    "header": values.header,
    "header_name": values.header_name,
    "optional_header_name": _optional_header_name,
    "speculation": parse_speculations,
    "machine": parse_machine,
    "share": values.share,
    "memory": values.memory,
    "threshold": parse_threshold,
    "rule": parse_rule,
    "tenant": _tenant,
}
_MASKS = {
    "servers": values.mask_url,
    "upstream": values.mask_url,
    "header": values.mask_header,
}
_METAVARS = {"file": "FILE", "bool": "BOOL", "duration": "DURATION"}
#: Defaults that the code has anyway.
_DEFAULTS = {
    "window": tuple(window.name for window in DEFAULT_WINDOWS),
    "requests.temperature-bound": tuple(f"{bound:g}" for bound in TEMPERATURE_BOUNDS),
}


def _option(
    name: str,
    help: str,  # noqa: A002 - a key of the table, as all
    value: str,
    default: Any = None,
    least: float = 0.0,
    allowed: tuple[str, ...] = (),
    **others: Any,
) -> Option:
    match value:
        case "duration":
            parse: Callable[[str], Any] = values.duration(least)
        case "number":
            parse = values.number(least)
        case "choice":
            parse = values.choice(*allowed)
        case _:
            parse = _PARSERS[value]
    if value == "bool":
        default = "false"
    if others.get("repeatable"):
        default = _DEFAULTS.get(name, tuple(default or ()))
    columns = {"metavar": _METAVARS.get(value), "mask": _MASKS.get(value, str)}
    return Option(name, parse, default, help, **(columns | others))


_ROWS = read_table(__file__, "options.toml")
_OF_THE_WEB = {option.name: option for option in WEB_OPTIONS}
_BY_NAME = {
    name: _OF_THE_WEB.get(name) or _option(name, **row) for name, row in _ROWS.items()
}
#: Every option of `serve`, in the order of the help and the documentation.
OPTIONS: tuple[Option, ...] = tuple(_BY_NAME.values())
#: Parsed before the others, because it applies if they cannot be used.
STARTUP_ON_ERROR = _BY_NAME["startup.on-error"]
