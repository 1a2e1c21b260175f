"""The bundle: which dashboards there are, what each answers, and the default data source in them."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PREFIX = "vllm-specdec-"
#: Where links to runbooks lead unless told otherwise.
RUNBOOKS = "https://example.com/vllm-specdec-exporter/runbooks"
#: The dashboard to begin with.
HOME = f"{PREFIX}payoff"

#: In which order they are told of; others behind them.
ORDER = ("payoff", "acceptance", "cost", "load", "compare", "requests", "exporter")
#: Their files: beside the package when installed, or in the source tree.
_FOLDERS = (Path(__file__).parents[1] / "dashboards", Path(__file__).parents[3] / "dashboards" / "json")
#: What Grafana takes as the uid of a dashboard; it is the name of a file, too.
_UID = re.compile(r"[A-Za-z0-9_-]{1,40}")


class BundleError(Exception):
    """Dashboards that cannot be used. The message is one line that says why."""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard.

    Attributes:
        uid: its identifier in every Grafana.
        title: as shown in the list of dashboards.
        question: what it answers, in one sentence.
        document: Grafana's dashboard model.
        body: the document as a file.
    """

    uid: str
    title: str
    question: str
    document: Mapping[str, Any]
    body: bytes

    @property
    def name(self) -> str:
        """The uid without what all have in common."""
        return self.uid.removeprefix(PREFIX)

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.uid}.json"


def load(folder: Path | None = None) -> tuple[Dashboard, ...]:
    """Return the dashboards in a folder, the most telling first; without one, those of this package.

    Raises:
        BundleError: there are none, or a file is not one.
    """
    found = folder or next((candidate for candidate in _FOLDERS if candidate.is_dir()), _FOLDERS[0])
    dashboards = [_read(path) for path in sorted(found.glob("*.json"))]
    if not dashboards:
        msg = f"there are no dashboards (*.json) in {found}"
        raise BundleError(msg)
    if len({dashboard.uid for dashboard in dashboards}) < len(dashboards):
        msg = f"two dashboards in {found} have the same uid"
        raise BundleError(msg)
    return tuple(sorted(dashboards, key=_rank))


def select(dashboards: Sequence[Dashboard], names: Sequence[str]) -> tuple[Dashboard, ...]:
    """Return those of these names or uids, in the order of the bundle; without names, all.

    Raises:
        BundleError: a name that none has.
    """
    for name in names:
        if not any(name in (dashboard.name, dashboard.uid) for dashboard in dashboards):
            known = ", ".join(dashboard.name for dashboard in dashboards)
            msg = f"no dashboard is called {json.dumps(name, ensure_ascii=False)}; known: {known}"
            raise BundleError(msg)
    return tuple(d for d in dashboards if not names or d.name in names or d.uid in names)


def with_datasource(dashboard: Dashboard, uid: str) -> Dashboard:
    """Return the dashboard with another data source picked at first; its variable `datasource` says which.

    Raises:
        BundleError: it has no such variable.
    """
    document = copy.deepcopy(dict(dashboard.document))
    variables = [
        variable
        for variable in (document.get("templating") or {}).get("list") or ()
        if variable.get("type") == "datasource" and variable.get("name") == "datasource"
    ]
    if not variables:
        msg = f"{dashboard.uid} has no variable datasource, so none can be picked"
        raise BundleError(msg)
    variables[0]["current"] = {"text": uid, "value": uid}
    body = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    return replace(dashboard, document=document, body=body.encode())


def with_runbooks(dashboard: Dashboard, url: str) -> Dashboard:
    """Return the dashboard with links to runbooks at an address of your own."""
    body = dashboard.body.replace(RUNBOOKS.encode(), json.dumps(url.rstrip("/"))[1:-1].encode())
    return replace(dashboard, document=json.loads(body), body=body)


def _read(path: Path) -> Dashboard:
    try:
        body = path.read_bytes()
        document = json.loads(body)
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise BundleError(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"{path} is not JSON: {error}"
        raise BundleError(msg) from error
    uid, title = (document.get(key) if isinstance(document, dict) else None for key in ("uid", "title"))
    if not (isinstance(uid, str) and _UID.fullmatch(uid) and isinstance(title, str) and title):
        msg = f"{path} is no dashboard: it needs a title, and a uid of at most 40 letters, digits, - and _"
        raise BundleError(msg)
    return Dashboard(uid, title, _first_sentence(str(document.get("description") or "")), document, body)


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.?!])\s", " ".join(text.split()), maxsplit=1)[0]


def _rank(dashboard: Dashboard) -> tuple[int, str]:
    return (ORDER.index(dashboard.name) if dashboard.name in ORDER else len(ORDER), dashboard.uid)
