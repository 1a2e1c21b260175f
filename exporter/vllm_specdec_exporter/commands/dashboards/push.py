"""Saves dashboards in a Grafana and reports each as new, changed, unchanged or refused."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ... import __version__
from .client import GrafanaError
from .files import FOLDER, FOLDER_UID, HOME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .client import Grafana, StoredDashboard
    from .files import Dashboard

_EDITOR = " (the service account needs the role Editor, or Edit on the folder)"


#: The results of a dashboard.
RESULTS = NEW, CHANGED, UNCHANGED, REFUSED = "new", "changed", "unchanged", "refused"


class FolderError(Exception):
    """The folder cannot be used, so nothing was pushed. The message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class PushOptions:
    """The options of a push; `home` makes the main dashboard the organization's home."""

    url: str
    folder: str = FOLDER
    home: bool = False
    dry_run: bool = False


@dataclass(slots=True)
class PushProgress:
    """The progress of a push."""

    waiting: list[str]  # uids without a result
    underway: str = ""  # the uid that is being saved; after an interruption its result is unknown
    #: Uids by result.
    done: dict[str, list[str]] = field(default_factory=lambda: {result: [] for result in RESULTS})

    @property
    def summary(self) -> str:
        """The progress in one line."""
        found = [f"{len(uids)} {result}" for result, uids in self.done.items() if uids]
        if self.underway:
            found.append(f"possibly saved: {self.underway}")
        left = [uid for uid in self.waiting if uid != self.underway]
        if left:
            found.append(f"not pushed: {', '.join(left)}")
        return "; ".join(found)


async def push(
    grafana: Grafana,
    dashboards: Sequence[Dashboard],
    options: PushOptions,
    progress: PushProgress,
    log: Callable[[str], None],
) -> bool:
    """Push dashboards, and return whether Grafana accepted everything. `progress` is current if this raises.

    Raises:
        FolderError: the folder cannot be used.
        GrafanaError: Grafana cannot be reached.
    """
    version = await grafana.version()
    log(f"Grafana {version} at {options.url}".replace("  ", " "))
    folder_uid = await _folder(grafana, options, log)
    for dashboard in dashboards:
        try:
            result, detail = await _push_one(grafana, dashboard, folder_uid, options, progress)
        except GrafanaError as error:
            if error.fatal:
                raise
            result, detail = REFUSED, _reason(error)
        progress.underway = ""
        progress.waiting.remove(dashboard.uid)
        progress.done[result].append(dashboard.uid)
        log(f"  {result:<9}  {dashboard.uid}{detail and f': {detail}'}")
    home_set = not options.home or await _set_home(grafana, options, progress, log)
    return home_set and not progress.done[REFUSED]


def differs(stored: StoredDashboard, dashboard: Dashboard, folder_uid: str) -> bool:
    """Return whether a stored dashboard has another content or folder; its id and version are ignored."""

    def essence(document: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in document.items() if key not in ("id", "version")}

    return stored.folder_uid != folder_uid or essence(stored.document) != essence(dashboard.document)


async def _folder(grafana: Grafana, options: PushOptions, log: Callable[[str], None]) -> str:
    """Return the uid of the folder, created if it is missing; empty if a dry run would create it."""
    usual = options.folder == FOLDER
    quoted = json.dumps(options.folder, ensure_ascii=False)
    try:
        found = await grafana.folder(FOLDER_UID) if usual else None
        if found is None:
            named = [folder for folder in await grafana.folders() if folder.title == options.folder]
            if len(named) > 1:
                uids = ", ".join(folder.uid for folder in named)
                several = f"several folders have the title {quoted} ({uids})"
                raise FolderError(f"{several}; rename one, or give --folder")
            found = named[0] if named else None
        if found is not None:
            log(f"folder {quoted} ({found.uid})")
            if not found.writable:
                raise FolderError(f"no permission to save in the folder {quoted}{_EDITOR}")
            return found.uid
        if options.dry_run:
            log(f"folder {quoted} would be created")
            return ""
        made = await grafana.create_folder(options.folder, FOLDER_UID if usual else "")
    except GrafanaError as error:
        if error.fatal:
            raise
        hint = _EDITOR if error.status == 403 else ""
        if error.status in (409, 412):
            hint = " (possibly an existing folder that the token cannot see: it needs Edit on that)"
        raise FolderError(f"the folder {quoted} cannot be used: {error}{hint}") from error
    log(f"folder {quoted} ({made.uid}), created")
    return made.uid


async def _push_one(
    grafana: Grafana, dashboard: Dashboard, folder_uid: str, options: PushOptions, progress: PushProgress
) -> tuple[str, str]:
    """Push one dashboard; return its result and details."""
    result = CHANGED
    try:
        stored = await grafana.dashboard(dashboard.uid)
    except GrafanaError as error:
        # Saving may work although reading fails: without permission to read, or for dashboards of the newer
        # schema (406).
        if error.fatal:
            raise
    else:
        if stored is None:
            result = NEW
        elif stored.provisioned and differs(stored, dashboard, stored.folder_uid):
            return REFUSED, _FROM_FILE
        elif stored.provisioned or not differs(stored, dashboard, folder_uid):
            return UNCHANGED, ""
    if options.dry_run:
        return result, ""
    progress.underway = dashboard.uid
    # Before 11.2, overwrite=True for a new dashboard would overwrite another one with its title.
    uid = await grafana.save(
        dashboard.document, folder_uid, f"vllm-specdec-exporter {__version__}", overwrite=result != NEW
    )
    if uid != dashboard.uid:
        return REFUSED, (
            f"Grafana overwrote another dashboard with this title and kept its uid {uid!r}; restore the last "
            "version of that dashboard, rename it, and push again"
        )
    return result, f"{options.url}/d/{dashboard.uid}"


_FROM_FILE = "Grafana loads it from a file (provisioning) and cannot save it: change or remove the file"


def _reason(error: GrafanaError) -> str:
    text = str(error).lower()
    if "provisioned" in text:
        return f"{error}; {_FROM_FILE}"
    if error.status == 403:
        return f"{error}{_EDITOR}"
    if error.status == 412 and "same name" in text:
        return f"{error}; rename or delete the other dashboard with this title in the folder, and push again"
    return str(error)


async def _set_home(
    grafana: Grafana, options: PushOptions, progress: PushProgress, log: Callable[[str], None]
) -> bool:
    """Make the first dashboard the organization's home, and return whether it is."""
    if HOME in progress.done[REFUSED]:
        log(f"  home       not set, because {HOME} was refused")
        return False
    if options.dry_run:
        log(f"  home       would be {HOME}")
        return True
    try:
        await grafana.set_home(HOME)
    except GrafanaError as error:
        role = " (the service account needs the role Admin for this)" if error.status == 403 else ""
        log(f"  home       not set: {error}{role}")
        if error.fatal:
            raise
        return False
    log(f"  home       {HOME}")
    return True
