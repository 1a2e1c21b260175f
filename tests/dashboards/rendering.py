"""Dashboards as a person sees them: drawn offline by Grafana's own components in a real browser.

    async with Browser() as browser, browser.page() as page:
        report = await render(look(prometheus, dashboard, viewing), folder, page)
        assert not report.problems()

What is drawn by whom, and what only stands in for Grafana, is in render/README.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dashboards import grafana
from dashboards.render.bundle import bundle
from support.browser import Browser, Page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from support.prometheus import PrometheusServer

Document = dict[str, Any]

#: Of the window, without Grafana's own menu at the side.
WIDTH = 1600
_HEIGHT = 900


class RenderingError(RuntimeError):
    """A dashboard cannot be drawn: it has something unknown in it, or something failed in the page."""


@dataclass(frozen=True)
class Box:
    """A rectangle on the page, in pixels."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Shown:
    """How much data a panel shows.

    Attributes:
        names: of what has data: lines, values, bars, rows of states, buckets; of all columns of a table.
        rows: of a table, a state timeline or a heatmap; of a text, 1 if it says something.
        points: values that are numbers, not the words for a missing one.
        beyond: points beyond a fixed end of the axis, which nobody sees.
    """

    names: tuple[str, ...]
    rows: int
    points: int
    beyond: int


@dataclass(frozen=True)
class PanelReport:
    """One panel as drawn.

    Attributes:
        id: the panel's.
        type: likewise.
        title: with values in the place of variables.
        box: where it is.
        shown: how much data it shows.
        text: of the body, a line each; not what is painted on a canvas, such as axes.
        clipped: texts that are cut off, also the title.
        scrolled: texts that one has to scroll to.
        overlaps: ids of the panels that it lies over or under.
        outside: whether it leaves the page at the side.
    """

    id: int
    type: str
    title: str
    box: Box
    shown: Shown
    text: str
    clipped: tuple[str, ...]
    scrolled: tuple[str, ...]
    overlaps: tuple[int, ...]
    outside: bool

    @property
    def empty(self) -> bool:
        """Whether it has no data; rows never have any."""
        return self.type != "row" and not (self.shown.points or self.shown.rows)

    @property
    def lines(self) -> tuple[str, ...]:
        """The words of the body."""
        return tuple(self.text.splitlines())

    def problems(self) -> list[str]:
        """Say what a person would complain about."""
        found = [f"cut off: {text!r}" for text in self.clipped]
        found += [f"overlaps panel {other}" for other in self.overlaps]
        if self.outside:
            found.append("leaves the page")
        if self.empty:
            found.append("has no data")
        if self.shown.beyond:
            found.append(f"{self.shown.beyond} points lie beyond the axis")
        return [f"panel {self.id} ({self.title!r}, {self.type}) {problem}" for problem in found]


@dataclass(frozen=True)
class Report:
    """A dashboard as drawn.

    Attributes:
        title: the dashboard's.
        width: of the page, in pixels.
        height: likewise.
        heading: texts of the bar above the panels, with the variables and what they are set to.
        panels: in the dashboard's order, with rows.
        picture: of the whole page.
    """

    title: str
    width: int
    height: int
    heading: str
    panels: tuple[PanelReport, ...]
    picture: Path

    def panel(self, which: int | str) -> PanelReport:
        """Return the panel of an id, or the only one of a title."""
        found = [panel for panel in self.panels if which in (panel.id, panel.title)]
        if len(found) != 1:
            msg = f"{len(found)} panels are {which!r}; there are {[panel.title for panel in self.panels]}"
            raise LookupError(msg)
        return found[0]

    def problems(self) -> list[str]:
        """Say what a person would complain about: empty, cut off, overlapping."""
        return [problem for panel in self.panels for problem in panel.problems()]


def document(
    dashboard: grafana.Json,
    start: float,
    end: float,
    results: Mapping[int, Mapping[str, Any]],
    **more: Any,
) -> Document:
    """Put together what the page needs.

    Args:
        dashboard: as Grafana stores it.
        start: Unix time at which the range begins.
        end: Unix time at which it ends.
        results: the `data` of Prometheus's answers, by the panel's id and the target's refId.
        more: `theme` (`dark` or `light`), `width`, `timeZone`, `variables` (values by name), `annotations`
            (name, iconColor, step, data), `steps` (milliseconds, as `results`).
    """
    own = {str(id_): dict(answers) for id_, answers in results.items()}
    return {
        "dashboard": dashboard,
        "from": start,
        "to": end,
        "results": own,
        "theme": "dark",
        "width": WIDTH,
        **more,
    }


def look(
    prometheus: PrometheusServer, dashboard: grafana.Json, viewing: grafana.Viewing, *, theme: str = "dark"
) -> Document:
    """Ask a Prometheus all that the dashboard asks, and put together what the page needs."""
    variables = grafana.resolve(prometheus, dashboard, viewing)
    results: dict[int, dict[str, Any]] = {}
    steps: dict[str, dict[str, int]] = {}
    for panel in grafana.panels(dashboard):
        asked = grafana.questions(panel, viewing, variables)
        results[panel["id"]] = {ref: grafana.ask(prometheus, one, viewing) for ref, one in asked.items()}
        steps[str(panel["id"])] = {ref: one.step for ref, one in asked.items()}
    events = grafana.execute_annotations(prometheus, dashboard, viewing, variables)
    asking = {one["name"]: one for one in dashboard.get("annotations", {}).get("list", ())}
    return document(
        dashboard,
        viewing.start,
        viewing.end,
        results,
        steps=steps,
        theme=theme,
        width=viewing.pixels,
        variables={name: variable.value for name, variable in variables.items()},
        annotations=[
            {
                "name": name,
                "iconColor": asking[name].get("iconColor"),
                "step": grafana.timing(viewing, {}, {"interval": asking[name].get("step")}).step,
                "data": data,
            }
            for name, data in events.items()
        ],
    )


async def render(given: Document, folder: Path, page: Page | None = None, *, name: str = "") -> Report:
    """Draw a dashboard, save a picture of it in `folder`, and return what there is to see.

    Args:
        given: of `document` or `look`.
        folder: where the picture goes.
        page: of a browser; by default one is started for this dashboard alone.
        name: of the picture, without `.png`; by default the dashboard's uid or title, and the theme.

    Raises:
        RenderingError: something is unknown or fails; there is a picture all the same.
    """
    address = (await asyncio.to_thread(bundle)).as_uri()
    title = given["dashboard"]["title"]
    uid = given["dashboard"].get("uid") or re.sub(r"[^a-z0-9]+", "-", title.lower())
    async with _page(page) as own:
        await own.emulate(given["width"], _HEIGHT, dark=given["theme"] == "dark")
        del own.errors[:], own.requests[:]
        await own.open(address)
        raw = await own.evaluate(f"window.draw({json.dumps(given)})")
        # The browser paints what the window shows: the whole page, then.
        await own.emulate(given["width"], max(_HEIGHT, raw["height"]), dark=given["theme"] == "dark")
        await own.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        picture = folder / ((name or f"{uid}-{given['theme']}") + ".png")
        await own.screenshot(picture)
        errors = [
            f"panel {one['id']} ({one['title']!r}): {error}"
            for one in raw["panels"]
            for error in one["errors"]
        ]
        errors += raw["errors"] + own.errors
        errors += [f"asks for {url}" for url in own.requests if not url.startswith("file:")]
    if errors:
        raise RenderingError(f"{title}: " + "\n".join(errors))
    return _report(raw, picture)


@contextlib.asynccontextmanager
async def _page(page: Page | None) -> AsyncIterator[Page]:
    if page is not None:
        yield page
        return
    async with Browser() as browser, browser.page() as own:
        yield own


def _report(raw: Mapping[str, Any], picture: Path) -> Report:
    panels = tuple(
        PanelReport(
            id=one["id"],
            type=one["type"],
            title=one["title"],
            box=Box(**one["box"]),
            shown=Shown(**one["shown"] | {"names": tuple(one["shown"]["names"])}),
            text=one["text"],
            clipped=tuple(one["clipped"]),
            scrolled=tuple(one["scrolled"]),
            overlaps=tuple(one["overlaps"]),
            outside=one["outside"],
        )
        for one in raw["panels"]
    )
    return Report(raw["title"], raw["width"], raw["height"], raw["heading"], panels, picture)
