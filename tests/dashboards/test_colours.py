"""Colours that mean different things look different to everyone, and what is written on
them can be read.

How a colour looks with a colour vision deficiency is computed after Machado, Oliveira
and Fernandes (2009) at full severity, on linear RGB; how far apart two look, in CIE
L*a*b*; contrast, after WCAG 2.1.
"""

import math
import re
from itertools import combinations, pairwise

import numpy as np

from dashboards.documents import Json, dashboards, fields, named_panels, under
from grafana_panels import palette

Colour = tuple[float, ...]


PANELS = {
    name: panel for name, panel in named_panels().items() if "fieldConfig" in panel
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
    return tuple(map(linear_channel, channels))


def linear_channel(value: float) -> float:
    if value <= 0.04045:
        return value / 12.92
    return ((value + 0.055) / 1.055) ** 2.4


def lab(text: str, deficiency: str) -> Colour:
    """Return CIE L*a*b* (D65) of a colour as people with a deficiency see it."""
    rgb = linear(text)
    red, green, blue = np.clip(np.array(DEFICIENCIES[deficiency]) @ rgb, 0.0, 1.0)
    x = (0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047
    y = 0.2126729 * red + 0.7151522 * green + 0.0721750 * blue
    z = (0.0193339 * red + 0.1191920 * green + 0.9503041 * blue) / 1.08883
    fx, fy, fz = map(lab_channel, (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def lab_channel(value: float) -> float:
    if value > 216 / 24389:
        return float(value ** (1 / 3))
    return (24389 / 27 * value + 16) / 116


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
    """Return the colour of text on a background, as Grafana's
    `getTextColorForAlphaBackground` does.
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
            if mapping["type"] == "value":
                results = options.values()
            else:
                results = [options["result"]]
            for shown in results:
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
            # A model has one colour on every board; pods of one panel differ, as do
            # kinds of requests, whose names give colours that are alike.
            if name.endswith((" by pod", " by type", " by temperature")):
                lines = "palette-classic"
            else:
                lines = "palette-classic-by-name"
            assert mode in ("fixed", "thresholds", lines), name
        if panel["type"] == "stat":
            assert panel["options"]["colorMode"] in ("background_solid", "none"), name


def test_colours_of_one_panel_look_different_to_everyone() -> None:
    """Positions go from dark to light, and are told apart by that."""
    for name, panel in PANELS.items():
        for first, second in combinations(meanings(panel).items(), 2):
            if first[1] != second[1]:
                distance, who = least_apart(first[1], second[1])
                assert distance >= APART, (name, first, second, who)
    for who in DEFICIENCIES:
        light = [lab(color, who)[0] for color in palette.POSITIONS]
        assert all(later - sooner > 3 for sooner, later in pairwise(light)), who


def test_text_on_colours_can_be_read() -> None:
    for name, panel in PANELS.items():
        if panel["type"] in ("stat", "table"):
            for word, color in meanings(panel).items():
                assert contrast(text_on(color), color) >= READABLE, (name, word)
