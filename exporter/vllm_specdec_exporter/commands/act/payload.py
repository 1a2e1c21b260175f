"""The payload of Alertmanager's webhook, version 4: from bytes to alerts. Pure.

The format is that of `webhook_config` in Alertmanager's documentation. Only what is used is checked; the rest
of an alert is kept for whoever reads it whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The version of the payload that is understood. Alertmanager has sent no other since 0.5.
VERSION = "4"

#: Most alerts of a payload. A model has a handful of decisions; more is a mistake, or somebody's attack.
MOST = 500


class PayloadError(ValueError):
    """A body that is no webhook payload. The message is one line that says why."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert of a payload.

    Attributes:
        firing: whether it fires; else it is resolved.
        labels: as Alertmanager has them.
        starts_at: when it began to fire, RFC 3339.
        body: the whole alert as JSON, on one line.
    """

    firing: bool
    labels: Mapping[str, str]
    starts_at: str
    body: bytes

    def label(self, name: str) -> str:
        """Return a label's value, empty where it is absent: to Prometheus both are the same."""
        return self.labels.get(name, "")


class _Payload(msgspec.Struct):
    version: str
    alerts: list[dict[str, Any]]


class _Alert(msgspec.Struct, rename="camel"):
    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    starts_at: str


def decode(body: bytes) -> tuple[Alert, ...]:
    """Return the alerts of a payload, in its order.

    Raises:
        PayloadError: not JSON, not such a payload, or one of another version.
    """
    try:
        payload = msgspec.json.decode(body, type=_Payload)
        if payload.version != VERSION:
            raise PayloadError(
                f"its version is {payload.version[:20]!r}, and version {VERSION} is understood"
            )
        if len(payload.alerts) > MOST:
            raise PayloadError(f"it has {len(payload.alerts):,} alerts, and at most {MOST} are taken")
        return tuple(_alert(document, index) for index, document in enumerate(payload.alerts))
    except PayloadError:
        raise
    except (ValueError, RecursionError) as error:
        raise PayloadError(
            f"not a webhook payload of Alertmanager: {' '.join(str(error).split())}"
        ) from error


def _alert(document: dict[str, Any], index: int) -> Alert:
    try:
        found = msgspec.convert(document, _Alert)
    except msgspec.ValidationError as error:
        raise PayloadError(f"alert {index} (from 0) is not understood: {error}") from error
    # From what was decoded, not from the bytes: where a key stands twice, all readers see the same value.
    body = msgspec.json.encode(document)
    return Alert(found.status == "firing", found.labels, found.starts_at, body)
