"""Colours that mean different things look different to everyone, and what stands on them can be read.

That every panel is so is checked by the linter (`indistinct`, `unreadable`, `palette`); this is about what it
rests on: the computation, against published numbers, and the palette as a whole.
"""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest

from dashboards import lint
from dashboards.lint import colours, vision

DASHBOARDS = lint.read_dashboards()
USED = sorted({color.upper() for found in DASHBOARDS for color in colours.colours_in(dict(found.body))})


# --- the computation


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        # Sharma, Wu and Dalal 2005, table 1: pairs 1, 7, 9, 13, 15, 16, 21, 25, 34.
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 0, 0), (50, -1, 2), 2.3669),
        ((50, 2.49, -0.001), (50, -2.49, 0.0009), 7.1792),
        ((50, -0.001, 2.49), (50, 0.0009, -2.49), 4.8045),
        ((50, -0.001, 2.49), (50, 0.0011, -2.49), 4.7461),
        ((50, 2.5, 0), (50, 0, -2.5), 4.3065),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_differences_are_those_published(
    one: tuple[float, float, float], other: tuple[float, float, float], distance: float
) -> None:
    assert vision.difference(one, other) == pytest.approx(distance, abs=1e-4)
    assert vision.difference(other, one) == pytest.approx(distance, abs=1e-4)


@pytest.mark.parametrize(
    ("color", "expected"),
    [
        ("#FFFFFF", (100, 0, 0)),
        ("#000000", (0, 0, 0)),
        ("#FF0000", (53.24, 80.09, 67.20)),
        ("#0000FF", (32.30, 79.19, -107.86)),
    ],
)
def test_colours_are_where_they_belong(color: str, expected: tuple[float, float, float]) -> None:
    assert vision.lab(vision.linear(color)) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("deficiency", vision.DEFICIENCIES)
def test_greys_look_the_same_to_everyone(deficiency: str) -> None:
    """Each row of a matrix adds up to 1."""
    assert vision.seen("#8C8C8C", deficiency) == pytest.approx(vision.linear("#8C8C8C"), abs=1e-5)


def test_red_and_green_look_alike_only_to_some() -> None:
    """The classic pair: far apart for most, near for those who lack one kind of cone."""
    red, green = "#C4162A", "#6A7A1A"
    assert vision.apart(red, green) > 40
    assert vision.apart(red, green, "deuteranopia") < 15
    assert vision.apart(red, green, "tritanopia") > 30
    assert vision.least_apart(red, green)[1] in ("deuteranopia", "protanopia")


def test_blue_and_green_are_what_tritanopes_confuse() -> None:
    assert vision.least_apart("#0072B2", "#009E73")[1] == "tritanopia"


@pytest.mark.parametrize(
    ("one", "other", "ratio"),
    [("#FFFFFF", "#000000", 21), ("#FFFFFF", "#767676", 4.54), ("#FFFFFF", "#0072B2", 5.19)],
)
def test_contrast_is_that_of_wcag(one: str, other: str, ratio: float) -> None:
    assert vision.contrast(one, other) == pytest.approx(ratio, abs=0.01)


@pytest.mark.parametrize(
    ("color", "text"),
    [("#F0E442", vision.TEXT_DARK), ("#0072B2", vision.TEXT_LIGHT), ("#E69F00", vision.TEXT_LIGHT)],
)
def test_grafana_writes_dark_text_on_bright_colours_only(color: str, text: str) -> None:
    """From a brightness of 180 on; orange is below it, and gets light text that is hard to read."""
    assert vision.text_on(color) == text


def test_a_gradient_is_harder_to_read_than_one_colour() -> None:
    """`background` runs from one colour to another, in the light theme both lighter than the colour."""
    for color in ("#0072B2", "#D55E00", "#8C8C8C"):
        assert vision.contrast_of_text(color, "background") < vision.contrast_of_text(
            color, "background_solid"
        )
    assert vision.darkened("#808080", 20, 90) == "#4D4D4D"
    assert vision.darkened("#FF0000", 0, 120) == "#00FF00"


# --- the palette


def test_only_colours_of_the_palette_are_used_and_all_have_a_meaning() -> None:
    assert [color for color in USED if color not in {*colours.PALETTE, *colours.SCALE}] == []
    assert all(": " in meaning for meaning in colours.PALETTE.values())


@pytest.mark.parametrize("deficiency", vision.DEFICIENCIES)
@pytest.mark.parametrize("use", ["line", "background"])
def test_good_fair_and_bad_look_different_at_a_glance(use: str, deficiency: str) -> None:
    meant = {": good", ": bad", f": fair, as a {use}"}
    judged = [color for color, meaning in colours.PALETTE.items() if meaning.endswith(tuple(meant))]
    assert len(judged) == 3
    for one, other in combinations(judged, 2):
        assert vision.apart(one, other, deficiency) > 1.2 * colours.APART


def test_text_on_every_background_can_be_read() -> None:
    hard = {
        color: round(vision.contrast_of_text(color, "background_solid"), 2)
        for color, meaning in colours.PALETTE.items()
        if "as a line" not in meaning
    }
    assert {color: found for color, found in hard.items() if found < colours.READABLE} == {}


@pytest.mark.parametrize("deficiency", vision.DEFICIENCIES)
def test_the_scale_of_positions_goes_from_dark_to_light_for_everyone(deficiency: str) -> None:
    light = [vision.lab(vision.seen(color, deficiency))[0] for color in colours.SCALE]
    assert all(later - sooner > 3 for sooner, later in pairwise(light)), light


def test_every_panel_that_judges_by_colour_says_it_in_words() -> None:
    """The linter looks for words where a colour stands; here, that there are such panels at all."""
    judging = [
        panel.place
        for found in DASHBOARDS
        for panel in found.panels
        if any(properties.get("mappings") for _, properties in panel.fields)
    ]
    assert len(judging) >= 5
    assert [c for found in DASHBOARDS for c in lint.complaints("mapped_words", found)] == []


def test_what_a_panel_means_by_its_colours_is_found() -> None:
    panel = lint.Panel(
        {
            "type": "stat",
            "fieldConfig": {
                "defaults": {
                    "mappings": [
                        {"type": "value", "options": {"1": {"text": "YES", "color": "#0072B2"}}},
                        {
                            "type": "special",
                            "options": {"match": "nan", "result": {"text": "?", "color": "#8C8C8C"}},
                        },
                    ]
                },
                "overrides": [
                    {
                        "matcher": {"id": "byName", "options": name},
                        "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
                    }
                    for name, color in (("P99", "#E69F00"), ("position 0", "#2171B5"))
                ],
            },
        }
    )
    assert colours.meanings(panel) == {"YES": "#0072B2", "?": "#8C8C8C", "P99": "#E69F00"}
