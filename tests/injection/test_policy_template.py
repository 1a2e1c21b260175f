"""The policy and its binding as the chart renders them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from helm.charts import render_helm3
from helm.manifest_schemas import problems
from injection.rendered_policy import injection, policy, switched_on


def test_valid_for_the_versions_that_have_it() -> None:
    """Policy and binding pass the strict schema of each Kubernetes that serves their API version."""
    kinds = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"]
    for api, kube_version in (("v1", "1.36"), ("v1", "1.37"), ("v1beta1", "1.34"), ("v1beta1", "1.35")):
        rendered = injection({"injection": {"apiVersion": api}})
        assert [obj["kind"] for obj in rendered] == kinds
        for obj in rendered:
            assert obj["apiVersion"] == f"admissionregistration.k8s.io/{api}"
            assert problems(obj, kube_version) == []


def test_both_are_cluster_wide() -> None:
    """Neither has a namespace, and the binding names the policy and narrows nothing."""
    made, binding = injection()
    assert "namespace" not in made["metadata"]
    assert "namespace" not in binding["metadata"]
    assert binding["spec"] == {"policyName": made["metadata"]["name"]}


def test_it_never_holds_pods_up() -> None:
    """A failing policy keeps nobody from starting, unless told to.

    It is asked again after other mutations; and it is a JSON patch, which may set atomic lists such as args.
    """
    spec = policy()["spec"]
    assert spec["failurePolicy"] == "Ignore"
    assert policy({"injection": {"failurePolicy": "Fail"}})["spec"]["failurePolicy"] == "Fail"
    assert spec["reinvocationPolicy"] == "IfNeeded"
    assert [mutation["patchType"] for mutation in spec["mutations"]] == ["JSONPatch"]


def test_names_are_as_the_api_wants_them() -> None:
    """Variables are CEL identifiers, conditions are qualified names; none twice."""
    spec = policy({"webConfig": {"existingSecret": "web"}, "imagePullSecrets": [{"name": "pull"}]})["spec"]
    for entries, form in (
        (spec["variables"], r"[A-Za-z_][A-Za-z0-9_]*"),
        (spec["matchConditions"], r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"),
    ):
        names = [entry["name"] for entry in entries]
        assert all(re.fullmatch(form, name) for name in names)
        assert len(set(names)) == len(names)


def test_labels_are_selected_as_given() -> None:
    """Every label of injection.labels is asked for, the default one as well unless it is removed."""
    labels = {"serve": "llm", "vllm-specdec-exporter/inject": None}
    selector = policy({"injection": {"labels": labels}})["spec"]["matchConstraints"]["objectSelector"]
    assert selector == {"matchLabels": {"serve": "llm"}}


CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "web-config": {"webConfig": {"existingSecret": "web", "tls": True}},
    "spec-config": {"exporter": {"specConfig": {"method": "eagle3", "num_speculative_tokens": 3}}},
    "tap-and-push": {
        "tap": {"enabled": True, "tls": {"existingSecret": "certificate"}},
        "push": {"existingSecret": "gateway"},
    },
    "pull-secrets": {"imagePullSecrets": [{"name": "pull"}, {"name": "other"}]},
}


@pytest.mark.full
def test_helm_3_renders_the_same() -> None:
    """Helm 3 and Helm 4 give the same policy, expressions and all."""
    for name, values in CASES.items():
        third = render_helm3(switched_on(values))
        assert [obj for obj in third if obj["kind"].startswith("Mutating")] == injection(values), name


def test_expressions_are_read_in_order() -> None:
    """No variable asks for a later one, or for one that is not there."""
    for values in CASES.values():
        spec = policy(values)["spec"]
        (mutation,) = spec["mutations"]
        steps = [(variable["name"], variable["expression"]) for variable in spec["variables"]]
        known: set[str] = set()
        for name, expression in [*steps, ("", mutation["jsonPatch"]["expression"])]:
            assert set(re.findall(r"variables\.([A-Za-z]+)", expression)) <= known, name
            known.add(name)
