"""Every dashboard as people see it: nothing is cut off, nothing overlaps, and what is empty says why."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from dashboards.documents import dashboards
from dashboards.grafana import panels
from dashboards.pictures import PICTURES, Scene, draw, scenes
from dashboards.worlds import open_world, shared_folder

if TYPE_CHECKING:
    from dashboards.rendering import PanelReport, Report

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
VERDICTS = {
    "healthy": "▲ BENEFICIAL",
    "harmful": "▼ HARMFUL",
    "idle": "IDLE",
    "exporter-down": "✖ EXPORTER DOWN",
}
Drawn = dict[Scene, "Report"]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """Every scene."""
    found: Drawn = {}
    every = list(scenes())
    for name in dict.fromkeys(scene.world for scene in every):
        wanted = [scene for scene in every if scene.world == name]
        with open_world(name, shared_folder(tmp_path_factory)) as world:
            reports = asyncio.run(draw(world, wanted, tmp_path_factory.mktemp("pictures")))
            found.update(zip(wanted, reports, strict=True))
    return found


def says_why(panel: PanelReport, uid: str) -> bool:
    """Tell whether an empty panel shows the words that it has for that."""
    config = next(one for one in panels(dashboards()[uid]) if one["id"] == panel.id)
    words = config["fieldConfig"]["defaults"]["noValue"]
    return any(words in line for line in panel.lines) or words in panel.text.replace("\n", " ")


@pytest.mark.full
@pytest.mark.timeout(600)
def test_nothing_is_cut_off_nothing_overlaps_and_what_is_empty_says_why(drawn: Drawn) -> None:
    wrong = [
        f"{scene.picture}: {words}"
        for scene, report in drawn.items()
        for panel in report.panels
        for words in (
            *panel.faults(),
            *([f"{panel.title} is empty"] if panel.empty and not says_why(panel, scene.dashboard) else []),
        )
    ]
    assert wrong == []


@pytest.mark.full
@pytest.mark.timeout(600)
def test_where_all_is_well_no_panel_is_empty(drawn: Drawn) -> None:
    """But for what the service does not give; the dashboard of requests waits for its data, and says so."""
    empty = {
        (scene.dashboard, panel.title)
        for scene, report in drawn.items()
        for panel in report.panels
        if panel.empty and scene.world == ("requests" if scene.dashboard == "requests" else "healthy")
    }
    assert empty == set(EMPTY)
    waiting = drawn[Scene("healthy", "requests")]
    assert BY_VLLM.isdisjoint({panel.title for panel in waiting.panels if panel.empty})
    assert "NO: means only" in waiting.panel("Data by request?").text


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_first_tile_says_the_verdict_in_words(drawn: Drawn) -> None:
    for world, verdict in VERDICTS.items():
        panel = drawn[Scene(world, "payoff")].panel("Does speculation pay?")
        assert panel.lines == (verdict,), world


def test_the_page_shows_every_picture_and_no_other() -> None:
    """`make pictures` draws what the page refers to."""
    page = (PICTURES.parents[1] / "dashboards.md").read_text("utf-8")
    referred = set(re.findall(r"images/dashboards/([\w-]+)\.png", page))
    assert referred == {path.stem for path in PICTURES.glob("*.png")}
    assert referred == {scene.picture for scene in scenes()}
