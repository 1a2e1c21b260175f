"""`get_metrics()`: the snapshot of a running exporter as typed objects."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING

from ..publish import snapshot

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from ..observe.result import ExporterResult


class SnapshotError(Exception):
    """The snapshot could not be read. The message has the reason."""


def get_metrics(
    url: str = "http://127.0.0.1:9850",
    *,
    model_name: str = "",
    engine: str = "",
    window: str = "",
    metric: Sequence[str] = (),
    timeout: float = 5.0,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> ExporterResult:
    """Return the latest result of a running exporter.

    Args:
        url: the exporter's address.
        model_name: only engines with this label.
        engine: only engines with this label.
        window: only the window of this name, such as ``5m``.
        metric: only these metrics, with or without their prefix; other fields have their defaults.
        timeout: of the request, in seconds.
        headers: further request headers, such as Authorization.
        tls: TLS settings for an https address.

    Raises:
        SnapshotError: the exporter cannot be reached, rejects a filter, or returns no snapshot.
    """
    filters = {"model_name": model_name, "engine": engine, "window": window}
    query = [(name, value) for name, value in filters.items() if value]
    query += [("metric", name) for name in metric]
    address = f"{url.rstrip('/')}/api/v1/snapshot?{urllib.parse.urlencode(query)}"
    if not address.startswith(("http://", "https://")):
        raise SnapshotError(f"{url!r} is not an http or https address")
    # Without the proxy of the environment: the exporter is usually in the same network.
    handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
    try:
        request = urllib.request.Request(address, headers=dict(headers or {}))  # noqa: S310 - checked above
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        raise SnapshotError(f"{url} answered {error.code}: {_reason(error.read())}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise SnapshotError(f"{url} cannot be reached: {getattr(error, 'reason', error)}") from error
    try:
        return snapshot.decode(body)
    except ValueError as error:
        raise SnapshotError(f"{url} did not answer with a snapshot: {error}") from error


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace").strip()
