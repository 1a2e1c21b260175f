"""The dashboards, and files for them: JSON, a Grafana provider, ConfigMaps."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from ...config import files
from ...config.options import ConfigError
from ...config.yaml_text import read_yaml

PREFIX = "vllm-specdec-"
#: Link of an alert: to its rule in Grafana, which has the rule's own link to the runbook.
RUNBOOK_LINK = "/alerting/list?search=rule:${__value.raw:percentencode}"
#: The uid of the main dashboard.
HOME = f"{PREFIX}overview"

#: The order in which they are listed; others follow.
ORDER = ("overview", "deep-dive", "requests", "exporter")
#: Their folder: in the installed package, or in the source tree.
_FOLDERS = (Path(__file__).parents[2] / "dashboards", Path(__file__).parents[4] / "dashboards" / "json")
#: A uid that Grafana accepts; it is also the name of a file.
_UID = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard: Grafana's model, and the content of its file.

    `question` is the first sentence of the description.
    """

    uid: str
    title: str
    question: str
    document: Mapping[str, Any]
    body: bytes

    @property
    def name(self) -> str:
        """The uid without the common prefix."""
        return self.uid.removeprefix(PREFIX)

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.uid}.json"


def load(folder: Path | None = None) -> tuple[Dashboard, ...]:
    """Return the dashboards in a folder, by default those of this package; the main one first.

    Raises:
        ConfigError: the folder contains none, or a file is not a dashboard.
    """
    source = folder or next((candidate for candidate in _FOLDERS if candidate.is_dir()), _FOLDERS[0])
    dashboards = [_read(path) for path in sorted(source.glob("*.json"))]
    if not dashboards:
        raise ConfigError(f"there are no dashboards (*.json) in {source}")
    if len({dashboard.uid for dashboard in dashboards}) < len(dashboards):
        raise ConfigError(f"two dashboards in {source} have the same uid")
    first = {name: place for place, name in enumerate(ORDER)}
    return tuple(sorted(dashboards, key=lambda one: (first.get(one.name, len(ORDER)), one.uid)))


def select(dashboards: Sequence[Dashboard], names: Sequence[str]) -> tuple[Dashboard, ...]:
    """Return the dashboards with these names or uids, without names all; ConfigError for unknown names."""
    for name in names:
        if not any(name in (dashboard.name, dashboard.uid) for dashboard in dashboards):
            known = ", ".join(dashboard.name for dashboard in dashboards)
            raise ConfigError(f"unknown dashboard {json.dumps(name, ensure_ascii=False)}; known: {known}")
    return tuple(d for d in dashboards if not names or d.name in names or d.uid in names)


def with_datasource(dashboard: Dashboard, uid: str) -> Dashboard:
    """Return the dashboard with another default of its variable `datasource`, or raise ConfigError."""
    document = copy.deepcopy(dict(dashboard.document))
    variables = [
        variable
        for variable in (document.get("templating") or {}).get("list") or ()
        if variable.get("type") == "datasource" and variable.get("name") == "datasource"
    ]
    if not variables:
        raise ConfigError(f"{dashboard.uid} has no variable datasource")
    variables[0]["current"] = {"text": uid, "value": uid}
    body = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    return replace(dashboard, document=document, body=body.encode())


def with_runbooks(dashboard: Dashboard, url: str) -> Dashboard:
    """Return the dashboard with links of alerts to runbooks at an address."""
    link = f"{url.rstrip('/')}/${{__value.raw}}.md"
    body = dashboard.body.replace(RUNBOOK_LINK.encode(), json.dumps(link)[1:-1].encode())
    return replace(dashboard, document=json.loads(body), body=body)


def _read(path: Path) -> Dashboard:
    try:
        body = path.read_bytes()
        document = json.loads(body)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    uid, title = (document.get(key) if isinstance(document, dict) else None for key in ("uid", "title"))
    if not (isinstance(uid, str) and _UID.fullmatch(uid) and isinstance(title, str) and title):
        needs = "it needs a title, and a uid of at most 40 letters, digits, - and _"
        raise ConfigError(f"{path} is not a dashboard: {needs}")
    description = " ".join(str(document.get("description") or "").split())
    question = re.split(r"(?<=[.?!])\s", description, maxsplit=1)[0]
    return Dashboard(uid, title, question, document, body)


#: The folder in Grafana, and its uid.
FOLDER_UID = "vllm-specdec"
FOLDER = "vLLM speculative decoding"
#: A ConfigMap holds at most 1 MiB: https://kubernetes.io/docs/concepts/configuration/configmap/.
_MAX_CONFIG_MAP = 1024 * 1024
#: Room for the rest of the ConfigMap: its names, labels and annotations are some hundred bytes.
_MARGIN = 4096


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file to write; `mark` is the uid or name in it that identifies an older version of it."""

    path: Path
    body: bytes
    mark: str


def provider_file(path: Path, seen_at: str, folder: str) -> OutputFile:
    """Return a dashboard provider: Grafana loads the dashboards of the folder that it sees at `seen_at`."""
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
        # Grafana replaces $NAME by an environment variable, and $$ by a dollar.
        "options": {"path": seen_at.replace("$", "$$"), "foldersFromFilesStructure": False},
    }
    text = "# For Grafana's folder provisioning/dashboards. Written by vllm-specdec-exporter dashboards.\n"
    text += yaml.safe_dump({"apiVersion": 1, "providers": [provider]}, sort_keys=False, allow_unicode=True)
    return OutputFile(path, text.encode(), FOLDER_UID)


def config_maps(
    dashboards: tuple[Dashboard, ...], out: Path, namespace: str, folder: str
) -> list[OutputFile]:
    """Return ConfigMaps for the sidecar of Grafana's Helm chart; ConfigError if a dashboard is too large."""
    maps = []
    for dashboard in dashboards:
        if len(dashboard.body) > _MAX_CONFIG_MAP - _MARGIN:
            raise ConfigError(f"{dashboard.uid}: too large for a ConfigMap ({len(dashboard.body):,} bytes)")
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
            "data": {dashboard.file: dashboard.body.decode()},
        }
        text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31)
        maps.append(OutputFile(out / f"{dashboard.uid}.yaml", text.encode(), name))
    return maps


def write(wanted: list[OutputFile], *, force: bool) -> list[tuple[OutputFile, str]]:
    """Write the files, and return the result of each: `written`, `replaced` or `unchanged`.

    ConfigError if another file is in the way, without `force`, or a file cannot be written.
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
            raise ConfigError(f"{file.path} cannot be written: {error.strerror}{before}") from error
        done.append(str(file.path))
    return verdicts


def _verdict(file: OutputFile, *, force: bool) -> str:
    try:
        existing = file.path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return "written"
    except OSError as error:
        raise ConfigError(f"{file.path} cannot be read: {error.strerror}") from error
    if existing == file.body:
        return "unchanged"
    if not force and _mark(existing, yaml_like=file.path.suffix != ".json") != file.mark:
        raise ConfigError(f"{file.path} exists and is another file; move it, or give --force")
    return "replaced"


def _mark(body: bytes, *, yaml_like: bool) -> str:
    """Return the uid of a dashboard, or the name of a provider or ConfigMap; empty for another file."""
    try:
        document = read_yaml(body) if yaml_like else json.loads(body)
        if not yaml_like:
            return str(document["uid"])
        if document.get("kind") == "ConfigMap":
            return str(document["metadata"]["name"])
        return str(document["providers"][0]["name"]) if len(document["providers"]) == 1 else ""
    except (ValueError, RecursionError, AttributeError, LookupError, TypeError):
        return ""


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a literal block."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)
