"""Reads a page back, strictly: what is not well-formed is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"link", "meta", "rect"}
_UNSEEN = {"script", "style", "title"}


@dataclass
class Element:
    """An element with its attributes and content."""

    tag: str
    attributes: dict[str, str]
    content: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text within, with spaces collapsed, without what is there for screen
        readers alone.
        """
        return re.sub(r"\s+", " ", " ".join(self._visible())).strip()

    def all(self, tag: str = "", **attributes: str) -> list[Element]:
        """Return the elements within that have this tag and these attributes; `class_`
        is one class.
        """
        matching = []
        for child in self.content:
            if isinstance(child, Element):
                if child.matches(tag, attributes):
                    matching.append(child)
                matching += child.all(tag, **attributes)
        return matching

    def one(self, tag: str = "", **attributes: str) -> Element:
        """Return the only such element within."""
        matching = self.all(tag, **attributes)
        assert len(matching) == 1, f"{len(matching)} of {tag} {attributes}"
        return matching[0]

    def values(self, name: str, tag: str = "", **attributes: str) -> list[str]:
        """Return the values of an attribute of the elements within that have it."""
        elements = self.all(tag, **attributes)
        return [e.attributes[name] for e in elements if name in e.attributes]

    def texts(self) -> list[str]:
        """Return the text of each element directly within, as of each cell of a row."""
        return [child.text for child in self.content if isinstance(child, Element)]

    def matches(self, tag: str, attributes: dict[str, str]) -> bool:
        """Whether this element has this tag and these attributes."""
        classes = self.attributes.get("class", "").split()
        return tag in ("", self.tag) and all(
            value in classes if key == "class_" else self.attributes.get(key) == value
            for key, value in attributes.items()
        )

    def _visible(self) -> Iterator[str]:
        if self.tag in _UNSEEN or "hidden" in self.attributes.get("class", "").split():
            return
        for child in self.content:
            if isinstance(child, Element):
                yield from child._visible()
            else:
                yield child


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [key for key, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, {key: value or "" for key, value in attrs})
        self.open[-1].content.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag == "rect", f"<{tag}/> closes itself outside of SVG"
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        # Blanks between elements are the layout of the template.
        if data.strip():
            self.open[-1].content.append(data)


def read(page: str) -> Element:
    """Return the page's root, whose content is the `html` element."""
    assert page.startswith("<!doctype html>\n")
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == [reader.root], (
        f"not closed: {[e.tag for e in reader.open[1:]]}"
    )
    return reader.root


#: What stands before the text of an element on its line.
_MARKS = {
    "title": "title: ",
    "h1": "# ",
    "h2": "## ",
    "h3": "### ",
    "h4": "#### ",
    "summary": "",
    "tr": "",
}


def lines(root: Element) -> Iterator[str]:
    """Yield the text of a page, a line for each heading, paragraph, tile and row of a
    table.
    """
    for child in root.content:
        if isinstance(child, str):
            if child.strip() and root.tag not in ("script", "style"):
                yield child.strip()
        elif child.tag == "tr":
            yield " | ".join(child.texts())
        elif child.tag in (*_MARKS, "p", "li") or _is_tile(child):
            yield _MARKS.get(child.tag, "  ") + (child.text or str(child.content[0]))
        else:
            yield from lines(child)


def _is_tile(element: Element) -> bool:
    return any(getattr(child, "tag", "") == "dt" for child in element.content)
