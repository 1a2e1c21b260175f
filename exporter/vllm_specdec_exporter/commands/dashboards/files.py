"""The dashboards, and files for them: JSON, a Grafana provider, ConfigMaps."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import yaml
from msgspec import Struct
from msgspec.structs import replace

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


class Dashboard(Struct, frozen=True):
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


def load() -> list[Dashboard]:
    """Return the dashboards of this package; the main one first."""
    # The first is missing in a source tree, the second in an installed package.
    source = next(filter(Path.is_dir, _FOLDERS), _FOLDERS[0])

    def place(dashboard: Dashboard) -> tuple[int, str]:
        listed = (*ORDER, dashboard.name).index(dashboard.name)
        return listed, dashboard.uid

    return sorted(map(_read, source.glob("*.json")), key=place)


def with_datasource(dashboard: Dashboard, uid: str) -> Dashboard:
    """Return the dashboard with another default of its variable `datasource`."""
    document = json.loads(dashboard.body)
    for variable in document["templating"]["list"]:
        if variable["name"] == "datasource":
            variable["current"] = {"text": uid, "value": uid}
    body = json.dumps(document, indent=2, ensure_ascii=False)
    return replace(dashboard, body=f"{body}\n".encode())


def with_runbooks(dashboard: Dashboard, url: str) -> Dashboard:
    """Return the dashboard with links of alerts to runbooks at an address."""
    link = json.dumps(f"{url.rstrip('/')}/${{__value.raw}}.md").strip('"')
    # In the text: the same link is in panels of several kinds.
    body = dashboard.body.replace(RUNBOOK_LINK.encode(), link.encode())
    return replace(dashboard, body=body)


def _read(path: Path) -> Dashboard:
    body = path.read_bytes()
    document = json.loads(body)
    question = re.split(r"(?<=[.?!])\s", document["description"], maxsplit=1)[0]
    return Dashboard(document["uid"], document["title"], question, body)


#: The folder in Grafana, and its uid.
FOLDER_UID = "vllm-specdec"
FOLDER = "vLLM speculative decoding"


class OutputFile(Struct, frozen=True):
    """A file to write; `mark` is the uid or name in it that identifies an older version
    of it.
    """

    path: Path
    body: bytes
    mark: str


def json_files(dashboards: Sequence[Dashboard], out: Path) -> list[OutputFile]:
    """Return the dashboards as files for a provider, or to import."""
    return [OutputFile(out / each.file, each.body, each.uid) for each in dashboards]


def provider_file(path: Path, seen_at: str) -> OutputFile:
    """Return a dashboard provider, which makes Grafana load the dashboards of the
    folder that it sees at `seen_at`.
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
    head = (
        "# For Grafana's folder provisioning/dashboards. Written by "
        "vllm-specdec-exporter dashboards.\n"
    )
    document = {"apiVersion": 1, "providers": [provider]}
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return OutputFile(path, f"{head}{text}".encode(), FOLDER_UID)


def config_maps(
    dashboards: Sequence[Dashboard], out: Path, namespace: str
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
        path = out / f"{dashboard.uid}.yaml"
        maps.append(OutputFile(path, text.encode(), dashboard.uid))
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
            why = f"{error.strerror}"
            if done:
                why += f"; written before: {', '.join(done)}"
            raise ConfigError(f"{file.path} cannot be written: {why}") from error
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
    # An older version of the file has the same mark; any other is not from here.
    if not force and _mark(existing, file.path.suffix) != file.mark:
        raise ConfigError(
            f"{file.path} exists and is another file; move it, or give --force"
        )
    return "replaced"


def _mark(body: bytes, suffix: str) -> str:
    """Return the uid of a dashboard, or the name of a provider or ConfigMap; empty for
    another file.
    """
    try:
        if suffix == ".json":
            return str(json.loads(body)["uid"])
        document = read_yaml(body)
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
