"""The ConfigMaps carry the generated dashboards, whole, and a release of everything
fits into its Secret.
"""

import base64
import gzip
import json
from typing import Any

import pytest

from support.repository import ROOT, Json

from .charts import CHART, render, render_files
from .value_cases import DASHBOARDS, EVERYTHING_ALONE, EVERYTHING_BESIDE, merged

BOARDS = {
    path.name: f"{path.read_text('utf-8').rstrip()}\n"
    for path in sorted((ROOT / "dashboards/json").glob("*.json"))
}
SHORT = sorted(
    name.removeprefix("vllm-specdec-").removesuffix(".json") for name in BOARDS
)
MIB = 1024 * 1024


def board_maps(**values: Any) -> list[Json]:
    """The objects with dashboards."""
    return render(merged(DASHBOARDS, {"dashboards": values}))


def test_every_dashboard_is_there_word_for_word() -> None:
    """One small ConfigMap for each: legends such as {{pod}} are Grafana's, and not
    Helm's.
    """
    files = {}
    for obj in board_maps():
        ((name, text),) = obj["data"].items()
        files[name] = f"{text.rstrip()}\n"
        metadata = obj["metadata"]
        # As Grafana in kube-prometheus-stack looks for them.
        assert metadata["labels"]["grafana_dashboard"] == "1", name
        folder = {"grafana_folder": "vLLM speculative decoding"}
        assert metadata["annotations"] == folder, name
    assert files == BOARDS
    assert "{{" in str(files)


@pytest.mark.parametrize("board", SHORT)
def test_only_the_boards_that_are_on_are_installed(board: str) -> None:
    """And no GrafanaDashboard refers to another."""
    boards = {name: name == board for name in SHORT}
    objects = board_maps(boards=boards, grafanaDashboard={"enabled": True})
    kinds = [obj["kind"] for obj in objects]
    assert kinds == ["ConfigMap", "GrafanaDashboard"]
    names = [obj["metadata"]["name"] for obj in objects]
    assert all(name.endswith(f"-{board}") for name in names), names


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
    maps = set()
    refs = set()
    for obj in board_maps(namespace="grafana", grafanaDashboard={"enabled": True}):
        metadata = obj["metadata"]
        if obj["kind"] == "ConfigMap":
            (key,) = obj["data"]
            maps.add((metadata["namespace"], metadata["name"], key))
        else:
            ref = obj["spec"]["configMapRef"]
            refs.add((metadata["namespace"], ref["name"], ref["key"]))
            # The label is for the sidecar of Grafana's chart, which reads ConfigMaps.
            assert "grafana_dashboard" not in metadata["labels"], ref
    assert refs == maps
    assert len(refs) == len(BOARDS)


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
        stored = base64.b64encode(gzip.compress(json.dumps(record).encode(), 9))
        # Half is left for values and templates to come.
        assert len(stored) < MIB // 2, sorted(values)
