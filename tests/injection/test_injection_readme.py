"""What the chart's README says of injection holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from helm.charts import CHART
from injection.policy_server import admit
from injection.rendered_policy import injection, policy

README = Path(CHART / "README.md").read_text()
SECTION = README.partition("## Injection without a webhook server")[2].partition("\n## ")[0]


def yaml_blocks() -> list[dict[str, Any]]:
    """Return the YAML blocks of the section."""
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", SECTION, flags=re.DOTALL)]


def test_values_switch_it_on() -> None:
    """The values given render the policy."""
    values = yaml_blocks()[0]
    assert values["injection"]["enabled"] is True
    assert injection(values)[0]["kind"] == "MutatingAdmissionPolicy"


def test_pod_of_the_example_gets_the_sidecar_with_its_flags() -> None:
    """The label stands where the policy looks for it, the annotations where it reads them."""
    values, deployment = yaml_blocks()
    template = deployment["spec"]["template"]
    (added,) = admit(policy(values), template)["spec"]["initContainers"]
    assert added["args"] == [
        "--startup.on-error=wait",
        "--tap.listen-address=:9852",
        "--tap.ask-for-usage=false",
        "--tap.drain-timeout=25s",
        "--vllm.url=http://127.0.0.1:8000",
        '--spec.config={"method": "eagle3", "num_speculative_tokens": 3}',
    ]
    assert [port["name"] for port in added["ports"]] == ["specdec-metrics", "tap"]


def test_label_on_the_deployment_alone_does_nothing() -> None:
    """As the README warns."""
    values, deployment = yaml_blocks()
    template = deployment["spec"]["template"]
    del template["metadata"]["labels"]["vllm-specdec-exporter/inject"]
    assert admit(policy(values), template) == template
