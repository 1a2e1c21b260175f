"""HTML reports: one self-contained document from a title, sections, tables and plots.

Such a file is opened from a disk, mailed, attached to a ticket and printed. So everything is in it: no
script, no font, image or style from elsewhere, and a content security policy that forbids them. Text is
escaped by the status page's building blocks, which a report uses with what is here::

    page(
        "Sweep of http://vllm:8000",
        [Section("Acceptance", (figure(lines(...), "Acceptance against temperature"),))],
        subtitle=f"vllm-specdec-exporter {__version__}",
    )
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .markup import Html, element, facts, join, none, row, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"

_CSS = """
:root { color-scheme: light dark; --page: #fff; --text: #1c2128; --dim: #57606a; --line: #d5dae0; --soft: #f4f5f7; }
@media (prefers-color-scheme: dark) {
  :root { --page: #12161c; --text: #e4e9ef; --dim: #9da7b3; --line: #333b45; --soft: #1b212a; }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem clamp(0.75rem, 3vw, 2rem) 3rem; max-width: 64rem;
  background: var(--page); color: var(--text); overflow-wrap: anywhere; font-variant-numeric: tabular-nums;
  font: 0.9375rem/1.5 -apple-system, BlinkMacSystemFont, "Segoe UI", Roboto, "Noto Sans", Arial, sans-serif;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 0.2rem; }
h2 { font-size: 1.125rem; margin: 2rem 0 0.6rem; padding-top: 0.6rem; border-top: 1px solid var(--line); }
p, ul { margin: 0.4rem 0; }
ul { padding-left: 1.2rem; }
.subtitle, .note, figcaption { color: var(--dim); font-size: 0.875rem; }
.lead { font-size: 1.0625rem; font-weight: 600; margin: 0.8rem 0; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1.2rem; }
figure { margin: 0.6rem 0; break-inside: avoid; }
figcaption { margin-bottom: 0.2rem; color: var(--text); font-weight: 600; }
.plot { display: block; width: 100%; max-width: 46rem; height: auto; }
.scroll { overflow-x: auto; position: relative; margin: 0.6rem 0; }
table { border-collapse: collapse; width: 100%; font-size: 0.8125rem; }
th { text-align: left; font-weight: 400; }
thead th { color: var(--dim); vertical-align: bottom; border-bottom: 1px solid var(--line); }
th, td { padding: 0.28rem 0 0.28rem 0.8rem; overflow-wrap: normal; vertical-align: top; }
th:first-child { padding-left: 0; }
tbody tr + tr > * { border-top: 1px solid var(--soft); }
.numbers td, .numbers thead th + th { text-align: right; white-space: nowrap; }
dl { margin: 0.6rem 0; display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 15rem), 1fr));
  gap: 0.5rem 1.5rem; }
dt { color: var(--dim); font-size: 0.8125rem; }
dd { margin: 0; }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.none { color: var(--dim); }
@media print {
  :root { color-scheme: light; --page: #fff; --text: #000; --dim: #444; --line: #999; --soft: #ddd; }
  body { max-width: none; padding: 0; font-size: 9.5pt; }
  .scroll { overflow: visible; }
  table { font-size: 7.5pt; }
  .numbers td, .numbers thead th + th { white-space: normal; }
  h2 { break-after: avoid; }
  tr { break-inside: avoid; }
  .plots { grid-template-columns: 1fr 1fr; }
}
""".strip()  # noqa: E501


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a report; content that is not `Html` becomes a paragraph."""

    title: str
    content: tuple[str, ...]


def page(title: str, sections: Iterable[Section], *, subtitle: str = "", lead: Sequence[str] = ()) -> str:
    """Return the report as one HTML document.

    Args:
        title: what it reports on.
        sections: its parts, in order.
        subtitle: stands small below the title: who wrote it, and when.
        lead: the answer, in a sentence or a few; each becomes a paragraph that stands out.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="robots", content="noindex"),
        element("title", title),
        element("style", Html(_CSS)),
    )
    header = element(
        "header",
        element("h1", title),
        element("p", subtitle, class_="subtitle") if subtitle else Html(),
        *(element("p", words, class_="lead") for words in lead),
    )
    main = element("main", *(_section(section) for section in sections))
    return "<!doctype html>\n" + element("html", head, element("body", header, main), lang="en") + "\n"


def _section(section: Section) -> Html:
    content = (part if isinstance(part, Html) else element("p", part) for part in section.content)
    return element("section", element("h2", section.title), *content)


def figure(svg: Html, caption: str) -> Html:
    """Return a plot with its caption."""
    return element("figure", element("figcaption", caption), svg)


def plots(*figures: Html) -> Html:
    """Return figures side by side, where there is room."""
    return element("div", *figures, class_="plots")


def note(words: str) -> Html:
    """Return a paragraph of small print."""
    return element("p", words, class_="note")


def bullets(items: Iterable[str]) -> Html:
    """Return a list."""
    return element("ul", *(element("li", item) for item in items))


def data_table(
    heads: Sequence[str], rows: Iterable[Sequence[str | None]], *, label: str, numbers: bool = True
) -> Html:
    """Return a table; the first cell of each row heads it.

    Args:
        heads: the column heads.
        rows: the cells; ``None`` is a value that does not exist.
        label: what the table shows, for screen readers.
        numbers: whether all but the first column are numbers, to be set to the right.
    """
    lines = (
        row(cells[0] or "", [none("no value") if cell is None else cell for cell in cells[1:]])
        for cells in rows
    )
    return table(heads, lines, label=label, class_="numbers" if numbers else "words")


__all__ = [
    "Html",
    "Section",
    "bullets",
    "data_table",
    "element",
    "facts",
    "figure",
    "join",
    "note",
    "page",
    "plots",
]
