"""Every link within the repository leads to a file, and every anchor to a heading."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from docs.inventory import ROOT, pages, prose

if TYPE_CHECKING:
    from pathlib import Path

_LINK = re.compile(r"\]\(<?([^()\s<>]*(?:\([^()\s]*\)[^()\s]*)?)>?(?: \"[^\"]*\")?\)")
_SPAN = re.compile(r"(`+)(?:.(?!\1))*.?\1")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them: of equal ones, the later have numbers."""
    text = prose(page.read_text("utf-8"))
    found: set[str] = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
    for heading in _HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return frozenset(found)


def links(text: str) -> list[str]:
    """The targets of a page's links and pictures, but for those that lead elsewhere and those in code."""
    found = _LINK.findall(_SPAN.sub("``", prose(text)))
    return [target for target in found if not _ELSEWHERE.match(target)]


def broken(page: Path, target: str) -> str:
    """Return what is wrong with a link of a page, empty where nothing is."""
    name, _, anchor = unquote(target).partition("#")
    file = (page.parent / name).resolve() if name else page
    if not file.exists():
        return f"{target}: there is no such file"
    if not file.is_relative_to(ROOT):
        return f"{target}: it leads out of the repository"
    if anchor and file.suffix == ".md" and anchor not in anchors(file):
        return f"{target}: {file.name} has no such heading"
    return ""


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    found = [text for target in links(page.read_text("utf-8")) if (text := broken(page, target))]
    assert found == []


def test_links_are_found() -> None:
    """In text with code, pictures and links to elsewhere."""
    text = "[a](b.md#c) `[no](x)` ![d](e.png)\n\n[f](https://example.com) [`g`](#h)\n\n    [i](j)\n"
    assert links(text) == ["b.md#c", "e.png", "#h"]
    assert sum(len(links(page.read_text("utf-8"))) for page in pages()) > 300


def test_what_is_broken_is_told(tmp_path: Path) -> None:
    """A file, a heading, and what leads out of the repository."""
    page = ROOT / "README.md"
    assert broken(page, "docs/metrics.md") == ""
    assert "no such file" in broken(page, "docs/metric.md")
    assert "no such heading" in broken(page, "docs/metrics.md#nothing")
    assert broken(page, "docs/payoff.md#measured") == ""
    assert "leads out" in broken(page, "..")
    page = tmp_path / "page.md"
    page.write_text("# A `b`: c, d\n\n## A\n\n## A\n")
    assert anchors(page) == {"a-b-c-d", "a", "a-1"}
