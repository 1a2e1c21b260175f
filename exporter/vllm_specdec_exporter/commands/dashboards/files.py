"""The dashboards, and files for them: JSON, a Grafana provider, ConfigMaps."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import indent

from msgspec import Struct
from msgspec.structs import replace

from ...config import files
from ...config.options import ConfigError

PREFIX = "vllm-specdec-"
#: Link of an alert: to its rule in Grafana, which has the rule's own link to the
#: runbook.
RUNBOOK_LINK = "/alerting/list?search=rule:${__value.raw:percentencode}"
#: The uid of the main dashboard.
HOME = f"{PREFIX}overview"

#: The order in which they are listed; others follow.
ORDER = ("overview", "lite", "deep-dive", "requests")
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
    """A file to write; `mark` is a text in every version of it, and in no other
    file.
    """

    path: Path
    body: bytes
    mark: str


def json_files(dashboards: Sequence[Dashboard], out: Path) -> list[OutputFile]:
    """Return the dashboards as files for a provider, or to import."""
    wanted = []
    for each in dashboards:
        # The indent is that of a key of the whole dashboard.
        mark = f'\n  "uid": "{each.uid}"'
        wanted.append(OutputFile(out / each.file, each.body, mark))
    return wanted


def provider_file(path: Path, seen_at: str) -> OutputFile:
    """Return a dashboard provider, which makes Grafana load the dashboards of the
    folder that it sees at `seen_at`.
    """
    # Grafana replaces $NAME by an environment variable, and $$ by a dollar.
    folder = json.dumps(seen_at.replace("$", "$$"))
    mark = "Written by vllm-specdec-exporter dashboards."
    # https://grafana.com/docs/grafana/latest/administration/provisioning/#dashboards
    text = f"""\
# For Grafana's folder provisioning/dashboards. {mark}
apiVersion: 1
providers:
- name: {FOLDER_UID}
  orgId: 1
  folder: {FOLDER}
  folderUid: {FOLDER_UID}
  type: file
  disableDeletion: false
  updateIntervalSeconds: 30
  allowUiUpdates: false
  options:
    path: {folder}
    foldersFromFilesStructure: false
"""
    return OutputFile(path, text.encode(), mark)


def config_maps(
    dashboards: Sequence[Dashboard], out: Path, namespace: str
) -> list[OutputFile]:
    """Return ConfigMaps for the sidecar of Grafana's Helm chart."""
    maps = []
    for dashboard in dashboards:
        head = f"kind: ConfigMap\nmetadata:\n  name: {dashboard.uid}\n"
        text = f"""\
apiVersion: v1
{head}\
  namespace: "{namespace}"
  labels:
    app.kubernetes.io/name: vllm-specdec-exporter
    grafana_dashboard: "1"
  annotations:
    grafana_folder: {FOLDER}
data:
  {dashboard.file}: |
{indent(dashboard.body.decode(), "    ")}"""
        path = out / f"{dashboard.uid}.yaml"
        maps.append(OutputFile(path, text.encode(), head))
    return maps


def write(wanted: list[OutputFile], *, force: bool) -> Iterator[tuple[str, Path]]:
    """Write the files, and yield the result of each: `written`, `replaced` or
    `unchanged`.

    ConfigError before the first if another file is in the way, without `force`; or if a
    file cannot be written.
    """
    results = [_result(file, force=force) for file in wanted]
    for file, result in zip(wanted, results, strict=True):
        # Grafana would load a file anew that is only touched.
        if result != "unchanged":
            try:
                file.path.parent.mkdir(parents=True, exist_ok=True)
                files.write(file.path, file.body)
            except OSError as error:
                why = f"cannot be written: {error.strerror}"
                raise ConfigError(f"{file.path} {why}") from error
        yield result, file.path


def _result(file: OutputFile, *, force: bool) -> str:
    try:
        existing = file.path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return "written"
    except OSError as error:
        raise ConfigError(f"{file.path} cannot be read: {error.strerror}") from error
    if existing == file.body:
        return "unchanged"
    if not force and file.mark.encode() not in existing:
        raise ConfigError(
            f"{file.path} exists and is another file; move it, or give --force"
        )
    return "replaced"
