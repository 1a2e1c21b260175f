"""The options of the tap, of pushes, and of the grouping of single requests."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..config.options import (
    ConfigError,
    Option,
    check_both_or_neither,
    duration_option,
    file_option,
)
from ..config.values import (
    Target,
    format_address,
    header_name,
    loopback_hosts,
    mask_url,
    number,
    parse_listen_address,
    parse_target,
)
from ..per_request.grouping import (
    TEMPERATURE_BOUNDS,
    TYPE_HEADER,
    Classification,
    RequestSettings,
    Temperatures,
    parse_rule,
)

MAX_TENANTS = 100  # limit of tenants with their own label value
#: Listen addresses that mean every address of this machine.
_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
_MAX_BOUNDS = 40  # limit of temperature buckets: steps of 0.05 up to 2, the largest usual temperature


@dataclass(frozen=True, slots=True)
class TapConfig:
    """The configuration of the tap."""

    listen: tuple[str, int]  # host and port to listen on; an empty host is every address
    upstream: Target  # the server
    server_name: str = ""  # the name to expect in its certificate instead of the address's host
    drain_seconds: float = 25.0  # deadline of requests under way when the tap stops
    cert_file: str = ""  # certificate for clients, PEM; empty for plain HTTP
    key_file: str = ""  # its private key


def parse_upstream(text: str) -> Target:
    """Return the server that the tap relays to; raise ValueError unless it is an address without a path."""
    target = parse_target(text)
    if not target.url.endswith("/metrics") or "/metrics" in text or target.user:
        raise ValueError(
            "allowed: http://host:port, https://host:port or unix:/path/to.sock, without path or user"
        )
    return target


def _tenant(text: str) -> str:
    name = text.strip()
    if not name or not name.isprintable():
        raise ValueError("the name of a tenant is expected, as in the header")
    return name


def _type_header(text: str) -> str:
    return header_name(text) if text.strip() else ""


TAP_OPTIONS: tuple[Option, ...] = (
    Option(
        "tap.listen-address",
        parse_listen_address,
        None,
        "Address of the tap, a reverse proxy for vLLM's API that observes requests. Default: no tap.",
        metavar="ADDRESS",
    ),
    Option(
        "tap.upstream",
        parse_upstream,
        None,
        "Server that the tap relays to. Default: that of the first --vllm.url.",
        metavar="URL",
        mask=mask_url,
    ),
    duration_option(
        "tap.drain-timeout",
        0,
        "25s",
        "Time for requests under way in the tap to finish when the exporter stops.",
    ),
    file_option("tap.cert-file", "Certificate of the tap for https, PEM."),
    file_option("tap.key-file", "Private key of that certificate, PEM."),
)

REQUEST_OPTIONS: tuple[Option, ...] = (
    *TAP_OPTIONS,
    file_option(
        "push.bearer-token-file",
        "File with the bearer token for POST /api/v1/requests; read for every push. Without it, pushes are "
        "rejected.",
    ),
    duration_option("requests.window", 60, "30m", "Window over which single requests are judged."),
    Option(
        "requests.temperature-bound",
        number(0),
        tuple(f"{bound:g}" for bound in TEMPERATURE_BOUNDS),
        "Upper bound of a temperature bucket; repeatable.",
        metavar="NUMBER",
        repeatable=True,
    ),
    Option(
        "requests.default-temperature",
        number(0),
        None,
        "Temperature that the server uses for requests without one; if it is not set, they are in the bucket "
        "unset.",
        metavar="NUMBER",
    ),
    Option(
        "requests.type-header",
        _type_header,
        TYPE_HEADER,
        "Request header with the type of a request: clients choose the value, and it becomes a label. Empty "
        "for none.",
        metavar="NAME",
        may_be_empty=True,
    ),
    Option(
        "requests.type",
        parse_rule,
        (),
        "Rule for the type of requests without that header, NAME=WHERE:PATTERN, where WHERE is model, path, "
        "field or header.NAME; the first match counts. Repeatable (in the environment: one per line). "
        "Without a matching rule the route is the type.",
        metavar="RULE",
        repeatable=True,
        separator="\n",
    ),
    Option("requests.tenant-header", header_name, None, "Request header with the tenant.", metavar="NAME"),
    Option(
        "requests.tenant",
        _tenant,
        (),
        f"Tenant with its own label value, up to {MAX_TENANTS}; repeatable. Others are counted together.",
        metavar="NAME",
        repeatable=True,
    ),
)


def build_tap(values: Mapping[str, Any], targets: tuple[Target, ...]) -> TapConfig | None:
    """Return the tap's configuration, ``None`` without a tap; raise ConfigError for contradictory values."""
    if values["tap.listen-address"] is None:
        _refuse_without_tap(values)
        return None
    check_both_or_neither(values, "tap.cert-file", "tap.key-file")
    upstream: Target | None = values["tap.upstream"]
    if upstream is None and (len(targets) > 1 or targets[0].discovery):
        raise ConfigError(
            "--tap.upstream is required if several servers are polled: the tap relays to one of them"
        )
    _check_addresses(values["tap.listen-address"], values.get("web.listen-address"), upstream or targets[0])
    return TapConfig(
        listen=values["tap.listen-address"],
        upstream=upstream or targets[0],
        server_name=values["vllm.server-name"] or "",
        drain_seconds=values["tap.drain-timeout"],
        cert_file=values["tap.cert-file"] or "",
        key_file=values["tap.key-file"] or "",
    )


def _refuse_without_tap(values: Mapping[str, Any]) -> None:
    """Reject settings of the tap without its address, which suggest that it is on."""
    for option in TAP_OPTIONS:
        default = None if option.default is None else option.parse(str(option.default))
        if values[option.name] != default:
            raise ConfigError(
                f"{option.flag} needs --tap.listen-address, such as :9852: without it there is no tap"
            )


def _check_addresses(tap: tuple[str, int], web: tuple[str, int] | None, upstream: Target) -> None:
    """Reject a tap on the exporter's own port, and one that relays to itself."""
    shown = json.dumps(format_address(*tap))
    overlap = web is not None and (web[0] == tap[0] or web[0] in _EVERYWHERE or tap[0] in _EVERYWHERE)
    if web is not None and web[1] == tap[1] and tap[1] and overlap:  # 0 is any free port
        raise ConfigError(f"--tap.listen-address {shown}: --web.listen-address uses this port already")
    host, port, _ = upstream.address
    reached = {tap[0], *loopback_hosts(tap[0])}
    if reached & {"127.0.0.1", "::1"}:
        reached |= {"localhost", *_EVERYWHERE}
    if not upstream.socket and port == tap[1] and host in reached:
        raise ConfigError(
            f"--tap.listen-address {shown}: the tap would relay to itself; --vllm.url and --tap.upstream "
            "need vLLM's own port, such as http://127.0.0.1:8000"
        )


def build_requests(values: Mapping[str, Any]) -> RequestSettings:
    """Return the settings for grouping and judging requests; raise ConfigError for contradictory values."""
    tenants = values["requests.tenant"]
    if tenants and not values["requests.tenant-header"] and not values["push.bearer-token-file"]:
        raise ConfigError("--requests.tenant needs --requests.tenant-header: the header with the tenant")
    if values["requests.tenant-header"] and not tenants:
        raise ConfigError(
            "--requests.tenant-header needs --requests.tenant: the tenants with their own label value"
        )
    if len(set(tenants)) > MAX_TENANTS:
        raise ConfigError(f"--requests.tenant: {len(set(tenants))} tenants; allowed: up to {MAX_TENANTS}")
    classification = Classification(
        type_header=(values["requests.type-header"] or "").lower(),
        rules=values["requests.type"],
        tenant_header=(values["requests.tenant-header"] or "").lower(),
        tenants=frozenset(tenants),
    )
    temperatures = Temperatures(
        _temperature_bounds(values["requests.temperature-bound"]), values["requests.default-temperature"]
    )
    return RequestSettings(
        classification=classification,
        temperatures=temperatures,
        window_seconds=values["requests.window"],
    )


def _temperature_bounds(bounds: tuple[float, ...]) -> tuple[float, ...]:
    if not bounds or list(bounds) != sorted(set(bounds)) or not all(map(math.isfinite, bounds)):
        raise ConfigError(
            f"--requests.temperature-bound {json.dumps(list(bounds))}: at least one bound, in ascending "
            "order, is required"
        )
    if len(bounds) > _MAX_BOUNDS:
        raise ConfigError(f"--requests.temperature-bound: {len(bounds)} bounds; allowed: up to {_MAX_BOUNDS}")
    return bounds
