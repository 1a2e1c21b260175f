"""The policy and its binding as the chart renders them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from helm.charts import RenderError, render, render_helm3
from helm.manifest_schemas import problems
from injection.rendered_policy import injection, policy, switched_on


def test_off_by_default() -> None:
    """Without injection.enabled the chart renders nothing that changes pods."""
    assert not [obj for obj in render() if obj["kind"].startswith("Mutating")]


@pytest.mark.parametrize(
    ("api", "kube_version"), [("v1", "1.36"), ("v1", "1.37"), ("v1beta1", "1.34"), ("v1beta1", "1.35")]
)
def test_valid_for_the_versions_that_have_it(api: str, kube_version: str) -> None:
    """Policy and binding pass the strict schema of each Kubernetes that serves their API version."""
    rendered = injection({"injection": {"apiVersion": api}})
    assert [obj["kind"] for obj in rendered] == ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"]
    for obj in rendered:
        assert obj["apiVersion"] == f"admissionregistration.k8s.io/{api}"
        assert problems(obj, kube_version) == []


def test_schema_notices_a_wrong_policy() -> None:
    """The schema that the policy passes is one that refuses unknown fields."""
    wrong = policy()
    wrong["spec"]["mutations"][0]["jsonPatch"]["expresion"] = "[]"
    assert problems(wrong, "1.36")


def test_both_are_cluster_wide() -> None:
    """Neither has a namespace, and the binding names the policy and narrows nothing."""
    made, binding = injection()
    assert "namespace" not in made["metadata"]
    assert "namespace" not in binding["metadata"]
    assert binding["spec"] == {"policyName": made["metadata"]["name"]}


def test_asks_for_created_pods_only() -> None:
    """Pods are in the core group, whose name is empty. An update of a pod could not add a container."""
    (rule,) = policy()["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["apiGroups"], rule["apiVersions"]) == ([""], ["v1"])
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])


def test_lets_pods_start_when_it_fails() -> None:
    """By default a failing policy never keeps vLLM from starting; Fail is a choice."""
    assert policy()["spec"]["failurePolicy"] == "Ignore"
    assert policy({"injection": {"failurePolicy": "Fail"}})["spec"]["failurePolicy"] == "Fail"


def test_is_asked_again_after_other_mutations() -> None:
    """A webhook that adds an init container later does not hide it from the conditions."""
    assert policy()["spec"]["reinvocationPolicy"] == "IfNeeded"


def test_no_apply_configuration() -> None:
    """An ApplyConfiguration may not set atomic lists such as args, a JSON patch may."""
    assert [mutation["patchType"] for mutation in policy()["spec"]["mutations"]] == ["JSONPatch"]


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


def test_namespace_selector_is_joined_with_ours() -> None:
    """The user's selector narrows further; the cluster's own namespaces stay out whatever it says."""
    mine = {
        "matchLabels": {"team": "llm"},
        "matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}],
    }
    selector = policy({"injection": {"namespaceSelector": mine}})["spec"]["matchConstraints"][
        "namespaceSelector"
    ]
    assert selector["matchLabels"] == {"team": "llm"}
    ours, theirs = selector["matchExpressions"]
    assert (ours["key"], ours["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
    assert set(ours["values"]) == {"kube-system", "kube-public", "kube-node-lease"}
    assert theirs == mine["matchExpressions"][0]


def test_labels_are_selected_as_given() -> None:
    """Every label of injection.labels is asked for, the default one as well unless it is removed."""
    labels = {"serve": "llm", "vllm-specdec-exporter/inject": None}
    selector = policy({"injection": {"labels": labels}})["spec"]["matchConstraints"]["objectSelector"]
    assert selector == {"matchLabels": {"serve": "llm"}}


def test_no_labels_is_refused() -> None:
    """An empty selector would select every pod of the cluster."""
    with pytest.raises(RenderError, match="injection") as refused:
        injection({"injection": {"labels": {"vllm-specdec-exporter/inject": None}}})
    assert "label" in str(refused.value)


def test_flag_that_yaml_cannot_hold_is_refused() -> None:
    """Such a flag would silently take all the others with it."""
    with pytest.raises(RenderError, match="holds a control character, which YAML cannot carry"):
        injection({"exporter": {"extraArgs": ["--log.level=\x7f"]}})


def test_without_an_image_is_refused() -> None:
    """There is no public image, so the policy would break every pod it touches."""
    with pytest.raises(RenderError, match=r"image\.repository is empty"):
        render({"injection": {"enabled": True}})


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


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_helm_3_renders_the_same(values: dict[str, Any]) -> None:
    """Helm 3 and Helm 4 give the same policy, expressions and all."""
    third = [obj for obj in render_helm3(switched_on(values)) if obj["kind"].startswith("MutatingAdmission")]
    assert third == injection(values)


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_expressions_are_read_in_order(values: dict[str, Any]) -> None:
    """No variable asks for a later one, or for one that is not there."""
    known: set[str] = set()
    for variable in policy(values)["spec"]["variables"]:
        asked = set(re.findall(r"variables\.([A-Za-z]+)", variable["expression"]))
        assert asked <= known, variable["name"]
        known.add(variable["name"])
    (mutation,) = policy(values)["spec"]["mutations"]
    asked = set(re.findall(r"variables\.([A-Za-z]+)", mutation["jsonPatch"]["expression"]))
    assert asked <= known
