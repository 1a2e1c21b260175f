"""Every dashboard as people see it: nothing is cut off, nothing overlaps, and what is
empty says why.
"""

import asyncio
import re
from dataclasses import replace

import pytest

from dashboards.documents import dashboards
from dashboards.grafana import panels
from dashboards.pictures import PICTURES, SCENES, WIDE, Scene, draw
from dashboards.rendering import PanelReport, Report
from dashboards.worlds import shared_folder

#: Empty where all is well, and why.
EMPTY = {
    ("overview", "What is missing"): "nothing is",
    ("overview", "Firing alerts"): "none fires",
}
#: Pictures that differ from others in data alone, which nothing here would notice.
LIKE_OTHERS = {
    ("day", "deep-dive"),
    ("measured", "deep-dive"),
    ("two-clusters", "overview"),
}
#: One of each dashboard, drawn on a wide screen instead of the usual one.
ON_WIDE = {
    ("idle", "overview"),
    ("loads", "deep-dive"),
    ("healthy", "requests"),
    ("healthy", "lite"),
}
#: Drawn with its rows opened: of an exporter that is down.
OPENED = Scene("exporter-down", "overview", opened=True)
Drawn = dict[Scene, "Report"]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """Every scene but for those like others; a dark one differs in colours alone."""
    every = []
    for scene in SCENES:
        key = (scene.world, scene.dashboard)
        width = WIDE if key in ON_WIDE else scene.width
        opened = scene.opened or replace(scene, opened=True) == OPENED
        if key not in LIKE_OTHERS and scene.theme == "light":
            every.append(replace(scene, width=width, opened=opened))
    return asyncio.run(draw(every, shared_folder(tmp_path_factory)))


def says_why(panel: PanelReport, uid: str) -> bool:
    """Tell whether an empty panel shows the words that it has for that."""
    config = next(
        panel_of_board
        for panel_of_board in panels(dashboards()[uid])
        if panel_of_board["id"] == panel.id
    )
    return config["fieldConfig"]["defaults"]["noValue"] in panel.text.replace("\n", " ")


@pytest.mark.full
@pytest.mark.timeout(600)
def test_nothing_is_cut_off_nothing_overlaps_and_what_is_empty_says_why(
    drawn: Drawn,
) -> None:
    for scene, report in drawn.items():
        for panel in report.panels:
            assert panel.faults() == [], (scene, panel.title)
            if panel.empty:
                assert says_why(panel, scene.dashboard), (scene, panel.title)


@pytest.mark.full
def test_where_all_is_well_no_panel_is_empty(drawn: Drawn) -> None:
    """But for what the service does not give."""
    empty = set()
    for scene, report in drawn.items():
        # Only there are requests observed.
        well = "requests" if scene.dashboard == "requests" else "healthy"
        if scene.world == well:
            for panel in report.panels:
                if panel.empty:
                    empty.add((scene.dashboard, panel.title))
    assert empty == set(EMPTY)


@pytest.mark.full
def test_words_are_read_as_words(drawn: Drawn) -> None:
    """The count of a verdict, a row of a model, and what to do without an exporter."""
    states = drawn[Scene("states", "overview")].panel("Models by verdict")
    # From bad to good, as in the table below.
    assert states.lines[::2] == (
        "✖ EXPORTER DOWN",
        "✖ vLLM DOWN",
        "▼ HARMFUL",
        "▼ LIKELY HARMFUL",
        "BYPASSED",
        "▲ BENEFICIAL",
        "NO VERDICT",
    )
    harmful, nothing = (
        drawn[Scene(world, "overview")] for world in ("harmful", "no-exporter")
    )
    assert harmful.panel("Models by verdict").lines == ("▼ HARMFUL", "1")
    assert harmful.panel("Engine-hours won or lost, 24 h").lines[0] == "lost"
    assert "limit: harmful below" in harmful.panel("Speedup").lines
    severities = [
        line
        for line in harmful.panel("Firing alerts").lines
        if line in ("critical", "warning")
    ]
    assert severities == sorted(severities)
    assert len(severities) > 2
    row = "\n".join(harmful.panel("Models").lines)
    assert re.search(
        r"(?m)^▼ HARMFUL 0\.\d+–0\.\d+, calibrated\nswitch off \(\+\d\d %, est\.\)$",
        row,
    )
    ended = drawn[OPENED].panel("Speedup").lines
    assert (
        ended[ended.index("eu-1 chat meta-llama/Llama-3.3-70B-Instruct") + 1] == "-"
    ), "no last value"
    assert "NO EXPORTER" in nothing.panel("Models").lines
    assert nothing.panel("Engine-hours won or lost, 24 h").lines == (
        "needs the exporter",
    )
    down = drawn[OPENED]
    assert down.panel("Thresholds in force").lines[-1] == "no exporter answers"
    assert (
        "No exporter: let Prometheus scrape port 9850."
        in nothing.panel("What is missing").lines
    )


def test_the_page_shows_every_picture_and_no_other() -> None:
    """`make pictures` draws what the page refers to."""
    page = (PICTURES.parents[1] / "dashboards.md").read_text("utf-8")
    referred = set(re.findall(r"images/dashboards/([\w-]+)\.png", page))
    assert referred == {path.stem for path in PICTURES.glob("*.png")}
    assert referred == {scene.picture for scene in SCENES}
