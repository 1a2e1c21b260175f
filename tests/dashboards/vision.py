"""How colours look, also to people with a colour vision deficiency, and how well text on them can be read.

How colours look with a deficiency is computed after Machado, Oliveira and Fernandes (2009) at full severity;
how far apart two look, after CIEDE2000; contrast, after WCAG 2.1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    Colour = tuple[float, float, float]

#: What panels are drawn on, in Grafana's two themes.
CANVAS = ("#181B1F", "#FFFFFF")
#: Text on a coloured background, dark or light: Grafana's `getTextColorForAlphaBackground`.
TEXT_DARK, TEXT_LIGHT = "#202226", "#F7F8FA"

_IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
#: Machado et al. 2009, table 1, severity 1.0; on linear RGB.
DEFICIENCIES: Mapping[str, tuple[Colour, Colour, Colour]] = {
    "none": _IDENTITY,
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
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return red, green, blue


def seen(text: str, deficiency: str) -> Colour:
    """Return linear RGB of a colour as people with a deficiency see it."""
    red, green, blue = linear(text)
    first, second, third = (
        min(1.0, max(0.0, a * red + b * green + c * blue)) for a, b, c in DEFICIENCIES[deficiency]
    )
    return first, second, third


def lab(colour: Colour) -> Colour:
    """Return CIE L*a*b* (D65) of linear RGB."""
    red, green, blue = colour
    x = (0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047
    y = 0.2126729 * red + 0.7151522 * green + 0.0721750 * blue
    z = (0.0193339 * red + 0.1191920 * green + 0.9503041 * blue) / 1.08883
    fx, fy, fz = (v ** (1 / 3) if v > 216 / 24389 else (24389 / 27 * v + 16) / 116 for v in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def difference(one: Colour, other: Colour) -> float:
    """Return the CIEDE2000 difference of two colours in L*a*b* (Sharma, Wu and Dalal 2005)."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    stretch = 1.5 - 0.5 * math.sqrt(mean**7 / (mean**7 + 25**7))
    c1, c2 = math.hypot(a1 * stretch, b1), math.hypot(a2 * stretch, b2)
    h1, h2 = (math.degrees(math.atan2(b, a * stretch)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    dl, dc, dh = l2 - l1, c2 - c1, 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    lm, cm = (l1 + l2) / 2, (c1 + c2) / 2
    hm = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    weight = 1 + sum(
        factor * math.cos(math.radians(times * hm + shift))
        for factor, times, shift in ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.20, 4, -63))
    )
    sl = 1 + 0.015 * (lm - 50) ** 2 / math.sqrt(20 + (lm - 50) ** 2)
    sc, sh = 1 + 0.045 * cm, 1 + 0.015 * cm * weight
    rotation = (
        -2
        * math.sqrt(cm**7 / (cm**7 + 25**7))
        * math.sin(math.radians(60 * math.exp(-(((hm - 275) / 25) ** 2))))
    )
    return math.sqrt((dl / sl) ** 2 + (dc / sc) ** 2 + (dh / sh) ** 2 + rotation * dc / sc * dh / sh)


def apart(one: str, other: str, deficiency: str = "none") -> float:
    """Return how far apart two colours look."""
    return difference(lab(seen(one, deficiency)), lab(seen(other, deficiency)))


def least_apart(one: str, other: str) -> tuple[float, str]:
    """Return how far apart two colours look to those who see the least difference, and who these are."""
    return min((apart(one, other, deficiency), deficiency) for deficiency in DEFICIENCIES)


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.1)."""
    lights = sorted(
        0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in (linear(one), linear(other))
    )
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def text_on(background: str) -> str:
    """Return the colour of the text that Grafana writes on a background."""
    red, green, blue = (int(background[at : at + 2], 16) for at in (1, 3, 5))
    return TEXT_DARK if (299 * red + 587 * green + 114 * blue) / 1000 > 180 else TEXT_LIGHT


def contrast_of_text(color: str, *, filled: bool) -> float:
    """Return the least contrast of Grafana's text on a background; unless filled, of text in the colour."""
    if filled:
        return contrast(text_on(color), color)
    return min(contrast(color, canvas) for canvas in CANVAS)
