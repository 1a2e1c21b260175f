"""The HTML report: self-contained, escaped, and readable in a real browser."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from support.browser import Browser
from sweep.records import PUBLISHED, published, record, result
from vllm_specdec_exporter.commands.sweep import page as sweep_page
from vllm_specdec_exporter.commands.sweep.grid import Zones
from vllm_specdec_exporter.commands.sweep.record import ServerIdentity, Status
from vllm_specdec_exporter.publish.markup import Section, bullets, data_table, page

EVIL = "<script>alert(1)</script>\"'&\x1b\u202e"


class Elements(HTMLParser):
    """Collects elements with their attributes, and identifiers."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_a_page_holds_everything_and_forbids_the_rest() -> None:
    document = sweep_page.render(published(), Zones())
    assert document == sweep_page.render(published(), Zones())
    elements = Elements(document).found
    names = {name for name, _ in elements}
    assert not names & {"script", "link", "img", "iframe", "object", "base", "form"}
    for _, attributes in elements:
        assert (attributes.get("href") or "#").startswith("#")
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
    policy = next(a["content"] for n, a in elements if n == "meta" and a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert not re.search(r"@import|url\((?!#)", document)
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_names_and_errors_from_outside_are_escaped() -> None:
    server = ServerIdentity(EVIL, EVIL, EVIL, EVIL, "vllm-v1", 3)
    cells = (
        result(0.0, 0.5, prompts=EVIL, reasons=(EVIL,), status=Status.DISTURBED),
        result(0.0, 0.4, prompts="x"),
    )
    document = sweep_page.render(record(*cells, server=server), Zones())
    assert "<script" not in document
    assert "\x1b" not in document
    assert document.count("&lt;script&gt;") >= 5


def test_a_page_has_the_conclusion_every_cell_and_what_went_wrong() -> None:
    cells = [result(t, r) for t, r in PUBLISHED.items()]
    cells[1] = result(0.4, None, status=Status.FAILED, reasons=("16 of 16 requests: HTTP 500",))
    document = sweep_page.render(record(*cells), Zones())
    assert "Acceptance falls from .81 at 0.0 to .38 at 1.0;" in document
    for cell in cells:
        assert document.count(f'<th scope="row">{cell.cell.name}</th>') == 4
    assert "What went wrong" in document
    assert "code, temperature 0.4, concurrency 1: failed: 16 of 16 requests: HTTP 500" in document
    for words in ("disable", "near break-even", "likely benefit"):
        assert f">{words}</text>" in document


def test_load_is_the_axis_where_only_load_was_varied() -> None:
    found = record(*(result(0.0, 0.8 - c / 100, concurrency=c) for c in (1, 4, 16)))
    document = sweep_page.render(found, Zones())
    assert "Acceptance ratio against concurrency" in document
    assert "code: 0.79 at concurrency 1, 0.76 at concurrency 4, 0.64 at concurrency 16" in document


def test_a_page_of_a_record_without_cells_says_so() -> None:
    assert "No cell was measured." in sweep_page.render(record(), Zones())


def test_tables_say_in_words_what_does_not_exist() -> None:
    table = data_table(("a", "b"), [("x", None)], label="what it shows")
    assert 'aria-label="what it shows"' in table
    assert "none: no value" in table


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
    file.write_text(sweep_page.render(record(*cells), Zones()), encoding="utf-8")
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
