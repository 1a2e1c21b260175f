"""Colours that mean different things look different to everyone, and what stands on them can be read.

That every panel is so is checked by the linter (`indistinct`, `unreadable`, `palette`); this is about what it
rests on: the computation, against published numbers, and the palette as a whole.
"""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest

from dashboards.lint import colours, vision


def test_the_computation_gives_what_is_published() -> None:
    """CIEDE2000: Sharma, Wu and Dalal 2005, table 1, pairs 1, 7, 13, 21 and 34. Contrast: WCAG 2.1."""
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


def test_people_with_a_deficiency_confuse_what_they_are_known_to() -> None:
    assert vision.apart("#C4162A", "#6A7A1A") > 40 > 15 > vision.apart("#C4162A", "#6A7A1A", "deuteranopia")
    assert vision.least_apart("#0072B2", "#009E73")[1] == "tritanopia"
    for deficiency in vision.DEFICIENCIES:
        assert vision.seen("#8C8C8C", deficiency) == pytest.approx(vision.linear("#8C8C8C"), abs=1e-5)


def test_text_stands_on_colours_as_grafana_writes_it() -> None:
    """Dark on bright colours only; a gradient is harder to read than one colour."""
    assert vision.text_on("#F0E442") == vision.TEXT_DARK
    assert vision.text_on("#E69F00") == vision.TEXT_LIGHT
    assert vision.contrast_of_text("#D55E00", "background") < vision.contrast_of_text("#D55E00", "solid")


@pytest.mark.parametrize("deficiency", vision.DEFICIENCIES)
def test_good_fair_and_bad_differ_and_positions_go_from_dark_to_light(deficiency: str) -> None:
    for use in ("line", "background"):
        meant = (": good", ": bad", f": fair, as a {use}")
        judged = [color for color, meaning in colours.PALETTE.items() if meaning.endswith(meant)]
        assert len(judged) == 3
        for one, other in combinations(judged, 2):
            assert vision.apart(one, other, deficiency) > 1.2 * colours.APART
    light = [vision.lab(vision.seen(color, deficiency))[0] for color in colours.SCALE]
    assert all(later - sooner > 3 for sooner, later in pairwise(light)), light


def test_text_on_every_background_of_the_palette_can_be_read() -> None:
    backgrounds = [color for color, meaning in colours.PALETTE.items() if "as a line" not in meaning]
    found = {color: vision.contrast_of_text(color, "solid") for color in backgrounds}
    assert {color: value for color, value in found.items() if value < colours.READABLE} == {}
