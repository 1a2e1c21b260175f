"""Draw sample dashboards in one browser, and look at what was painted."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dashboards.rendering import render
from support.browser import Browser, Page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from dashboards.rendering import Document, Report


@dataclass(frozen=True)
class Drawing:
    """Draws a dashboard when called; then the page can be asked about it."""

    page: Page
    folder: Path

    async def __call__(self, given: Document) -> Report:
        return await render(given, self.folder, self.page)

    async def painted(self, colour: str, number: int = 1, *, down_to: float = 1.0) -> list[float]:
        """Return where the canvas of a time series has a colour: shares of its width, from left to right.

        Args:
            colour: such as `#ff0000`.
            number: of the panel.
            down_to: share of the height that is looked at.
        """
        found = await self.page.evaluate(f"""(() => {{
            const canvas = document.querySelector('[data-panel="{number - 1}"] .uplot canvas');
            const {{ width, height }} = canvas;
            const pixels = canvas.getContext('2d').getImageData(0, 0, width, height).data;
            const wanted = [1, 3, 5].map((i) => parseInt('{colour}'.slice(i, i + 2), 16));
            const near = (at) => wanted.every((part, i) => Math.abs(pixels[at + i] - part) < 8);
            const is = (at) => pixels[at + 3] > 200 && near(at);
            const columns = Array.from({{ length: width }}, (_, x) => x);
            const rows = Array.from({{ length: height * {down_to} }}, (_, y) => y);
            return columns.filter((x) => rows.some((y) => is(4 * (y * width + x)))).map((x) => x / width);
        }})()""")
        assert isinstance(found, list)
        return found


@contextlib.asynccontextmanager
async def drawing(folder: Path) -> AsyncIterator[Drawing]:
    """Start a browser to draw with; pictures go to `folder`."""
    async with Browser() as browser, browser.page() as page:
        yield Drawing(page, folder)
