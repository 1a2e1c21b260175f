"""Colours that mean different things look different to everyone, and what stands on them can be read.

Also to people with a colour vision deficiency; the computation is held to published numbers.
"""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import pytest

from dashboards import vision
from dashboards.documents import dashboards, every_panel, fields
from grafana_panels import palette, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dashboards.documents import Json

PANELS = {
    f"{uid}: {panel['title']}": panel
    for uid, dashboard in dashboards().items()
    for panel in every_panel(dashboard)
    if "fieldConfig" in panel
}
#: How far apart (CIEDE2000) two colours must look that mean different things. From 2.3 on people see a
#: difference side by side; from about 10 on at a glance.
APART = 10.0
#: Contrast of large text, WCAG 2.1, 1.4.3.
READABLE = 3.0
_HEX = re.compile(r"#[0-9A-Fa-f]{6}")


def used(value: Any, key: str = "") -> Iterator[str]:
    """Yield the colours in JSON."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name != "exemplars":
                yield from used(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from used(inner, key)
    elif key in ("color", "fixedColor", "iconColor") and isinstance(value, str):
        yield value


def mapped(properties: Json) -> dict[str, str]:
    """Return the words that values are mapped to, with their colours."""
    results = [
        result
        for mapping in properties.get("mappings", ())
        for result in (
            mapping["options"].values() if mapping["type"] == "value" else [mapping["options"]["result"]]
        )
    ]
    return {str(one.get("text", "")).strip(): one["color"] for one in results if "color" in one}


def meanings(panel: Json) -> dict[str, str]:
    """Return what has a colour in a panel, words or series, and which; without those of a scale in order."""
    found = {}
    for name, properties in fields(panel):
        found |= mapped(properties)
        color = properties.get("color", {})
        if name and color.get("mode") == "fixed" and color["fixedColor"] not in palette.POSITIONS:
            found[name] = color["fixedColor"]
    return found


def on_a_background(panel: Json) -> dict[str, str]:
    """Return the words that stand on a colour, and which."""
    found = {}
    if panel["type"] == "stat" and panel["options"]["colorMode"] == "background_solid":
        found |= meanings(panel)
    for _, properties in fields(panel):
        if properties.get("custom.cellOptions", {}).get("type") == "color-background":
            found |= mapped(properties)
    return found


def test_colours_are_those_of_the_palette() -> None:
    """None is Grafana's own: red to green is not for everyone. No colour stands without a word."""
    known = {value for value in vars(palette).values() if isinstance(value, str) and _HEX.fullmatch(value)}
    for uid, dashboard in dashboards().items():
        assert set(used(dashboard)) - known - set(palette.POSITIONS) == set(), uid
    for name, panel in PANELS.items():
        assert "" not in meanings(panel), name
        if panel["type"] == "heatmap":
            assert panel["options"]["color"]["scheme"] in ("Viridis", "Cividis", "Blues", "Greys")
        else:
            mode = panel["fieldConfig"]["defaults"]["color"]["mode"]
            assert mode in ("fixed", "thresholds", "palette-classic"), name


def test_colours_of_one_panel_look_different_to_everyone() -> None:
    assert [
        f"{name}: {one} and {other}: {vision.least_apart(first, second)}"
        for name, panel in PANELS.items()
        for (one, first), (other, second) in combinations(meanings(panel).items(), 2)
        if first != second and vision.least_apart(first, second)[0] < APART
    ] == []


def test_text_on_and_in_colours_can_be_read_in_both_themes() -> None:
    wrong = [
        f"{name}: {word} on {color}"
        for name, panel in PANELS.items()
        for word, color in on_a_background(panel).items()
        if vision.contrast_of_text(color, filled=True) < READABLE
    ]
    assert wrong == []
    modes = {panel["options"]["colorMode"] for panel in PANELS.values() if panel["type"] == "stat"}
    assert modes == {"background_solid", "none"}, "a gradient or text in a colour would be harder to read"


@pytest.mark.parametrize("deficiency", vision.DEFICIENCIES)
def test_good_fair_and_bad_differ_and_positions_go_from_dark_to_light(deficiency: str) -> None:
    judged = [verdict.QUALITY[level][1] for level in ("optimal", "fair", "poor")]
    for one, other in combinations(judged, 2):
        assert vision.apart(one, other, deficiency) > 1.2 * APART
    light = [vision.lab(vision.seen(color, deficiency))[0] for color in palette.POSITIONS]
    assert all(later - sooner > 3 for sooner, later in pairwise(light)), light


def test_the_computation_gives_what_is_published() -> None:
    """CIEDE2000: Sharma, Wu and Dalal 2005, table 1, pairs 1, 7, 13, 21 and 34. Contrast: WCAG 2.1.

    People with a deficiency confuse what they are known to; text is dark on bright colours only.
    """
    for one, other, distance in (
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 0, 0), (50, -1, 2), 2.3669),
        ((50, -0.001, 2.49), (50, 0.0009, -2.49), 4.8045),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ):
        assert vision.difference(one, other) == pytest.approx(distance, abs=1e-4)
        assert vision.difference(other, one) == pytest.approx(distance, abs=1e-4)
    assert vision.lab(vision.linear("#FF0000")) == pytest.approx((53.24, 80.09, 67.20), abs=0.02)
    assert vision.contrast("#FFFFFF", "#0072B2") == pytest.approx(5.19, abs=0.01)
    assert vision.apart("#C4162A", "#6A7A1A") > 40 > 15 > vision.apart("#C4162A", "#6A7A1A", "deuteranopia")
    assert vision.least_apart("#0072B2", "#009E73")[1] == "tritanopia"
    assert vision.text_on("#F0E442") == vision.TEXT_DARK
    assert vision.text_on("#E69F00") == vision.TEXT_LIGHT
