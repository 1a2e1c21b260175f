"""The status page in a real browser: what it looks like, and that it keeps itself up to
date.
"""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from statuspage.examples import NOW, PAGES, engine, page_of, target
from support.browser import Browser, BrowserError
from support.closing import clean_up
from support.copies import replace
from vllm_specdec_exporter.observe.result import ExporterResult
from vllm_specdec_exporter.publish.status_page import (
    CONTENT_SECURITY_POLICY,
    parse_query,
    render,
)

pytestmark = [pytest.mark.full, pytest.mark.asyncio(loop_scope="module")]

#: Of the window, and whether colours are dark: a narrow one, and a wide one in both
#: schemes.
LOOKS = ((320, False), (1920, False), (1920, True))
#: Names longer than any screen is wide, as the server may have them.
LONG = replace(
    engine(),
    model_name="/models/" + "very-long-checkpoint-directory-name-" * 8,
    defects=("x" * 300,),
)
SHOWN = {
    **PAGES,
    "long": page_of(
        replace(target(LONG), target="http://" + "long-host." * 30 + "svc:8000"),
        target(LONG),
    ),
}

#: How much each visible text contrasts with what is painted behind it, by WCAG 2; and
#: the page's colour.
CONTRASTS = Path(__file__).with_name("contrasts.js").read_text("utf-8").strip()

#: By how much the page is wider than its window, and which elements are.
OVERFLOW = Path(__file__).with_name("overflow.js").read_text("utf-8").strip()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with Browser() as running:
        yield running


class Site:
    """Serves one page; what it shows may change."""

    def __init__(self, result: ExporterResult, refresh: float = 0.0) -> None:
        self.result = result
        self.refresh = refresh
        self.address = ""
        self.times_served = 0

    async def serve(self, request: web.Request) -> web.Response:
        self.times_served += 1
        page = render(self.result, NOW, parse_query(request.query, self.refresh))
        headers = {
            "Content-Security-Policy": CONTENT_SECURITY_POLICY,
            "X-Content-Type-Options": "nosniff",
        }
        return web.Response(text=page, content_type="text/html", headers=headers)


@asynccontextmanager
async def serving(result: ExporterResult, refresh: float = 0.0) -> AsyncIterator[Site]:
    """Serve a page behind a path prefix, as a proxy might."""
    site = Site(result, refresh)
    app = web.Application()
    app.router.add_get("/some/prefix/", site.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        site.address = f"http://127.0.0.1:{runner.addresses[0][1]}/some/prefix/"
        yield site
    finally:
        await clean_up(runner)


async def test_every_state_looks_right_at_every_width_in_both_schemes(
    browser: Browser,
) -> None:
    """Nothing is wider than the page, and all text can be read."""
    faults = []
    async with serving(PAGES["healthy"]) as site, browser.page() as page:
        for name, site.result in SHOWN.items():
            await page.open(site.address)
            backgrounds = set()
            for width, dark in LOOKS:
                await page.emulate(width, dark=dark)
                (excess, wide), contrasts, background = await page.evaluate(
                    f"[{OVERFLOW}, {CONTRASTS}]"
                )
                if excess or wide:
                    faults.append((name, width, excess, wide))
                assert len(contrasts) > 10, name
                pale = [text for text in contrasts if text[1] < 4.5]
                if pale:
                    faults.append((name, width, dark, pale))
                backgrounds.add(background)
            assert len(backgrounds) == 2, f"{name}: dark and light must differ"
        assert faults == []
        assert set(page.requests) == {site.address}
        assert page.errors == []


async def test_the_page_reloads_itself_in_its_place_until_it_is_paused(
    browser: Browser,
) -> None:
    async with (
        serving(PAGES["healthy"], refresh=1) as site,
        browser.page(height=500) as page,
    ):

        async def click(label: str) -> None:
            await page.evaluate(
                f"[...document.links].find((a) => a.textContent === '{label}').click()"
            )

        await page.open(site.address)
        await click("Rubric, applied")
        await page.wait_for(
            "document.querySelector('[aria-expanded=true]') && document.readyState "
            "=== 'complete'"
        )
        # What was read stays where it was, whatever the height of what is above.
        await page.evaluate(
            "document.querySelector('#open-rubric').scrollIntoView(), scrollBy(0, -200)"
        )
        site.result = PAGES["measured_harmful"]
        await page.wait_for("document.title === 'harmful – vllm-specdec-exporter'")
        await page.wait_for(
            "Math.abs(document.querySelector('#open-rubric')"
            ".getBoundingClientRect().top - 200) < 50"
        )
        assert await page.evaluate(
            "document.querySelector('[aria-expanded=true]') !== null"
        ), "still open"
        assert set(page.requests) == {site.address, f"{site.address}?open=rubric"}

        await click("pause")
        await page.wait_for(
            "location.search.startsWith('?refresh=0') && document.readyState === "
            "'complete'"
        )
        served = site.times_served
        site.result = PAGES["healthy"]
        # It would reload every second.
        with pytest.raises(BrowserError, match="not true"):
            await page.wait_for("document.title.startsWith('beneficial')", seconds=2)
        assert site.times_served == served
        await click("resume")
        await page.wait_for("document.title.startsWith('beneficial')")
        assert page.errors == []


async def test_selected_text_stays_selected_until_it_is_released(
    browser: Browser,
) -> None:
    """Somebody copies the configuration from a page that reloads every few seconds."""
    async with (
        serving(PAGES["healthy"], refresh=4) as site,
        browser.page(width=390) as page,
    ):
        await page.open(site.address)
        await page.evaluate(
            "getSelection().selectAllChildren(document.querySelector('h1'))"
        )
        site.result = PAGES["measured_harmful"]
        with pytest.raises(BrowserError, match="not true"):
            await page.wait_for("document.title.startsWith('harmful')", seconds=6)
        assert "Speculative decoding" in await page.evaluate(
            "getSelection().toString()"
        )
        await page.evaluate("getSelection().removeAllRanges()")
        await page.wait_for("document.title.startsWith('harmful')")
        assert page.errors == []


async def test_links_stay_behind_the_path_prefix_and_anchors_lead_to_the_engines(
    browser: Browser,
) -> None:
    async with serving(PAGES["fleet"]) as site, browser.page() as page:
        await page.open(site.address)
        links = await page.evaluate("[...document.links].map((a) => a.href)")
        await page.evaluate("document.querySelectorAll('.overview a')[3].click()")
        await page.wait_for(
            "document.querySelector(':target') && document.readyState === 'complete'"
        )
        top = await page.evaluate(
            "document.querySelector(':target').getBoundingClientRect().top"
        )
        await page.call("Accessibility.enable")
        tree = (await page.call("Accessibility.getFullAXTree"))["nodes"]
    assert 0 <= top < 100
    assert all(link.startswith(site.address) for link in links)
    # What a screen reader says: everything has a name, and bars repeat the text beside
    # them.
    names = defaultdict(set)
    for node in tree:
        if not node.get("ignored"):
            name = node.get("name", {}).get("value", "")
            names[node["role"]["value"]].add(name)
    assert "Other pages" in names["navigation"]
    assert "meta-llama/Llama-3.1-8B-Instruct engine 3" in names["article"]
    assert "Acceptance by position last 5m" in names["region"]
    assert "Position" in names["columnheader"]
    assert "" not in names["region"]
    assert not names["image"] | names["graphics-document"]
