"""One push over HTTP, and what became of it."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from urllib.parse import urlsplit

from .. import __version__
from ..requests.push_schema import PATH

#: Bytes of an answer that are read; the exporter's have far fewer.
_MOST_ANSWER = 64 * 1024
#: Characters of an answer that are passed on.
_MOST_TOLD = 200

#: Statuses after which the same push may do better a little later: a token is being exchanged, too much at
#: once, or a server that is not well. After others of 5xx nobody knows whether the push arrived.
_LATER = frozenset({401, 403, 408, 425, 429, 503})

#: What is said of answers that say nothing themselves.
_UNTOLD = {
    200: "not as an exporter does",
    404: "it takes no pushes (--push.bearer-token-file), or is no exporter",
}


class DeliveryOutcome(Enum):
    """What became of a push."""

    TAKEN = auto()
    #: Not taken, and it is worth while to try again.
    LATER = auto()
    #: Not taken, or nobody knows: it is not sent again, so nothing is counted twice.
    LOST = auto()


@dataclass(frozen=True, slots=True)
class Delivered:
    """What became of a push.

    Attributes:
        fate: whether it was taken.
        rejected: requests in it that the exporter could not use.
        why: what stood in its way, empty where nothing did.
    """

    fate: DeliveryOutcome
    rejected: int = 0
    why: str = ""


class Address:
    """Where pushes go, and with which token.

    Args:
        url: of the exporter, such as ``http://127.0.0.1:9850``; a path is that of a proxy before it.
        token: the bearer token.
        token_file: file with the bearer token, read anew for every push.
        tls: TLS settings for https; by default those that verify the certificate.
        timeout: seconds to wait for the connection, and for each part of the answer.

    Raises:
        ValueError: no such address, or not just one token.
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
            msg = "url: allowed: http://host:port or https://host:port of the exporter"
            raise ValueError(msg)
        if parts.username is not None:
            msg = "url: a user and a password in it are not used; what is needed is the token"
            raise ValueError(msg)
        if bool(token) == bool(token_file):
            msg = "token or token_file is needed, and not both"
            raise ValueError(msg)
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._host, self._port = parts.hostname, port
        self._path = parts.path.rstrip("/").removesuffix(PATH) + PATH
        self._token, self._token_file = token, token_file
        self._timeout = timeout
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self._tls = tls or ssl.create_default_context()

    def push(self, body: bytes, count: int) -> Delivered:
        """Send a push of `count` requests, once.

        Args:
            body: the JSON.
            count: how many requests are in it.
        """
        try:
            token = self._token or Path(self._token_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            return Delivered(DeliveryOutcome.LATER, why=f"the token file cannot be read: {error}")
        if not token.isprintable() or not token.isascii() or not token:
            return Delivered(DeliveryOutcome.LATER, why="the token is empty, or holds what a header cannot")
        connection = self._connect()
        try:
            return self._send(connection, body, count, token)
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        # The exporter is near: no proxy of the environment stands between. A connection for each push, for
        # one that is kept open may be closed by the other side just when it is used again.
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
            return Delivered(DeliveryOutcome.LATER, why=f"cannot be reached: {error}")
        try:
            answer = connection.getresponse()
            return _judge(answer.status, answer.read(_MOST_ANSWER), count)
        except TimeoutError:
            return Delivered(DeliveryOutcome.LOST, why="no answer in time")
        except (OSError, http.client.RemoteDisconnected) as error:
            # A proxy in between may have ended it after the exporter had counted.
            return Delivered(DeliveryOutcome.LOST, why=f"the connection ended: {error}")
        except http.client.HTTPException as error:
            return Delivered(DeliveryOutcome.LOST, why=f"no answer of HTTP: {error!r}")


def _judge(status: int, body: bytes, count: int) -> Delivered:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    document = document if isinstance(document, dict) else {}
    rejected = document.get("rejected")
    if status in (200, 400) and isinstance(rejected, int) and 0 <= rejected <= count:
        errors = document.get("errors")
        why = "; ".join(map(str, errors)) if isinstance(errors, list) else ""
        return Delivered(DeliveryOutcome.TAKEN, rejected, why[:_MOST_TOLD])
    told = str(document.get("error") or _UNTOLD.get(status, ""))[:_MOST_TOLD]
    why = f"answered {status}{': ' if told else ''}{told}"
    if status == 400 and "error" in document:
        return Delivered(DeliveryOutcome.TAKEN, count, why)
    return Delivered(DeliveryOutcome.LATER if status in _LATER else DeliveryOutcome.LOST, why=why)
