"""The pictures of docs/: every dashboard as Grafana's own components draw it, with real
answers.

    PYTHONPATH=tests python tests/dashboards/pictures.py [FOLDER]

A picture is reduced to 256 colours: these are plain surfaces, and a repository keeps
every version. The usual way to choose them has none left for thin lines, which would
then look alike: an octree has.
"""

import asyncio
import sys
import tempfile
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from dashboards.documents import dashboards
from dashboards.grafana import Viewing, unfolded
from dashboards.rendering import Report, look, render
from dashboards.worlds import open_world
from support.browser import Browser
from support.repository import ROOT

PICTURES = ROOT / "docs/images/dashboards"
#: Of the page, in pixels: on a laptop, as in the pictures of docs/, and on a common
#: screen.
USUAL = 1440
WIDE = 1920
HOURS = 2.0
_COLORS = 256


@dataclass(frozen=True)
class Scene:
    """A dashboard in a world."""

    world: str  # in `worlds_catalogue`
    dashboard: str  # the end of the uid
    theme: str = "light"  # light or dark
    opened: bool = False  # whether its rows have been opened
    width: int = USUAL  # of the page, in pixels

    @property
    def picture(self) -> str:
        """The name of its picture."""
        name = f"{self.dashboard}-{self.world}"
        if self.theme == "dark":
            return f"{name}-dark"
        return name


_OVERVIEWS = (
    "healthy",
    "harmful",
    "states",
    "two-clusters",
    "eleven",
    "idle",
    "no-exporter",
    "exporter-down",
    "first-minute",
)
SCENES = (
    *(Scene(world, "overview") for world in _OVERVIEWS),
    Scene("healthy", "overview", "dark"),
    *(
        Scene(world, "deep-dive")
        for world in ("healthy", "harmful", "changes", "loads", "measured", "day")
    ),
    Scene("healthy", "requests"),
    Scene("requests", "requests", opened=True),
    *(Scene(world, "lite") for world in ("healthy", "no-exporter")),
)


async def draw(
    scenes: Collection[Scene], worlds: Path, pictures: Path | None = None
) -> dict[Scene, Report]:
    """Draw scenes in one browser, with their pictures if there is a folder for them."""
    reports = {}
    async with Browser() as browser, browser.page() as page:
        for name in dict.fromkeys(scene.world for scene in scenes):
            with ExitStack() as stack:
                # In a thread, because a world is made by event loops of its own.
                world = await asyncio.to_thread(
                    stack.enter_context, open_world(name, worlds)
                )
                for scene in scenes:
                    if scene.world != name:
                        continue
                    start = max(world.start, world.end - HOURS * 3600)
                    viewing = Viewing(
                        start,
                        world.end,
                        pixels=scene.width,
                        scrape_interval=world.interval,
                    )
                    dashboard = dashboards()[scene.dashboard]
                    if scene.opened:
                        dashboard = unfolded(dashboard)
                    document = look(
                        world.prometheus, dashboard, viewing, theme=scene.theme
                    )
                    picture = pictures and pictures / f"{scene.picture}.png"
                    reports[scene] = await render(document, page, picture)
    return reports


def main() -> None:
    """Draw all scenes anew."""
    out = PICTURES
    if len(sys.argv) > 1:
        out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pictures-") as folder:
        asyncio.run(draw(SCENES, Path(folder), Path(folder)))
        for path in sorted(Path(folder).glob("*.png")):
            picture = (
                Image.open(path)
                .convert("RGB")
                .quantize(
                    _COLORS,
                    method=Image.Quantize.FASTOCTREE,
                    dither=Image.Dither.NONE,
                )
            )
            picture.save(out / path.name, optimize=True)
            print(path.name)


if __name__ == "__main__":
    main()
