"""The pictures of docs/: every dashboard as Grafana's own components draw it, with real answers.

    PYTHONPATH=tests python tests/dashboards/pictures.py [FOLDER]

A picture is reduced to 128 colours: these are plain surfaces, and a repository keeps every version.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from dashboards.documents import dashboards
from dashboards.grafana import unfolded
from dashboards.grafana_timing import Viewing
from dashboards.rendering import look, render
from dashboards.worlds import open_world
from support.browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dashboards.rendering import Report
    from dashboards.worlds import World

PICTURES = Path(__file__).parents[2] / "docs" / "images" / "dashboards"
WIDTH = 1440
HOURS = 2.0
_COLORS = 128


@dataclass(frozen=True)
class Scene:
    """A dashboard in a world.

    Attributes:
        world: in `worlds_catalogue`.
        dashboard: the end of the uid.
        theme: light or dark.
        values: of variables; the others are All.
        opened: whether the row that is folded at first has been opened.
    """

    world: str
    dashboard: str
    theme: str = "light"
    values: tuple[tuple[str, str], ...] = ()
    opened: bool = False

    @property
    def picture(self) -> str:
        """What the picture is called."""
        dark = "-dark" if self.theme == "dark" else ""
        return f"{self.dashboard}-{self.world}{dark}"


#: What dashboards are shown in besides: where a question has its answer.
MORE = (
    ("idle", "payoff"),
    ("exporter-down", "payoff"),
    ("exporter-down", "exporter"),
    ("two-clusters", "payoff"),
    ("k-change", "payoff"),
    ("bypassed", "payoff"),
    ("k-change", "acceptance"),
    ("day", "acceptance"),
    ("loads", "cost"),
    ("measured", "cost"),
    ("loads", "load"),
    ("measured", "load"),
)
#: What every dashboard is shown in.
WORLDS = ("healthy", "harmful")


def scenes() -> Iterator[Scene]:
    """Yield what is drawn: every dashboard in every usual world, and some where they have more to show."""
    for uid in dashboards():
        for world in WORLDS:
            if (uid, world) != ("compare", "healthy"):
                yield Scene(world, uid)
    sides = (("a_pod", "llama-0"), ("b_pod", "llama-2"))
    yield Scene("healthy", "compare", values=sides)
    yield Scene("healthy", "payoff", "dark")
    for world, uid in MORE:
        yield Scene(world, uid)
    yield Scene("requests", "requests", opened=True)


async def draw(world: World, wanted: Sequence[Scene], folder: Path) -> list[Report]:
    """Draw scenes of one world; the pictures are in `folder`."""
    found = []
    async with Browser() as browser, browser.page() as page:
        for scene in wanted:
            start = max(world.start, world.end - HOURS * 3600)
            values = dict(scene.values)
            viewing = Viewing(start, world.end, values, pixels=WIDTH, scrape_interval=world.interval)
            dashboard = dashboards()[scene.dashboard]
            shown = unfolded(dashboard) if scene.opened else dashboard
            document = look(world.prometheus, shown, viewing, theme=scene.theme)
            found.append(await render(document, folder / f"{scene.picture}.png", page))
    return found


def main() -> None:
    """Draw all scenes anew."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES
    out.mkdir(parents=True, exist_ok=True)
    every = list(scenes())
    with tempfile.TemporaryDirectory(prefix="pictures-") as folder:
        for name in dict.fromkeys(scene.world for scene in every):
            with open_world(name, Path(folder)) as world:
                wanted = [scene for scene in every if scene.world == name]
                for report in asyncio.run(draw(world, wanted, Path(folder))):
                    picture = (
                        Image.open(report.picture).convert("RGB").quantize(_COLORS, dither=Image.Dither.NONE)
                    )
                    picture.save(out / report.picture.name, optimize=True)
                    print(report.picture.name)


if __name__ == "__main__":
    main()
