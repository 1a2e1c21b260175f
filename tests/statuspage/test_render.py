"""What the status page says, in every state."""

import json
import re
import shlex
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from hashlib import sha256
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from per_request.results import HOSTILE, TAP, few
from per_request.traffic import CHAT, CODE, known
from statuspage.document import Element, lines, read
from statuspage.examples import (
    FLEET,
    HOSTILE_TEXT,
    NOW,
    PAGES,
    down,
    engine,
    page_of,
    target,
)
from support.copies import replace
from support.golden import golden_text
from vllm_specdec_exporter.economics.baseline_match import LatencyRatio, Measured
from vllm_specdec_exporter.judgement.activity import Activity, ActivityState
from vllm_specdec_exporter.judgement.advice import Action, Advice
from vllm_specdec_exporter.judgement.findings import Finding, Severity
from vllm_specdec_exporter.judgement.payoff import Payoff, PayoffVerdict
from vllm_specdec_exporter.observe.result import (
    EngineResult,
    ExporterResult,
    Reload,
    TargetResult,
)
from vllm_specdec_exporter.publish.last_hour import LastHour, add_minute
from vllm_specdec_exporter.publish.numbers import duration, rate
from vllm_specdec_exporter.publish.status_page import (
    CONTENT_SECURITY_POLICY,
    PageQuery,
    parse_query,
    render,
)
from vllm_specdec_exporter.publish.status_page.query import FOLDS

#: Everything is open.
OPEN = PageQuery(opened=frozenset(FOLDS))


def show(result: ExporterResult, engine: str = "") -> Element:
    return read(render(result, NOW, replace(OPEN, engine=engine)))


def show_engine(shown: EngineResult, **changes: object) -> Element:
    """Return the page of a server with one engine, with `changes` to it."""
    return show(page_of(target(replace(shown, **changes))))


def only(name: str) -> EngineResult:
    """Return the only engine of a page."""
    ((result,),) = (server.engines for server in PAGES[name].targets)
    return result


def answers(page: Element) -> dict[str, str]:
    """Return the tiles of the only engine within: title to text."""
    tiles = page.one("dl", class_="answer").all("div")
    return {tile.one("dt").text: tile.one("dd").text for tile in tiles}


def panel(page: Element, title: str) -> Element:
    """Return the section with this title."""
    for section in page.all("section"):
        head = section.content[0]
        if head.tag == "h4" and head.text.startswith(title):
            return section
    raise AssertionError(title)


def to_paste(page: Element) -> list[str]:
    """Return each text to paste."""
    codes = panel(page, "To paste").all("code")
    return [str(code.content[0]) for code in codes]


def after_the_flag(text: str) -> list[str]:
    """Return what a shell passes behind the flag of a text to paste."""
    flag, *values = shlex.split(text)
    assert flag == "--speculative-config"
    return values


def queried(link: str) -> dict[str, str]:
    """Return the parameters of a link."""
    return dict(parse_qsl(urlsplit(link).query))


def rows(element: Element) -> list[list[str]]:
    """Return the texts of all rows of a table's body."""
    return [row.texts() for row in element.one("tbody").all("tr")]


def faults(page: Element) -> Iterator[object]:
    """Yield what is wrong with a page, whatever it shows."""
    yield from structural_faults(page)
    yield from foreign_parts(page)
    yield from unexplained_marks(page)


def structural_faults(page: Element) -> Iterator[object]:
    """It is a page, and can be read aloud."""
    ids = page.values("id")
    yield from (name for name in ids if ids.count(name) > 1)
    yield from set(page.values("aria-labelledby")) - set(ids)
    anchors = [link[1:] for link in page.values("href") if link.startswith("#")]
    yield from set(anchors) - set(ids)
    if page.one("html").attributes["lang"] != "en":
        yield "no language"
    if not page.all("meta", charset="utf-8"):
        yield "no encoding"
    levels = [int(e.tag[1]) for e in page.all() if re.fullmatch("h[1-6]", e.tag)]
    skipped = [pair for pair in pairwise(levels) if pair[1] > pair[0] + 1]
    if levels[0] != 1 or levels.count(1) != 1 or skipped:
        yield f"headings: {levels}"
    for table in page.all("table"):
        heads = table.one("thead").all("th")
        if {head.attributes["scope"] for head in heads} != {"col"}:
            yield table
        for row in table.one("tbody").all("tr"):
            cells = len(row.all("th") + row.all("td"))
            if row.one("th").attributes["scope"] != "row" or cells != len(heads):
                yield row


def foreign_parts(page: Element) -> Iterator[object]:
    """Yield what needs something from elsewhere, which the policy would refuse, and
    links that leave a proxy's path.
    """
    for script in page.all("script"):
        content = "".join(map(str, script.content))
        digest = b64encode(sha256(content.encode()).digest()).decode()
        allowed = f"script-src 'sha256-{digest}';" in CONTENT_SECURITY_POLICY
        if script.attributes or not allowed:
            yield script
    for element in page.all():
        # Handlers of events and styles of single elements are refused too.
        if re.search(r"^(on|style)", "\n".join(element.attributes), re.MULTILINE):
            yield element
        if element.tag in ("img", "iframe", "object", "form", "base"):
            yield element
    yield from set(page.values("href", "link")) - {"data:,"}
    yield from re.findall(r"url\(|@import", str(page.one("style").content[0]))
    links = page.values("href", "a")
    endpoints = {"metrics", "api/v1/snapshot", "config", "-/healthy", "-/ready"}
    yield from endpoints - set(links)
    for link in links:
        if link.startswith("/") or ":" in link:
            yield link
        if link.startswith("?") and parse_query(queried(link)).link() == ".":
            yield link


def unexplained_marks(page: Element) -> Iterator[object]:
    """A bar or a colour is never alone, a dash says why, and no number is made up."""
    for gauge in page.all("div", class_="gauge"):
        if not re.fullmatch(r"[\d.,]+[%×]?|–", gauge.text):
            yield gauge
    for pill in page.all("span", class_="pill"):
        if not pill.text:
            yield pill
    for dash in page.all("span", class_="none"):
        why = dash.attributes["title"]
        aloud = dash.one("span", class_="hidden").content
        if not why or dash.text != "–" or f"none: {why}" not in aloud:
            yield dash
    yield from re.findall(r"\b(?:nan|inf|None)\b(?!:)", page.one("main").text)


@pytest.mark.parametrize("name", PAGES)
def test_every_state_is_a_valid_page(name: str) -> None:
    assert list(faults(show(PAGES[name]))) == []


@pytest.mark.parametrize(
    "name",
    [
        "poor",
        "measured",
        "varying",
        "v0",
        "warming_up",
        "off",
        "down",
        "requests_mixed",
        "requests_few",
        "requests_varying",
        "requests_summary",
    ],
)
def test_a_page_says_what_is_committed(name: str) -> None:
    """`UPDATE_GOLDEN=1 pytest tests/statuspage` writes the texts anew; read what
    changed in them.
    """
    page = show(PAGES[name])
    if name.startswith("requests_"):
        # The servers are those of other pages.
        page = page.all("section", class_="target")[-1]
        assert page.all(id="requests")
    text = "\n".join([*lines(page), ""])
    assert golden_text(Path(__file__).parent / "pages" / f"{name}.txt", text) == text


@pytest.mark.parametrize(
    ("name", "payoff", "basis"),
    [
        ("healthy", "beneficial 1.88×", "calibrated"),
        ("marginal", "marginal 1.13×", "calibrated"),
        ("disable", "harmful 0.52×", "calibrated"),
        ("measured_harmful", "harmful 0.87×", "measured"),
    ],
)
def test_the_answer_leads_with_payoff_and_what_to_do(
    name: str, payoff: str, basis: str
) -> None:
    page = show(PAGES[name])
    tiles = answers(page)
    assert list(tiles)[:2] == ["Payoff", "What to do"]
    assert tiles["Payoff"].startswith(
        f"{payoff} times as fast as without speculation, {basis}, last 5m by the "
        "cost profile it breaks even at "
    )
    reasons = only(name).payoff.reasons
    assert [reason for reason in reasons if reason not in tiles["Payoff"]] == []
    reason = only(name).advice.reason.removeprefix("no advice on K: ")
    assert tiles["What to do"].endswith(reason)
    border = page.one("article").attributes["class"].split()
    assert payoff.split()[0] in border


@pytest.mark.parametrize(
    ("action", "k", "text", "marked"),
    [
        (Action.KEEP, 4, "keep K=4", {"4 now, recommended"}),
        (
            Action.INCREASE_K,
            7,
            "raise K to 7",
            {"7 recommended, extrapolated", "4 now"},
        ),
        (Action.DECREASE_K, 2, "lower K to 2", {"2 recommended", "4 now"}),
        (
            Action.DISABLE,
            0,
            "switch speculation off",
            {"0 no speculation, recommended", "4 now"},
        ),
        (Action.SWITCH_METHOD, 4, "try another method", {"4 now, recommended"}),
        (Action.INSUFFICIENT_DATA, None, "–", {"4 now"}),
    ],
)
def test_every_action_and_every_k_are_in_plain_words(
    action: Action, k: int | None, text: str, marked: set[str]
) -> None:
    """In the answer, in the overview of engines, and in the table of every K."""
    healthy = only("healthy")
    advice = replace(
        healthy.advice, action=action, num_speculative_tokens=k, reason="why"
    )
    advised = replace(healthy, advice=advice)
    page = show(page_of(target(advised), target(advised, address="http://other:8000")))
    assert answers(page.one("article"))["What to do"] == f"{text} why"
    overview = rows(page.one("table", class_="overview"))
    assert [row[2] for row in overview] == [text, text]
    heads = {row[0] for row in rows(panel(page, "Every K"))}
    assert set(filter(re.compile("now|recommended").search, heads)) == marked


def test_a_payoff_that_cannot_be_known_says_why() -> None:
    """A server that does not show its load is judged by its acceptance; a wide interval
    is shown.
    """
    assert re.match(
        r"likely beneficial \(0\.\d\d to (\d\.\d\d)\) 0\.\d\d to \1 times as fast as "
        r"without speculation, modelled, last 5m",
        answers(show(PAGES["payoff_unknown"]))["Payoff"],
    )
    page = show_engine(engine(running=None))
    why = (
        "the number of running requests is missing, so the cost of a step is not known"
    )
    assert answers(page)["Payoff"] == f"– {why}"
    assert page.one("article").attributes["class"] == "healthy"
    assert page.one("title").content[0] == "healthy – vllm-specdec-exporter"


def test_what_to_paste_is_the_operators_json_with_another_k() -> None:
    """Where that is not known, it says so; of any content it survives a shell."""
    (value,) = after_the_flag(to_paste(show(PAGES["decrease"]))[0])
    assert json.loads(value) == {
        "method": "eagle3",
        "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
        "num_speculative_tokens": 2,
    }

    page = show(PAGES["unsaid"])
    pasted = to_paste(page)
    assert json.loads(pasted[0]) == {"num_speculative_tokens": 2}
    assert "--speculative-config" not in "".join(pasted)
    note = "Only what changes is in it: add it to the server's own JSON."
    assert note in panel(page, "To paste").text

    (pasted_text,) = to_paste(show(PAGES["hostile"]))
    (value,) = after_the_flag(pasted_text)
    assert json.loads(value)["method"] == HOSTILE_TEXT


def test_a_schedule_says_what_it_rests_on_or_why_there_is_none() -> None:
    measured = only("measured")

    def text(**changes: object) -> str:
        advice = replace(measured.advice, **changes)
        return panel(show_engine(measured, advice=advice), "To paste").text

    rests_on = "Batches of 2 to 1,200 were seen; for all others"
    assert rests_on in text(batch_sizes=(2.0, 1200.0))
    assert "were seen" not in text(batch_sizes=None)
    note = "vLLM ignores a K schedule with data parallelism"
    none = text(schedule=(), schedule_config="", schedule_note=note)
    assert f"No K schedule: {note}." in none


def test_what_was_not_measured_in_the_judged_window_is_a_dash_or_says_so() -> None:
    short, judged = only("measured").windows

    def shown(measured: Measured) -> Element:
        windows = (short, replace(judged, measured=measured))
        return show_engine(only("measured"), windows=windows)

    baseline = panel(shown(Measured()), "Against the baseline")
    assert "None: too few requests finished" in baseline.text
    slower = LatencyRatio("end_to_end", 0.95, 1.3)
    page = shown(Measured(latency_ratios=(slower,)))
    assert rows(panel(page, "Against the baseline"))[1:] == [
        ["Output token", "–", "–", "–"],
        ["Whole request", "–", "1.30×", "–"],
    ]
    # As fast as a step emits tokens: the options rest on the profile alone.
    every_k = panel(shown(Measured(9.0, 1.1, 11.0, 40.0)), "Every K").text
    assert "it does not correct these speedups" in every_k
    assert "are corrected by" not in every_k


def test_a_position_that_no_draft_reaches_has_no_share_of_those_before() -> None:
    positions = panel(show_engine(engine((0.5, 0.0, 0.0))), "Acceptance by position")
    assert rows(positions)[1:] == [["1", "0.0%", "0.0%"], ["2", "0.0%", "–"]]


NOT_RELOADED = Reload(successful=False, success_timestamp_seconds=NOW - 60)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (PAGES["never_up"], "No poll has succeeded since the exporter started."),
        (
            # A reason that a newer exporter may have.
            page_of(down(NOW - 3 * 86_400, "newfangled")),
            "at 2026-09-18 14:13:20 UTC , 3 d ago",
        ),
        (PAGES["not_polled"], "The first poll is under way."),
        (PAGES["no_engines"], "The server answers, but shows no engine"),
        (PAGES["no_targets"], "No server is known to poll."),
        (replace(PAGES["healthy"], reload=NOT_RELOADED), "Configuration not reloaded"),
    ],
    ids=["never-up", "down", "not-polled", "no-engines", "no-targets", "not-reloaded"],
)
def test_a_notice_says_why_nothing_or_old_is_shown(
    result: ExporterResult, text: str
) -> None:
    assert text in show(result).one("div", class_="notice").text


def test_the_overview_has_every_engine_and_every_silent_server_worst_first() -> None:
    """Only where there are several engines, before them."""
    table = rows(show(FLEET).one("table", class_="overview"))
    assert [(row[1].split()[0], row[3], row[4]) for row in table] == [
        ("–", "down", "–"),
        ("harmful", "active", "poor"),
        ("–", "bypassed", "–"),
        ("beneficial", "active", "fair"),
        ("beneficial", "active", "healthy"),
        ("beneficial", "active", "optimal"),
        ("beneficial", "active", "optimal"),
        ("–", "warming up", "–"),
        ("–", "idle", "–"),
        ("–", "off", "–"),
    ]
    address = "http://vllm-c:8000"
    assert table[0] == [address, "–", "–", "down", *["–"] * 6, address]
    page = render(FLEET, NOW)
    assert page.index('class="overview"') < page.index("<article")
    assert not show(PAGES["healthy"]).all("table", class_="overview")


def test_one_engine_is_shown_in_detail_the_worst_one_or_that_of_the_address() -> None:
    def article_at(query: dict[str, str]) -> Element:
        return read(render(FLEET, NOW, parse_query(query))).one("article")

    page = read(render(FLEET, NOW, parse_query({"refresh": "7", "open": "rubric"})))
    assert answers(page)["Payoff"].startswith("harmful")
    overview = page.one("table", class_="overview").one("tbody")
    # The first line is that of a server that is down.
    _, *links = overview.values("href", "a")
    assert links[0] == "?refresh=7&engine=engine-0-2&open=rubric#engine-0-2"
    anchors = [
        article_at(queried(link)).attributes["aria-labelledby"] for link in links
    ]
    assert anchors == [urlsplit(link).fragment for link in links]
    for anchor in ("engine-9-9", "engine-0-<b>", "x"):
        payoff = answers(article_at({"engine": anchor}))["Payoff"]
        assert payoff.startswith("harmful"), anchor


@pytest.mark.parametrize(
    ("key", "title"), [("rules", "Rules of thumb"), ("rubric", "Rubric, applied")]
)
def test_parts_are_folded_until_the_address_opens_them(key: str, title: str) -> None:
    def fold(query: PageQuery) -> tuple[str, dict[str, str]]:
        page = read(render(PAGES["poor"], NOW, query))
        (link,) = (a for a in page.all("a") if a.text == title)
        return link.attributes["aria-expanded"], queried(link.attributes["href"])

    expanded, query = fold(PageQuery())
    assert expanded == "false"
    assert parse_query(query).opened == {key}
    assert fold(parse_query(query)) == ("true", {})
    closed = read(render(PAGES["poor"], NOW))
    assert len(closed.text) < len(show(PAGES["poor"]).text) * 0.9


def test_the_trend_of_the_shortest_window_stands_beside_the_verdict() -> None:
    """A collapse is seen while the judged window still says beneficial."""
    healthy = only("healthy")
    short, judged = healthy.windows

    def tiles(**changes: object) -> dict[str, str]:
        newest = replace(short, **changes)
        return answers(show_engine(healthy, windows=(newest, judged)))

    slow = replace(short.estimate, speedup=0.58)
    falling = tiles(estimate=slow, coverage_ratio=None, mean_acceptance_length=1.1)
    payoff = "beneficial 1.88× falling: 0.58× in the last 30s "
    assert falling["Payoff"].startswith(payoff)
    length = "3.58 falling: 1.10 in the last 30s "
    assert falling["Mean acceptance length"].startswith(length)
    rising = tiles(mean_acceptance_length=4.4)["Mean acceptance length"]
    assert "rising: 4.40 in the last 30s" in rising
    assert "falling" not in tiles()["Payoff"]
    # So few drafts that the difference is likely to be noise.
    assert "falling" not in tiles(estimate=slow, drafts=99.0)["Payoff"]


def hour_with_a_gap() -> LastHour:
    """Return the last of 90 minutes, with two polls in each and none in five."""
    healthy = only("healthy")
    hour = {}
    for minute in (*range(70), *range(75, 90)):
        payoff = replace(healthy.payoff, speedup=0.5 + minute / 100)
        polled = [replace(healthy, payoff=payoff)]
        for second in (0, 5):
            hour = add_minute(hour, polled, NOW + 60 * minute + second)
    return hour


def test_the_last_hour_has_a_point_a_minute() -> None:
    (points,) = hour_with_a_gap().values()
    assert len(points) == 56
    assert points[0].time == NOW + 60 * 29
    assert points[-1].time == NOW + 60 * 89


def test_the_last_hour_starts_anew_with_the_clock_and_without_the_engine() -> None:
    hour = hour_with_a_gap()
    healthy = only("healthy")
    (points,) = add_minute(hour, [healthy], NOW).values()
    assert [point.time for point in points] == [NOW]
    another = replace(healthy, engine="7")
    assert add_minute(hour, [another], NOW + 60 * 90).keys() == {another.key}


def test_the_last_hour_is_drawn_with_its_range_and_its_gaps() -> None:
    page = read(
        render(PAGES["healthy"], NOW + 60 * 89, OPEN, hours=(hour_with_a_gap(),))
    )
    payoff, length = page.all("div", class_="hour")
    assert payoff.text == "last hour: 0.79× to 1.88×"
    assert length.text == "last hour: 3.58 to 3.58"
    before_gap, after_gap = map(str.split, payoff.values("points", class_="line"))
    assert len(before_gap) == 41
    assert len(after_gap) == 15
    assert before_gap[0].split(",")[0] == "0.0"
    # It ends at the value beside it, which may be newer than the last point.
    assert "1.88×" in page.one("dl", class_="answer").text
    assert after_gap[-1] == "240.0,2.0"
    # What hardly changes is drawn as a level line.
    level = " ".join(length.values("points", class_="line"))
    assert {point.split(",")[1] for point in level.split()} == {"16.0"}


def test_a_k_that_differs_by_noise_alone_says_so() -> None:
    advice = only("healthy").advice
    options = []
    lengths = (1.0, 1.4, 1.9, 2.0)
    for option, length in zip(advice.options[:4], lengths, strict=True):
        # The step takes one plain step, so that the length and its interval are those
        # of the speedup.
        alike = replace(
            option,
            speedup=length,
            step_cost=1.0,
            length_low=length - 0.1,
            length_high=length + 0.1,
        )
        options.append(alike)
    page = show_engine(only("healthy"), advice=replace(advice, options=tuple(options)))
    heads = " ".join(row[0] for row in rows(panel(page, "Every K")))
    assert re.findall(r"\d within noise[^\d]*", heads) == [
        "2 within noise of the best "
    ]


MARKUP = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "'&quot;&amp;</style></title><b>",
    "]]>--><!--",
)
NASTY = (
    "line\nbreak\tand \x00\x1b[31m\x7f\x85",
    "\ud800 lone surrogate",
    "\u202egnp.exe",
    "模型 🚀",
)


def tags(root: Element) -> list[tuple[str, list[str]]]:
    return [(element.tag, sorted(element.attributes)) for element in root.all()]


@pytest.mark.parametrize("nasty", [*MARKUP, *NASTY, HOSTILE])
def test_nothing_from_outside_becomes_markup_but_is_shown_as_it_is(nasty: str) -> None:
    page = render(everywhere(nasty), NOW, OPEN)
    assert tags(read(page)) == tags(show(everywhere("plain")))
    page.encode()
    assert not {"\x00", "\x1b"} & set(page)
    if nasty in MARKUP:
        assert nasty not in page
        assert unescape(page).count(nasty) >= 14


def test_a_name_cannot_turn_the_text_around_it() -> None:
    name = "\u202egnp.exe"
    names = set[str]()
    for head in show(everywhere(name)).all("h3"):
        names |= {isolated.text for isolated in head.all("bdi")}
    assert names == {name}


#: Fields that are looked up by, or shown as something else.
CHOSEN = {"window", "judged_window"}


def spoilt(value: Any, text: str) -> Any:
    """Return a result with `text` in the place of every text in it."""
    if isinstance(value, tuple):
        return tuple(spoilt(item, text) for item in value)
    if isinstance(value, msgspec.Struct):
        names = set(value.__struct_fields__)
    elif is_dataclass(value):
        names = {field.name for field in fields(value)}
    else:
        return text if type(value) is str else value
    changes = {name: spoilt(getattr(value, name), text) for name in names - CHOSEN}
    return replace(value, **changes)


def everywhere(text: str) -> ExporterResult:
    """Return a result that holds `text` wherever it may hold one."""
    hint = Finding(Severity.HINT, "", "")
    healthy = replace(only("healthy"), findings=(hint,), defects=("",))
    dead = replace(down(), poll_errors_total={text: 40})
    requests = known((few(CODE, 60), few(CHAT, 60)))
    requests = replace(requests, tap=replace(TAP, unobserved_total={text: 1}))
    page = page_of(target(healthy), dead)
    page = replace(page, thresholds={text: 1.0}, requests=requests)
    return spoilt(page, text)


UNSURE = Payoff(PayoffVerdict.UNKNOWN, speedup_low=0.4, speedup_high=1.1)
HARMFUL = Payoff(PayoffVerdict.HARMFUL, 0.8)
KEEP = Advice(Action.KEEP, 3)
LOWER = Advice(Action.DECREASE_K, 2)
BYPASSED = Activity(ActivityState.BYPASSED, "5 tokens without a draft")
HINT = Finding(Severity.HINT, "a", "b")


@pytest.mark.parametrize(
    ("expected", "changes"),
    [
        ("check its flags nothing is generated", {"activity": BYPASSED}),
        ("see the findings", {"activity": replace(BYPASSED, scheduled=True)}),
        ("switch speculation off", {"payoff": HARMFUL}),
        ("switch speculation off", {"payoff": HARMFUL, "advice": KEEP}),
        (
            "switch speculation off",
            {"payoff": HARMFUL, "advice": replace(KEEP, doubted=True)},
        ),
        (
            "switch speculation off",
            {"payoff": HARMFUL, "advice": Advice(Action.INCREASE_K, 4, doubted=True)},
        ),
        ("lower K to 2", {"payoff": HARMFUL, "advice": replace(LOWER, doubted=True)}),
        ("lower K to 2", {"payoff": UNSURE, "advice": LOWER}),
        ("measure", {"payoff": UNSURE}),
        (
            "switch off, or measure",
            {"payoff": replace(UNSURE, likely=PayoffVerdict.HARMFUL)},
        ),
        ("keep K=3", {"payoff": UNSURE, "advice": KEEP}),
        ("see the findings", {}),
        ("–", {"findings": (HINT,)}),
    ],
)
def test_what_to_do_is_never_empty_where_there_is_a_problem(
    expected: str, changes: dict[str, Any]
) -> None:
    """One short instruction for one situation, with and without advice."""
    unjudged = replace(
        engine(polls=1),
        findings=(Finding(Severity.PROBLEM, "drafts are off", "Look."), HINT),
        payoff=Payoff(),
        advice=Advice(reason="no advice: nothing is generated"),
    )
    tiles = answers(show_engine(unjudged, **changes))
    assert tiles["What to do"].startswith(expected)


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ({}, 5),
        ({"refresh": "0.5"}, 1),
        ({"refresh": "2.5"}, 3),
        ({"refresh": "60"}, 60),
        ({"refresh": "1e9"}, 3600),
        ({"refresh": "nan"}, 5),
        ({"refresh": "inf"}, 5),
        ({"refresh": "x"}, 5),
        ({"refresh": "0"}, None),
        ({"refresh": "-3"}, None),
    ],
)
def test_the_page_reloads_itself_as_its_parameter_says(
    query: dict[str, str], seconds: int | None
) -> None:
    parsed = parse_query(query, 4.2)
    page = read(render(PAGES["healthy"], NOW, parsed))
    reloads = page.all("meta", **{"http-equiv": "refresh"})
    contents = [f"{seconds}; url={parsed.link()}"]
    if seconds is None:
        contents = []
    assert [reload.attributes["content"] for reload in reloads] == contents


def test_numbers_are_written_with_three_digits_and_times_with_two_units() -> None:
    rates = {
        0: "0",
        0.0001: "< 0.001",
        0.00123: "0.0012",
        0.0123: "0.0123",
        0.125: "0.125",
        1.5: "1.50",
        9.999: "10.0",
        12.34: "12.3",
        99.96: "100",
        154.4: "154",
        1234: "1,230",
        123456: "123,000",
        999999: "1.00M",
        1234567: "1.23M",
        12345678: "12.3M",
        2.5e9: "2,500M",
    }
    assert {value: rate(value) for value in rates} == rates
    durations = {
        -5: "0 ms",
        0.0123: "12 ms",
        0.9994: "999 ms",
        0.9996: "1 s",
        2.06: "2.1 s",
        59.94: "59.9 s",
        59.96: "1 min",
        200: "3 min 20 s",
        3599.6: "1 h",
        7500: "2 h 5 min",
        86_400 * 3 + 4 * 3600: "3 d 4 h",
    }
    assert {seconds: duration(seconds) for seconds in durations} == durations


def test_the_policy_allows_the_style_sheet_and_nothing_else() -> None:
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_an_empty_result_of_an_engine() -> None:
    """Everything that may be absent is."""
    bare = EngineResult(
        "", "", Activity(ActivityState.WARMING_UP, "two samples are needed")
    )
    page = show(page_of(TargetResult("x", up=True, engines=(bare,))))

    assert answers(page)["Acceptance ratio"].startswith("– ")
