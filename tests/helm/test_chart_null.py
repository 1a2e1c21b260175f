"""Null, with which Helm removes a value: every map of values.yaml in Helm 3 and 4."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.repository import Json, data_of

from .charts import CHART, RenderError, render, render_helm3
from .value_cases import DASHBOARDS, RULES, at, merged, nested, on

pytestmark = pytest.mark.full


def _maps(values: Json, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every map."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield (*above, name)
            yield from _maps(value, (*above, name))


MAPS = tuple(_maps(data_of(CHART / "values.yaml")))

#: Everything that can be enabled together, in two releases.
RELEASES = (
    merged(
        data_of(CHART / "ci/bundle-values.yaml"),
        on("dashboards.grafanaDashboard", "vllmPodMonitor"),
        at(vllmPodMonitor__selector={"matchLabels": {"app": "vllm"}}),
    ),
    merged(
        data_of(CHART / "ci/standalone-values.yaml"),
        on("tap", "networkPolicy.egress"),
        at(tap__upstream="http://vllm-0.vllm.chat:8000"),
    ),
)


@pytest.fixture(scope="module")
def small_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart with empty dashboards and one file of rules and alerts: rendering all
    of them takes most of the time, and no template reads further what they contain.
    """
    chart = shutil.copytree(CHART, tmp_path_factory.mktemp("small") / CHART.name)
    for rules in (chart / "files/rules").iterdir():
        if rules.name != "activity.yml":
            rules.unlink()
    for dashboard in (chart / "files/dashboards").iterdir():
        dashboard.write_text("{}")
    return chart


@pytest.mark.parametrize("helm", [render, render_helm3])
def test_a_map_that_is_null_is_refused_by_name_or_left_out(
    helm: Callable[..., object], small_chart: Path
) -> None:
    """Never one of Go's own errors, which name a line of a template."""
    wrong = []
    for path in MAPS:
        for values in RELEASES:
            try:
                helm(merged(values, nested(path, None)), chart=small_chart)
            except RenderError as error:
                by_schema = "schema" in str(error) and path[-1] in str(error)
                if not error.refusal and not by_schema:
                    wrong.append((".".join(path), str(error)))
    assert len(MAPS) > 60
    assert wrong == []


@pytest.mark.parametrize("helm", [render, render_helm3])
def test_switches_that_are_null_are_on(helm: Callable[[Json], object]) -> None:
    """As without a word on them."""
    for values, path in (
        (RULES, ("prometheusRule", "groups")),
        (DASHBOARDS, ("dashboards", "boards")),
    ):
        assert helm(merged(values, nested(path, None))) == helm(values)
