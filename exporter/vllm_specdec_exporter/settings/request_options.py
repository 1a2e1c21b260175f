"""The settings of the tap and of the grouping of single requests, from the values of
their options.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ..config.listen_address import format_address, loopback_hosts
from ..config.options import ConfigError
from ..config.values import Target
from ..per_request.grouping import Classification, RequestSettings, Temperatures
from .option_table import OPTIONS

MAX_TENANTS = 100  # limit of tenants with their own label value
#: Listen addresses that mean every address of this machine.
_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
#: Limit of temperature buckets: steps of 0.05 up to 2, the largest usual temperature.
_MAX_BOUNDS = 40


class TapConfig(Struct, frozen=True):
    """The configuration of the tap."""

    #: Host and port to listen on; an empty host is every address.
    listen: tuple[str, int]
    upstream: Target  # the server
    #: The name to expect in its certificate instead of the address's host.
    server_name: str = ""
    drain_seconds: float = 25.0  # deadline of requests under way when the tap stops


def build_tap(
    values: Mapping[str, Any], targets: tuple[Target, ...]
) -> TapConfig | None:
    """Return the tap's configuration, ``None`` without a tap; raise ConfigError for
    contradictory values.
    """
    if values["tap.listen-address"] is None:
        _refuse_without_tap(values)
        return None
    upstream: Target | None = values["tap.upstream"]
    if upstream is None and (len(targets) > 1 or targets[0].discovery):
        raise ConfigError(
            "--tap.upstream is required if several servers are polled: the tap "
            "relays to one of them"
        )
    _check_addresses(
        values["tap.listen-address"],
        values.get("web.listen-address"),
        upstream or targets[0],
    )
    return TapConfig(
        listen=values["tap.listen-address"],
        upstream=upstream or targets[0],
        server_name=values["vllm.server-name"] or "",
        drain_seconds=values["tap.drain-timeout"],
    )


def _refuse_without_tap(values: Mapping[str, Any]) -> None:
    """Reject settings of the tap without its address, which suggest that it is on."""
    for option in OPTIONS:
        if not option.name.startswith("tap."):
            continue
        default = option.default
        if default is not None:
            default = option.parse(str(default))
        if values[option.name] != default:
            raise ConfigError(
                f"{option.flag} needs --tap.listen-address, such as :9852: without "
                "it there is no tap"
            )


def _check_addresses(
    tap: tuple[str, int], web: tuple[str, int] | None, upstream: Target
) -> None:
    """Reject a tap on the exporter's own port, and one that relays to itself."""
    shown = json.dumps(format_address(*tap))
    overlap = web is not None and (
        web[0] == tap[0] or web[0] in _EVERYWHERE or tap[0] in _EVERYWHERE
    )
    # 0 is any free port
    if web is not None and web[1] == tap[1] and tap[1] and overlap:
        raise ConfigError(
            f"--tap.listen-address {shown}: --web.listen-address uses this port already"
        )
    host, port, _ = upstream.address
    reached = {tap[0], *loopback_hosts(tap[0])}
    if reached & {"127.0.0.1", "::1"}:
        reached |= {"localhost", *_EVERYWHERE}
    if not upstream.socket and port == tap[1] and host in reached:
        raise ConfigError(
            f"--tap.listen-address {shown}: the tap would relay to itself; "
            "--vllm.url and --tap.upstream need vLLM's own port, such as "
            "http://127.0.0.1:8000"
        )


def build_requests(values: Mapping[str, Any]) -> RequestSettings:
    """Return the settings for grouping and judging requests; raise ConfigError for
    contradictory values.
    """
    tenants = values["requests.tenant"]
    tenant_header = values["requests.tenant-header"]
    # A push states the tenant, so it needs no header.
    if tenants and not tenant_header and not values["push.bearer-token-file"]:
        raise ConfigError(
            "--requests.tenant needs --requests.tenant-header: the header with the "
            "tenant"
        )
    if tenant_header and not tenants:
        raise ConfigError(
            "--requests.tenant-header needs --requests.tenant: the tenants with "
            "their own label value"
        )
    count = len(set(tenants))
    if count > MAX_TENANTS:
        raise ConfigError(
            f"--requests.tenant: {count} tenants; allowed: up to {MAX_TENANTS}"
        )
    classification = Classification(
        type_header=(values["requests.type-header"] or "").lower(),
        rules=values["requests.type"],
        tenant_header=(tenant_header or "").lower(),
        tenants=frozenset(tenants),
    )
    temperatures = Temperatures(
        _temperature_bounds(values["requests.temperature-bound"]),
        values["requests.default-temperature"],
    )
    return RequestSettings(
        classification=classification,
        temperatures=temperatures,
        window_seconds=values["requests.window"],
    )


def _temperature_bounds(bounds: tuple[float, ...]) -> tuple[float, ...]:
    is_ascending = list(bounds) == sorted(set(bounds))
    if not bounds or not is_ascending or not all(map(math.isfinite, bounds)):
        raise ConfigError(
            f"--requests.temperature-bound {json.dumps(list(bounds))}: at least one "
            "bound, in ascending order, is required"
        )
    if len(bounds) > _MAX_BOUNDS:
        raise ConfigError(
            f"--requests.temperature-bound: {len(bounds)} bounds; allowed: up to "
            f"{_MAX_BOUNDS}"
        )
    return bounds
