"""Every dashboard as people see it: nothing is cut off, nothing overlaps, and what is empty says why."""

from __future__ import annotations

import asyncio
import re
from itertools import groupby
from typing import TYPE_CHECKING

import pytest

from dashboards.grafana import panels
from dashboards.live import dashboards
from dashboards.pictures import PICTURES, Scene, draw, scenes
from dashboards.worlds import open_world, shared_folder

if TYPE_CHECKING:
    from pathlib import Path

    from dashboards.rendering import PanelReport, Report

WIDTHS = (1440, 1920)
#: Empty in the healthy world as well, and why.
EMPTY = {
    ("cost", "Return on speculation"): "the cost of memory is not given",
    ("load", "Latency against the baseline"): "none is recorded",
    ("payoff", "Which alerts fire?"): "none does",
    ("exporter", "Why do polls fail?"): "none does",
}
#: What the dashboard of requests shows without an exporter that tells them apart.
BY_VLLM = {
    "Data by request?",
    "Acceptance of all drafts",
    "Is all traffic observed?",
    "Length of answers",
    "Length of prompts",
    "Requests by how they end",
}
SCENES = sorted(scenes(), key=lambda scene: scene.world)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[Scene, int], Report]:
    """Every scene at every width."""
    found: dict[tuple[Scene, int], Report] = {}
    folder = tmp_path_factory.mktemp("pictures")
    for name, group in groupby(SCENES, key=lambda scene: scene.world):
        wanted = list(group)
        with open_world(name, shared_folder(tmp_path_factory)) as world:
            for width in WIDTHS:
                reports = asyncio.run(draw(world, wanted, _folder(folder, width), width))
                found.update({(scene, width): report for scene, report in zip(wanted, reports, strict=True)})
    return found


def _folder(folder: Path, width: int) -> Path:
    path = folder / str(width)
    path.mkdir(exist_ok=True)
    return path


everywhere = [
    pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.picture),
    pytest.mark.parametrize("width", WIDTHS),
    pytest.mark.timeout(600),
]


def anywhere(test: object) -> object:
    """Ask a question of every scene at every width."""
    for mark in everywhere:
        test = mark(test)
    return test


def says_why(panel: PanelReport, uid: str) -> bool:
    """Tell whether an empty panel shows the words that it has for that."""
    config = next(one for one in panels(dashboards()[uid]) if one["id"] == panel.id)
    words = config["fieldConfig"]["defaults"]["noValue"]
    return any(words in line for line in panel.lines) or words in panel.text.replace("\n", " ")


@anywhere
def test_nothing_is_cut_off_and_nothing_overlaps(
    drawn: dict[tuple[Scene, int], Report], scene: Scene, width: int
) -> None:
    panels = drawn[scene, width].panels
    assert {panel.title: panel.clipped for panel in panels if panel.clipped} == {}
    assert [panel.title for panel in panels if panel.overlaps or panel.outside] == []
    assert {panel.title: panel.shown.beyond for panel in panels if panel.shown.beyond} == {}


@anywhere
def test_a_panel_without_data_says_why(
    drawn: dict[tuple[Scene, int], Report], scene: Scene, width: int
) -> None:
    empty = [panel for panel in drawn[scene, width].panels if panel.empty]
    assert [panel.title for panel in empty if not says_why(panel, scene.dashboard)] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("uid", dashboards())
def test_where_all_is_well_no_panel_is_empty(drawn: dict[tuple[Scene, int], Report], uid: str) -> None:
    """But for what the service does not give; the dashboard of requests waits for its data, and says so."""
    scene = next(one for one in SCENES if (one.dashboard, one.world) == (uid, "healthy"))
    empty = {panel.title for panel in drawn[scene, WIDTHS[0]].panels if panel.empty}
    if uid == "requests":
        assert BY_VLLM.isdisjoint(empty)
        assert "NO: means only" in drawn[scene, WIDTHS[0]].panel("Data by request?").text
    else:
        assert {title for title in empty if (uid, title) not in EMPTY} == set()


@pytest.mark.timeout(600)
def test_with_data_by_request_no_panel_of_requests_is_empty(
    drawn: dict[tuple[Scene, int], Report],
) -> None:
    scene = next(one for one in SCENES if one.world == "requests")
    assert [panel.title for panel in drawn[scene, WIDTHS[0]].panels if panel.empty] == []


VERDICTS = {
    "healthy": "▲ BENEFICIAL",
    "harmful": "▼ HARMFUL",
    "idle": "IDLE",
    "exporter-down": "✖ EXPORTER DOWN",
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("world", VERDICTS)
def test_the_first_tile_says_the_verdict_in_words(drawn: dict[tuple[Scene, int], Report], world: str) -> None:
    scene = next(one for one in SCENES if (one.dashboard, one.world) == ("payoff", world))
    assert drawn[scene, WIDTHS[0]].panel("Does speculation pay?").lines == (VERDICTS[world],)


def test_the_page_shows_every_picture_and_no_other() -> None:
    """`make pictures` draws what the page refers to."""
    page = (PICTURES.parents[1] / "dashboards.md").read_text("utf-8")
    referred = set(re.findall(r"images/dashboards/([\w-]+)\.png", page))
    assert referred == {path.stem for path in PICTURES.glob("*.png")}
    assert referred == {scene.picture for scene in scenes()}
