"""The pictures of docs/: every dashboard as Grafana's own components draw it, with real answers.

    PYTHONPATH=tests python tests/dashboards/pictures.py [FOLDER] [--width PIXELS] [--every]

A picture is reduced to 128 colours: these are plain surfaces, and a repository keeps every version.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from dashboards.documents import dashboards
from dashboards.grafana import Viewing, unfolded
from dashboards.rendering import look, render
from dashboards.worlds import open_world
from support.browser import Browser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboards.rendering import Report
    from dashboards.worlds import World

PICTURES = Path(__file__).parents[2] / "docs" / "images" / "dashboards"
#: Of the page, in pixels: on a laptop, as in the pictures of docs/, and on a common screen.
USUAL, WIDE = 1440, 1920
HOURS = 2.0
_COLORS = 128


@dataclass(frozen=True)
class Scene:
    """A dashboard in a world.

    Attributes:
        world: in `worlds_catalogue`.
        dashboard: the end of the uid.
        theme: light or dark.
        opened: whether its rows have been opened.
        width: of the page, in pixels.
    """

    world: str
    dashboard: str
    theme: str = "light"
    opened: bool = False
    width: int = USUAL

    @property
    def picture(self) -> str:
        """The name of its picture."""
        dark = "-dark" if self.theme == "dark" else ""
        return f"{self.dashboard}-{self.world}{dark}"


#: In which every dashboard has to be readable.
EIGHT = (
    "healthy", "harmful", "states", "two-clusters", "idle", "no-exporter", "exporter-down", "first-minute",
)  # fmt: skip
SCENES = (
    *(Scene(world, "overview") for world in EIGHT),
    Scene("healthy", "overview", "dark"),
    *(Scene(world, "deep-dive") for world in ("healthy", "harmful", "changes", "loads", "measured", "day")),
    Scene("healthy", "requests"),
    Scene("requests", "requests", opened=True),
    Scene("healthy", "exporter"),
    Scene("exporter-down", "exporter"),
)


async def draw(world: World, wanted: Sequence[Scene], folder: Path) -> list[Report]:
    """Draw scenes of one world; the pictures are in `folder`."""
    found = []
    async with Browser() as browser, browser.page() as page:
        for scene in wanted:
            start = max(world.start, world.end - HOURS * 3600)
            viewing = Viewing(start, world.end, pixels=scene.width, scrape_interval=world.interval)
            dashboard = dashboards()[scene.dashboard]
            shown = unfolded(dashboard) if scene.opened else dashboard
            document = look(world.prometheus, shown, viewing, theme=scene.theme)
            found.append(await render(document, folder / f"{scene.picture}.png", page))
    return found


def main() -> None:
    """Draw all scenes anew."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?", default=PICTURES)
    parser.add_argument("--width", type=int, default=USUAL)
    parser.add_argument("--every", action="store_true", help="every dashboard in eight worlds")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    scenes = [*SCENES, *(Scene(world, uid) for world in EIGHT for uid in dashboards() if chosen.every)]
    scenes = [replace(scene, width=chosen.width) for scene in dict.fromkeys(scenes)]
    with tempfile.TemporaryDirectory(prefix="pictures-") as folder:
        for name in dict.fromkeys(scene.world for scene in scenes):
            with open_world(name, Path(folder)) as world:
                wanted = [scene for scene in scenes if scene.world == name]
                for report in asyncio.run(draw(world, wanted, Path(folder))):
                    picture = (
                        Image.open(report.picture).convert("RGB").quantize(_COLORS, dither=Image.Dither.NONE)
                    )
                    picture.save(chosen.folder / report.picture.name, optimize=True)
                    print(report.picture.name)


if __name__ == "__main__":
    main()
