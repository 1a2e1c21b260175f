"""The chart of somebody's own in docs/deployment.md renders a pod with the sidecar."""

import re
from pathlib import Path

import yaml

from helm.charts import CHART, render
from helm.manifest_schemas import problems_everywhere
from support.repository import data_of, text_of

PAGE = text_of("docs/deployment.md")
#: What stands around the lines of the page.
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: vllm}
spec:
  selector: {matchLabels: {app: vllm}}
  template:
    metadata: {labels: {app: vllm}}
    spec:
PART      containers:
        - {name: vllm, image: "vllm/vllm-openai:v0.32.0"}
"""


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
    (chart / "templates/vllm.yaml").write_text(
        DEPLOYMENT.replace("PART", part("templates/vllm.yaml"))
    )
    objects = render(chart=chart)
    assert problems_everywhere(objects) == []
    (deployment,) = (obj for obj in objects if obj["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    values = yaml.safe_load(part("values.yaml"))["vllm-specdec-exporter"]
    image = values["image"]
    assert sidecar["image"].startswith(f"{image['registry']}/{image['repository']}:")
    assert '"num_speculative_tokens":3' in "".join(sidecar["args"]).replace(" ", "")
    (dependency,) = yaml.safe_load(part("Chart.yaml"))["dependencies"]
    ours = data_of(CHART / "Chart.yaml")
    for key in ("name", "version"):
        assert dependency[key] == ours[key], key
