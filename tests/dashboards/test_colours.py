"""Colours that mean different things look different to everyone, and what is written on
them can be read.

How a colour looks with a colour vision deficiency is computed after Machado, Oliveira
and Fernandes (2009) at full severity, on linear RGB; how far apart two look, in CIE
L*a*b*; contrast, after WCAG 2.1.
"""

import math
import re
from itertools import combinations, pairwise

from dashboards.documents import Json, dashboards, every_panel, fields, under
from grafana_panels import palette

Colour = tuple[float, ...]


PANELS = {
    f"{uid}: {panel['title']}": panel
    for uid, dashboard in dashboards().items()
    for panel in every_panel(dashboard)
    if "fieldConfig" in panel
}
#: Least distance in L*a*b* of two colours that mean different things: far more than can
#: be seen side by side.
APART = 14.0
#: Contrast of large text, WCAG 2.1, 1.4.3.
READABLE = 3.0
#: Machado et al., table 1, severity 1.0.
DEFICIENCIES = {
    "none": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def linear(text: str) -> Colour:
    """Return linear RGB of `#RRGGBB`."""
    channels = (int(text[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return tuple(
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )


def lab(text: str, deficiency: str) -> Colour:
    """Return CIE L*a*b* (D65) of a colour as people with a deficiency see it."""
    rgb = linear(text)
    red, green, blue = (
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, rgb, strict=True))))
        for row in DEFICIENCIES[deficiency]
    )
    x = (0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047
    y = 0.2126729 * red + 0.7151522 * green + 0.0721750 * blue
    z = (0.0193339 * red + 0.1191920 * green + 0.9503041 * blue) / 1.08883
    fx, fy, fz = (
        v ** (1 / 3) if v > 216 / 24389 else (24389 / 27 * v + 16) / 116
        for v in (x, y, z)
    )
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def least_apart(first: str, second: str) -> tuple[float, str]:
    """Return how far apart two colours look to those who see the least difference, and
    who these are.
    """
    return min(
        (math.dist(lab(first, who), lab(second, who)), who) for who in DEFICIENCIES
    )


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours."""
    dark, light = sorted(
        0.2126 * r + 0.7152 * g + 0.0722 * b
        for r, g, b in (linear(first), linear(second))
    )
    return (light + 0.05) / (dark + 0.05)


def text_on(background: str) -> str:
    """Return the colour of text on a background.

    As Grafana's `getTextColorForAlphaBackground`.
    """
    red, green, blue = (int(background[at : at + 2], 16) for at in (1, 3, 5))
    if (299 * red + 587 * green + 114 * blue) / 1000 > 180:
        return "#202226"
    return "#F7F8FA"


def meanings(panel: Json) -> dict[str, str]:
    """Return what has a colour in a panel, words or series, and which; without those of
    a scale in order.
    """
    colours = {}
    for name, properties in fields(panel):
        for mapping in properties.get("mappings", ()):
            options = mapping["options"]
            for shown in (
                options.values() if mapping["type"] == "value" else [options["result"]]
            ):
                if "color" in shown:
                    colours[shown["text"].strip()] = shown["color"]
        color = properties.get("color", {})
        if (
            name
            and color.get("mode") == "fixed"
            and color["fixedColor"] not in palette.POSITIONS
        ):
            colours[properties.get("displayName", name)] = color["fixedColor"]
    return colours


def test_colours_are_those_of_the_palette() -> None:
    """None is Grafana's own: red to green is not for everyone.

    No colour stands without a word.
    """
    of_palette = {
        value
        for value in vars(palette).values()
        if re.fullmatch(r"#[0-9A-Fa-f]{6}", str(value))
    }
    for uid, dashboard in dashboards().items():
        used = {
            colour
            for colour in under(dashboard, "color", "fixedColor", "iconColor")
            if isinstance(colour, str)
        }
        assert used - of_palette - {*palette.POSITIONS, "transparent"} == set(), uid
    for name, panel in PANELS.items():
        assert "" not in meanings(panel), name
        if panel["type"] != "heatmap":
            mode = panel["fieldConfig"]["defaults"]["color"]["mode"]
            # A model has one colour on every board; pods of one panel differ.
            if name.endswith("Acceptance by pod"):
                lines = "palette-classic"
            else:
                lines = "palette-classic-by-name"
            assert mode in ("fixed", "thresholds", lines), name
        if panel["type"] == "stat":
            assert panel["options"]["colorMode"] in ("background_solid", "none"), name


def test_colours_of_one_panel_look_different_to_everyone() -> None:
    """Positions go from dark to light, and are told apart by that."""
    assert [
        f"{name}: {first_name} and {second_name}: {least_apart(first, second)}"
        for name, panel in PANELS.items()
        for (first_name, first), (second_name, second) in combinations(
            meanings(panel).items(), 2
        )
        if first != second and least_apart(first, second)[0] < APART
    ] == []
    for who in DEFICIENCIES:
        light = [lab(color, who)[0] for color in palette.POSITIONS]
        assert all(later - sooner > 3 for sooner, later in pairwise(light)), who


def test_text_on_colours_can_be_read() -> None:
    wrong = {
        f"{name}: {word}"
        for name, panel in PANELS.items()
        if panel["type"] in ("stat", "table")
        for word, color in meanings(panel).items()
        if contrast(text_on(color), color) < READABLE
    }
    assert wrong == set()
