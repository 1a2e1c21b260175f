"""What users of charts type from habit works, or is refused with the name that this
chart has for it.
"""

import json
import re
import subprocess

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
    REQUIRED,
    SIDECAR,
    at,
    levels,
    merged,
    nested,
    value_at,
)


def test_other_charts_names_are_refused_with_ours() -> None:
    """One sentence with the path as it was typed; each remedy names a value that there
    is.
    """
    remedies = {
        (*path, name): schema["description"].removeprefix("No value of this chart: ")
        for path, level in levels()
        for name, schema in level["properties"].items()
        if schema.get("$comment") == "refused"
    }
    usual = (
        "volumes",
        "volumeMounts",
        "extraContainers",
        "initContainers",
        "readinessProbe",
        "hostNetwork",
    )
    assert {(name,) for name in (*usual, "releaseLabel", "selfMonitor")} < set(remedies)
    assert len(remedies) <= 20
    paths = {
        ".".join(path[:depth]) for path in LEAVES for depth in range(1, len(path) + 1)
    }
    for path, remedy in remedies.items():
        assert paths & {word.strip(".,:()") for word in remedy.split()}, path
    for path in remedies:
        wanted = f"{'.'.join(path)}: {remedies[path]} The chart has no such value"
        assert refusal(merged(SIDECAR, nested(path, {"a": "b"}))) == wanted


@pytest.mark.full  # the operator's schemas need Node
def test_null_leaves_any_value_out() -> None:
    """Of every part at once: it renders, or is refused with a message of the chart's
    own.
    """
    parts = sorted({path[0] for path in LEAVES})
    for base in (EVERYTHING_BESIDE, EVERYTHING_ALONE):
        for part in parts:
            paths = [
                path for path in LEAVES if path[0] == part and path[-1] != "enabled"
            ]
            # What has no default, Helm hands to the schema as null.
            optional = [
                path
                for path in paths
                if path not in REQUIRED and value_at(DEFAULTS, path) is not None
            ]
            nulls = [nested(path, None) for path in optional]
            try:
                objects = render(merged(base, *nulls))
            except RenderError as error:
                if not error.refusal:
                    raise
            else:
                found = [
                    (obj["kind"], problem)
                    for obj in objects
                    if (problem := problems(obj, "1.36"))
                ]
                assert found == [], part


def test_null_is_refused_where_there_is_no_empty_value() -> None:
    """By the name of the value, as Helm removes it before the schema sees it."""
    assert {("exporter", "port"), ("tap", "tls"), ("image", "pullPolicy")} < REQUIRED
    for path in REQUIRED:
        assert re.search(f"missing propert.*'{path[-1]}'", refusal(nested(path, None)))
    assert "/exporter/settings/log.level': got null" in refusal(
        at(exporter__settings={"log.level": None})
    )


def test_null_leaves_out_what_kubernetes_would_get() -> None:
    """No liveness probe for groups of pods, no user on OpenShift; empty text where Helm
    3.6 ignores null.
    """
    for user in (None, ""):
        values = at(
            exporter__livenessProbe=None, exporter__securityContext__runAsUser=user
        )
        container, _ = named_templates(merged(IMAGE, values))
        assert "livenessProbe" not in container
        assert "runAsUser" not in container["securityContext"]
        assert container["securityContext"]["runAsNonRoot"] is True


@pytest.mark.full
def test_the_policy_has_the_version_that_the_cluster_has() -> None:
    """By Helm 3, which can be given a cluster's versions; without one it is refused."""
    api = "admissionregistration.k8s.io"
    command = (helm3(), "template", "specdec", CHART, "--values", "-", "--kube-version")
    for options, wanted in (
        (("1.36.2",), "v1"),
        (
            ("1.35.0", "--api-versions", f"{api}/v1beta1/MutatingAdmissionPolicy"),
            "v1beta1",
        ),
        (("1.35.0", "--set", "injection.apiVersion=v1beta1"), "v1beta1"),
        (("1.35.0",), ""),
    ):
        done = subprocess.run(
            (*command, *options),
            input=json.dumps(INJECTION),
            capture_output=True,
            text=True,
        )
        if wanted:
            versions = {
                obj["apiVersion"] for obj in yaml.safe_load_all(done.stdout) if obj
            }
            assert versions == {f"{api}/{wanted}"}, done.stderr
        else:
            assert "injection.enabled needs MutatingAdmissionPolicy" in done.stderr
