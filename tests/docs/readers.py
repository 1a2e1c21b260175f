"""The tools that read YAML and JSON of the pages."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helm.charts import CHART, render
from helm.manifest_schemas import problems_everywhere
from support.programs import COMMAND, clean_environment, find_program, simulator
from support.repository import ROOT, data_of
from vllm_specdec_exporter.commands.act.decision import decide
from vllm_specdec_exporter.settings.option_table import OPTIONS


@dataclass(frozen=True)
class Reader:
    """A tool that reads a kind of document."""

    name: str  # for reports
    #: At the top of the document; one with any of them is of this kind.
    keys: frozenset[str]
    #: Gives it to the tool; raises or fails if the tool refuses it.
    read: Callable[[Any, Path], None]
    foreign: bool = False  # whether the document is for a program that no test can run


def reader_of(document: object) -> Reader | None:
    """Return what reads a document, `None` if no tool is known."""
    if not isinstance(document, dict):
        return None
    return next((reader for reader in READERS if reader.keys & document.keys()), None)


def _by(*command: str) -> Callable[[Any, Path], None]:
    """A command that reads a file."""

    def read(document: Any, folder: Path) -> None:
        _run(*command, str(_written(document, folder)))

    return read


def _prometheus(document: Any, folder: Path) -> None:
    """Rule files of other machines are those of the repository."""
    if "rule_files" in document:
        document = {**document, "rule_files": [str(ROOT / "alerts/rules/*.yml")]}
    _by(find_program("promtool", "prometheus"), "check", "config")(document, folder)


def _scenario(document: Any, folder: Path) -> None:
    """The simulator plays it."""
    with simulator("--scenario.file", str(_written(document, folder))):
        pass


def _containers(document: Any, folder: Path) -> None:
    """A part of a pod, in a pod."""
    vllm = {"name": "vllm", "image": "vllm/vllm-openai:v0.32.0"}
    spec = {"containers": [vllm], **document}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    _object(pod, folder)


def _object(document: Any, _folder: Path) -> None:
    assert problems_everywhere([document]) == []


def _values(document: Any, _folder: Path) -> None:
    """The chart's schema and templates take them, and they make objects."""
    assert render(document)


def _grafana_chart(document: Any, folder: Path) -> None:
    """The sidecar looks for the label and the annotation that our ConfigMaps have."""
    wanted = document["sidecar"]["dashboards"]
    _run(COMMAND, *f"dashboards --out {folder} --configmaps monitoring".split())
    config_maps = list(folder.glob("*.yaml"))
    assert config_maps
    for path in config_maps:
        metadata = data_of(path)["metadata"]
        assert metadata["labels"][wanted["label"]] == wanted["labelValue"], path
        assert wanted["folderAnnotation"] in metadata["annotations"], path


def _webhook(document: Any, _folder: Path) -> None:
    assert len(decide(json.dumps(document).encode())) == len(document["alerts"])


def _recorded(document: Any, folder: Path) -> None:
    """`requests` knows its record of speculation; one request alone is too few to judge
    by.
    """
    file = _written(document, folder)
    done = _run(COMMAND, "requests", str(file), accepted=(0, 1, 3))
    assert "1 request" in done, done


def _keys(*names: str) -> frozenset[str]:
    return frozenset(names)


_CHECK = (COMMAND, "--config.check")
_COMPOSE = (
    str(Path(sys.executable).with_name("check-jsonschema")),
    "--builtin-schema",
    "vendor.compose-spec",
)
_EXPORTER = frozenset(option.key.partition(".")[0] for option in OPTIONS)
_CHART = frozenset(data_of(CHART / "values.yaml"))

#: The first that fits reads a document.
READERS = (
    Reader(
        "promtool check config",
        _keys("alerting", "scrape_configs", "rule_files", "remote_write"),
        _prometheus,
    ),
    Reader("Kubernetes' schema of a pod", _keys("initContainers"), _containers),
    Reader("Kubernetes' schema of an object", _keys("apiVersion"), _object),
    Reader("the schema of compose files", _keys("services"), _by(*_COMPOSE)),
    Reader("--cost.file", _keys("profiles"), _by(*_CHECK, "--cost.file")),
    Reader("--scenario.file", _keys("phases"), _scenario),
    Reader("our ConfigMaps", _keys("sidecar"), _grafana_chart, foreign=True),
    Reader("act", _keys("alerts"), _webhook),
    Reader("requests", _keys("response"), _recorded),
    Reader("the chart", _CHART, _values),
    Reader("--config.file", _EXPORTER, _by(*_CHECK, "--config.file")),
)


def _written(document: Any, folder: Path) -> Path:
    path = folder / "document.yml"
    # JSON is YAML, and what reads JSON Lines wants a line.
    path.write_text(json.dumps(document) + "\n", encoding="utf-8")
    return path


def _run(*command: str, accepted: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, env=clean_environment(), timeout=180
    )
    assert done.returncode in accepted, done.stdout + done.stderr
    return done.stdout
