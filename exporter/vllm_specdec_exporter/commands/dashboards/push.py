"""From the bundle to a Grafana: what is new there, changed, unchanged or refused; each told as it happens."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ... import __version__
from .client import Folder, GrafanaError
from .files import FOLDER, FOLDER_UID, HOME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .client import Grafana, Stored
    from .files import Dashboard

_EDITOR = " (the service account needs the role Editor, or Edit on the folder)"


#: What becomes of a dashboard.
WORDS = NEW, CHANGED, UNCHANGED, REFUSED = "new", "changed", "unchanged", "refused"


class FolderError(Exception):
    """The folder cannot be used, and so nothing was pushed. The message is one line that says why."""


@dataclass(frozen=True, slots=True)
class PushOptions:
    """What is asked for: the folder's title, whether to make the home, whether to change anything at all."""

    url: str
    folder: str = FOLDER
    home: bool = False
    dry_run: bool = False


@dataclass(slots=True)
class Progress:
    """How far it came: what became of each dashboard.

    Attributes:
        waiting: those that nothing became of yet.
        underway: the one of them that is being saved; if that is cut off, nobody knows whether it was.
        done: the others, by what became of them.
    """

    waiting: list[str]
    underway: str = ""
    done: dict[str, list[str]] = field(default_factory=lambda: {word: [] for word in WORDS})

    @property
    def words(self) -> str:
        """All of it in one line."""
        found = [f"{len(uids)} {word}" for word, uids in self.done.items() if uids]
        if self.underway:
            found.append(f"not known whether saved: {self.underway}")
        left = [uid for uid in self.waiting if uid != self.underway]
        if left:
            found.append(f"not pushed: {', '.join(left)}")
        return "; ".join(found)


async def push(
    grafana: Grafana,
    dashboards: Sequence[Dashboard],
    wish: PushOptions,
    progress: Progress,
    tell: Callable[[str], None],
) -> bool:
    """Push dashboards, and return whether Grafana took all that was asked of it.

    Args:
        grafana: where to.
        dashboards: what.
        wish: how.
        progress: gets what became of each, also where this ends with an exception.
        tell: takes lines for people.

    Raises:
        FolderError: Grafana does not let the token use the folder.
        GrafanaError: Grafana cannot be reached, or not any more.
    """
    version = await grafana.version()
    tell(f"Grafana {version} at {wish.url}".replace("  ", " "))
    folder = await _folder(grafana, wish, tell)
    for dashboard in dashboards:
        try:
            word, detail = await _push_one(grafana, dashboard, folder, wish, progress)
        except GrafanaError as error:
            if error.everywhere:
                raise
            word, detail = REFUSED, _why(error)
        progress.underway = ""
        progress.waiting.remove(dashboard.uid)
        progress.done[word].append(dashboard.uid)
        tell(f"  {word:<9}  {dashboard.uid}{detail and f': {detail}'}")
    home_set = not wish.home or await _set_home(grafana, wish, progress, tell)
    return home_set and not progress.done[REFUSED]


def differs(stored: Stored, dashboard: Dashboard, folder_uid: str) -> bool:
    """Tell whether a stored dashboard is another than ours, or elsewhere; Grafana's own counters aside."""

    def essence(document: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in document.items() if key not in ("id", "version")}

    return stored.folder_uid != folder_uid or essence(stored.document) != essence(dashboard.document)


async def _folder(grafana: Grafana, wish: PushOptions, tell: Callable[[str], None]) -> Folder | None:
    """Return the folder to push to, made where it is missing; ``None`` where a dry run would make it."""
    usual = wish.folder == FOLDER
    quoted = json.dumps(wish.folder, ensure_ascii=False)
    try:
        found = await grafana.folder(FOLDER_UID) if usual else None
        if found is None:
            named = [folder for folder in await grafana.folders() if folder.title == wish.folder]
            if len(named) > 1:
                uids = ", ".join(folder.uid for folder in named)
                raise FolderError(
                    f"several folders are called {quoted} ({uids}); rename one, or give --folder"
                )
            found = named[0] if named else None
        if found is not None:
            tell(f"folder {quoted} ({found.uid})")
            if not found.writable:
                raise FolderError(f"the token may not save in the folder {quoted}{_EDITOR}")
            return found
        if wish.dry_run:
            tell(f"folder {quoted} would be made")
            return None
        made = await grafana.create_folder(wish.folder, FOLDER_UID if usual else "")
    except GrafanaError as error:
        if error.everywhere:
            raise
        hint = _EDITOR if error.status == 403 else ""
        if error.status in (409, 412):
            hint = " (a folder that the token may not see? it needs Edit on it)"
        raise FolderError(f"the folder {quoted} cannot be used: {error}{hint}") from error
    tell(f"folder {quoted} ({made.uid}), made")
    return made


async def _push_one(
    grafana: Grafana, dashboard: Dashboard, folder: Folder | None, wish: PushOptions, progress: Progress
) -> tuple[str, str]:
    """Return what became of a dashboard, as a word and more."""
    folder_uid = folder.uid if folder else ""
    word = CHANGED
    try:
        stored = await grafana.dashboard(dashboard.uid)
    except GrafanaError as error:
        # A token may be free to save what it may not read, and Grafana's newer form of dashboards cannot be
        # read here (406): neither stands in the way of saving.
        if error.everywhere:
            raise
    else:
        if stored is None:
            word = NEW
        elif stored.provisioned and differs(stored, dashboard, stored.folder_uid):
            return REFUSED, _FROM_FILE
        elif stored.provisioned or not differs(stored, dashboard, folder_uid):
            return UNCHANGED, ""
    if wish.dry_run:
        return word, ""
    progress.underway = dashboard.uid
    # Before 11.2, a new dashboard would overwrite another of its title in the folder, if it may overwrite.
    uid = await grafana.save(
        dashboard.document, folder_uid, f"vllm-specdec-exporter {__version__}", overwrite=word != NEW
    )
    if uid != dashboard.uid:
        return REFUSED, (
            f"Grafana saved it over another dashboard of this title, whose uid {uid!r} it keeps; restore "
            "that one's last version, rename it, and push again"
        )
    return word, f"{wish.url}/d/{dashboard.uid}"


_FROM_FILE = (
    "Grafana has it from a file (provisioning) and does not save it: change the file, or take it out of there"
)


def _why(error: GrafanaError) -> str:
    words = str(error).lower()
    if "provisioned" in words:
        return f"{error}; {_FROM_FILE}"
    if error.status == 403:
        return f"{error}{_EDITOR}"
    if error.status == 412 and "same name" in words:
        return f"{error}; rename or delete the other dashboard of this title in the folder, and push again"
    return str(error)


async def _set_home(
    grafana: Grafana, wish: PushOptions, progress: Progress, tell: Callable[[str], None]
) -> bool:
    """Make the first dashboard the organization's home, and return whether it is."""
    if HOME in progress.done[REFUSED]:
        tell(f"  home       not set, because {HOME} was refused")
        return False
    if wish.dry_run:
        tell(f"  home       would be {HOME}")
        return True
    try:
        await grafana.set_home(HOME)
    except GrafanaError as error:
        role = " (the service account needs the role Admin for this)" if error.status == 403 else ""
        tell(f"  home       not set: {error}{role}")
        if error.everywhere:
            raise
        return False
    tell(f"  home       {HOME}")
    return True
