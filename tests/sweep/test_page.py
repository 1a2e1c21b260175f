"""The HTML report: self-contained, escaped, and readable in a real browser."""

import html
import re
from pathlib import Path

import pytest

from support.browser import Browser
from sweep.records import PUBLISHED, record, result
from vllm_specdec_exporter.commands.sweep import page as sweep_page
from vllm_specdec_exporter.commands.sweep.record import ServerIdentity, Status
from vllm_specdec_exporter.publish.markup import Section, bullets, page

EVIL = "<script>alert(1)</script>\"'&\x1b\u202e"


def test_a_page_holds_everything_forbids_the_rest_and_escapes_names_from_outside() -> None:
    server = ServerIdentity(EVIL, EVIL, EVIL, "vllm-v1", 3)
    cells = (
        result(0.0, 0.5, prompts=EVIL, reasons=(EVIL,), status=Status.DISTURBED),
        result(0.0, 0.4, prompts="x"),
    )
    document = sweep_page.render(record(*cells, server=server))
    assert "\x1b" not in document
    assert document.count("&lt;script&gt;") >= 5
    assert not set(re.findall(r"<(\w+)", document)) & {
        *("script", "link", "img", "iframe", "object", "base", "form")
    }
    assert not re.search(r'\shref="(?!#)|\ssrc=|<[^>]*\son\w+=|@import|url\((?!#)', document)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', document)
    assert html.unescape(policy).startswith("default-src 'none'; style-src 'unsafe-inline';")
    ids = re.findall(r'\sid="([^"]*)"', document)
    assert len(ids) == len(set(ids)) > 0


def test_a_page_has_the_conclusion_every_cell_and_what_went_wrong() -> None:
    cells = [result(t, r) for t, r in PUBLISHED.items()]
    cells[1] = result(0.4, None, status=Status.FAILED, reasons=("16 of 16 requests: HTTP 500",))
    document = sweep_page.render(record(*cells))
    assert "Acceptance falls from 0.81 at 0.0 to 0.38 at 1.0." in document
    assert document.count('<th scope="row">code</th>') == len(cells)
    for cell in cells:
        assert document.count(f'<th scope="row">{cell.cell.name}</th>') == 1  # its positions
    assert "What went wrong" in document
    assert "code, temperature 0.4, concurrency 1: failed: 16 of 16 requests: HTTP 500" in document


def test_load_is_the_axis_where_only_load_was_varied() -> None:
    found = record(*(result(0.0, 0.8 - c / 100, concurrency=c) for c in (1, 4, 16)))
    document = sweep_page.render(found)
    assert "Acceptance ratio against concurrency" in document
    assert "code: 0.79 at concurrency 1, 0.76 at concurrency 4, 0.64 at concurrency 16" in document


def test_a_page_of_a_record_without_cells_says_so() -> None:
    assert "No cell was measured." in sweep_page.render(record())


def test_content_that_is_no_html_is_escaped() -> None:
    document = page("<t>", [Section("<h>", ("<p>", bullets(["<li>"])))], subtitle="<s>", lead=["<l>"])
    for words in ("t", "h", "p", "li", "s", "l"):
        assert f"&lt;{words}&gt;" in document


@pytest.mark.full
async def test_a_browser_shows_the_plots_in_both_schemes_without_complaint(tmp_path: Path) -> None:
    cells = [
        result(t, r - 0.1 * (p == "chat"), prompts=p, concurrency=c)
        for p in ("code", "chat")
        for c in (1, 8)
        for t, r in PUBLISHED.items()
    ]
    file = tmp_path / "report.html"
    file.write_text(sweep_page.render(record(*cells)), encoding="utf-8")
    ink = "getComputedStyle(document.querySelector('svg.plot text')).fill"
    colours = []
    async with Browser() as browser:
        for dark in (False, True):
            async with browser.page(width=900, dark=dark) as tab:
                await tab.open(file.as_uri())
                assert await tab.evaluate("document.querySelectorAll('svg.plot').length") == 6
                # Nothing is wider than the page, but for tables, which scroll by themselves.
                assert await tab.evaluate("document.documentElement.scrollWidth") <= 900
                width = "document.querySelector('svg.plot').getBoundingClientRect().width"
                assert await tab.evaluate(width) > 300
                colours.append(await tab.evaluate(ink))
                assert colours[-1] == await tab.evaluate("getComputedStyle(document.body).color")
    assert colours[0] != colours[1]
