"""NOTES.txt says what was installed, why it may not be seen, and what is still
missing.
"""

import json
import re
from typing import Any

import pytest

from support.published import REFERENCE

from .charts import render_files
from .kubernetes_yaml import documents
from .value_cases import (
    EVERYTHING_BESIDE,
    INJECTION,
    PUSH,
    RULES,
    SIDECAR,
    STANDALONE,
    TAP,
    TAP_ALONE,
    at,
    merged,
    on,
)


def notes(values: Any, **where: str) -> str:
    return render_files(values, **where)["templates/NOTES.txt"]


_AMOUNTS = {"cpu": "1", "memory": "256Mi"}
_AMPLE = at(exporter__resources={"requests": _AMOUNTS, "limits": _AMOUNTS})
_UNKNOWN = at(exporter__specConfig="")
_TAPPED = "exporter.resources are those of an exporter without the tap"
_ALONE = merged(STANDALONE, TAP_ALONE)
_INJECTED = merged(INJECTION, TAP)
_OWN_KEY = merged(INJECTION, PUSH, at(push__key="bearer"))
_PUSHED = "POST /api/v1/requests on port 9850, with the token of key bearer in Secret "


@pytest.mark.parametrize(
    ("sentence", "missing", "complete"),
    [
        ("Nothing is installed yet", {}, SIDECAR),
        ("exporter.specConfig is empty", merged(STANDALONE, _UNKNOWN), STANDALONE),
        ("exporter.specConfig is empty", merged(INJECTION, _UNKNOWN), INJECTION),
        (_TAPPED, _ALONE, merged(_ALONE, _AMPLE)),
        (_TAPPED, _INJECTED, merged(_INJECTED, _AMPLE)),
        (
            "prometheusRule.runbookUrl",
            merged(RULES, at(prometheusRule__runbookUrl="")),
            EVERYTHING_BESIDE,
        ),
        ("prometheusRule.grafanaUrl", RULES, EVERYTHING_BESIDE),
        ("alertmanagerConfigMatcherStrategy", EVERYTHING_BESIDE, RULES),
        (f"{_PUSHED}specdec-push", _OWN_KEY, INJECTION),
        (
            "Needs Kubernetes\n   1.36 or later.",
            INJECTION,
            merged(INJECTION, at(injection__apiVersion="v1beta1")),
        ),
        ("rollout restart", INJECTION, STANDALONE),
        ("Set exporter.resources, requests and", INJECTION, STANDALONE),
        ("vllm-specdec-exporter/inject=enabled", INJECTION, STANDALONE),
    ],
)
def test_what_is_missing_is_said(
    sentence: str, missing: dict[str, Any], complete: dict[str, Any]
) -> None:
    """The words are in the notes for some values, and not in those for others."""
    assert sentence in notes(missing)
    assert sentence not in notes(complete)


def test_the_next_upgrade_is_said() -> None:
    """With the values of a file, or those of the release."""
    assert "Upgrade with -f values.yaml" in notes(SIDECAR)
    text = notes({})
    assert "Upgrade with -f values.yaml" in text
    assert "prometheusLabels.release=" in text
    assert (
        "helm upgrade specdec YOUR-CHART --namespace monitoring "
        "--reset-then-reuse-values"
    ) in text


@pytest.mark.parametrize(
    ("part", "bare"),
    [
        ("podMonitor", SIDECAR),
        ("serviceMonitor", merged(STANDALONE, on("serviceMonitor"))),
        ("prometheusRule", RULES),
    ],
    ids=["podMonitor", "serviceMonitor", "prometheusRule"],
)
def test_the_labels_that_prometheus_must_look_for_are_said(
    part: str, bare: dict[str, Any]
) -> None:
    """Or that there are none, which is the most frequent reason for nothing to show
    up.
    """
    assert "WITHOUT labels" in notes(bare)
    labels = {part: {"labels": {"b": "c"}}, "prometheusLabels": {"release": "kps"}}
    labelled = notes(merged(bare, labels))
    assert "WITHOUT labels" not in labelled
    for text in ("release=kps", "b=c", "Selector"):
        assert text in labelled, text


def test_the_sidecar_is_shown_ready_to_paste() -> None:
    """The YAML in the notes is the container that the template renders."""
    text = notes(SIDECAR)
    shown = text[text.index("     - args:") : text.index("\n2. ")]
    (entry,) = documents("pasted:\n" + shown)[0]["pasted"]
    assert entry["name"] == "specdec-exporter"
    assert entry["restartPolicy"] == "Always"
    assert entry["image"].startswith(f"{REFERENCE}:")


def test_the_service_that_moves_to_the_tap_is_said() -> None:
    """With its port, the order, and what stays at vLLM; in the standalone pod there is
    a Service already.
    """
    assert "tap" not in notes(INJECTION)
    text = notes(merged(INJECTION, TAP, at(tap__port=8443)))
    (patch,) = re.findall(r"--type=json -p '(.*)'", text)
    assert json.loads(patch) == [
        {"op": "replace", "path": "/spec/ports/0/targetPort", "value": 8443}
    ]
    assert text.index("rollout status") < text.index("kubectl patch service")
    assert "in front of http://127.0.0.1:8000" in text
    assert "go on asking vLLM itself" in text
    alone = notes(merged(STANDALONE, TAP_ALONE, at(standalone__service__tapPort=80)))
    assert "in front of http://vllm-0.vllm.chat:8000" in alone
    assert "service/specdec-vllm-specdec-exporter, port 80." in alone
    assert "kubectl patch service" not in alone
