"""The pictures of the status page for docs/, drawn from a real exporter."""

import asyncio
import json
import sys
import tempfile
from itertools import chain
from pathlib import Path

import yaml
from PIL import Image

from support.browser import Browser
from support.exporter import running_exporter
from support.programs import simulator

_FOLDER = Path(__file__).parents[2] / "docs" / "images"
_WIDTH = 1200
#: As much of the page as answers the question.
_HEIGHT = 1180
#: Nothing stands still before: windows, and advice that is certain.
_SECONDS = 45
_COLOURS = 128
_SERVER = {"clients": 10, "acceptance": [0.86, 0.61, 0.2, 0.28, 0.19]}
_SPECULATION = {
    "method": "eagle3",
    "model": "some/EAGLE3-head",
    "num_speculative_tokens": 5,
}


async def draw(url: str, folder: Path) -> None:
    """Write the page at `url` in both colour schemes."""
    await asyncio.sleep(_SECONDS)
    for name in ("light", "dark"):
        async with (
            Browser() as browser,
            browser.page(_WIDTH, _HEIGHT, dark=name == "dark") as page,
        ):
            await page.open(url)
            await page.screenshot(folder / f"status-{name}.png", full=False)
        with Image.open(folder / f"status-{name}.png") as picture:
            reduced = picture.convert("RGB").quantize(
                _COLOURS, dither=Image.Dither.NONE
            )
        reduced.save(folder / f"status-{name}.png", optimize=True)


def main(folder: Path) -> None:
    """Draw the pictures into a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        scenario = Path(scratch, "scenario.yaml")
        phases = [{"phase": "healthy", "seconds": 86400, **_SERVER}]
        scenario.write_text(yaml.safe_dump({"phases": phases}))
        flags = {
            "--scenario.file": str(scenario),
            "--num-speculative-tokens": "5",
            "--speed": "5",
        }
        with simulator(*chain.from_iterable(flags.items())) as url:
            options = {
                "--vllm.url": url,
                "--spec.config": json.dumps(_SPECULATION),
                "--cost.hardware": "H100",
            }
            arguments = chain.from_iterable(options.items())
            with running_exporter(*arguments, fast=False) as exporter:
                asyncio.run(draw(f"{exporter.url}/", folder))


if __name__ == "__main__":
    main(Path(*sys.argv[1:2] or [_FOLDER]))
