"""Colours: which are used for what, and whether everyone can tell them apart and read what stands on them."""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING, Any

from .vision import contrast_of_text, least_apart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .document import Dashboard, Panel

#: The colours that may be used, with what they mean. Those of Okabe and Ito, and greys, are for lines. As a
#: background orange, sky and purple are too bright for Grafana's light text and too dark for its dark text,
#: so others of the same name stand there.
PALETTE: Mapping[str, str] = {
    "#0072B2": "blue: good",
    "#56B4E9": "sky: on the way to good, as a line",
    "#88CCEE": "sky: on the way to good, as a background",
    "#E69F00": "orange: fair, as a line",
    "#FFB61A": "amber: fair, as a background",
    "#D55E00": "vermilion: bad",
    "#009E73": "green: a line",
    "#CC79A7": "purple: something else is the matter, as a line",
    "#AA3377": "purple: something else is the matter, as a background",
    "#F0E442": "yellow: nothing is known, as a background",
    "#F7F0A0": "pale yellow: nothing is known, as a background beside amber",
    "#8C8C8C": "grey: no judgement",
    "#4A4A4A": "dark grey: off",
    "#5A5A5A": "dark grey: off",
}
#: Draft positions, near to far: one hue in order.
SCALE = ("#2171B5", "#4292C6", "#6BAED6", "#9ECAE1", "#C6DBEF")
#: How far apart (CIEDE2000) two colours must look that mean different things. From 2.3 on people see a
#: difference side by side; from about 10 on at a glance.
APART = 10.0
#: Contrast of large text, WCAG 2.1, 1.4.3.
READABLE = 3.0
_HEX = re.compile(r"#[0-9A-Fa-f]{6}\Z")
#: Keys whose values are colours.
_KEYS = frozenset({"color", "fixedColor", "iconColor"})


def colours_in(value: Any, key: str = "") -> Iterator[str]:
    """Yield the colours in JSON."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name != "exemplars":
                yield from colours_in(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from colours_in(inner, key)
    elif key in _KEYS and isinstance(value, str):
        yield value


def palette(dashboard: Dashboard) -> list[str]:
    """Colours are those of the palette, also of annotations."""
    known = {color.upper() for color in (*PALETTE, *SCALE)}
    used = dict.fromkeys(colours_in(dict(dashboard.body)))
    return [f"{color} is not in the palette" for color in used if color.upper() not in known]


def colour_modes(panel: Panel, dashboard: Dashboard) -> list[str]:
    """Colours are chosen: Grafana's own series of colours, and from red to green, are not for everyone."""
    if panel.kind == "heatmap":
        scheme = panel.body["options"].get("color", {}).get("scheme")
        return [] if scheme in SCHEMES else [f"colour scheme {scheme}"]
    mode = panel.defaults.get("color", {}).get("mode", "fixed")
    if mode in ("fixed", "thresholds"):
        return []
    if mode != "palette-classic":
        return [f"colour mode {mode}"]
    return [
        f"what is called {target.legend} has the colours of the classic palette"
        for target in panel.targets
        if not _has_colour(panel, target.legend)
    ]


#: Colour schemes of heatmaps that people with any colour vision can read.
SCHEMES = frozenset({"Viridis", "Cividis", "Blues", "Greys"})


def _has_colour(panel: Panel, legend: str) -> bool:
    """Return whether overrides give the series of a legend their colours: `position 1` is such a series."""
    (target,) = [target for target in panel.targets if target.legend == legend][:1]
    others = {other.legend for other in panel.targets} - {legend}
    for matcher, options, properties in panel.overrides:
        if properties.get("color", {}).get("mode") != "fixed":
            continue
        if matcher == "byName" and options not in others and target.may_be_called(str(options)):
            return True
        if matcher == "byRegexp" and re.search(str(options).strip("/"), legend):
            return True
    return False


def literal_thresholds(panel: Panel, dashboard: Dashboard) -> list[str]:
    """Thresholds are asked for, not written down: a scale has nothing but its first step."""
    return [
        f"{name or 'all fields'}: a threshold at {step.get('value')}"
        for name, properties in panel.fields
        for step in properties.get("thresholds", {}).get("steps", ())[1:]
    ]


def meanings(panel: Panel) -> dict[str, str]:
    """Return what has a colour in a panel, words or series, and which; without those of a scale in order."""
    found = {}
    for name, properties in panel.fields:
        for mapping in properties.get("mappings", ()):
            for result in _results(mapping):
                if _HEX.match(str(result.get("color", ""))):
                    found[str(result.get("text", ""))] = result["color"]
        color = properties.get("color", {})
        if name and color.get("mode") == "fixed" and color["fixedColor"] not in SCALE:
            found[name] = color["fixedColor"]
    return found


def _results(mapping: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    options = mapping.get("options", {})
    return list(options.values()) if mapping.get("type") == "value" else [options.get("result", {})]


def mapped_words(panel: Panel, dashboard: Dashboard) -> list[str]:
    """A colour never stands alone: what is mapped to a colour has a word."""
    return [
        f"{result.get('color')} stands without a word"
        for _, properties in panel.fields
        for mapping in properties.get("mappings", ())
        for result in _results(mapping)
        if result.get("color") and not str(result.get("text", "")).strip()
    ]


def indistinct(panel: Panel, dashboard: Dashboard) -> list[str]:
    """Colours of one panel that mean different things look different to everyone."""
    found = []
    for (one, first), (other, second) in combinations(meanings(panel).items(), 2):
        distance, deficiency = least_apart(first, second)
        if first.upper() != second.upper() and distance < APART:
            found.append(f"{one} ({first}) and {other} ({second}): {distance:.1f} apart ({deficiency})")
    return found


def unreadable(panel: Panel, dashboard: Dashboard) -> list[str]:
    """Text on a coloured background, or in a colour, can be read in both themes."""
    return [
        f"{word or 'text'} on {color}: contrast {found:.2f}"
        for word, color, mode in _filled(panel)
        if (found := contrast_of_text(color, mode)) < READABLE
    ]


def _filled(panel: Panel) -> Iterator[tuple[str, str, str]]:
    """Yield the words that stand on a colour, the colour, and how the background is filled."""
    mode = panel.body.get("options", {}).get("colorMode") if panel.kind == "stat" else None
    if mode and mode != "none":
        mode = "text" if mode == "value" else mode
        steps = panel.defaults.get("thresholds", {}).get("steps", ())
        yield from ((word, color, mode) for word, color in meanings(panel).items())
        yield from (("no word", step["color"], mode) for step in steps if _HEX.match(step["color"]))
    for _, properties in panel.fields:
        cell = properties.get("custom.cellOptions", {})
        if cell.get("type") in ("color-background", "color-text"):
            mode = (
                "text"
                if cell["type"] == "color-text"
                else "solid"
                if cell.get("mode") == "basic"
                else "background"
            )
            alone = {"type": "table", "fieldConfig": {"defaults": properties}}
            yield from ((word, color, mode) for word, color in meanings(type(panel)(alone)).items())
