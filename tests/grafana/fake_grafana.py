"""A small Grafana: folders, dashboards with versions, preferences, roles and errors, as in its HTTP API.

What it does follows Grafana's documentation of its HTTP API, by page: "Dashboard API" (save, get, 412),
"Folder API" (409, uid), "User and Org Preferences API" (PUT replaces, PATCH keeps), "Authentication options
for the HTTP API" (bearer token, X-Grafana-Org-Id), "Other HTTP API" (health); all are below
https://grafana.com/docs/grafana/latest/developers/http_api/. Texts of errors are Grafana's own. What the
versions do differently is a switch: `unique_titles` (before 11.2), `new_form` (dashboards of schema v2).
"""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

from support.closing import clean_up

ADMIN, EDITOR, VIEWER = "glsa_the-admins-token_1a", "glsa_the-editors-token_2b", "glsa_the-viewers-token_3c"
ROLES = {ADMIN: "Admin", EDITOR: "Editor", VIEWER: "Viewer"}


@dataclass
class Kept:
    """A dashboard as it is kept, with the message of each version."""

    document: dict[str, Any]
    folder: str
    version: int = 1
    provisioned: bool = False
    messages: list[str] = field(default_factory=list)


class FakeGrafana:
    """The server; its attributes say how it behaves, and what is in it."""

    def __init__(self) -> None:
        self.folders: dict[str, str] = {}
        self.hidden: set[str] = set()
        self.dashboards: dict[str, Kept] = {}
        self.preferences: dict[str, Any] = {"theme": "dark", "timezone": "utc", "homeDashboardUID": ""}
        self.anonymous_role = ""
        self.sub_path = ""
        self.unique_titles = False
        self.new_form: set[str] = set()
        self.tls: ssl.SSLContext | None = None
        #: Called with every request; its answer, if it gives one, is sent instead.
        self.instead: Callable[[web.Request], Awaitable[web.StreamResponse | None]] | None = None
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}{self.sub_path}"

    @property
    def writes(self) -> list[tuple[str, str]]:
        """The requests that are meant to change something."""
        return [(method, path) for method, path in self.requests if method != "GET"]

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self.tls).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await clean_up(self._runner)

    def keep(self, document: dict[str, Any], folder: str, *, provisioned: bool = False) -> None:
        """Have a dashboard already."""
        number = len(self.dashboards) + 1
        self.dashboards[document["uid"]] = Kept(
            {**document, "id": number, "version": 1}, folder, 1, provisioned, ["earlier"]
        )

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        if self.instead is not None:
            special = await self.instead(request)
            if special is not None:
                return special
        if not request.path.startswith(f"{self.sub_path}/"):
            # serve_from_sub_path: what comes without the sub-path is sent there.
            return web.Response(status=301, headers={"Location": f"{self.sub_path}{request.path}"})
        path = request.path.removeprefix(self.sub_path)
        if path == "/api/health":
            return web.json_response({"commit": "0f1e2d", "database": "ok", "version": "12.1.0"})
        role = self._role(request)
        if isinstance(role, web.Response):
            return role
        body = await request.json() if request.can_read_body else {}
        if request.method != "GET":
            self.bodies.append(body)
        return self._route(request, path, role, body)

    def _route(self, request: web.Request, path: str, role: str, body: dict[str, Any]) -> web.Response:
        match (request.method, *path.strip("/").split("/")):
            case ("GET", "api", "folders"):
                return self._list_folders(request, role)
            case ("GET", "api", "folders", uid):
                return self._get_folder(uid, role)
            case ("POST", "api", "folders"):
                return self._create_folder(body, role)
            case ("GET", "api", "dashboards", "uid", uid):
                return self._get_dashboard(uid)
            case ("POST", "api", "dashboards", "db"):
                return self._save_dashboard(body, role)
            case ("PATCH" | "PUT", "api", "org", "preferences"):
                return self._change_preferences(request.method, body, role)
        return _error(404, "Not found")

    def _role(self, request: web.Request) -> str | web.Response:
        """The role that a request has, or why it has none."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if not token and self.anonymous_role:
            return self.anonymous_role
        if not token:
            return _error(401, "Unauthorized")
        if scheme != "Bearer" or token not in ROLES:
            return _error(401, "Invalid API key")
        if request.headers.get("X-Grafana-Org-Id", "1") != "1":
            return _error(401, "API key does not belong to the requested organization")
        return ROLES[token]

    def _list_folders(self, request: web.Request, role: str) -> web.Response:
        limit, page = int(request.query.get("limit", 1000)), int(request.query.get("page", 1))
        seen = [
            {"uid": uid, "title": title}
            for uid, title in self.folders.items()
            if role == "Admin" or uid not in self.hidden
        ]
        return web.json_response(seen[limit * (page - 1) : limit * page])

    def _get_folder(self, uid: str, role: str) -> web.Response:
        if uid in self.folders and (role == "Admin" or uid not in self.hidden):
            return web.json_response({"uid": uid, "title": self.folders[uid], "canSave": role != "Viewer"})
        if role == "Admin":  # only admins have folders:read on all folders, also on those that are not there
            return _error(404, "folder not found")
        return _denied("folders:read")

    def _create_folder(self, body: dict[str, Any], role: str) -> web.Response:
        if role == "Viewer":
            return _denied("folders:create")
        title, uid = body["title"], body.get("uid") or f"made{len(self.folders)}"
        if uid in self.folders:
            return _error(409, "a folder with the same uid already exists")
        if self.unique_titles and title in self.folders.values():
            return _error(409, "a folder with the same name already exists in the current location")
        self.folders[uid] = title
        return web.json_response({"uid": uid, "title": title, "canSave": True})

    def _get_dashboard(self, uid: str) -> web.Response:
        kept = self.dashboards.get(uid)
        if kept is None:
            return _error(404, "Dashboard not found")
        if uid in self.new_form:
            where = f"/apis/dashboard.grafana.app/v2beta1/namespaces/default/dashboards/{uid}"
            return _error(406, f"dashboard api version not supported, use {where} instead")
        meta = {"folderUid": kept.folder, "provisioned": kept.provisioned}
        return web.json_response({"dashboard": {**kept.document, "version": kept.version}, "meta": meta})

    def _save_dashboard(self, body: dict[str, Any], role: str) -> web.Response:
        document, overwrite = body["dashboard"], body.get("overwrite", False)
        folder, uid = body.get("folderUid", ""), document.get("uid") or "generated"
        kept = self.dashboards.get(uid)
        if role == "Viewer":
            return _denied("any of dashboards:create, dashboards:write")
        if folder and folder not in self.folders:
            return _error(400, "folder not found")
        if kept is not None and kept.provisioned:
            return _error(400, "Cannot save provisioned dashboard")
        if self.unique_titles:
            twins = [
                other
                for other, one in self.dashboards.items()
                if other != uid and one.folder == folder and one.document["title"] == document["title"]
            ]
            if twins and not overwrite:
                return _error(412, "A dashboard with the same name in the folder already exists")
            if twins:  # it is taken for the same dashboard, and keeps its uid
                uid, kept = twins[0], self.dashboards[twins[0]]
        if kept is None:
            kept = self.dashboards[uid] = Kept({}, folder, 0)
        elif not overwrite and document.get("version") != kept.version:
            return _error(412, "The dashboard has been changed by someone else")
        kept.version += 1
        kept.folder = folder
        kept.document = {**document, "uid": uid, "id": kept.document.get("id") or len(self.dashboards)}
        kept.messages.append(body.get("message", ""))
        return web.json_response({"uid": uid, "status": "success", "version": kept.version})

    def _change_preferences(self, method: str, body: dict[str, Any], role: str) -> web.Response:
        if role != "Admin":
            return _denied("orgs.preferences:write")
        if body.get("homeDashboardUID") not in self.dashboards:
            return _error(404, "Dashboard not found")
        defaults = {"theme": "", "timezone": "", "homeDashboardUID": ""}
        self.preferences = {**(self.preferences if method == "PATCH" else defaults), **body}
        return web.json_response({"message": "Preferences updated"})


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"message": message}, status=status)


def _denied(permission: str) -> web.Response:
    words = "You'll need additional permissions to perform this action. Permissions needed"
    return _error(403, f"{words}: {permission}")
