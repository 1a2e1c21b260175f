"""Write the version wherever a file repeats it, or check that all of them say the same.

    python release/version.py [--check]

The version is `__version__` of the package. What the package and its build compute from it is not here: only
texts that people and tools read as they are, such as the tag of the image in manifests and documents.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_specdec_exporter import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]

#: Releases only: what is a version for Python, for charts and for image tags alike.
VERSION = r"\d+\.\d+\.\d+"

_DOCUMENTS = ("README.md", "alerts/**/*.md", "dashboards/**/*.md", "docs/**/*.md", "helm/**/*.md")
_MANIFESTS = ("docker-compose.yml", "docs/**/*.y*ml", "helm/**/*.y*ml")


@dataclass(frozen=True)
class Place:
    """A text that repeats the version.

    Attributes:
        before: a regular expression of what stands before the version.
        files: glob patterns of the files that may have it.
    """

    before: str
    files: tuple[str, ...]

    @property
    def pattern(self) -> re.Pattern[str]:
        """What stands before, and the version as the group `version`."""
        return re.compile(rf"(?<![\w.-]){self.before}(?P<version>{VERSION})(?![\w.])", re.MULTILINE)


PLACES = (
    Place(r"(?:registry\.example\.com/(?:\w+/)?)?vllm-specdec-exporter:", _DOCUMENTS + _MANIFESTS),
    Place(r"dist/vllm_specdec_exporter-", _DOCUMENTS),
    Place(r"VERSION(?:=|: )", _DOCUMENTS + _MANIFESTS),
    Place(
        r"name: registry\.example\.com/vllm-specdec-exporter\n(?: +newName: .*\n)? +newTag: ",
        _DOCUMENTS + _MANIFESTS,
    ),
    Place(r"name: vllm-specdec-exporter\n +version: ", _DOCUMENTS),
    Place(r"^(?:appV|v)ersion: ", ("helm/vllm-specdec-exporter/Chart.yaml",)),
    Place(
        r'define "vllm-specdec-exporter\.version" -}}\n', ("helm/vllm-specdec-exporter/templates/_names.tpl",)
    ),
)


def files(patterns: tuple[str, ...]) -> list[Path]:
    """Return the files of the repository, without those of installed packages."""
    found = {path for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(path for path in found if "node_modules" not in path.parts)


def written(text: str, place: Place, version: str) -> str:
    """Return a text in which the place says this version."""

    def replace(found: re.Match[str]) -> str:
        start = found.start("version") - found.start()
        end = found.end("version") - found.start()
        return found[0][:start] + version + found[0][end:]

    return place.pattern.sub(replace, text)


def wanted(version: str) -> Iterator[tuple[Path, str, str]]:
    """Yield the files that repeat the version: path, text as it is, text as it should be.

    Raises:
        LookupError: no file has a place, so the place is described wrongly.
    """
    texts: dict[Path, tuple[str, str]] = {}
    for place in PLACES:
        having = []
        for path in files(place.files):
            before, after = texts.get(path) or (path.read_text("utf-8"),) * 2
            if place.pattern.search(after):
                having.append(path)
                texts[path] = before, written(after, place, version)
        if not having:
            msg = f"no file says {place.before!r} and a version"
            raise LookupError(msg)
    for path, (before, after) in sorted(texts.items()):
        yield path, before, after


def main() -> int:
    """Write or check the files; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file says another")
    args = parser.parse_args()
    if not re.fullmatch(VERSION, __version__):
        sys.stderr.write(f"error: __version__ is {__version__!r}, and not three numbers as in 1.2.3\n")
        return 1
    stale = [(path, after) for path, before, after in wanted(__version__) if before != after]
    names = ", ".join(str(path.relative_to(ROOT)) for path, _ in stale)
    if args.check and stale:
        sys.stderr.write(f"another version than {__version__}: {names}; run `make generate`\n")
        return 1
    for path, after in stale:
        path.write_text(after, encoding="utf-8")
    if stale:
        sys.stdout.write(f"written: {names}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
