"""Pods as an API server gets them: those that get the sidecar, and those that do not,
with the reason.
"""

from pathlib import Path
from typing import Any

import yaml

_DOCUMENT = yaml.safe_load(Path(__file__).with_name("pods.yml").read_text("utf-8"))
LABELS = {"app": "vllm", "vllm-specdec-exporter/inject": "enabled"}
VLLM = _DOCUMENT["containers"]["vllm"]
DOWNLOAD = _DOCUMENT["containers"]["download"]


def pod(*, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a labelled pod with vLLM in it, and what else is given."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "vllm", "labels": LABELS, **(metadata or {})},
        "spec": {"containers": [VLLM], **spec},
    }


#: What is injected into, by name.
INJECTED = {name: pod(**fields) for name, fields in _DOCUMENT["injected"].items()}
#: What is not, by the condition that it does not meet.
REFUSED = {
    name: (condition, pod(**fields))
    for name, (condition, fields) in _DOCUMENT["refused"].items()
}
