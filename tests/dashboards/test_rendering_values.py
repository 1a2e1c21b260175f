"""Values, tables and texts are drawn as Grafana draws them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from dashboards.render.drawing import Drawing, drawing
from dashboards.render.samples import (
    END,
    PLACES,
    START,
    line,
    override,
    panel,
    sample,
    table_target,
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


async def test_values_are_written_as_grafana_writes_them(draw: Drawing) -> None:
    """Units, decimals and prefixes."""
    cases = [
        ({"unit": "percentunit"}, 0.617, "61.7%"),
        ({"unit": "percentunit", "decimals": 0}, 0.617, "62%"),
        ({"unit": "s"}, 0.0041, "4.10 ms"),
        ({"unit": "s"}, 90, "1.50 mins"),
        ({"unit": "bytes"}, 80 * 2**20, "80 MiB"),
        ({"unit": "short"}, 674_000, "674 K"),
        ({"unit": "suffix: ×", "decimals": 2}, 1.7349, "1.73 ×"),
        ({"unit": "reqps"}, 12.5, "12.5 req/s"),
        ({"unit": "none"}, 3, "3"),
        ({"unit": "currencyUSD"}, 5.5, "$5.50"),
        ({"unit": "short"}, "+Inf", "∞"),
    ]
    panels = [
        panel("stat", {"A": vector(({}, value))}, at=place, defaults=config, options={"graphMode": "none"})
        for (config, value, _), place in zip(cases, PLACES, strict=False)
    ]
    report = await draw(sample(*panels))
    assert [one.text for one in report.panels] == [text for *_, text in cases]


async def test_a_stat_shows_words_for_values(draw: Drawing) -> None:
    """By value, range and special, and names beside them; Grafana tries regular expressions on texts only."""
    mappings = [
        *words(_1="GOOD", _2="BAD"),
        {"type": "range", "options": {"from": 10, "to": 20, "result": {"text": "TEENS"}}},
        {"type": "special", "options": {"match": "null+nan", "result": {"text": "IDLE"}}},
        {"type": "regex", "options": {"pattern": "77.*", "result": {"text": "SEVENS"}}},
    ]
    values = vector(
        *(({"name": name}, value) for name, value in (("a", 1), ("b", 15), ("c", "NaN"), ("d", 777)))
    )
    shown = {"graphMode": "none"}
    both, value, name = (
        panel(
            "stat",
            {"A": values},
            at=place,
            defaults={"mappings": mappings},
            options={"textMode": mode, **shown},
        )
        for mode, place in zip(("value_and_name", "value", "name"), PLACES, strict=False)
    )
    report = await draw(sample(both, value, name))
    assert report.panel(1).lines == ("a", "GOOD", "b", "TEENS", "c", "IDLE", "d", "777")
    assert report.panel(2).lines == ("GOOD", "TEENS", "IDLE", "777")
    assert report.panel(3).lines == ("a", "b", "c", "d")
    assert report.panel(1).shown.names == ("a", "b", "d")


async def test_colours_come_from_thresholds_mappings_and_overrides(draw: Drawing) -> None:
    """The lowest threshold has no value in JSON; a mapping's colour goes before thresholds."""
    steps = [{"value": None, "color": "#111111"}, {"value": 5, "color": "#222222"}]
    mapped = [{"type": "value", "options": {"9": {"text": "nine", "color": "#333333"}}}]
    defaults = {"thresholds": {"mode": "absolute", "steps": steps}, "mappings": mapped}
    values = vector(*(({"name": name}, value) for name, value in (("a", -1), ("b", 5), ("c", 9), ("d", 1))))
    fixed = override("byName", "d", color={"mode": "fixed", "fixedColor": "#444444"})
    await draw(sample(panel("stat", {"A": values}, at=(0, 0, 24, 6), defaults=defaults, overrides=[fixed])))
    colours = await draw.page.evaluate("""[...document.querySelectorAll('[data-panel="0"] *')]
        .filter((one) => one.style.color).map((one) => one.style.color)""")
    assert [colour for i, colour in enumerate(colours) if colour not in colours[:i]] == [
        "rgb(17, 17, 17)",
        "rgb(34, 34, 34)",
        "rgb(51, 51, 51)",
        "rgb(68, 68, 68)",
    ]


async def test_overrides_apply_to_what_they_match(draw: Drawing) -> None:
    """By name, regular expression, query and type; later ones go before earlier ones."""
    answers = {"A": vector(({"name": "one"}, 1), ({"name": "two"}, 2)), "B": vector(({"name": "three"}, 3))}
    overrides = [
        override("byType", "number", unit="suffix:t"),
        override("byRegexp", "/^t/", unit="suffix:r"),
        override("byFrameRefID", "B", decimals=1),
        override("byName", "two", unit="suffix:n", displayName="second"),
    ]
    report = await draw(sample(panel("stat", answers, at=(0, 0, 24, 6), overrides=overrides)))
    assert report.panel(1).lines == ("one", "1 t", "second", "2 n", "three", "3.0 r")


async def test_a_table_shows_words_links_and_renamed_columns(draw: Drawing) -> None:
    """Queries merged by their labels; links go to the place and the variables of the row."""
    answers = {
        "A": vector(({"model": "llama", "job": "x"}, 1), ({"model": "qwen", "job": "x"}, 2)),
        "B": vector(({"model": "llama", "job": "x"}, 0.75)),
    }
    organize = {
        "excludeByName": {"Time": True},
        "renameByName": {"model": "Model", "Value #A": "Verdict", "Value #B": "Rate"},
        "indexByName": {"model": 0, "Value #A": 1, "Value #B": 2, "job": 3},
    }
    url = "/d/other?var-model=${__data.fields.Model}&${cluster:queryparam}&${__url_time_range}"
    overrides = [
        override("byName", "Verdict", mappings=words(_1="GOOD", _2="BAD")),
        override("byName", "Rate", unit="percentunit", noValue="-"),
        override("byName", "Model", links=[{"title": "Other", "url": url}]),
        override("byName", "job", custom__hidden=True),
    ]
    whole = panel(
        "table",
        answers,
        targets=[table_target("A"), table_target("B")],
        overrides=overrides,
        transformations=[{"id": "merge", "options": {}}, {"id": "organize", "options": organize}],
        options={"sortBy": [{"displayName": "Verdict", "desc": True}]},
    )
    report = await draw(sample(whole, variables={"cluster": ["a", "b"]}))
    assert report.panel(1).shown.names == ("Model", "Verdict", "Rate")
    assert report.panel(1).lines == ("Model", "Verdict", "Rate", "qwen", "BAD", "-", "llama", "GOOD", "75%")
    hrefs = await draw.page.evaluate(
        "[...document.querySelectorAll('[role=gridcell] a')].map((a) => a.getAttribute('href'))"
    )
    time = f"from={START * 1000:.0f}&to={END * 1000:.0f}"
    assert hrefs == [
        f"/d/other?var-model={model}&var-cluster=a&var-cluster=b&{time}" for model in ("qwen", "llama")
    ]


TRANSFORMED = {
    "merge": ({}, ["Time", "model", "Value #A", "Value #B"], 2),
    "organize": ({"excludeByName": {"Time": True}}, ["model", "Value #A"], 2),
    "filterFieldsByName": ({"include": {"names": ["model"]}}, ["model"], 2),
    "sortBy": ({"sort": [{"field": "model", "desc": True}]}, ["Time", "model", "Value #A"], 2),
    "joinByField": (
        {"byField": "model", "mode": "outer"},
        ["model", "Time 1", "Value #A", "Time 2", "Value #B"],
        2,
    ),
    "labelsToFields": ({}, ["Time", "Value", "model"], 1),
    "reduce": ({"reducers": ["max"]}, ["Field", "Max"], 4),
    "seriesToRows": ({}, ["Time", "Metric", "Value"], 4),
    "renameByRegex": ({"regex": "Value #(.)", "renamePattern": "Query $1"}, ["Time", "model", "Query A"], 2),
}
#: Transformations of series rather than tables.
OF_SERIES = ("labelsToFields", "seriesToRows")


async def test_transformations_are_grafanas_own(draw: Drawing) -> None:
    """Each that dashboards may use, by the columns and rows that it gives."""
    rows = vector(({"model": "a"}, 1), ({"model": "b"}, 2))
    panels = [
        panel(
            "table",
            {"A": rows, "B": rows},
            at=(0, 8 * i, 24, 8),
            targets=[(target if name in OF_SERIES else table_target)(ref) for ref in "AB"],
            transformations=[{"id": name, "options": options}],
        )
        for i, (name, (options, _, _)) in enumerate(TRANSFORMED.items())
    ]
    report = await draw(sample(*panels))
    found = {
        name: (list(one.shown.names), one.shown.rows)
        for name, one in zip(TRANSFORMED, report.panels, strict=True)
    }
    assert found == {name: (columns, rows) for name, (_, columns, rows) in TRANSFORMED.items()}


async def test_the_only_table_query_of_a_panel_has_a_column_value(draw: Drawing) -> None:
    """Grafana adds the query's letter only where there are several."""
    report = await draw(sample(panel("table", {"A": vector(({"m": "a"}, 1))}, targets=[table_target()])))
    assert report.panel(1).shown.names == ("Time", "m", "Value")


async def test_texts_are_markdown_and_harmless(draw: Drawing) -> None:
    """With variables, and without what would run scripts."""
    content = "# About $model\n\nSome *words*<img onerror='window.harmed = true' src='data:,'>"
    whole = panel("text", options={"mode": "markdown", "content": content})
    report = await draw(sample(whole, variables={"model": "llama"}))
    assert report.panel(1).lines[0] == "About llama"
    assert report.panel(1).lines[1].startswith("Some words")
    assert await draw.page.evaluate("window.harmed") is None


async def test_titles_and_heading_show_what_variables_are_set_to(draw: Drawing) -> None:
    """All, one value, several values."""
    whole = panel("stat", {"A": vector(({}, 1))}, title="$one of ${many} in [[all]]", at=(0, 0, 24, 4))
    report = await draw(sample(whole, variables={"one": "x", "many": ["y", "z"], "all": ["$__all"]}))
    assert report.panels[0].title == "x of {y,z} in All"
    assert report.heading.split("\n")[-6:] == ["One", "x", "Many", "y + z", "All", "All"]


async def test_both_themes_are_drawn(draw: Drawing) -> None:
    """Dark and light backgrounds, and a picture for each."""
    colours, pictures = [], []
    for theme in ("dark", "light"):
        report = await draw(sample(line(), theme=theme))
        colours.append(
            await draw.page.evaluate("getComputedStyle(document.querySelector('main')).backgroundColor")
        )
        pictures.append(report.picture.name)
    dark, light = (sum(json.loads(colour.replace("rgb(", "[").replace(")", "]"))) for colour in colours)
    assert dark < 100 < 700 < light
    assert pictures == ["sample-dark.png", "sample-light.png"]
