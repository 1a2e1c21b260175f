"""The library for other programs: reads the snapshot of an exporter, and pushes
observed requests to it.

`get_metrics` returns the snapshot of a running exporter, `push_request` pushes one
request that the caller observed. They need only `msgspec`, and send counts, times and
names, never prompts or texts.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from .config.files import TokenError, parse_token, read_token
from .observe.result import ExporterResult
from .per_request.push_schema import PushedRequest
from .per_request.routes import PUSH_PATH
from .publish import snapshot

if TYPE_CHECKING:
    import ssl


__all__ = [
    "PushFailedError",
    "PushedRequest",
    "SnapshotError",
    "get_metrics",
    "push_request",
]


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
        metric: only these metrics, with or without their prefix; other fields have
            their defaults.
        timeout: of the request, in seconds.
        headers: further request headers, such as Authorization.
        tls: TLS settings for an https address.

    Raises:
        SnapshotError: the exporter cannot be reached, rejects a filter, or returns no
            snapshot.
    """
    filters = {"model_name": model_name, "engine": engine, "window": window}
    query = [(name, value) for name, value in filters.items() if value]
    query += [("metric", name) for name in metric]
    address = f"{url.rstrip('/')}/api/v1/snapshot?{urllib.parse.urlencode(query)}"
    if not address.startswith(("http://", "https://")):
        raise SnapshotError(f"{url!r} is not an http or https address")
    body = _exchange(
        SnapshotError,
        url,
        address,
        headers=dict(headers or {}),
        timeout=timeout,
        opener=_opener(tls),
        not_found="it is no exporter",
    )
    try:
        return snapshot.decode(body)
    except ValueError as error:
        raise SnapshotError(f"{url} did not answer with a snapshot: {error}") from error


#: Bytes that are read of a response: a snapshot of 256 engines has some megabytes.
_MAX_RESPONSE = 64 * 1024 * 1024
#: Bytes that are read of a refusal: the exporter's own has at most ten reasons of some
#: hundred bytes.
_MAX_REFUSAL = 64 * 1024
#: Characters of a reason in an error, so that it stays one line of a log.
_MAX_REASON = 200


class PushFailedError(Exception):
    """The exporter did not count the request, or sent no response.

    The message has the reason.
    """


def push_request(
    request: PushedRequest,
    url: str = "http://127.0.0.1:9850",
    *,
    token: str = "",
    token_file: str | Path = "",
    timeout: float = 2.0,
    tls: ssl.SSLContext | None = None,
) -> tuple[str, ...]:
    """Push one observed request, once, and return the exporter's warnings about it.

    It blocks until the response: an event loop has to call it in a thread. After a
    timeout, the exporter may have counted the request, so that a retry could count it
    twice.

    Args:
        request: what was observed.
        url: the exporter's address.
        token: the bearer token of ``--push.bearer-token-file``.
        token_file: a file with the token, read for every push; instead of `token`.
        timeout: limit of the connection, and of each wait for the response, in seconds.
        tls: TLS settings for an https address; by default the certificate is verified.

    Raises:
        PushFailedError: the request was not accepted, or the exporter cannot be
            reached.
        ValueError: an invalid argument; the message names it.
    """
    address = _address(url)
    try:
        body = msgspec.json.encode({"requests": [request]})
    except (msgspec.MsgspecError, TypeError, UnicodeError, OverflowError) as error:
        raise ValueError(f"request: {error}") from error
    headers = {
        "Authorization": f"Bearer {_token(token, token_file)}",
        "Content-Type": "application/json",
        "User-Agent": "vllm-specdec-exporter-client",
    }
    document = _document(
        _exchange(
            PushFailedError,
            url,
            address,
            body,
            headers=headers,
            timeout=timeout,
            opener=_opener(tls, _NoRedirects()),
            not_found=(
                "pushes are not enabled there (--push.bearer-token-file), or it is no "
                "exporter"
            ),
        )
    )
    if document.get("accepted") != 1:
        raise PushFailedError(f"{url} answered 200: not the response of an exporter")
    return tuple(map(str, document.get("warnings", ())))


def _exchange(
    failure: type[SnapshotError | PushFailedError],
    url: str,
    address: str,
    body: bytes | None = None,
    *,
    headers: dict[str, str],
    timeout: float,
    opener: urllib.request.OpenerDirector,
    not_found: str,
) -> bytes:
    """Return the body of a response with status 200; raise `failure` for any other.

    `not_found` is the reason for a status 404 without one.
    """
    try:
        # S310: the callers check the scheme.
        request = urllib.request.Request(address, body, headers)  # noqa: S310
        with opener.open(request, timeout=timeout) as response:
            content: bytes = response.read(_MAX_RESPONSE)
            return content
    except urllib.error.HTTPError as error:
        with error:
            document = _document(error.read(_MAX_REFUSAL))
        reason = not_found if error.code == 404 else "no reason given"
        reason = str(document.get("error", reason))
        reason = "; ".join(map(str, document.get("errors", ()))) or reason
        raise failure(f"{url} answered {error.code}: {_one_line(reason)}") from error
    except TimeoutError as error:
        limit = f"within {timeout:g} s"
        raise failure(f"{url} sent no complete response {limit}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = _one_line(str(getattr(error, "reason", error)))
        raise failure(f"{url} cannot be reached: {reason}") from error


def _opener(
    tls: ssl.SSLContext | None, *handlers: urllib.request.BaseHandler
) -> urllib.request.OpenerDirector:
    """Return one without the proxy of the environment: the exporter is usually in the
    same network.
    """
    https = urllib.request.HTTPSHandler(context=tls)
    return urllib.request.build_opener(
        *handlers, urllib.request.ProxyHandler({}), https
    )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which would send the token to another server."""

    def redirect_request(self, *_: Any) -> None:
        """Return no request, so that the response becomes an HTTPError."""


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https")
        valid = is_http and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment:
        raise ValueError(
            "url: allowed: http://host:port or https://host:port of the exporter"
        )
    if "@" in parts.netloc:
        raise ValueError("url: must not have a user and a password; use the token")
    return url.rstrip("/").removesuffix(PUSH_PATH) + PUSH_PATH


def _token(token: str, token_file: str | Path) -> str:
    if bool(token) == bool(token_file):
        raise ValueError("either token or token_file is needed")
    try:
        # An error of http.client about an invalid header would show the token.
        if token:
            return parse_token(token.encode())
        return read_token(token_file)
    except TokenError as error:
        reason = f"the token file {error}" if token_file else "the token is not valid"
        raise PushFailedError(reason) from error


def _one_line(reason: str) -> str:
    return " ".join(reason.split())[:_MAX_REASON]


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(document, dict):
        return document
    return {}
