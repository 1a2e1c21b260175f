"""Building blocks of HTML pages, the status page and reports: elements, numbers, bars and tables.

Text becomes HTML in one place, `element`: whatever is not `Html` already is escaped. So a section cannot
forget it, and a model name that holds a tag stays a name.
"""

from __future__ import annotations

import html
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_UNITS = (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1))
_VOID = frozenset({"link", "meta", "rect"})
#: Categories of characters that have no business in a document: controls and lone surrogates.
_UNPRINTABLE = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "�") | dict.fromkeys(
    range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}"
)


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: str) -> Html:
    """Return `value` escaped, fit for an element as for an attribute in quotes."""
    return value if isinstance(value, Html) else Html(html.escape(value.translate(_UNPRINTABLE)))


def join(*parts: str) -> Html:
    """Return `parts` one after the other, each escaped unless it is HTML."""
    return Html("".join(map(text, parts)))


def element(name: str, /, *children: str, **attributes: str) -> Html:
    """Return an element.

    Args:
        name: of the element.
        children: its content; what is not `Html` is escaped.
        attributes: without those whose value is empty. A trailing underscore is dropped (``class_``), other
            underscores become dashes (``aria_label``).
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"' for key, value in attributes.items() if value
    )
    if name in _VOID:
        return Html(f"<{name}{shown}>" if name != "rect" else f"<{name}{shown}/>")
    return Html(f"<{name}{shown}>{join(*children)}</{name}>")


def name(value: str) -> Html:
    """Return a name that came from outside, kept from turning the text around it right to left."""
    return element("bdi", value)


def hidden(value: str) -> Html:
    """Return text for screen readers alone."""
    return element("span", value, class_="hidden")


def none(why: str) -> Html:
    """Return what stands for a value that does not exist, and say why."""
    dash = element("span", "–", aria_hidden="true")
    return element("span", dash, hidden(f"none: {why}"), class_="none", title=why)


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
    """Return a whole number with its thousands apart: ``12,345``."""
    return f"{number:,.0f}"


def rate(per_second: float) -> str:
    """Return a rate with three significant digits: ``0.125``, ``12.5``, ``1,250``, ``1.25M``."""
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
    """Return a time span in at most two units: ``12 ms``, ``2.1 s``, ``3 min 20 s``, ``2 h 5 min``."""
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
    """Return a point in time, with the date where it is not today's (UTC)."""
    try:
        then, today = datetime.fromtimestamp(timestamp, UTC), datetime.fromtimestamp(now, UTC)
    except (OverflowError, ValueError, OSError):
        return none("not a time")
    shown = then.strftime("%H:%M:%S UTC" if then.date() == today.date() else "%Y-%m-%d %H:%M:%S UTC")
    return element("time", shown, datetime=then.strftime("%Y-%m-%dT%H:%M:%SZ"))


def bar(share: float) -> Html:
    """Return a bar filled to `share`, 0 to 1.

    It repeats the text beside it, so screen readers skip it. The width is an attribute of the SVG, which,
    other than a style attribute, a strict content security policy lets pass.
    """
    width = f"{100 * min(max(share, 0.0), 1.0):.2f}%"
    track = element("rect", class_="track", width="100%", height="100%")
    fill = element("rect", class_="fill", width=width, height="100%")
    return element("svg", track, fill, class_="bar", aria_hidden="true", focusable="false")


def gauge(share: float | None, shown: str, why: str = "") -> Html:
    """Return a bar with its value beside it, or a dash that says why there is none."""
    if share is None:
        return element("div", element("span"), none(why), class_="gauge")
    return element("div", bar(share), element("span", shown, class_="value"), class_="gauge")


def pill(kind: str, words: str) -> Html:
    """Return a state as a word with a coloured mark; `kind` picks the colour."""
    return element("span", words, class_=f"pill {kind}")


def row(head: str, cells: Iterable[str], class_: str = "") -> Html:
    """Return a table row whose first cell heads it."""
    return element(
        "tr", element("th", head, scope="row"), *(element("td", cell) for cell in cells), class_=class_
    )


def table(heads: Sequence[str], rows: Iterable[Html], *, label: str, class_: str = "") -> Html:
    """Return a table that scrolls by itself where it is wider than the screen.

    Args:
        heads: the column heads.
        rows: the rows.
        label: what the table shows, for screen readers.
        class_: of the table.
    """
    head = element("thead", element("tr", *(element("th", cell, scope="col") for cell in heads)))
    whole = element("table", head, element("tbody", *rows), class_=class_)
    # Only what has the focus can be scrolled with the keyboard.
    return element("div", whole, class_="scroll", role="region", aria_label=label, tabindex="0")


def facts(pairs: Iterable[tuple[str, str]], class_: str = "facts") -> Html:
    """Return names with their values as a description list."""
    groups = (element("div", element("dt", key), element("dd", value)) for key, value in pairs)
    return element("dl", *groups, class_=class_)


def section(title: str, *content: str, anchor: str, note: str = "", class_: str = "panel") -> Html:
    """Return a titled section of an engine; `note` stands small beside the title."""
    heading = element("h4", title, *(() if not note else (" ", element("small", note))), id=anchor)
    return element("section", heading, *content, class_=class_, aria_labelledby=anchor)


def folded(title: str, *content: str) -> Html:
    """Return content that is shown on demand."""
    return element("details", element("summary", title), *content)
