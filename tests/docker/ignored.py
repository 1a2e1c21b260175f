"""What .dockerignore leaves in the build context, by Docker's rules: the last match decides."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from docker.dockerfile import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def _expression(pattern: str) -> re.Pattern[str]:
    """Return what a pattern matches: itself, and everything below it."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern.strip("/"))
    meanings = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meanings.get(part, re.escape(part)) for part in parts) + "(?:/.*)?")


def in_context(path: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a path, relative to the context, is sent to the builder."""
    ignored = False
    for pattern in patterns:
        keeps = pattern.startswith("!")
        if _expression(pattern.removeprefix("!")).fullmatch(path):
            ignored = not keeps
    return not ignored


def patterns() -> tuple[str, ...]:
    """Return the patterns of the committed file."""
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    return tuple(line for line in lines if line.strip() and not line.startswith("#"))


def files() -> Iterator[Path]:
    """Yield what is in the repository or would be committed: not what .gitignore names."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    yield from (ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())
