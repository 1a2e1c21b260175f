"""What `dashboards --out` writes: JSON files, a provider for Grafana's provisioning, ConfigMaps.

Everything is looked at before anything is written: a file that is not ours stops it all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from .. import files
from ..yaml_file import read_yaml

if TYPE_CHECKING:
    from pathlib import Path

    from .bundle import Dashboard

#: The folder in Grafana; its uid is the same however the dashboards get there.
FOLDER_UID = "vllm-specdec"
FOLDER = "vLLM speculative decoding"
#: A ConfigMap holds at most 1 MiB: https://kubernetes.io/docs/concepts/configuration/configmap/
_LARGEST = 1024 * 1024
#: Room for the rest of the ConfigMap.
_MARGIN = 4096


class OutputError(Exception):
    """Files that cannot be written, or must not be. The message is one line that says why."""


@dataclass(frozen=True, slots=True)
class File:
    """A file to write; `mark` is the uid or name by which an older version of it is known to be ours."""

    path: Path
    body: bytes
    mark: str


def dashboard_files(dashboards: tuple[Dashboard, ...], folder: Path) -> list[File]:
    """Return the dashboards as JSON files."""
    return [File(folder / dashboard.file, dashboard.body, dashboard.uid) for dashboard in dashboards]


def provider_file(path: Path, seen_at: str, folder: str) -> File:
    """Return a dashboard provider: what tells Grafana to load the dashboards that it sees at a path.

    Args:
        path: the file.
        seen_at: the folder with the dashboards, as Grafana's process sees it.
        folder: title of the folder in Grafana.
    """
    # https://grafana.com/docs/grafana/latest/administration/provisioning/#dashboards
    provider = {
        "name": FOLDER_UID,
        "orgId": 1,
        "folder": folder,
        "folderUid": FOLDER_UID,
        "type": "file",
        "disableDeletion": False,
        "updateIntervalSeconds": 30,
        "allowUiUpdates": False,
        # Provisioning replaces $NAME by the environment; $$ is a dollar.
        "options": {"path": seen_at.replace("$", "$$"), "foldersFromFilesStructure": False},
    }
    text = "# For Grafana's folder provisioning/dashboards. Written by vllm-specdec-exporter dashboards.\n"
    text += yaml.safe_dump({"apiVersion": 1, "providers": [provider]}, sort_keys=False, allow_unicode=True)
    return File(path, text.encode(), FOLDER_UID)


def config_maps(dashboards: tuple[Dashboard, ...], out: Path, namespace: str, folder: str) -> list[File]:
    """Return the dashboards as ConfigMaps for the sidecar of Grafana's Helm chart, one each.

    Raises:
        OutputError: a dashboard that is too large for one.
    """
    found = []
    for dashboard in dashboards:
        if len(dashboard.body) > _LARGEST - _MARGIN:
            msg = f"{dashboard.uid}: {len(dashboard.body):,} bytes are too many for a ConfigMap"
            raise OutputError(msg)
        name = dashboard.uid.lower().replace("_", "-").strip("-")
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {"app.kubernetes.io/name": "vllm-specdec-exporter", "grafana_dashboard": "1"},
                "annotations": {"grafana_folder": folder},
            },
            "data": {dashboard.file: _Text(dashboard.body.decode())},
        }
        text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31)
        found.append(File(out / f"{dashboard.uid}.yaml", text.encode(), name))
    return found


def write(wanted: list[File], *, force: bool) -> list[tuple[File, str]]:
    """Write the files, and return what became of each: `written`, `replaced` or `unchanged`.

    Raises:
        OutputError: a file that is there is not ours, without `force`; or one cannot be written.
    """
    verdicts = [(file, _verdict(file, force=force)) for file in wanted]
    done: list[str] = []
    for file, verdict in verdicts:
        if verdict == "unchanged":
            continue
        try:
            file.path.parent.mkdir(parents=True, exist_ok=True)
            files.write(file.path, file.body)
        except OSError as error:
            before = f"; written before: {', '.join(done)}" if done else ""
            msg = f"{file.path} cannot be written: {error.strerror}{before}"
            raise OutputError(msg) from error
        done.append(str(file.path))
    return verdicts


def _verdict(file: File, *, force: bool) -> str:
    try:
        there = file.path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return "written"
    except OSError as error:
        msg = f"{file.path} is in the way: {error.strerror}"
        raise OutputError(msg) from error
    if there == file.body:
        return "unchanged"
    if not force and _mark(there, yaml_like=file.path.suffix != ".json") != file.mark:
        msg = f"{file.path} is there already and is not ours; move it, or give --force"
        raise OutputError(msg)
    return "replaced"


def _mark(body: bytes, *, yaml_like: bool) -> str:
    """Return by which name a file says that it is ours: uid, provider or ConfigMap; empty if by none."""
    try:
        document = read_yaml(body) if yaml_like else json.loads(body)
        if not yaml_like:
            return str(document["uid"])
        if document.get("kind") == "ConfigMap":
            return str(document["metadata"]["name"])
        return str(document["providers"][0]["name"]) if len(document["providers"]) == 1 else ""
    except (ValueError, RecursionError, AttributeError, LookupError, TypeError):
        return ""


class _Text(str):
    """Text that is shown as lines in YAML."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes `_Text` as a literal block."""


def _represent(dumper: _Dumper, text: _Text) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")


_Dumper.add_representer(_Text, _represent)
