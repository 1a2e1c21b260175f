"""One push over HTTP, and its outcome."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from urllib.parse import urlsplit

from .. import __version__
from ..requests.routes import PUSH_PATH

#: Limit of the bytes that are read of a response.
_MAX_RESPONSE = 64 * 1024
#: Limit of the characters of a response in the log.
_MAX_REASON = 200

#: Statuses after which the same push may succeed later: a token rotation, rate limits, an overloaded server.
#: After other statuses of 5xx, the push may have been counted.
_RETRIED = frozenset({401, 403, 408, 425, 429, 503})

#: Reasons for responses without one.
_REASONS = {
    200: "not the response of an exporter",
    404: "pushes are not enabled there (--push.bearer-token-file), or it is no exporter",
}


class DeliveryOutcome(Enum):
    """The outcome of a push."""

    ACCEPTED = auto()
    #: Not accepted; a retry may succeed.
    RETRY = auto()
    #: Failed, or unknown: it is not sent again, so that no request is counted twice.
    LOST = auto()


@dataclass(frozen=True, slots=True)
class Delivered:
    """The result of a push."""

    outcome: DeliveryOutcome  # whether it was accepted
    rejected: int = 0  # requests in it that the exporter rejected
    reason: str = ""  # why it failed, or why requests were rejected; else empty


class Address:
    """The push endpoint of an exporter, with its token; the arguments are those of `Reporter`.

    ValueError if an argument is invalid.
    """

    def __init__(
        self, url: str, token: str, token_file: str, tls: ssl.SSLContext | None, timeout: float
    ) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ValueError("url: allowed: http://host:port or https://host:port of the exporter")
        if parts.username is not None:
            raise ValueError("url: must not have a user and a password; use the token")
        if bool(token) == bool(token_file):
            raise ValueError("either token or token_file is needed")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._host, self._port = parts.hostname, port
        self._path = parts.path.rstrip("/").removesuffix(PUSH_PATH) + PUSH_PATH
        self._token, self._token_file = token, token_file
        self._timeout = timeout
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._tls = tls or ssl.create_default_context()

    def push(self, body: bytes, count: int) -> Delivered:
        """Send a push of `count` requests, once."""
        try:
            token = self._token or Path(self._token_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            return Delivered(DeliveryOutcome.RETRY, reason=f"the token file cannot be read: {error}")
        if not token.isprintable() or not token.isascii() or not token:
            return Delivered(DeliveryOutcome.RETRY, reason="the token is empty, or invalid in a header")
        connection = self._connect()
        try:
            return self._send(connection, body, count, token)
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        # Without the proxy of the environment: the exporter is usually in the same network. A new connection
        # for each push: the server may close a kept-alive connection at the moment it is reused.
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)

    def _send(self, connection: http.client.HTTPConnection, body: bytes, count: int, token: str) -> Delivered:
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "User-Agent": f"vllm-specdec-exporter/{__version__}",
            "Connection": "close",
        }
        try:
            connection.request("POST", self._path, body, headers)
        except OSError as error:
            return Delivered(DeliveryOutcome.RETRY, reason=f"cannot be reached: {error}")
        try:
            response = connection.getresponse()
            return _delivered(response.status, response.read(_MAX_RESPONSE), count)
        except TimeoutError:
            return Delivered(DeliveryOutcome.LOST, reason="no response in time")
        except (OSError, http.client.RemoteDisconnected) as error:
            # A proxy may have closed it after the exporter had counted the requests.
            return Delivered(DeliveryOutcome.LOST, reason=f"the connection was closed: {error}")
        except http.client.HTTPException as error:
            return Delivered(DeliveryOutcome.LOST, reason=f"invalid HTTP response: {error!r}")


def _delivered(status: int, body: bytes, count: int) -> Delivered:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    document = document if isinstance(document, dict) else {}
    rejected = document.get("rejected")
    if status in (200, 400) and isinstance(rejected, int) and 0 <= rejected <= count:
        errors = document.get("errors")
        reason = "; ".join(map(str, errors)) if isinstance(errors, list) else ""
        return Delivered(DeliveryOutcome.ACCEPTED, rejected, reason[:_MAX_REASON])
    error = str(document.get("error") or _REASONS.get(status, ""))[:_MAX_REASON]
    reason = f"status {status}{': ' if error else ''}{error}"
    if status == 400 and "error" in document:
        return Delivered(DeliveryOutcome.ACCEPTED, count, reason)
    outcome = DeliveryOutcome.RETRY if status in _RETRIED else DeliveryOutcome.LOST
    return Delivered(outcome, reason=reason)
