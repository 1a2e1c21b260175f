"""Every named set of values: an API server takes what it renders, and nothing of it endangers vLLM."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import helm_python
import pytest
import yaml

from vllm_specdec_exporter.cli import main

from .charts import CHART, helm3, render_helm3
from .manifest_schemas import problems_everywhere, title
from .quantities import qos_class
from .sidecar_shape import sidecar_faults
from .soundness import by_identity, faults, rendered
from .value_cases import CASES, EVERYTHING_ALONE, EVERYTHING_BESIDE, ValueCase

if TYPE_CHECKING:
    from pathlib import Path

EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)

#: Flags with files that a Secret would bring.
FROM_SECRETS = ("--web.config.file=", "--tap.cert-file=", "--tap.key-file=", "--push.bearer-token-file=")


@EACH
def test_the_rendering_is_sound(case: ValueCase) -> None:
    """No fault; the user's labels and annotations are on everything; Helm's own linter finds nothing."""
    assert faults(case) == []
    labels = case.values.get("commonLabels", {}).items()
    own = {name: value for name, value in labels if "/" not in name}.items()
    annotations = case.values.get("commonAnnotations", {}).items()
    assert [
        title(obj)
        for obj in rendered(case)
        if not obj["metadata"].get("labels", {}).items() >= own
        or not (obj["metadata"].get("annotations") or {}).items() >= annotations
    ] == []
    report = helm_python.lint(
        CHART, dict(case.values), strict=True, namespace=case.namespace, kube_version="v1.36.0"
    )
    assert [message for message in report["messages"] if message["severity"] >= 2] == report["errors"] == []


def test_the_sidecar_is_harmless_and_understands_its_flags(
    parent: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Out of the named template, in a Guaranteed pod of somebody's own; the program reads the flags."""
    for case in CASES:
        pod = parent(case.values)
        burstable = case.values.get("exporter", {}).get("allowBurstable")
        expected = ["its requests are not its limits", "it makes a Guaranteed pod Burstable"]
        assert sidecar_faults(pod) == (expected if burstable else []), case.name
        assert qos_class(pod) == ("Burstable" if burstable else "Guaranteed"), case.name
        args = [one for one in pod["initContainers"][0]["args"] if not one.startswith(FROM_SECRETS)]
        # It has a specification that is none.
        code, said = (2, "spec.config") if case.name.startswith("container-otherwise") else (0, "")
        assert main([*args, "--config.check"]) == code, case.name
        assert said in capsys.readouterr().err


@pytest.mark.full
def test_every_version_of_kubernetes_and_the_operator_take_it() -> None:
    """By their own schemas."""
    assert {case.name: found for case in CASES if (found := problems_everywhere(rendered(case)))} == {}


@pytest.mark.full
def test_helm_3_and_helm_4_render_the_same_objects() -> None:
    """Nothing differs but the order, in which Helm 3 sorts by kind."""
    for case in CASES:
        old = render_helm3(case.values, release=case.release, namespace=case.namespace)
        assert by_identity(old) == by_identity(rendered(case)), case.name


@pytest.mark.full
def test_helm_3_lints_strictly(tmp_path: Path) -> None:
    """No warning and no error."""
    file = tmp_path / "values.yaml"
    for values in (EVERYTHING_BESIDE, EVERYTHING_ALONE):
        file.write_text(yaml.safe_dump(values))
        command = (helm3(), "lint", "--strict", "--values", file, CHART)
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
