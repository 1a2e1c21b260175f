"""The renderer of dashboards notices what a person would complain about, and fails where it cannot draw.

What it draws is looked at in `test_pictures`.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from dashboards.render import bundle
from dashboards.rendering import RenderingError, document, render
from support.browser import Browser, Page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dashboards.rendering import Report

pytestmark = [
    pytest.mark.full,
    # The first one of a fresh checkout installs packages.
    pytest.mark.timeout(600),
]

END = 1_750_000_020.0
START = END - 3600
STEP = 30
KINDS = ("stat", "bargauge", "table", "timeseries", "state-timeline", "heatmap")
Panel = tuple[dict[str, Any], Any]


def vector(*values: tuple[dict[str, str], float | str]) -> Any:
    """Answer of an instant query."""
    result = [{"metric": labels, "value": [END, str(value)]} for labels, value in values]
    return {"resultType": "vector", "result": result}


def matrix(*series: tuple[dict[str, str], Callable[[int], float | None]]) -> Any:
    """Answer of a range query: for each series its value after so many seconds, None for no sample."""
    result = []
    for labels, function in series:
        values = [(after, function(after)) for after in range(0, 3601, STEP)]
        known = [[START + after, str(value)] for after, value in values if value is not None]
        result.append({"metric": labels, "values": known})
    return {"resultType": "matrix", "result": result}


def panel(kind: str, answer: Any, at: tuple[int, int, int, int], **more: Any) -> Panel:
    """A panel with one query, and the answer to it; `more` replaces keys of the panel."""
    form = {"table": "table", "heatmap": "heatmap"}.get(kind, "time_series")
    legend = "__auto" if kind == "table" else "{{name}}"
    target = {"refId": "A", "expr": "m", "legendFormat": legend, "format": form, "instant": kind == "table"}
    place = dict(zip("xywh", at, strict=True))
    return {
        "type": kind, "title": f"A {kind}", "gridPos": place, "options": {},
        "targets": [target] if answer else [], "fieldConfig": {"defaults": {}, "overrides": []}, **more,
    }, answer  # fmt: skip


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def page() -> AsyncIterator[Page]:
    async with Browser() as browser, browser.page() as one:
        yield one


async def draw(page: Page, *panels: Panel) -> Report:
    """Draw a dashboard of these panels, numbered from 1."""
    whole = {
        "uid": "sample",
        "title": "A dashboard",
        "panels": [{**body, "id": number} for number, (body, _) in enumerate(panels, 1)],
        "templating": {"list": []},
    }
    results = {number: {"A": answer} for number, (_, answer) in enumerate(panels, 1) if answer}
    return await render(document(whole, START, END, results, width=1200), page)


@pytest.mark.asyncio(loop_scope="module")
async def test_what_a_person_would_complain_about_is_noticed(page: Page) -> None:
    value = vector(({}, 1))
    title = "A title that is far too long for a panel as narrow as this"
    name = "a-very-long-name-of-a-model/that-no-narrow-column-has-room-for"
    narrow = {
        "matcher": {"id": "byName", "options": "model"},
        "properties": [{"id": "custom.width", "value": 80}],
    }
    axis = {"defaults": {"min": 0, "max": 1}, "overrides": []}
    missing = {"defaults": {"noValue": "nothing yet"}, "overrides": []}
    idle = [{"type": "special", "options": {"match": "null+nan", "result": {"text": "IDLE"}}}]
    report = await draw(
        page,
        panel("stat", value, (0, 0, 3, 4), title=title),
        panel(
            "table", vector(({"model": name}, 1)), (4, 0, 8, 4),
            fieldConfig={"defaults": {}, "overrides": [narrow]},
        ),
        panel("stat", value, (12, 0, 6, 4), title="over"),
        panel("stat", value, (17, 3, 6, 4), title="under"),
        panel("stat", value, (20, 7, 5, 4), title="beside"),
        panel(
            "timeseries", matrix(({"name": "x"}, lambda t: 2 if t < 1800 else 0.5)), (0, 7, 12, 8),
            fieldConfig=axis,
        ),
        panel(
            "stat", vector(({}, "NaN")), (12, 7, 6, 4), title="a word is no data",
            fieldConfig={"defaults": {"mappings": idle}, "overrides": []},
        ),
        *(
            panel(kind, vector(), (4 * at, 15, 4, 6), title=f"no {kind}", fieldConfig=missing)
            for at, kind in enumerate(KINDS)
        ),
    )  # fmt: skip
    assert [fault.partition(") ")[2] for one in report.panels for fault in one.faults()] == [
        f"cut off: {title!r}",
        f"cut off: {name!r}",
        "is wider than its panel",
        "overlaps panel 4",
        "overlaps panel 3",
        "leaves the page",
        f"{1800 // STEP} points lie beyond the axis",
    ]
    assert [one.title for one in report.panels if one.empty] == [
        "a word is no data",
        *(f"no {kind}" for kind in KINDS),
    ]
    assert report.panel("a word is no data").text == "IDLE"
    assert {report.panel(f"no {kind}").text for kind in KINDS} == {"nothing yet"}


@pytest.mark.asyncio(loop_scope="module")
async def test_what_cannot_be_drawn_fails(page: Page) -> None:
    """What Grafana would ignore or leave blank is an error that says what is wrong."""
    elsewhere = {"mode": "markdown", "content": "![a picture](http://127.0.0.1:9/a.png)"}
    override = {"matcher": {"id": "byName", "options": "a"}, "properties": [{"id": "units", "value": "s"}]}
    faults: list[tuple[str, dict[str, Any], str]] = [
        ("piechart", {}, "unknown type of panel: piechart"),
        ("stat", {"fieldConfig": {"defaults": {}, "overrides": [override]}}, "unknown property: units"),
        ("stat", {"title": "of $nobody"}, "unknown variable: $nobody"),
        # An error while React draws, rather than before.
        ("table", {"options": {"sortBy": 5}}, "TypeError"),
        ("text", {"options": elsewhere}, "asks for http:"),
    ]
    for kind, change, said in faults:
        with pytest.raises(RenderingError) as caught:
            await draw(page, panel(kind, vector(({}, 1)), (0, 0, 12, 8), **change))
        assert said in str(caught.value)


def test_the_page_has_the_right_types_and_pinned_packages() -> None:
    bundle.bundle()
    done = subprocess.run(
        ("npm", "run", "--silent", "check"), cwd=bundle.HERE, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    packages = json.loads((bundle.HERE / "package-lock.json").read_text("utf-8"))["packages"]
    assert len(packages) > 100
    assert [n for n, one in packages.items() if n and ("integrity" not in one or "resolved" in one)] == []
