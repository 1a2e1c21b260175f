"""HTML: elements, formatted numbers, bars, tables and sections for the status page; the
page of a report.

`element` escapes all text that is not `Html` already, so no page can forget to.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from markupsafe import Markup, escape

#: Text that is HTML already.
Html = Markup

_UNITS = (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1))
_VOID = frozenset({"link", "meta", "rect"})
#: Control characters and lone surrogates, which HTML does not allow.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def text(value: str) -> Html:
    """Return `value` escaped, for the content of an element or an attribute in quotes."""
    if isinstance(value, Html):
        return value
    return escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", value))


def join(*parts: str) -> Html:
    """Return the concatenated `parts`, each escaped unless it is HTML."""
    return Html("").join(map(text, parts))


def element(name: str, /, *children: str, **attributes: str) -> Html:
    """Return an element; empty attributes are left out, and what is not `Html` is
    escaped.

    A trailing underscore of an attribute is dropped (``class_``), other underscores
    become dashes.
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value
    )
    if name in _VOID:
        return Html(f"<{name}{shown}>" if name != "rect" else f"<{name}{shown}/>")
    return Html(f"<{name}{shown}>{join(*children)}</{name}>")


def name(value: str) -> Html:
    """Return a name from outside, isolated so that right-to-left characters do not
    affect the text around.
    """
    return element("bdi", value)


def hidden(value: str) -> Html:
    """Return text for screen readers only."""
    return element("span", value, class_="hidden")


def note(words: str) -> Html:
    """Return a paragraph of small print."""
    return element("p", words, class_="note")


def none(why: str) -> Html:
    """Return a dash for a missing value, with the reason as its tooltip."""
    dash = element("span", "–", aria_hidden="true")
    return element("span", dash, hidden(f"none: {why}"), class_="none", title=why)


def or_none(value: float | None, form: Callable[[float], str], why: str) -> str:
    """Return a formatted value, or a dash with the reason why it is missing."""
    if value is None:
        return none(why)
    return form(value)


def percent(ratio: float) -> str:
    """Return a ratio with one decimal: ``48.3%``."""
    return f"{ratio:.1%}"


def length(tokens: float) -> str:
    """Return a number of tokens per draft: ``2.94``."""
    return f"{tokens:.2f}"


def times(speedup: float) -> str:
    """Return a ratio of speeds or times: ``1.96×``."""
    return f"{speedup:.2f}×"


def count(number: float) -> str:
    """Return a whole number with thousands separators: ``12,345``."""
    return f"{number:,.0f}"


def counts(numbers: Mapping[str, int]) -> str:
    """Return the numbers above 0 with their names:

    ``timeout 2, refused 1``; empty if there are none.
    """
    return ", ".join(
        f"{key} {count(number)}" for key, number in numbers.items() if number
    )


def rate(per_second: float) -> str:
    """Return a rate with three significant digits:

    ``0.125``, ``12.5``, ``1,250``, ``1.25M``.
    """
    if per_second <= 0:
        return "0"
    if per_second < 0.0005:
        return "< 0.001"
    rounded = float(f"{per_second:.2e}")
    if rounded >= 1e6:
        return f"{rounded / 1e6:,.{max(0, 8 - math.floor(math.log10(rounded)))}f}M"
    decimals = max(0, 2 - math.floor(math.log10(rounded)))
    return f"{rounded:,.{min(decimals, 4)}f}"


def duration(seconds: float) -> str:
    """Return a time span in at most two units:

    ``12 ms``, ``2.1 s``, ``3 min 20 s``, ``2 h 5 min``.
    """
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    for unit, size, smaller, part in _UNITS:
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError


def moment(timestamp: float, now: float) -> Html:
    """Return a point in time (UTC), with its date unless it is today."""
    try:
        then = datetime.fromtimestamp(timestamp, UTC)
        today = datetime.fromtimestamp(now, UTC)
    except (OverflowError, ValueError, OSError):
        return none("not a time")
    shown = then.strftime(
        "%H:%M:%S UTC" if then.date() == today.date() else "%Y-%m-%d %H:%M:%S UTC"
    )
    return element("time", shown, datetime=then.strftime("%Y-%m-%dT%H:%M:%SZ"))


def bar(share: float) -> Html:
    """Return a bar filled to `share`, 0 to 1.

    Screen readers skip it: it repeats the text beside it.
    """
    width = f"{100 * min(max(share, 0.0), 1.0):.2f}%"
    track = element("rect", class_="track", width="100%", height="100%")
    # An attribute of SVG, because a strict content security policy forbids style
    # attributes.
    fill = element("rect", class_="fill", width=width, height="100%")
    return element(
        "svg", track, fill, class_="bar", aria_hidden="true", focusable="false"
    )


def gauge(share: float | None, shown: str = "", why: str = "") -> Html:
    """Return a bar with its value beside it, by default in percent, or a dash with the
    reason.
    """
    if share is None:
        return element("div", element("span"), none(why), class_="gauge")
    value = element("span", shown or percent(share), class_="value")
    return element("div", bar(share), value, class_="gauge")


def pill(kind: str, words: str) -> Html:
    """Return a state as a word with a coloured mark; `kind` selects the colour."""
    return element("span", words, class_=f"pill {kind}")


def row(head: str, cells: Iterable[str], class_: str = "") -> Html:
    """Return a table row with a head cell."""
    return element(
        "tr",
        element("th", head, scope="row"),
        *(element("td", cell) for cell in cells),
        class_=class_,
    )


def table(
    heads: Sequence[str], rows: Iterable[Html], *, label: str, class_: str = ""
) -> Html:
    """Return a table that scrolls sideways if it is wider than the screen; `label` is
    for screen readers.
    """
    head = element(
        "thead", element("tr", *(element("th", cell, scope="col") for cell in heads))
    )
    whole = element("table", head, element("tbody", *rows), class_=class_)
    # Keyboards can scroll only what has the focus.
    return element(
        "div", whole, class_="scroll", role="region", aria_label=label, tabindex="0"
    )


def facts(pairs: Iterable[tuple[str, str]], class_: str = "facts") -> Html:
    """Return names with their values as a description list."""
    groups = (
        element("div", element("dt", key), element("dd", value)) for key, value in pairs
    )
    return element("dl", *groups, class_=class_)


def section(
    title: str, *content: str, anchor: str, beside: str = "", class_: str = "panel"
) -> Html:
    """Return a titled section; `beside` is shown small beside the title."""
    heading = element(
        "h4", title, *(() if not beside else (" ", element("small", beside))), id=anchor
    )
    return element("section", heading, *content, class_=class_, aria_labelledby=anchor)


def table_section(
    title: str,
    heads: Sequence[str],
    rows: Iterable[Html],
    *below: str,
    anchor: str,
    beside: str = "",
    class_: str = "",
) -> Html:
    """Return a section that consists of a table and what is `below` it; `class_` is the
    table's.
    """
    content = table(heads, rows, label=title, class_=class_)
    return section(title, content, *below, anchor=anchor, beside=beside)


_STYLE_SHEET = Html(Path(__file__).with_name("report.css").read_text("utf-8").strip())
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a report; content that is not `Html` becomes a paragraph."""

    title: str
    content: tuple[str, ...]


def page(
    title: str,
    sections: Iterable[Section],
    *,
    subtitle: str = "",
    lead: Sequence[str] = (),
) -> str:
    """Return a report as one HTML document; `lead` has the conclusions, a paragraph
    each.

    It is self-contained: a content security policy forbids scripts and everything from
    elsewhere.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="robots", content="noindex"),
        element("title", title),
        element("style", _STYLE_SHEET),
    )
    header = element(
        "header",
        element("h1", title),
        element("p", subtitle, class_="subtitle") if subtitle else Html(),
        *(element("p", words, class_="lead") for words in lead),
    )
    main = element("main", *map(_section, sections))
    return (
        "<!doctype html>\n"
        f"{element('html', head, element('body', header, main), lang='en')}\n"
    )


def _section(part: Section) -> Html:
    content = (
        item if isinstance(item, Html) else element("p", item) for item in part.content
    )
    return element("section", element("h2", part.title), *content)


def figure(svg: Html, caption: str) -> Html:
    """Return a plot with its caption."""
    return element("figure", element("figcaption", caption), svg)


def side_by_side(*figures: Html) -> Html:
    """Return figures side by side, if the screen is wide enough."""
    return element("div", *figures, class_="plots")


def bullets(items: Iterable[str]) -> Html:
    """Return a list."""
    return element("ul", *(element("li", item) for item in items))


def data_table(
    heads: Sequence[str], rows: Iterable[Sequence[str | None]], *, label: str
) -> Html:
    """Return a table of numbers, ``None`` for a missing value; the first cell of each
    row names it.
    """
    lines = (
        row(
            cells[0] or "",
            [none("no value") if cell is None else cell for cell in cells[1:]],
        )
        for cells in rows
    )
    return table(heads, lines, label=label, class_="numbers")
