"""Plots: SVG that can stand in any page, the same for the same data."""

import builtins
import re
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest

from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.publish.markup import Html
from vllm_specdec_exporter.publish.plots import Band, Bar, Point, Series, bars_with_intervals, lines

SVG = "{http://www.w3.org/2000/svg}"
SERIES = (
    Series("first", (Point(0, 0.81, 0.7, 0.9), Point(0.4, 0.71), Point(1, 0.38))),
    Series("_second", (Point(0, 0.61), Point(1, 0.37))),
)
BARS = (Bar("with", 1.3, 1.2, 1.4), Bar("without", None), Bar("bare", 0.9))


def draw(**more: Any) -> Html:
    return lines("a title", SERIES, x_label="x", y_label="y", **more)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def test_the_same_data_give_the_same_bytes_whatever_the_settings() -> None:
    before = draw()
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert draw() == before
        assert mpl.rcParams["font.size"] == 30  # and the program's own settings stay
    assert draw() == before


def test_a_plot_is_described_for_those_who_cannot_see_it() -> None:
    root = ET.fromstring(draw(description="falls <fast>"))
    title, desc = root[0], root[1]
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
    assert (title.text, desc.text) == ("a title", "falls <fast>")


def test_text_stays_text_and_takes_the_colour_of_the_page() -> None:
    svg = draw(bands=(Band(0, 0.5, "low", "bad"), Band(0.5, 1, "high", "good")))
    assert {"first", " _second", "low", "high", "x", "y"} <= set(texts(svg))
    assert "currentColor" in svg
    assert "#010203" not in svg
    assert "#000000" not in svg.lower()


def test_two_plots_in_a_page_share_no_identifier_and_style_nothing_else() -> None:
    one, other = draw(), bars_with_intervals("bars", BARS, x_label="x")
    ids = [re.findall(r'\bid="([^"]+)"', svg) for svg in (one, other)]
    assert not set(ids[0]) & set(ids[1])
    for svg, own in zip((one, other), ids, strict=True):
        assert len(own) == len(set(own))
        used = re.findall(r'(?:href="|url\()#([^")]+)', svg)
        assert used
        assert set(used) <= set(own)
        assert "<style" not in svg


def test_names_from_outside_are_text_and_no_formula() -> None:
    name = "<b>$x_{1$ & \x07 \u4e2d"
    svg = lines("t", [Series(name, SERIES[0].points), SERIES[1]], x_label="$", y_label="\\alpha")
    assert "<b>$x_{1$ & \ufffd \u4e2d" in texts(svg)


def test_a_line_without_points_and_a_plot_without_lines_are_drawn_all_the_same() -> None:
    ET.fromstring(lines("t", [Series("none", ())], x_label="x", y_label="y"))
    ET.fromstring(lines("t", [], x_label="x", y_label="y", bands=(Band(0, 1, "b", "good"),)))
    ET.fromstring(bars_with_intervals("t", [], x_label="x"))


def test_bars_say_their_values_and_which_have_none() -> None:
    found = texts(bars_with_intervals("t", BARS, x_label="speedup", reference=1.0, form="{:.1f}x"))
    assert {"1.3x", "none", "0.9x", "with", "without"} <= set(found)


def test_two_lines_differ_in_more_than_colour() -> None:
    dashes = re.findall(r"stroke-dasharray: ([\d., ]+)", draw())
    assert len(dashes) >= 1


def test_a_missing_matplotlib_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install matplotlib"):
        draw()
