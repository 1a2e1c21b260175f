"""Golden files: what a test expects, committed; `UPDATE_GOLDEN=1` writes them anew."""

import os
from pathlib import Path


def golden_text(path: Path, text: str) -> str:
    """Return the text of a golden file, which is `now` where golden files are written
    anew.
    """
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    return path.read_bytes().decode()
