"""A client of Grafana's HTTP API."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from ...serve.tls import client_context
from ...serve.upstream import AGENT, SessionClient, new_session

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Connection:
    """The address and the credentials of a Grafana."""

    url: str  # address with the sub-path if any, without a trailing slash
    token: str = field(default="", repr=False)  # token of a service account; empty for none
    ca_file: str = ""  # certificates to trust instead of the system's
    insecure: bool = False  # whether to accept any certificate
    org_id: int | None = None  # the organization; ``None`` for that of the token
    timeout: float = 30.0  # limit of a request, in seconds


def read_token(path: str) -> str:
    """Return the token in a file, one word of ASCII, or raise ValueError."""
    try:
        token = Path(path).read_text("ascii").strip()
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        token = ""
    if not token or not all("!" <= character <= "~" for character in token):
        raise ValueError("not a token: one word of ASCII is expected")
    return token


def parse_url(text: str) -> str:
    """Return a Grafana's address as `Connection` takes it; ValueError, without the address, if invalid."""
    try:
        parts = urlsplit(text.strip())
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment or not text.strip().isprintable() or " " in text.strip():
        raise ValueError("allowed: http://host:port or https://host/sub/path")
    if "@" in parts.netloc:
        raise ValueError("no user and password: Grafana needs the token of a service account")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


_MAX_BODY = 32 * 1024 * 1024
_LONGEST_MESSAGE = 300
#: Folders per page of the list, and the maximum number of pages.
_PAGE, _PAGES = 1000, 20


class GrafanaError(Exception):
    """A request failed. `status` is that of the response, 0 without a response from Grafana."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def fatal(self) -> bool:
        """Whether further requests would also fail: no Grafana, an invalid token, a server error."""
        return self.status in (0, 401, 407, 429) or self.status >= 500


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of dashboards; `writable` is false if Grafana reports that the token may not save in it."""

    uid: str
    title: str
    writable: bool = True


@dataclass(frozen=True, slots=True)
class StoredDashboard:
    """A dashboard in Grafana; `provisioned` if it comes from a file and cannot be saved."""

    document: Mapping[str, Any]
    folder_uid: str
    provisioned: bool


class Grafana(SessionClient):
    """One Grafana, an async context manager; ValueError if the certificates cannot be used."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tls: ssl.SSLContext | None = None
        if connection.url.startswith("https:"):
            flag, ca_file = "--grafana.ca-file", connection.ca_file
            self._tls = client_context(ca_file, insecure=connection.insecure, flag=flag)

    def open_session(self) -> aiohttp.ClientSession:
        """Return a new session."""
        headers = {**AGENT, "Accept": "application/json"}
        if self._connection.token:
            headers["Authorization"] = f"Bearer {self._connection.token}"
        if self._connection.org_id is not None:
            headers["X-Grafana-Org-Id"] = str(self._connection.org_id)
        return new_session(aiohttp.TCPConnector(ssl=self._tls or True, limit=1), headers)

    async def version(self) -> str:
        """Return the version, empty if Grafana hides it; GrafanaError if there is no Grafana."""
        found = await self._request("GET", "/api/health")
        if "database" not in found:
            raise self._error("the server is not Grafana; give the address of Grafana's start page")
        return self._clean(str(found.get("version") or ""))

    async def folder(self, uid: str) -> Folder | None:
        """Return the folder with this uid; ``None`` if the token cannot see one."""
        try:
            return _folder(await self._request("GET", f"/api/folders/{uid}"))
        except GrafanaError as error:
            # With an editor's token, the response for a missing folder is 403 instead of 404.
            if error.status in (403, 404):
                return None
            raise

    async def folders(self) -> list[Folder]:
        """Return the top-level folders that the token can see."""
        found: list[Folder] = []
        for page in range(1, _PAGES + 1):
            listed = await self._request("GET", f"/api/folders?limit={_PAGE}&page={page}", kind=list)
            found += [_folder(entry) for entry in listed if isinstance(entry, dict)]
            if len(listed) < _PAGE:
                break
        return found

    async def create_folder(self, title: str, uid: str) -> Folder:
        """Create a folder; with an empty `uid`, Grafana chooses one."""
        body = {"title": title, **({"uid": uid} if uid else {})}
        return _folder(await self._request("POST", "/api/folders", body))

    async def dashboard(self, uid: str) -> StoredDashboard | None:
        """Return the dashboard with this uid; ``None`` if there is none."""
        try:
            found = await self._request("GET", f"/api/dashboards/uid/{uid}")
        except GrafanaError as error:
            if error.status == 404:
                return None
            raise
        document, meta = found.get("dashboard"), found.get("meta")
        if not (isinstance(document, dict) and isinstance(meta, dict)):
            raise self._error(f"unexpected JSON for the dashboard {uid}")
        return StoredDashboard(document, str(meta.get("folderUid") or ""), bool(meta.get("provisioned")))

    async def save(
        self, document: Mapping[str, Any], folder_uid: str, message: str, *, overwrite: bool
    ) -> str:
        """Save a dashboard and return its uid in Grafana."""
        body = {"dashboard": {**document, "id": None}, "folderUid": folder_uid, "message": message}
        saved = await self._request("POST", "/api/dashboards/db", body | {"overwrite": overwrite})
        return str(saved.get("uid") or "")

    async def set_home(self, uid: str) -> None:
        """Make a dashboard the organization's home. PATCH keeps the other preferences, PUT would not."""
        await self._request("PATCH", "/api/org/preferences", {"homeDashboardUID": uid})

    async def _request(self, method: str, path: str, body: object = None, kind: type = dict) -> Any:
        """Return the JSON of a response with status 200, of type `kind`."""
        seconds = self._connection.timeout
        try:
            async with asyncio.timeout(seconds):
                found = await self._exchange(method, path, body)
        except TimeoutError as error:
            raise self._error(f"no complete response within {seconds:g} s") from error
        except (aiohttp.ClientError, OSError, ssl.SSLError, ValueError) as error:
            raise self._error(_describe(error)) from error
        if not isinstance(found, kind):
            raise self._error(f"unexpected JSON in the response to {method} {path}")
        return found

    async def _exchange(self, method: str, path: str, body: object) -> Any:
        async with self.session.request(
            method, self._connection.url + path, json=body, allow_redirects=False
        ) as response:
            status, reason = response.status, response.reason or ""
            if 300 <= status < 400:
                parts = urlsplit(response.headers.get("Location", "nowhere"))
                where = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
                raise self._error(
                    f"redirected to {where}; redirects are not followed: give the address behind them "
                    "(https, a sub-path), one without a login page"
                )
            content = bytearray()
            async for chunk in response.content.iter_chunked(64 * 1024):
                content += chunk
                if len(content) > _MAX_BODY:
                    raise self._error("the response is too large")
            try:
                document = json.loads(content)
            except (ValueError, RecursionError):
                document = None
            if not isinstance(document, dict | list):
                if status >= 500:
                    raise self._error(f"HTTP {status} {reason}", status)
                kind = response.content_type or "nothing"
                raise self._error(
                    f"HTTP {status} {reason} with {kind} instead of JSON for {path}: a login page, another "
                    "server than Grafana, or an address that lacks a sub-path"
                )
            if status != 200:
                words = str(document.get("message") or "") if isinstance(document, dict) else ""
                raise self._error(f"HTTP {status} {words or reason}".rstrip() + self._hint(status), status)
            return document

    def _hint(self, status: int) -> str:
        if status == 401 and not self._connection.token:
            return " (give a service account's token with --grafana.token-file)"
        if status == 401:
            return " (--grafana.token-file: the token is unknown, expired, or of another organization)"
        return ""

    def _error(self, message: str, status: int = 0) -> GrafanaError:
        return GrafanaError(self._clean(message), status)

    def _clean(self, text: str) -> str:
        """Return text of a server as one line without the token."""
        if self._connection.token:
            text = text.replace(self._connection.token, "<secret>")
        text = "".join(c if c.isprintable() else " " for c in text)
        return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


def _folder(entry: Mapping[str, Any]) -> Folder:
    return Folder(str(entry.get("uid")), str(entry.get("title")), entry.get("canSave") is not False)


def _describe(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError):
        return f"no trusted TLS connection: {error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        refused = isinstance(error.os_error, ConnectionRefusedError)
        return "nothing listens at the address" if refused else f"the address cannot be reached: {error}"
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError | OSError):
        return "the connection was closed before the response was complete"
    return f"not an HTTP response: {error}"
