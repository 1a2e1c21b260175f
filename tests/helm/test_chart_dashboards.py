"""The ConfigMaps carry the generated dashboards, whole, and a release of everything
fits into its Secret.
"""

import base64
import gzip
import json
from typing import Any

from .charts import CHART, ROOT, render, render_files
from .value_cases import DASHBOARDS, EVERYTHING_ALONE, EVERYTHING_BESIDE, merged, on

BOARDS = {
    path.name: path.read_text("utf-8")
    for path in sorted((ROOT / "dashboards/json").glob("*.json"))
}
SHORT = sorted(
    name.removeprefix("vllm-specdec-").removesuffix(".json") for name in BOARDS
)
MIB = 1024 * 1024


def board_maps(**values: Any) -> list[dict[str, Any]]:
    """The ConfigMaps with dashboards."""
    return render(merged(DASHBOARDS, {"dashboards": values}))


def test_every_dashboard_is_there_word_for_word() -> None:
    """One small ConfigMap for each: legends such as {{pod}} are Grafana's, and not
    Helm's.
    """
    files: dict[str, str] = {}
    for obj in board_maps():
        assert len(obj["data"]) == 1
        files |= obj["data"]
        # As Grafana in kube-prometheus-stack looks for them.
        assert obj["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert obj["metadata"]["annotations"] == {
            "grafana_folder": "vLLM speculative decoding"
        }
    assert {name: text.rstrip("\n") for name, text in files.items()} == {
        name: text.rstrip("\n") for name, text in BOARDS.items()
    }
    assert any("{{" in text for text in files.values())


def test_a_board_off_is_that_one_less() -> None:
    """And no GrafanaDashboard refers to it."""
    for board in SHORT:
        boards = {name: name == board for name in SHORT}
        objects = render(
            merged(
                DASHBOARDS,
                on("dashboards.grafanaDashboard"),
                {"dashboards": {"boards": boards}},
            )
        )
        assert [obj["metadata"]["name"].endswith(f"-{board}") for obj in objects] == [
            True,
            True,
        ]


def test_grafana_finds_them_by_label_and_folder() -> None:
    """With names of the user's own."""
    (config_map, *_) = board_maps(
        label="x", labelValue="true", labels={"a": "b"}, folder=""
    )
    assert config_map["metadata"]["labels"].items() >= {"x": "true", "a": "b"}.items()
    assert "grafana_dashboard" not in config_map["metadata"]["labels"]
    assert "annotations" not in config_map["metadata"]


def test_the_operators_resources_refer_to_the_config_maps() -> None:
    """Name, key and namespace of each GrafanaDashboard are those of a ConfigMap of the
    release.
    """
    objects = render(
        merged(
            DASHBOARDS,
            on("dashboards.grafanaDashboard"),
            {"dashboards": {"namespace": "grafana"}},
        )
    )
    maps = {
        (obj["metadata"]["namespace"], obj["metadata"]["name"], key)
        for obj in objects
        for key in obj.get("data", ())
    }
    boards = [obj for obj in objects if obj["kind"] == "GrafanaDashboard"]
    refs = {
        (
            obj["metadata"]["namespace"],
            *(obj["spec"]["configMapRef"][part] for part in ("name", "key")),
        )
        for obj in boards
    }
    assert refs == maps
    assert len(refs) == len(BOARDS)
    # Their label is for the sidecar of Grafana's chart: a GrafanaDashboard is no
    # ConfigMap.
    assert all("grafana_dashboard" not in obj["metadata"]["labels"] for obj in boards)


def test_a_release_of_everything_fits_into_its_secret() -> None:
    """Helm stores chart, values and manifest gzipped and in base64, in one Secret of at
    most 1 MiB.
    """
    ignored = {
        line.strip("/")
        for line in (CHART / ".helmignore").read_text().split()
        if not line.startswith("#")
    }
    files = {
        path.relative_to(CHART).as_posix(): base64.b64encode(path.read_bytes()).decode()
        for path in sorted(CHART.rglob("*"))
        if path.is_file() and not ignored & set(path.relative_to(CHART).parts)
    }
    for values in (EVERYTHING_BESIDE, EVERYTHING_ALONE):
        record = {"chart": files, "config": values, "manifest": render_files(values)}
        assert (
            len(base64.b64encode(gzip.compress(json.dumps(record).encode(), 9)))
            < MIB // 2
        )
