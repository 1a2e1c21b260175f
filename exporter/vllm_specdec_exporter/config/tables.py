"""Tables of the package: TOML files beside the modules that they are of.

TOML, because a sidecar without files of its own then needs no PyYAML: a megabyte.
"""

import tomllib
from pathlib import Path
from typing import Any


def read_table(module: str, name: str) -> dict[str, Any]:
    """Return the file with this name beside a module, given by its ``__file__``."""
    # By its path: `importlib.resources` would cost every sidecar half a megabyte.
    return tomllib.loads(Path(module).with_name(name).read_text("utf-8"))
