"""The chart of somebody's own in docs/deployment.md renders a pod with the sidecar."""

import re
from pathlib import Path

import yaml

from helm.charts import CHART, render
from helm.manifest_schemas import problems_everywhere
from support.repository import data_of, text_of

PAGE = text_of("docs/deployment.md")
#: What stands above and below the lines of the page.
ABOVE = (
    "apiVersion: v1\nkind: Pod\nmetadata:\n  name: vllm\nspec:\n  template:\n    "
    "spec:\n"
)
BELOW = (
    "      containers:\n        - name: vllm\n          image: "
    "vllm/vllm-openai:v0.32.0\n"
)


def part(name: str) -> str:
    """The block that begins with a comment that names a file."""
    (block,) = re.findall(
        rf"^```yaml\n(# {re.escape(name)}.*?)^```$", PAGE, re.DOTALL | re.MULTILINE
    )
    return str(block)


def test_the_chart_of_the_page_renders_the_sidecar(tmp_path: Path) -> None:
    """The dependency is our chart in its version; the values reach the sidecar in the
    pod.
    """
    chart = tmp_path / "vllm"
    (chart / "templates").mkdir(parents=True)
    (chart / "charts").mkdir()
    (chart / "charts" / CHART.name).symlink_to(CHART)
    (chart / "Chart.yaml").write_text(
        f"apiVersion: v2\nname: vllm\nversion: 1.0.0\n{part('Chart.yaml')}"
    )
    (chart / "values.yaml").write_text(part("values.yaml"))
    deployment = ABOVE.replace("v1\nkind: Pod", "apps/v1\nkind: Deployment").replace(
        "spec:\n  template:\n",
        (
            "spec:\n  selector: {matchLabels: {app: vllm}}\n  template:\n    metadata: "
            "{labels: {app: vllm}}\n"
        ),
        1,
    )
    (chart / "templates/vllm.yaml").write_text(
        f"{deployment}{part('templates/vllm.yaml')}{BELOW}"
    )
    objects = render(chart=chart)
    assert problems_everywhere(objects) == []
    (pod,) = (
        obj["spec"]["template"]["spec"]
        for obj in objects
        if obj["kind"] == "Deployment"
    )
    (sidecar,) = pod["initContainers"]
    values = yaml.safe_load(part("values.yaml"))["vllm-specdec-exporter"]
    assert sidecar["image"].startswith(
        f"{values['image']['registry']}/{values['image']['repository']}:"
    )
    assert any(
        '"num_speculative_tokens":3' in arg.replace(" ", "") for arg in sidecar["args"]
    )
    (dependency,) = yaml.safe_load(part("Chart.yaml"))["dependencies"]
    ours = data_of(CHART / "Chart.yaml")
    assert (dependency["name"], dependency["version"]) == (
        ours["name"],
        ours["version"],
    )
