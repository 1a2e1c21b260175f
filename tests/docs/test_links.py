"""Every link within the repository leads to a file, and every anchor to a heading."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from docs.inventory import pages, prose
from support.repository import ROOT, text_of

_LINK = re.compile(r"\]\(<?([^()\s<>]*(?:\([^()\s]*\)[^()\s]*)?)>?(?: \"[^\"]*\")?\)")
_SPAN = re.compile(r"(`+)(?:.(?!\1))*.?\1")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_HEADING = re.compile(r"(?m)^#{1,6} +(.*?) *#*$")


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them: of equal ones, the later
    have numbers.
    """
    text = prose(page.read_text("utf-8"))
    names = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
    for heading in _HEADING.findall(text):
        plain = (
            re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        )
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        name = slug
        number = 0
        while name in names:
            number += 1
            name = f"{slug}-{number}"
        names.add(name)
    return frozenset(names)


def links(text: str) -> list[str]:
    """The targets of a page's links and pictures, but for those that lead elsewhere and
    those in code.
    """
    targets = _LINK.findall(_SPAN.sub("``", prose(text)))
    return [target for target in targets if not _ELSEWHERE.match(target)]


def broken(page: Path, target: str) -> str:
    """Return what is wrong with a link of a page, empty where nothing is."""
    name, _, anchor = unquote(target).partition("#")
    file = page
    if name:
        file = (page.parent / name).resolve()
    if not file.exists():
        return f"{target}: there is no such file"
    if not file.is_relative_to(ROOT):
        return f"{target}: it leads out of the repository"
    if anchor and file.suffix == ".md" and anchor not in anchors(file):
        return f"{target}: {file.name} has no such heading"
    return ""


LINKS = [(page, target) for page in pages() for target in links(text_of(page))]


def test_links_lead_somewhere() -> None:
    """Of every page, to files and headings."""
    complaints = [(str(page), broken(page, target)) for page, target in LINKS]
    assert [each for each in complaints if each[1]] == []
    assert len(LINKS) > 300


def test_what_is_broken_is_found() -> None:
    readme = ROOT / "README.md"
    assert broken(readme, "docs/payoff.md#measured") == ""
    assert "no such file" in broken(readme, "docs/metric.md")
    assert "no such heading" in broken(readme, "docs/reference/metrics.md#nothing")
    assert "leads out" in broken(readme, "..")
