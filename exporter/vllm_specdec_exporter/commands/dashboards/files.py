"""The dashboards, and files for them: JSON, a Grafana provider, ConfigMaps."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from ...config import files
from ...config.options import ConfigError
from ...config.yaml_text import read_yaml

PREFIX = "vllm-specdec-"
#: Link of an alert: to its rule in Grafana, which has the rule's own link to the
#: runbook.
RUNBOOK_LINK = "/alerting/list?search=rule:${__value.raw:percentencode}"
#: The uid of the main dashboard.
HOME = f"{PREFIX}overview"

#: The order in which they are listed; others follow.
ORDER = ("overview", "deep-dive", "requests", "exporter")
#: Their folder: in the installed package, or in the source tree.
_FOLDERS = (
    Path(__file__).parents[2] / "dashboards",
    Path(__file__).parents[4] / "dashboards" / "json",
)


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard, and the content of its file; `question` is the first sentence of
    the description.
    """

    uid: str
    title: str
    question: str
    body: bytes

    @property
    def name(self) -> str:
        """The uid without the common prefix."""
        return self.uid.removeprefix(PREFIX)

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.uid}.json"


def load() -> tuple[Dashboard, ...]:
    """Return the dashboards of this package; the main one first."""
    source = next((folder for folder in _FOLDERS if folder.is_dir()), _FOLDERS[0])
    first = {name: place for place, name in enumerate(ORDER)}
    dashboards = map(_read, source.glob("*.json"))
    return tuple(
        sorted(dashboards, key=lambda one: (first.get(one.name, len(ORDER)), one.uid))
    )


def with_datasource(dashboard: Dashboard, uid: str) -> Dashboard:
    """Return the dashboard with another default of its variable `datasource`."""
    document = json.loads(dashboard.body)
    for variable in document["templating"]["list"]:
        if variable["name"] == "datasource":
            variable["current"] = {"text": uid, "value": uid}
    return replace(
        dashboard,
        body=f"{json.dumps(document, indent=2, ensure_ascii=False)}\n".encode(),
    )


def with_runbooks(dashboard: Dashboard, url: str) -> Dashboard:
    """Return the dashboard with links of alerts to runbooks at an address."""
    link = f"{url.rstrip('/')}/${{__value.raw}}.md"
    body = dashboard.body.replace(
        RUNBOOK_LINK.encode(), json.dumps(link)[1:-1].encode()
    )
    return replace(dashboard, body=body)


def _read(path: Path) -> Dashboard:
    document = json.loads(path.read_bytes())
    question = re.split(r"(?<=[.?!])\s", document["description"], maxsplit=1)[0]
    return Dashboard(document["uid"], document["title"], question, path.read_bytes())


#: The folder in Grafana, and its uid.
FOLDER_UID = "vllm-specdec"
FOLDER = "vLLM speculative decoding"


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file to write; `mark` is the uid or name in it that identifies an older version
    of it.
    """

    path: Path
    body: bytes
    mark: str


def provider_file(path: Path, seen_at: str) -> OutputFile:
    """Return a dashboard provider:

    Grafana loads the dashboards of the folder that it sees at `seen_at`.
    """
    # https://grafana.com/docs/grafana/latest/administration/provisioning/#dashboards
    provider = {
        "name": FOLDER_UID,
        "orgId": 1,
        "folder": FOLDER,
        "folderUid": FOLDER_UID,
        "type": "file",
        "disableDeletion": False,
        "updateIntervalSeconds": 30,
        "allowUiUpdates": False,
        # Grafana replaces $NAME by an environment variable, and $$ by a dollar.
        "options": {
            "path": seen_at.replace("$", "$$"),
            "foldersFromFilesStructure": False,
        },
    }
    text = (
        "# For Grafana's folder provisioning/dashboards. Written by "
        "vllm-specdec-exporter dashboards.\n"
    )
    text += yaml.safe_dump(
        {"apiVersion": 1, "providers": [provider]}, sort_keys=False, allow_unicode=True
    )
    return OutputFile(path, text.encode(), FOLDER_UID)


def config_maps(
    dashboards: tuple[Dashboard, ...], out: Path, namespace: str
) -> list[OutputFile]:
    """Return ConfigMaps for the sidecar of Grafana's Helm chart."""
    maps = []
    for dashboard in dashboards:
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": dashboard.uid,
                "namespace": namespace,
                "labels": {
                    "app.kubernetes.io/name": "vllm-specdec-exporter",
                    "grafana_dashboard": "1",
                },
                "annotations": {"grafana_folder": FOLDER},
            },
            "data": {dashboard.file: dashboard.body.decode()},
        }
        text = yaml.dump(
            document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31
        )
        maps.append(
            OutputFile(out / f"{dashboard.uid}.yaml", text.encode(), dashboard.uid)
        )
    return maps


def write(wanted: list[OutputFile], *, force: bool) -> list[tuple[OutputFile, str]]:
    """Write the files, and return the result of each: `written`, `replaced` or
    `unchanged`.

    ConfigError if another file is in the way, without `force`, or a file cannot be
    written.
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
            raise ConfigError(
                f"{file.path} cannot be written: {error.strerror}{before}"
            ) from error
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
    if (
        not force
        and _mark(existing, yaml_like=file.path.suffix != ".json") != file.mark
    ):
        raise ConfigError(
            f"{file.path} exists and is another file; move it, or give --force"
        )
    return "replaced"


def _mark(body: bytes, *, yaml_like: bool) -> str:
    """Return the uid of a dashboard, or the name of a provider or ConfigMap; empty for
    another file.
    """
    try:
        document = read_yaml(body) if yaml_like else json.loads(body)
        if not yaml_like:
            return str(document["uid"])
        if document.get("kind") == "ConfigMap":
            return str(document["metadata"]["name"])
        if len(document["providers"]) == 1:
            return str(document["providers"][0]["name"])
        return ""
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
