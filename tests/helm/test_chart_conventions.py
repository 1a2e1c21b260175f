"""What users of charts type from habit works, or is refused with the name that this
chart has for it.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from .charts import CHART, RenderError, helm3, named_templates, refusal, render
from .manifest_schemas import problems
from .value_cases import (
    DEFAULTS,
    EVERYTHING_ALONE,
    EVERYTHING_BESIDE,
    IMAGE,
    INJECTION,
    LEAVES,
    PATHS,
    REMEDIES,
    REQUIRED,
    SIDECAR,
    at,
    merged,
    nested,
    on,
    value_at,
)


def test_the_usual_names_of_other_charts_are_known() -> None:
    usual = {
        "volumes",
        "volumeMounts",
        "extraContainers",
        "initContainers",
        "readinessProbe",
        "hostNetwork",
        "releaseLabel",
        "selfMonitor",
    }
    assert usual < set(map(".".join, REMEDIES))
    assert len(REMEDIES) <= 24


@pytest.mark.parametrize("path", REMEDIES, ids=".".join)
def test_other_charts_names_are_refused_with_ours(path: tuple[str, ...]) -> None:
    """One sentence with the path as it was typed; each remedy names a value that there
    is.
    """
    remedy = REMEDIES[path]
    assert PATHS & {word.strip(".,:()") for word in remedy.split()}
    wanted = f"{'.'.join(path)}: {remedy} The chart has no such value"
    assert refusal(merged(SIDECAR, nested(path, {"a": "b"}))) == wanted


@pytest.mark.full  # the operator's schemas need Node
@pytest.mark.parametrize(
    "base", [EVERYTHING_BESIDE, EVERYTHING_ALONE], ids=["beside", "alone"]
)
def test_null_leaves_any_value_out(base: dict[str, Any]) -> None:
    """Of every part at once: it renders, or is refused with a message of the chart's
    own.
    """
    parts = sorted({path[0] for path in LEAVES})
    for part in parts:
        # What has no default, Helm hands to the schema as null.
        nulls = [
            nested(path, None)
            for path in LEAVES.keys() - REQUIRED
            if path[0] == part
            and path[-1] != "enabled"
            and value_at(DEFAULTS, path) is not None
        ]
        try:
            objects = render(merged(base, *nulls))
        except RenderError as error:
            if not error.refusal:
                raise
            continue
        for obj in objects:
            assert problems(obj, "1.36") == [], (part, obj["kind"])


def test_null_is_refused_where_there_is_no_empty_value() -> None:
    """By the name of the value, as Helm removes it before the schema sees it."""
    assert {("exporter", "port"), ("tap", "port"), ("image", "pullPolicy")} < REQUIRED
    for path in REQUIRED:
        missing = f"missing propert.*'{path[-1]}'"
        assert re.search(missing, refusal(nested(path, None))), path
    assert "/exporter/settings/log.level': got null" in refusal(
        at(exporter__settings={"log.level": None})
    )


@pytest.mark.parametrize("user", [None, ""])
def test_null_leaves_out_what_kubernetes_would_get(user: str | None) -> None:
    """No liveness probe for groups of pods, no user on OpenShift; empty text where Helm
    3.6 ignores null.
    """
    values = at(exporter__livenessProbe=None, exporter__securityContext__runAsUser=user)
    container, _ = named_templates(merged(IMAGE, values))
    assert "livenessProbe" not in container
    assert "runAsUser" not in container["securityContext"]
    assert container["securityContext"]["runAsNonRoot"] is True


API = "admissionregistration.k8s.io"


def template_for(*options: str) -> subprocess.CompletedProcess[str]:
    """Render with Helm 3, which can be given a cluster's versions."""
    command = (helm3(), "template", "specdec", CHART, "--values", "-", "--kube-version")
    values = json.dumps(INJECTION)
    return subprocess.run(
        (*command, *options), input=values, capture_output=True, text=True
    )


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "version"),
    [
        (("1.36.2",), "v1"),
        (
            ("1.35.0", "--api-versions", f"{API}/v1beta1/MutatingAdmissionPolicy"),
            "v1beta1",
        ),
        (("1.35.0", "--set", "injection.apiVersion=v1beta1"), "v1beta1"),
    ],
)
def test_the_policy_has_the_version_that_the_cluster_has(
    options: tuple[str, ...], version: str
) -> None:
    """The newest that it has, or the one that is set."""
    done = template_for(*options)
    objects = filter(None, yaml.safe_load_all(done.stdout))
    assert {obj["apiVersion"] for obj in objects} == {f"{API}/{version}"}, done.stderr


@pytest.mark.full
def test_a_cluster_without_the_policy_is_refused() -> None:
    """With a message that names the value."""
    refused = template_for("1.35.0").stderr
    assert "injection.enabled needs MutatingAdmissionPolicy" in refused


def test_two_aliases_in_one_parent_make_two_sets_of_names(tmp_path: Path) -> None:
    """An alias stands in the names; without one they are those of the chart."""
    parent = tmp_path / "parent"
    (parent / "charts").mkdir(parents=True)
    shutil.copytree(CHART, parent / "charts" / CHART.name)
    version = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))["version"]
    uses = [
        {"name": CHART.name, "version": version, **alias}
        for alias in ({}, {"alias": "chat"}, {"alias": "code"})
    ]
    (parent / "Chart.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v2",
                "name": "parent",
                "version": "1.0.0",
                "dependencies": uses,
            }
        )
    )
    enabled = on("dashboards", "prometheusRule")
    (parent / "values.yaml").write_text(
        yaml.safe_dump(dict.fromkeys((CHART.name, "chat", "code"), enabled))
    )
    names = [
        (obj["kind"], obj["metadata"]["name"])
        for obj in render(chart=parent, release="r")
    ]
    assert len(names) == len(set(names)) > 30
    for board in (f"r-{CHART.name}-overview", "r-chat-overview", "r-code-overview"):
        assert ("ConfigMap", board) in names
