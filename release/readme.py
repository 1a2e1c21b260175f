"""The README as the page at the package index, where links into the repository have to
be whole addresses.

The build backend calls it; nobody else does.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: A link or a picture of a file: what stands before its path, and the path.
_LINK = re.compile(
    r"(?P<label>(?P<picture>!?)\[[^\]]*\]\()(?![a-z]+:|#)(?P<path>[^)]+)"
)


class Readme(MetadataHookInterface):
    """Fills in the metadata's `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Link to the files as they are at the release's tag."""
        page = metadata["urls"]["Repository"]
        tag = f"v{metadata['version']}"

        def absolute(link: re.Match[str]) -> str:
            kind = "raw" if link["picture"] else "blob"
            return f"{link['label']}{page}/{kind}/{tag}/{link['path']}"

        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": _LINK.sub(absolute, text),
        }
