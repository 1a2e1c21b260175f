"""The renderer of dashboards notices what a person would complain about, and fails where it cannot draw."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from dashboards.render.drawing import Drawing, drawing
from dashboards.render.samples import (
    STEP,
    line,
    matrix,
    override,
    panel,
    sample,
    table_target,
    target,
    vector,
)
from dashboards.rendering import Box, RenderingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# The first one of a fresh checkout installs packages.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def draw(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Drawing]:
    async with drawing(tmp_path_factory.mktemp("pictures")) as one:
        yield one


# --- what a person would complain about


async def test_a_dashboard_without_faults_has_no_problems(draw: Drawing) -> None:
    """Each type of panel with data and room: nothing to complain about, and a picture."""
    value, two = vector(({"name": "a"}, 1)), vector(({"name": "a"}, 1), ({"name": "b"}, 2))
    report = await draw(
        sample(
            panel("stat", {"A": value}, at=(0, 0, 6, 6)),
            panel("bargauge", {"A": two}, at=(6, 0, 6, 6)),
            panel("table", {"A": two}, at=(12, 0, 12, 6), targets=[table_target()]),
            panel("row", at=(0, 6, 24, 1), title="A row"),
            line(at=(0, 7, 12, 8)),
            panel("state-timeline", {"A": matrix(({"name": "s"}, lambda t: t // 1800))}, at=(12, 7, 12, 8)),
            panel("text", at=(0, 15, 12, 5), options={"mode": "markdown", "content": "Words"}),
            panel(
                "heatmap",
                {"A": matrix(({"le": "1"}, lambda _: 1), ({"le": "+Inf"}, lambda _: 3))},
                at=(12, 15, 12, 5),
                targets=[target(format="heatmap")],
            ),
        )
    )
    assert report.problems() == []
    assert [one.type for one in report.panels if one.empty] == []
    assert report.picture.read_bytes().startswith(b"\x89PNG")


async def test_places_are_those_of_grafanas_grid(draw: Drawing) -> None:
    """24 columns, 30 pixels a row, 8 between panels."""
    report = await draw(
        sample(
            panel("stat", at=(0, 0, 12, 4)), panel("stat", at=(12, 0, 12, 4)), panel("stat", at=(0, 4, 24, 2))
        )
    )
    left, right, below = (one.box for one in report.panels)
    assert astuple(left)[2:] == (580, 144)
    assert right == Box(left.x + 588, left.y, 580, 144)
    assert below == Box(left.x, left.y + 152, 1168, 68)


async def test_a_title_that_is_cut_off_is_noticed(draw: Drawing) -> None:
    """An ellipsis in the title, and only that."""
    title = "A title that is far too long for a panel as narrow as this"
    value = vector(({}, 1))
    report = await draw(
        sample(
            panel("stat", {"A": value}, at=(0, 0, 3, 4), title=title),
            panel("stat", {"A": value}, at=(3, 0, 12, 4), title=title),
        )
    )
    assert [one.clipped for one in report.panels] == [(title,), ()]
    assert report.problems() == [f"panel 1 ('{title}', stat) cut off: '{title}'"]


async def test_texts_that_are_cut_off_are_noticed(draw: Drawing) -> None:
    """Headers and cells of narrow columns, names of bars; what can be scrolled to is no such text."""
    name = "a-very-long-name-of-a-model/that-no-narrow-column-has-room-for"
    rows = vector(*(({"model": name, "row": f"{i}"}, i) for i in range(40)))
    narrow = override("byName", "model", custom__width=80)
    report = await draw(
        sample(
            panel(
                "table",
                {"A": rows},
                targets=[table_target()],
                overrides=[narrow, override("byName", "Time", custom__hidden=True)],
            ),
            panel(
                "bargauge",
                {"A": vector(({"name": name}, 1), ({"name": "b"}, 2))},
                at=(12, 0, 4, 8),
                options={"orientation": "horizontal"},
            ),
            panel(
                "stat",
                {"A": vector(({"name": "a"}, 1))},
                at=(16, 0, 4, 4),
                options={"text": {"valueSize": 200}},
            ),
        )
    )
    table, bars, value = report.panels
    assert table.clipped == (name,)
    assert "30" in table.scrolled
    assert bars.clipped == (name,)
    assert value.clipped == ("1",)


async def test_panels_that_overlap_or_leave_the_page_are_noticed(draw: Drawing) -> None:
    """By one cell."""
    value = vector(({}, 1))
    places = [(0, 0, 6, 4), (5, 3, 6, 4), (20, 0, 5, 4)]
    report = await draw(sample(*(panel("stat", {"A": value}, at=place) for place in places)))
    assert [(one.overlaps, one.outside) for one in report.panels] == [
        ((2,), False),
        ((1,), False),
        ((), True),
    ]
    assert len(report.problems()) == 3


@pytest.mark.parametrize("type_", ["stat", "bargauge", "table", "timeseries", "state-timeline", "heatmap"])
async def test_a_panel_without_data_says_so_and_is_noticed(draw: Drawing, type_: str) -> None:
    """It shows the text for no value, which does not count as data; nor does a word for a missing number."""
    kinds = {"table": "table", "heatmap": "heatmap"}
    more = {
        "targets": [target(format=kinds.get(type_, "time_series"))],
        "defaults": {"noValue": "nothing yet"},
    }
    report = await draw(sample(panel(type_, {"A": vector()}, **more)))
    assert report.panel(1).empty
    assert report.panel(1).text == "nothing yet"
    assert report.problems() == [f"panel 1 ('A panel', {type_}) has no data"]


async def test_a_word_for_a_missing_number_is_no_data(draw: Drawing) -> None:
    """NaN with a mapping is shown as the mapping says, and the panel is empty all the same."""
    idle = [{"type": "special", "options": {"match": "null+nan", "result": {"text": "IDLE"}}}]
    report = await draw(sample(panel("stat", {"A": vector(({}, "NaN"))}, defaults={"mappings": idle})))
    assert report.panel(1).text == "IDLE"
    assert report.panel(1).empty


async def test_points_beyond_a_fixed_axis_are_noticed(draw: Drawing) -> None:
    """Half of the line lies above the largest value of the axis."""
    whole, answers = line(lambda t: 2 if t < 1800 else 0.5)
    whole["fieldConfig"]["defaults"].update(min=0, max=1)
    report = await draw(sample((whole, answers)))
    assert report.panel(1).shown.beyond == 1800 / STEP


# --- what cannot be drawn fails


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"type_": "piechart"}, "unknown type of panel: piechart"),
        (
            {"transformations": [{"id": "joinByLabels", "options": {}}]},
            "unknown transformation: joinByLabels",
        ),
        ({"overrides": [override("byColour", "red", unit="s")]}, "unknown matcher: byColour"),
        ({"overrides": [override("byName", "a", units="s")]}, "unknown property: units"),
        ({"title": "of $nobody"}, "unknown variable: $nobody"),
        ({"targets": [target("B")]}, "no result for B"),
        ({"targets": [target(format="logs")]}, "unknown format of a query: logs"),
        ({"type_": "text", "options": {"mode": "poem"}}, "unknown mode of a text: poem"),
        ({"type_": "heatmap", "options": {"calculate": True}}, "calculates its buckets"),
        # An error while React draws, rather than before.
        ({"type_": "table", "options": {"sortBy": 5}}, "TypeError"),
    ],
)
async def test_what_cannot_be_drawn_fails(draw: Drawing, fault: dict[str, Any], said: str) -> None:
    """The error names the panel and what is wrong with it."""
    arguments = {"type_": "stat", "title": "Faulty", **fault}
    with pytest.raises(RenderingError, match="panel 1") as caught:
        await draw(sample(panel(arguments.pop("type_"), {"A": vector(({}, 1))}, **arguments)))
    assert said in str(caught.value)


async def test_what_the_page_asks_for_or_complains_about_is_a_failure(draw: Drawing) -> None:
    """A picture from somewhere else, where nobody answers."""
    content = {"mode": "markdown", "content": "![a picture](http://127.0.0.1:9/a.png)"}
    with pytest.raises(RenderingError, match="asks for http:") as caught:
        await draw(sample(panel("text", options=content)))
    assert "Failed to load resource" in str(caught.value)
