"""Every set of values of the matrix, through Helm 4 and Helm 3, against the API servers' schemas."""

from __future__ import annotations

import helm_python
import pytest
import yaml

from .charts import CHART, RenderError, helm3, render, render_helm3
from .manifest_schemas import problems, problems_everywhere, title
from .value_cases import CASES, EACH, EVERYTHING_ALONE, EVERYTHING_BESIDE, ValueCase, flipped, switch_paths


def rendered(case: ValueCase) -> list[dict]:
    return render(case.values, release=case.release, namespace=case.namespace)


@EACH
def test_the_rendering_is_sound(case: ValueCase) -> None:
    """An API server takes it, no object is there twice, no field is empty, and each says its namespace."""
    objects = rendered(case)
    assert problems_everywhere(objects) == []
    assert len(by_identity(objects)) == len(objects), "two objects of one name overwrite each other"
    assert [(title(obj), path) for obj in objects for path in nulls(obj)] == []
    cluster_wide = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
    for obj in objects:
        if case.name.startswith(("extra-manifests", "ci-")) and obj["kind"] in {"ConfigMap", "Secret"}:
            continue  # not ours
        assert ("namespace" in obj["metadata"]) != (obj["kind"] in cluster_wide), title(obj)
    report = helm_python.lint(
        CHART, dict(case.values), strict=True, namespace=case.namespace, kube_version="v1.36.0"
    )
    assert report["errors"] == []
    assert [message for message in report["messages"] if message["severity"] >= 2] == []


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_helm_3_and_helm_4_render_the_same_objects(case: ValueCase) -> None:
    """Nothing differs but the order, in which Helm 3 sorts by kind."""
    old = render_helm3(case.values, release=case.release, namespace=case.namespace)
    assert by_identity(old) == by_identity(rendered(case))


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.parametrize("values", [EVERYTHING_BESIDE, EVERYTHING_ALONE], ids=["beside", "alone"])
def test_any_switch_the_other_way(values: dict) -> None:
    """Each switch, over everything on: still sound, or refused with a message of ours."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    wrong = []
    for path in switch_paths():
        try:
            objects = render(flipped(values, defaults, path))
        except RenderError as error:
            wrong += [] if error.refusal else [(path, str(error))]
        else:
            wrong += [(path, title(obj), one) for obj in objects for one in problems(obj, "1.37")]
    assert wrong == []


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
