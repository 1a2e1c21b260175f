"""Plots: SVG that can stand in any page, the same for the same data."""

import builtins
import re
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest

from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.publish.markup import Html
from vllm_specdec_exporter.publish.plots import Bar, Point, Series, bars_with_intervals, lines

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


def test_a_plot_is_described_and_its_text_takes_the_colour_of_the_page() -> None:
    svg = draw(description="falls <fast>")
    root = ET.fromstring(svg)
    title, desc = root[0], root[1]
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
    assert (title.text, desc.text) == ("a title", "falls <fast>")
    assert {"first", " _second", "x", "y"} <= set(texts(svg))
    assert "currentColor" in svg
    assert not re.search("#010203|#000000", svg)


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


def test_names_from_outside_are_text_and_a_line_may_have_no_points() -> None:
    name = "<b>$x_{1$ & \x07 \u4e2d"
    series = [Series(name, SERIES[0].points), SERIES[1], Series("none", ())]
    assert "<b>$x_{1$ & \ufffd \u4e2d" in texts(lines("t", series, x_label="$", y_label="\\alpha"))
    assert "x" in texts(lines("t", [], x_label="x", y_label="y"))
    assert "x" in texts(bars_with_intervals("t", [], x_label="x"))


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
