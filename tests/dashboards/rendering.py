"""Dashboards as a person sees them: drawn offline by Grafana's own components in a real
browser.

    async with Browser() as browser, browser.page() as page:
        report = await render(look(prometheus, dashboard, viewing), page)
        assert not [fault for panel in report.panels for fault in panel.faults()]

What is drawn by whom, and what only stands in for Grafana, is in render/README.md.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboards import grafana
from dashboards.documents import Json
from dashboards.grafana import Viewing
from dashboards.render.bundle import bundle
from support.browser import Page
from support.prometheus import PrometheusServer

Document = dict[str, Any]

#: Of the window, in pixels.
_HEIGHT = 900
#: How many rows of tables the page shows, and how many tables with cells.
_ROWS = "document.querySelectorAll('[role=row]').length"
_TABLES = (
    "[...document.querySelectorAll('[role=grid], [role=table]')]"
    ".filter(table => table.querySelector('[role=gridcell], [role=cell]')).length"
)
#: How often a page is looked at before its picture is taken, ten times a second.
_TRIES = 100


class RenderingError(RuntimeError):
    """A dashboard cannot be drawn: it has something unknown in it, or something failed
    in the page.
    """


@dataclass(frozen=True)
class PanelReport:
    """One panel as drawn."""

    id: int  # the panel's
    type: str  # likewise
    title: str  # with values in the place of variables
    #: `names` of what has data (columns of a table), `rows` of a table, state timeline
    #: or heatmap, `points` that are numbers, and those `beyond` a fixed end of the axis
    shown: Mapping[str, Any]
    text: str  # of the body, a line each; not what is painted on a canvas, such as axes
    clipped: Sequence[str]  # texts that are cut off, also the title
    overlaps: Sequence[int]  # ids of the panels that it lies over or under
    outside: bool  # whether it leaves the page at the side
    sideways: bool  # whether one has to scroll sideways to see all of it

    @property
    def empty(self) -> bool:
        """Whether it has no data; rows never have any."""
        return self.type != "row" and not (self.shown["points"] or self.shown["rows"])

    @property
    def lines(self) -> tuple[str, ...]:
        """The words of the body."""
        return tuple(self.text.splitlines())

    def faults(self) -> list[str]:
        """Say what is wrong with the drawing, whether there is data or not."""
        faults = [f"cut off: {text!r}" for text in self.clipped]
        faults += [f"overlaps panel {overlapped}" for overlapped in self.overlaps]
        if self.outside:
            faults.append("leaves the page")
        if self.sideways:
            faults.append("is wider than its panel")
        if beyond := self.shown["beyond"]:
            faults.append(f"{beyond} points lie beyond the axis")
        return [
            f"panel {self.id} ({self.title!r}, {self.type}) {fault}" for fault in faults
        ]


@dataclass(frozen=True)
class Report:
    """A dashboard as drawn: its panels and rows, in their order."""

    panels: tuple[PanelReport, ...]

    def panel(self, title: str) -> PanelReport:
        """Return the only panel of a title."""
        (only,) = (panel for panel in self.panels if panel.title == title)
        return only


def look(
    prometheus: PrometheusServer,
    dashboard: Json,
    viewing: Viewing,
    *,
    theme: str = "dark",
) -> Document:
    """Query a Prometheus as the dashboard does; return what the page needs."""
    variables = grafana.resolve(prometheus, dashboard, viewing)
    results: dict[str, dict[str, Any]] = {}
    steps: dict[str, dict[str, int]] = {}
    for panel in grafana.panels(dashboard):
        queries = grafana.queries(panel, viewing, variables)
        results[str(panel["id"])] = {
            ref: grafana.ask(prometheus, query, viewing)
            for ref, query in queries.items()
        }
        steps[str(panel["id"])] = {ref: query.step for ref, query in queries.items()}
    marks = {
        annotation["name"]: annotation
        for annotation in dashboard["annotations"]["list"]
    }
    return {
        "dashboard": dashboard,
        "results": results,
        "from": viewing.start,
        "to": viewing.end,
        "steps": steps,
        "theme": theme,
        "width": viewing.pixels,
        "variables": {name: variable.value for name, variable in variables.items()}
        | {"filters": ""},
        "annotations": [
            {
                "name": name,
                "iconColor": marks[name]["iconColor"],
                "step": 60_000,
                "data": data,
            }
            for name, data in grafana.annotations(
                prometheus, dashboard, viewing
            ).items()
        ],
    }


async def render(document: Document, page: Page, picture: Path | None = None) -> Report:
    """Draw a dashboard, save a picture of the whole page if one is wanted, and return
    what there is to see.

    Raises:
        RenderingError: something is unknown or fails; there is a picture all the same.
    """
    address = (await asyncio.to_thread(bundle)).as_uri()
    title = document["dashboard"]["title"]
    await page.emulate(document["width"], _HEIGHT, dark=document["theme"] == "dark")
    del page.errors[:], page.requests[:]
    # Megabytes of scripts, which take longer than the drawing.
    if await page.evaluate("location.href") != address:
        await page.open(address)
    raw = await page.evaluate(f"window.draw({json.dumps(document)})")
    errors = []
    if picture:
        rows = await page.evaluate(_ROWS)
        # The browser paints what the window shows: the whole page, then.
        await page.emulate(
            document["width"],
            max(_HEIGHT, raw["height"]),
            dark=document["theme"] == "dark",
        )
        await page.evaluate("window.settled()")
        # A busy browser leaves tables empty for a while, and again after a change of
        # the window.
        tables = sum(
            drawn["type"] == "table" and bool(drawn["shown"]["rows"])
            for drawn in raw["panels"]
        )
        for _ in range(_TRIES):
            if (
                await page.evaluate(_ROWS) >= rows
                and await page.evaluate(_TABLES) >= tables
            ):
                break
            await asyncio.sleep(0.1)
        else:
            errors.append("the picture has fewer rows than the page had")
        await page.screenshot(picture)
    names = PanelReport.__dataclass_fields__
    panels = []
    for drawn in raw["panels"]:
        title_of_panel = f"panel {drawn['id']} ({drawn['title']!r})"
        errors += [f"{title_of_panel}: {error}" for error in drawn["errors"]]
        panels.append(PanelReport(**{name: drawn[name] for name in names}))
    errors += raw["errors"] + page.errors
    errors += [
        f"asks for {url}" for url in page.requests if not url.startswith("file:")
    ]
    if errors:
        raise RenderingError(f"{title}: " + "\n".join(errors))
    return Report(tuple(panels))
