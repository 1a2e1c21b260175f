"""Series, states and buckets are drawn as Grafana draws them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from dashboards.render.drawing import Drawing, drawing
from dashboards.render.samples import (
    PLACES,
    RED,
    STEP,
    line,
    matrix,
    override,
    panel,
    sample,
    target,
    vector,
    words,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# The first one of a fresh checkout installs packages.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def draw(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Drawing]:
    async with drawing(tmp_path_factory.mktemp("pictures")) as one:
        yield one


async def test_series_are_named_as_the_data_source_names_them(draw: Drawing) -> None:
    """A label that is absent is empty; without a legend it is the series; `__auto` says what differs."""
    legends = ["{{job}} {{pod}}x", "", "__auto"]
    both = vector(({"job": "a"}, 1), ({"job": "b"}, 2))
    report = await draw(
        sample(
            *(
                panel("stat", {"A": both}, at=place, targets=[target(legend=legend)])
                for legend, place in zip(legends, PLACES, strict=False)
            ),
            panel("stat", {"A": vector(({}, 1))}, at=(0, 4, 6, 4), targets=[target(legend="__auto")]),
        )
    )
    assert [one.shown.names for one in report.panels] == [
        ("a x", "b x"),
        ('{job="a"}', '{job="b"}'),
        ("a", "b"),
        ("some_metric",),
    ]


async def test_a_line_is_as_long_as_its_data_and_has_gaps(draw: Drawing) -> None:
    """Where scrapes are missing in all series, there is no line."""
    whole, answers = line(lambda t: None if 1200 < t < 2400 else 0.5)
    answers["A"]["result"] += answers["A"]["result"]
    report = await draw(sample((whole, answers)))
    columns = await draw.painted(RED)
    assert max(b - a for a, b in pairwise(columns)) == pytest.approx(0.31, abs=0.03)
    assert max(columns) > 0.97
    assert report.panel(1).shown.points == 2 * (3601 // STEP + 1 - 39)


async def test_a_line_can_be_dashed_and_hidden(draw: Drawing) -> None:
    """By an override of a custom property or of a part of it, for the one series that it names."""
    answers = {"A": matrix(({"name": "line"}, lambda _: 1), ({"name": "limit"}, lambda _: 0.5))}
    defaults = {"color": {"mode": "fixed", "fixedColor": "#00ff00"}, "custom": {"lineWidth": 2}}
    red = {"color": {"mode": "fixed", "fixedColor": RED}}
    dash = override("byName", "limit", custom__lineStyle={"fill": "dash", "dash": [10, 10]}, **red)
    hide = override("byName", "limit", custom__hideFrom__viz=True, **red)
    report = await draw(
        sample(
            panel("timeseries", answers, defaults=defaults, overrides=[dash]),
            panel("timeseries", answers, at=(12, 0, 12, 8), defaults=defaults, overrides=[hide]),
        )
    )
    assert await draw.painted("#00ff00", 2)
    solid, dashed = await draw.painted("#00ff00"), await draw.painted(RED)
    assert 0.3 < len(dashed) / len(solid) < 0.7
    assert await draw.painted(RED, 2) == []
    assert report.panel(1).lines == ("line", "limit")
    assert report.panel(2).shown.names == ("line",)


async def test_a_legend_can_be_a_table_of_figures(draw: Drawing) -> None:
    """Last and mean, formatted as the axis is."""
    legend = {
        "displayMode": "table",
        "placement": "bottom",
        "calcs": ["lastNotNull", "mean"],
        "showLegend": True,
    }
    whole, answers = line(lambda t: 1 if t == 3600 else 0.5, options={"legend": legend})
    whole["fieldConfig"]["defaults"].update(unit="percentunit", decimals=0)
    report = await draw(sample((whole, answers)))
    assert report.panel(1).lines == ("Name", "Last *", "Mean", "line", "100%", "50%")


async def test_annotations_are_drawn_where_they_happen(draw: Drawing) -> None:
    """A line at a quarter, and a veil from the half to three quarters, with a line at both ends."""
    happened = matrix(({}, lambda t: 1 if t == 900 or 1800 <= t <= 2700 else None))
    whole, answers = line()
    whole["fieldConfig"]["defaults"]["color"]["fixedColor"] = "#00ff00"
    given = sample(
        (whole, answers), annotations=[{"name": "Events", "iconColor": RED, "step": 30_000, "data": happened}]
    )
    report = await draw(given)
    # The upper half has the lines alone, and not the mark below the axis.
    columns = await draw.painted(RED, down_to=0.5)
    lines = [b for a, b in pairwise([0.0, *columns]) if b - a > 0.005]
    left, width = 0.065, 0.92
    assert lines == pytest.approx([left + width * share for share in (0.25, 0.5, 0.75)], abs=0.02)
    assert "Events" in report.heading


async def test_a_state_timeline_shows_words_and_merges_them(draw: Drawing) -> None:
    """Equal states that follow each other are one; a gap ends a state; the legend has each state once."""
    mappings = words(_0="IDLE", _1="BUSY")
    state = matrix(({"name": "engine"}, lambda t: None if 2400 < t < 3000 else float(t >= 1200)))
    report = await draw(
        sample(
            panel("state-timeline", {"A": state}, at=(0, 0, 24, 8), defaults={"mappings": mappings}),
            panel("state-timeline", {"A": state}, at=(0, 8, 24, 8), options={"mergeValues": False}),
        )
    )
    assert report.panel(1).lines[:4] == ("engine", "IDLE", "BUSY", "BUSY")
    assert report.panel(1).lines[-2:] == ("IDLE", "BUSY")
    assert report.panel(1).shown.points == 3
    assert report.panel(2).shown.points > 90


async def test_a_heatmap_shows_each_bucket_by_itself(draw: Drawing) -> None:
    """Buckets in the order of their bounds, whatever the order of the answer, and no longer cumulative."""
    buckets = [("+Inf", 30), ("10", 30), ("2", 10)]
    answer = matrix(*(({"le": le}, lambda _, count=count: count) for le, count in buckets))
    whole = panel("heatmap", {"A": answer}, targets=[target(format="heatmap")])
    report = await draw(sample(whole))
    samples = 3600 // STEP + 1
    assert report.panel(1).shown.names == ("2", "10")
    assert report.panel(1).shown.points == 2 * samples
    assert report.panel(1).lines[:3] == ("2", "10", "+Inf")
    # The lower bucket has 10, the upper one 20: the ends of the colour scale.
    assert report.panel(1).lines[-2:] == ("10", "20")
    fills = await draw.page.evaluate("""[...document.querySelectorAll('[data-panel="0"] g > rect[height]')]
        .slice(0, -64).map((one) => one.getAttribute('fill').match(/\\d+/g).map(Number))""")
    assert len({tuple(fill) for fill in fills}) == 2
    # In the dark theme the larger number is the lighter colour.
    assert sum(fills[-1]) > sum(fills[0])
