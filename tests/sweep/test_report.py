"""What is made of a record of a sweep: the table, the conclusions, the JSON, the page;
and its progress.
"""

import builtins
import html
import re
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest

from support.browser import Browser
from sweep.records import PUBLISHED, published, record, result
from vllm_specdec_exporter.commands.sweep import report
from vllm_specdec_exporter.commands.sweep.record import (
    CellResult,
    ServerIdentity,
    Status,
    SweepRecord,
)
from vllm_specdec_exporter.commands.sweep.report import conclusions
from vllm_specdec_exporter.commands.sweep.runner import in_short, progress_line
from vllm_specdec_exporter.config.options import ConfigError
from vllm_specdec_exporter.economics.statistics import Interval
from vllm_specdec_exporter.publish.plots import Plot, Series, bars_with_intervals, lines

GOLDEN = Path(__file__).parent / "golden"


def check_golden(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


def test_the_published_sweep_as_a_table() -> None:
    check_golden("published.txt", report.render(published()) + "\n")


def test_trouble_of_every_kind_as_a_table() -> None:
    disturbed = "the counters say 9 drafts, the records 8"
    undrafted = partial(result, ratio=None, prompts="own", concurrency=8)
    troubled = record(
        result(0.0, 0.66, unit="draft", reach=0.02),
        result(0.8, 0.4, status=Status.DISTURBED, reasons=(disturbed,)),
        undrafted(0.0),
        undrafted(0.8, status=Status.FAILED, reasons=("16 of 16: no",)),
    )
    check_golden("trouble.txt", report.render(troubled) + "\n")


def test_an_empty_record_says_so() -> None:
    assert report.render(record()).endswith("no cell was measured")


#: Acceptance at the published temperatures, and what is concluded from it.
CONCLUSIONS = {
    tuple(PUBLISHED.values()): "acceptance falls from 0.81 at 0.0 to 0.38 at 1.0",
    (0.3, 0.35, 0.5, 0.7): "acceptance rises from 0.30 at 0.0 to 0.70 at 1.0",
    (0.6, 0.62, 0.58, 0.61): (
        "acceptance does not differ beyond chance: it is 0.60 at 0.0 and 0.61 at 1.0"
    ),
    # Cells without acceptance take no part.
    (1.0, None, None, None): "acceptance is 1.00 at 0.0",
    (None, None, None, None): "nothing was drafted, so there is no acceptance",
}


@pytest.mark.parametrize(("ratios", "conclusion"), CONCLUSIONS.items())
def test_the_conclusion_says_what_temperature_does(
    ratios: tuple[float | None, ...], conclusion: str
) -> None:
    swept = record(*(result(t, r) for t, r in zip(PUBLISHED, ratios, strict=True)))
    assert conclusions(swept) == (conclusion,)


def of_each_set_and_load() -> SweepRecord:
    """The published sweep of two sets at two loads; chat accepts a tenth less."""
    return record(
        *(
            result(temperature, ratio - gap, prompts=prompts, concurrency=load)
            for (prompts, gap), load, (temperature, ratio) in product(
                {"code": 0.0, "chat": 0.1}.items(), (1, 8), PUBLISHED.items()
            )
        )
    )


def test_each_set_and_load_has_a_conclusion_of_its_own() -> None:
    assert sorted(conclusions(of_each_set_and_load())) == [
        "chat, concurrency 1: acceptance falls from 0.71 at 0.0 to 0.28 at 1.0",
        "chat, concurrency 8: acceptance falls from 0.71 at 0.0 to 0.28 at 1.0",
        "code, concurrency 1: acceptance falls from 0.81 at 0.0 to 0.38 at 1.0",
        "code, concurrency 8: acceptance falls from 0.81 at 0.0 to 0.38 at 1.0",
    ]


def test_the_json_has_the_conclusions_beside_the_record() -> None:
    document = report.document(published())
    assert [cell["acceptance_ratio"] for cell in document["cells"]] == list(
        PUBLISHED.values()
    )
    assert document["conclusions"] == conclusions(published())


# --- progress


def test_a_line_has_the_last_cell_and_the_time_that_is_left() -> None:
    """The others take as long as those that were measured."""
    cell = result(0.4, 0.71, concurrency=4)
    name = "code, temperature 0.4, concurrency 4: acceptance 0.71, 163.8 tokens/s"
    assert progress_line([cell], 3, seconds=40) == f"[1/3] {name}; about 1m20s left"
    assert progress_line([cell] * 3, 3, seconds=120) == f"[3/3] {name}"


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        (result(0.8, None, status=Status.FAILED, reasons=("broke",)), "failed: broke"),
        (result(0.8, None), "no drafts, 163.8 tokens/s"),
        (
            result(0.4, 0.7, status=Status.DISTURBED, reasons=("others",)),
            "acceptance 0.70, 163.8 tokens/s; disturbed: others",
        ),
        (
            result(0.4, 0.7, reasons=("1 error",)),
            "acceptance 0.70, 163.8 tokens/s; 1 error",
        ),
    ],
)
def test_a_cell_is_told_with_its_trouble(cell: CellResult, line: str) -> None:
    assert in_short(cell) == line


# --- the page


EVIL = "<script>alert(1)</script>\"'&\x1b\u202e"


def test_a_page_holds_everything_forbids_the_rest_and_escapes_names_from_outside() -> (
    None
):
    server = ServerIdentity(EVIL, EVIL, EVIL)
    cells = (
        result(0.0, 0.5, prompts=EVIL, reasons=(EVIL,), status=Status.DISTURBED),
        result(0.0, 0.4, prompts="x"),
    )
    document = report.render_page(record(*cells, server=server))
    assert "\x1b" not in document
    assert document.count("&lt;script&gt;") >= 5
    assert not set(re.findall(r"<(\w+)", document)) & {
        "script",
        "link",
        "iframe",
        "object",
        "base",
        "form",
    }
    assert not re.search(
        r'\shref=|\ssrc="(?!data:)|<[^>]*\son\w+=|@import|url\(', document
    )
    (policy,) = re.findall(
        r'http-equiv="Content-Security-Policy" content="([^"]*)"', document
    )
    assert html.unescape(policy).startswith(
        "default-src 'none'; style-src 'unsafe-inline';"
    )


def test_a_page_has_the_conclusion_every_cell_and_what_went_wrong() -> None:
    cells = [result(t, r) for t, r in PUBLISHED.items()]
    cells[1] = result(
        0.4, None, status=Status.FAILED, reasons=("16 of 16 requests: HTTP 500",)
    )
    document = report.render_page(record(*cells))
    assert "Acceptance falls from 0.81 at 0.0 to 0.38 at 1.0." in document
    assert document.count('<th scope="row">code</th>') == len(cells)
    for cell in cells:
        # its positions
        assert document.count(f'<th scope="row">{cell.name}</th>') == 1, cell.name
    assert "What went wrong" in document
    assert (
        "code, temperature 0.4, concurrency 1: failed: 16 of 16 requests: HTTP 500"
        in document
    )


def test_load_is_the_axis_where_only_load_was_varied() -> None:
    swept = record(*(result(0.0, 0.8 - c / 100, concurrency=c) for c in (1, 4, 16)))
    document = report.render_page(swept)
    assert "Acceptance ratio against concurrency" in document
    assert (
        "code: 0.79 at concurrency 1, 0.76 at concurrency 4, 0.64 at concurrency 16"
        in document
    )


def test_a_page_of_a_record_without_cells_says_so() -> None:
    assert "No cell was measured." in report.render_page(record())


PAGE_WIDTH = "document.documentElement.scrollWidth"
PLOT_WIDTH = "document.querySelector('.plot').getBoundingClientRect().width"
#: How many plots have been decoded.
PLOTS_SHOWN = (
    "[...document.querySelectorAll('img.plot')].filter(i => i.naturalWidth).length"
)


@pytest.mark.full
async def test_a_browser_shows_the_plots_in_both_schemes_without_complaint(
    tmp_path: Path,
) -> None:
    file = tmp_path / "report.html"
    file.write_text(report.render_page(of_each_set_and_load()), encoding="utf-8")
    async with Browser() as browser:
        for dark in (False, True):
            async with browser.page(width=900, dark=dark) as tab:
                await tab.open(file.as_uri())
                # Nothing is wider than the page, but for tables, which scroll by
                # themselves.
                plots, page_width, plot_width = await tab.evaluate(
                    f"[{PLOTS_SHOWN}, {PAGE_WIDTH}, {PLOT_WIDTH}]"
                )
                assert plots == 6, dark
                assert 300 < plot_width < page_width <= 900, dark


# --- plots


SVG = "{http://www.w3.org/2000/svg}"
SERIES = (
    Series(
        "first", {0: Interval(0.81, 0.7, 0.9), 0.4: Interval(0.71), 1: Interval(0.38)}
    ),
    Series("_second", {0: Interval(0.61), 1: Interval(0.37)}),
)
BARS = {"with": Interval(1.3, 1.2, 1.4), "without": None, "bare": Interval(0.9)}


def draw() -> Plot:
    return lines("a title", SERIES, x_label="x", y_label="y")


def texts(plot: Plot) -> list[str]:
    root = ET.fromstring(plot.svg)
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def test_the_same_data_give_the_same_bytes_whatever_the_settings() -> None:
    usual = draw()
    with mpl.rc_context(
        {"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}
    ):
        assert draw() == usual
        assert mpl.rcParams["font.size"] == 30  # and the program's own settings stay
    assert draw() == usual


def test_a_plot_is_described() -> None:
    plot = draw()
    root = ET.fromstring(plot.svg)
    assert [element.text for element in root.iter(f"{SVG}title")] == ["a title"]
    assert plot.description == (
        "first: 0.81 at x 0, 0.71 at x 0.4, 0.38 at x 1; _second: 0.61 at x 0, "
        "0.37 at x 1"
    )
    assert {"first", " _second", "x", "y"} <= set(texts(plot))


def test_names_from_outside_are_text_and_a_line_may_have_no_points() -> None:
    name = "<b>$x_{1$ & \x07 \u4e2d"
    series = [Series(name, SERIES[0].points), SERIES[1], Series("none", ())]
    assert "<b>$x_{1$ & \ufffd \u4e2d" in texts(
        lines("t", series, x_label="$", y_label="\\alpha")
    )
    assert "x" in texts(lines("t", [], x_label="x", y_label="y"))
    assert "x" in texts(bars_with_intervals("t", {}, x_label="x"))


def test_bars_say_their_values_and_which_have_none() -> None:
    labels = texts(
        bars_with_intervals("t", BARS, x_label="speedup", reference=1.0, form="{:.1f}x")
    )
    assert {"1.3x", "none", "0.9x", "with", "without"} <= set(labels)


def test_a_missing_matplotlib_is_named_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install matplotlib"):
        draw()
