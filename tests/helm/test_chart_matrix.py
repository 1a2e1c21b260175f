"""Every set of values of the matrix, through Helm 4 and Helm 3, against the API servers' schemas."""

from __future__ import annotations

import helm_python
import pytest
import yaml

from .charts import CHART, RenderError, helm3, render, render_helm3
from .manifest_schemas import problems_everywhere, title
from .value_cases import CASES, EVERYTHING_ALONE, EVERYTHING_BESIDE, ValueCase, flipped, switch_paths

EACH = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def rendered(case: ValueCase) -> list[dict]:
    return render(case.values, release=case.release, namespace=case.namespace)


@EACH
def test_an_api_server_would_take_everything(case: ValueCase) -> None:
    """No unknown field, wrong type, bad name or dangling reference in any version of Kubernetes."""
    assert problems_everywhere(rendered(case)) == []


@EACH
def test_helm_3_and_helm_4_render_the_same_objects(case: ValueCase) -> None:
    """Nothing differs but the order, in which Helm 3 sorts by kind."""
    old = render_helm3(case.values, release=case.release, namespace=case.namespace)
    assert by_identity(old) == by_identity(rendered(case))


@EACH
def test_no_object_twice_and_no_empty_fields(case: ValueCase) -> None:
    """Two objects of one name overwrite each other; a null comes from a template that had nothing to say."""
    objects = rendered(case)
    assert len(by_identity(objects)) == len(objects)
    assert [(title(obj), path) for obj in objects for path in nulls(obj)] == []


@EACH
def test_every_object_says_its_namespace(case: ValueCase) -> None:
    """The release's or the one that was asked for: `helm template | kubectl apply` works."""
    cluster_wide = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
    for obj in rendered(case):
        if case.name.startswith(("extra-manifests", "ci-")) and obj["kind"] in {"ConfigMap", "Secret"}:
            continue  # not ours
        assert ("namespace" in obj["metadata"]) != (obj["kind"] in cluster_wide), title(obj)


@EACH
def test_helm_4_lints_strictly(case: ValueCase) -> None:
    """No warning and no error with these values."""
    report = helm_python.lint(
        CHART, dict(case.values), strict=True, namespace=case.namespace, kube_version="v1.36.0"
    )
    assert report["errors"] == []
    assert [message for message in report["messages"] if message["severity"] >= 2] == []


@pytest.mark.parametrize(
    "values", [{}, EVERYTHING_BESIDE, EVERYTHING_ALONE], ids=["defaults", "beside", "alone"]
)
def test_helm_3_lints_strictly(values: dict, tmp_path) -> None:
    """No warning and no error; one of the three for each kind of use, for this Helm lints slowly."""
    import subprocess

    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    done = subprocess.run(
        (helm3(), "lint", "--strict", "--values", file, CHART), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", switch_paths())
@pytest.mark.parametrize("values", [EVERYTHING_BESIDE, EVERYTHING_ALONE], ids=["beside", "alone"])
def test_any_switch_the_other_way(values: dict, path: str) -> None:
    """Each switch, over everything on: still sound, or refused with a message of ours."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    try:
        objects = render(flipped(values, defaults, path))
    except RenderError as error:
        if not error.refusal:
            raise
    else:
        assert problems_everywhere(objects) == []


def by_identity(objects: list[dict]) -> dict[tuple[str, ...], dict]:
    """Return objects by what makes them the same object."""
    return {
        (obj["apiVersion"], obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj
        for obj in objects
    }


def nulls(value: object, path: str = "") -> list[str]:
    """Return the paths of all nulls."""
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in nulls(inner, f"{path}/{key}")]
    if isinstance(value, list):
        return [found for index, inner in enumerate(value) for found in nulls(inner, f"{path}/{index}")]
    return [path] if value is None else []
