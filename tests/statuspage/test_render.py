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
from vllm_specdec_exporter.publish.last_hour import add_minute
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


def answers(page: Element) -> dict[str, str]:
    """Return the tiles of the only engine within: title to text."""
    tiles = page.one("dl", class_="answer").all("div")
    return {tile.one("dt").text: tile.one("dd").text for tile in tiles}


def panel(page: Element, title: str) -> Element:
    """Return the section with this title."""
    own = (s for s in page.all("section") if s.content[0].tag == "h4")
    return next(s for s in own if s.content[0].text.startswith(title))


def codes(element: Element) -> list[list[str]]:
    """Return what a shell makes of every flag to paste: its name left out, the words
    behind it.
    """
    found = [shlex.split(str(code.content[0])) for code in element.all("code")]
    assert {words[0] for words in found} == {"--speculative-config"}
    return [words[1:] for words in found]


def queried(link: str) -> dict[str, str]:
    """Return the parameters of a link."""
    return dict(parse_qsl(urlsplit(link).query))


def rows(element: Element) -> list[list[str]]:
    """Return the texts of all rows of a table's body."""
    return [
        [cell.text for cell in row.content if isinstance(cell, Element)]
        for row in element.one("tbody").all("tr")
    ]


def faults(result: ExporterResult) -> Iterator[object]:
    """Yield what is wrong with a page, whatever it shows."""
    page = show(result)
    every = page.all()
    ids = [e.attributes["id"] for e in every if "id" in e.attributes]
    links = [a.attributes["href"] for a in page.all("a")]

    # It is a page, and can be read aloud.
    yield from (found for found in ids if ids.count(found) > 1)
    yield from {
        e.attributes["aria-labelledby"]
        for e in every
        if "aria-labelledby" in e.attributes
    } - set(ids)
    if page.one("html").attributes["lang"] != "en" or not page.one(
        "meta", charset="utf-8"
    ):
        yield "no language or encoding"
    levels = [int(e.tag[1]) for e in every if re.fullmatch("h[1-6]", e.tag)]
    if (
        levels[0] != 1
        or levels.count(1) != 1
        or any(b > a + 1 for a, b in pairwise(levels))
    ):
        yield f"headings: {levels}"
    for table in page.all("table"):
        heads = table.one("thead").all("th")
        yield from (th for th in heads if th.attributes["scope"] != "col")
        for row in table.one("tbody").all("tr"):
            if row.one("th").attributes["scope"] != "row" or len(
                row.all("th") + row.all("td")
            ) != len(heads):
                yield row

    # It needs nothing from elsewhere, which the policy would refuse, and links stay
    # behind a proxy's path.
    for script in page.all("script"):
        digest = b64encode(
            sha256("".join(map(str, script.content)).encode()).digest()
        ).decode()
        if (
            script.attributes
            or f"script-src 'sha256-{digest}';" not in CONTENT_SECURITY_POLICY
        ):
            yield script
    foreign = {"img", "iframe", "object", "form", "base"}
    own = ("on", "style")
    yield from (
        e
        for e in every
        if e.tag in foreign or any(k.startswith(own) for k in e.attributes)
    )
    yield from (e for e in page.all("link") if e.attributes["href"] != "data:,")
    yield from (
        word
        for word in ("url(", "@import")
        if word in str(page.one("style").content[0])
    )
    yield from (link for link in links if link.startswith("/") or ":" in link)
    yield from {"metrics", "api/v1/snapshot", "config", "-/healthy", "-/ready"} - set(
        links
    )
    yield from {link[1:] for link in links if link.startswith("#")} - set(ids)
    yield from (
        link
        for link in links
        if link.startswith("?") and parse_query(queried(link)).link() == "."
    )

    # A bar or a colour is never alone, a dash says why, and no number is made up.
    yield from (
        g
        for g in page.all("div", class_="gauge")
        if not re.fullmatch(r"[\d.,]+[%×]?|–", g.text)
    )
    yield from (mark for mark in page.all("span", class_="pill") if not mark.text)
    for dash in page.all("span", class_="none"):
        why = dash.attributes["title"]
        if (
            not why
            or dash.text != "–"
            or f"none: {why}" not in dash.one("span", class_="hidden").content
        ):
            yield dash
    yield from re.findall(r"\b(?:nan|inf|None)\b(?!:)", page.one("main").text)


def test_every_state_is_a_valid_page() -> None:
    found = {name: list(faults(result)) for name, result in PAGES.items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


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
        (page,) = (
            one
            for one in page.all("section", class_="target")
            if one.all(id="requests")
        )
    now = "".join(f"{line}\n" for line in lines(page))
    assert golden_text(Path(__file__).parent / "pages" / f"{name}.txt", now) == now


def test_the_answer_leads_with_payoff_and_what_to_do() -> None:
    for name, payoff, basis in (
        ("healthy", "beneficial 1.88×", "calibrated"),
        ("marginal", "marginal 1.13×", "calibrated"),
        ("disable", "harmful 0.52×", "calibrated"),
        ("measured_harmful", "harmful 0.87×", "measured"),
    ):
        page = show(PAGES[name])
        said = answers(page)
        only = PAGES[name].targets[0].engines[0]
        assert list(said)[:2] == ["Payoff", "What to do"]
        assert said["Payoff"].startswith(
            f"{payoff} times as fast as without speculation, {basis}, last 5m "
            "by the cost profile it breaks even at "
        )
        assert [
            reason for reason in only.payoff.reasons if reason not in said["Payoff"]
        ] == []
        assert said["What to do"].endswith(
            only.advice.reason.removeprefix("no advice on K: ")
        )
        assert payoff.split()[0] in page.one("article").attributes["class"].split(), (
            "the border"
        )


def test_every_action_and_every_k_are_in_plain_words() -> None:
    """In the answer, in the overview of engines, and in the table of every K."""
    only = engine()
    for action, k, words, marked in (
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
    ):
        advice = replace(
            only.advice, action=action, num_speculative_tokens=k, reason="why"
        )
        told = replace(only, advice=advice)
        page = show(page_of(target(told), target(told, address="http://other:8000")))
        assert answers(page.one("article"))["What to do"] == f"{words} why"
        assert {row[2] for row in rows(page.one("table", class_="overview"))} == {words}
        heads = [row[0] for row in rows(panel(page, "Every K"))]
        assert {
            head for head in heads if "now" in head or "recommended" in head
        } == marked


def test_a_payoff_that_cannot_be_known_says_why() -> None:
    """A server that does not show its load is judged by its acceptance; a wide interval
    is shown.
    """
    assert re.match(
        r"likely beneficial \(0\.\d\d to (\d\.\d\d)\) 0\.\d\d to \1 times as fast as "
        r"without "
        r"speculation, modelled, last 5m",
        answers(show(PAGES["payoff_unknown"]))["Payoff"],
    )
    page = show(page_of(target(engine(running=None))))
    why = (
        "the number of running requests is missing, so the cost of a step is not known"
    )
    assert answers(page)["Payoff"] == f"– {why}"
    assert page.one("article").attributes["class"] == "healthy"
    assert page.one("title").content[0] == "healthy – vllm-specdec-exporter"


def test_what_to_paste_is_the_operators_json_with_another_k() -> None:
    """Where that is not known, it says so; of any content it survives a shell."""
    found = panel(show(PAGES["decrease"]), "To paste")
    model = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
    assert json.loads(codes(found)[0][0]) == {
        "method": "eagle3",
        "model": model,
        "num_speculative_tokens": 2,
    }

    unsaid = panel(show(PAGES["unsaid"]), "To paste")
    pasted = [str(code.content[0]) for code in unsaid.all("code")]
    assert json.loads(pasted[0]) == {"num_speculative_tokens": 2}
    assert "--speculative-config" not in "".join(pasted)
    assert "Only what changes is in it: add it to the server's own JSON." in unsaid.text

    (words,) = codes(panel(show(PAGES["hostile"]), "To paste"))
    assert [json.loads(word)["method"] for word in words] == [HOSTILE_TEXT]


def test_a_schedule_says_what_it_rests_on_or_why_there_is_none() -> None:
    only = PAGES["measured"].targets[0].engines[0]

    def text(**changes: object) -> str:
        advice = replace(only.advice, **changes)  # type: ignore[arg-type]
        return panel(
            show(page_of(target(replace(only, advice=advice)))), "To paste"
        ).text

    assert "Batches of 2 to 1,200 were seen; for all others" in text(
        batch_sizes=(2.0, 1200.0)
    )
    assert "were seen" not in text(batch_sizes=None)
    note = "vLLM ignores a K schedule with data parallelism"
    assert f"No K schedule: {note}." in text(
        schedule=(), schedule_config="", schedule_note=note
    )


def test_what_was_not_measured_in_the_judged_window_is_a_dash_or_says_so() -> None:
    only = PAGES["measured"].targets[0].engines[0]
    short, judged = only.windows

    def shown(measured: Measured) -> Element:
        other = replace(only, windows=(short, replace(judged, measured=measured)))
        return panel(show(page_of(target(other))), "Against the baseline")

    assert "None: too few requests finished" in shown(Measured()).text
    some = shown(Measured(latency_ratios=(LatencyRatio("end_to_end", 0.95, 1.3),)))
    assert rows(some)[1:] == [
        ["Output token", "–", "–", "–"],
        ["Whole request", "–", "1.30×", "–"],
    ]
    # As fast as a step emits tokens: the options rest on the profile alone.
    free = replace(
        only, windows=(short, replace(judged, measured=Measured(9.0, 1.1, 11.0, 40.0)))
    )
    words = panel(show(page_of(target(free))), "Every K").text
    assert "it does not correct these speedups" in words
    assert "are corrected by" not in words
    unreached = panel(
        show(page_of(target(engine((0.5, 0.0, 0.0))))), "Acceptance by position"
    )
    assert rows(unreached)[1:] == [["1", "0.0%", "0.0%"], ["2", "0.0%", "–"]]


def test_a_server_that_shows_no_engine_says_why() -> None:
    """Since when it is down, for a reason that may be unknown here; not yet polled; a
    failed reload.
    """
    reload = Reload(successful=False, success_timestamp_seconds=NOW - 60)
    for result, words in (
        (PAGES["never_up"], "No poll has succeeded since the exporter started."),
        (
            page_of(down(NOW - 3 * 86_400, "newfangled")),
            "at 2026-09-18 14:13:20 UTC , 3 d ago",
        ),
        (PAGES["not_polled"], "The first poll is under way."),
        (PAGES["no_engines"], "The server answers, but shows no engine"),
        (PAGES["no_targets"], "No server is known to poll."),
        (replace(PAGES["healthy"], reload=reload), "Configuration not reloaded"),
    ):
        assert words in show(result).one("div", class_="notice").text
    assert not show(PAGES["down"]).all("article"), "nothing stale is shown"


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
    assert table[0] == [
        "http://vllm-c:8000",
        "–",
        "–",
        "down",
        *["–"] * 6,
        "http://vllm-c:8000",
    ]
    page = render(FLEET, NOW)
    assert page.index('class="overview"') < page.index("<article")
    assert not show(PAGES["healthy"]).all("table", class_="overview")


def test_one_engine_is_shown_in_detail_the_worst_one_or_that_of_the_address() -> None:
    page = read(render(FLEET, NOW, parse_query({"refresh": "7", "open": "rubric"})))
    [article] = page.all("article")
    assert answers(article)["Payoff"].startswith("harmful")
    links = [
        a.attributes["href"]
        for a in page.one("table", class_="overview").one("tbody").all("a")
    ]
    assert links[1] == "?refresh=7&engine=engine-0-2&open=rubric#engine-0-2"
    for link in links[1:]:
        [article] = read(render(FLEET, NOW, parse_query(queried(link)))).all("article")
        assert article.attributes["aria-labelledby"] == urlsplit(link).fragment
    for unknown in ("engine-9-9", "engine-0-<b>", "x"):
        [article] = show(FLEET, engine=parse_query({"engine": unknown}).engine).all(
            "article"
        )
        assert answers(article)["Payoff"].startswith("harmful")


def test_parts_are_folded_until_the_address_opens_them() -> None:
    closed, opened = (
        read(render(PAGES["poor"], NOW, query)) for query in (PageQuery(), OPEN)
    )
    for key, title in {"rules": "Rules of thumb", "rubric": "Rubric, applied"}.items():
        [link] = [a for a in closed.all("a") if a.text == title]
        assert link.attributes["aria-expanded"] == "false"
        query = parse_query(queried(link.attributes["href"]))
        assert query.opened == {key}
        [back] = [
            a
            for a in read(render(PAGES["poor"], NOW, query)).all("a")
            if a.text == title
        ]
        assert (back.attributes["aria-expanded"], queried(back.attributes["href"])) == (
            "true",
            {},
        )
    assert len(closed.text) < len(opened.text) * 0.9


def test_the_trend_of_the_shortest_window_stands_beside_the_verdict() -> None:
    """A collapse is seen while the judged window still says beneficial."""
    only = engine()
    short, judged = only.windows

    def said(**changes: object) -> dict[str, str]:
        other = replace(only, windows=(replace(short, **changes), judged))  # type: ignore[arg-type]
        return answers(show(page_of(target(other))))

    slow = replace(short.estimate, speedup=0.58)
    tiles = said(estimate=slow, coverage_ratio=None, mean_acceptance_length=1.1)
    assert tiles["Payoff"].startswith(
        "beneficial 1.88× falling: 0.58× in the last 30s "
    )
    assert tiles["Mean acceptance length"].startswith(
        "3.58 falling: 1.10 in the last 30s "
    )
    assert (
        "rising: 4.40 in the last 30s"
        in said(mean_acceptance_length=4.4)["Mean acceptance length"]
    )
    for unsaid in (said(), said(estimate=slow, drafts=99.0)):
        assert "falling" not in unsaid["Payoff"]


def test_the_last_hour_is_drawn_with_its_range_and_its_gaps() -> None:
    only = engine()
    hour = {}
    for minute in range(90):
        if not 70 <= minute < 75:
            payoff = replace(only.payoff, speedup=0.5 + minute / 100)
            for second in (0, 5):
                hour = add_minute(
                    hour, [replace(only, payoff=payoff)], NOW + 60 * minute + second
                )
    points = hour[only.key]
    assert (len(points), points[0].time, points[-1].time) == (
        56,
        NOW + 60 * 29,
        NOW + 60 * 89,
    )
    page = read(render(PAGES["healthy"], NOW + 60 * 89, OPEN, (hour,)))
    payoff, length = page.all("div", class_="hour")
    assert (payoff.text, length.text) == (
        "last hour: 0.79× to 1.88×",
        "last hour: 3.58 to 3.58",
    )
    lines = [
        line.attributes["points"].split()
        for line in payoff.all("polyline", class_="line")
    ]
    assert [len(line) for line in lines] == [41, 15]
    assert lines[0][0].split(",")[0] == "0.0"
    # It ends at the value beside it, which may be newer than the last point.
    assert ("1.88×" in page.one("dl", class_="answer").text, lines[1][-1]) == (
        True,
        "240.0,2.0",
    )
    # What hardly changes is drawn as a level line.
    level = " ".join(
        line.attributes["points"] for line in length.all("polyline", class_="line")
    )
    assert {point.split(",")[1] for point in level.split()} == {"16.0"}
    # A clock that was set back, and an engine that is gone.
    assert [p.time for p in add_minute(hour, [only], NOW)[only.key]] == [NOW]
    other = replace(only, engine="7")
    # the first is gone
    assert add_minute(hour, [other], NOW + 60 * 90).keys() == {other.key}


def test_a_k_that_differs_by_noise_alone_says_so() -> None:
    only = engine()
    # The step takes one plain step, so that the length and its interval are those of
    # the speedup.
    options = tuple(
        replace(
            option,
            speedup=length,
            step_cost=1.0,
            length_low=length - 0.1,
            length_high=length + 0.1,
        )
        for option, length in zip(
            only.advice.options[:4], (1.0, 1.4, 1.9, 2.0), strict=True
        )
    )
    page = show(
        page_of(target(replace(only, advice=replace(only.advice, options=options))))
    )
    noisy = [row[0] for row in rows(panel(page, "Every K")) if "within noise" in row[0]]
    assert noisy == ["2 within noise of the best"]


NASTY = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "'&quot;&amp;</style></title><b>",
    "]]>--><!--",
    "line\nbreak\tand \x00\x1b[31m\x7f\x85",
    "\ud800 lone surrogate",
    "\u202egnp.exe",
    "模型 🚀",
)


def test_nothing_from_outside_becomes_markup_but_is_shown_as_it_is() -> None:
    def tags(root: Element) -> list[tuple[str, list[str]]]:
        return [(e.tag, sorted(e.attributes)) for e in root.all()]

    plain = tags(show(everywhere("plain")))
    for number, nasty in enumerate((*NASTY, HOSTILE)):
        page = render(everywhere(nasty), NOW, OPEN)
        assert tags(read(page)) == plain, nasty
        page.encode()
        assert not {"\x00", "\x1b"} & set(page)
        if number < 4:
            assert nasty not in page
            assert unescape(page).count(nasty) >= 14
    # A name cannot turn the text around it.
    heads = show(everywhere("\u202egnp.exe")).all("h3")
    assert {name.text for head in heads for name in head.all("bdi")} == {
        "\u202egnp.exe"
    }


#: Fields that are looked up by, or shown as something else.
CHOSEN = {"window", "judged_window"}


def spoilt(value: Any, text: str) -> Any:
    """A result with `text` in the place of every text in it."""
    if isinstance(value, tuple):
        return tuple(spoilt(each, text) for each in value)
    if isinstance(value, msgspec.Struct) or is_dataclass(value):
        names = (
            set(
                getattr(value, "__struct_fields__", None)
                or [one.name for one in fields(value)]
            )
            - CHOSEN
        )
        return replace(
            value, **{name: spoilt(getattr(value, name), text) for name in names}
        )
    if type(value) is str:
        return text
    return value


def everywhere(text: str) -> ExporterResult:
    """Return a result that holds `text` wherever it may hold one."""
    only = replace(engine(), findings=(Finding(Severity.HINT, "", ""),), defects=("",))
    dead = replace(down(), poll_errors_total={text: 40})
    requests = known((few(CODE, 60), few(CHAT, 60)))
    requests = replace(requests, tap=replace(TAP, unobserved_total={text: 1}))
    page = replace(
        page_of(target(only), dead), thresholds={text: 1.0}, requests=requests
    )
    return spoilt(page, text)


def test_what_to_do_is_never_empty_where_there_is_a_problem() -> None:
    """One short instruction for one situation, with and without advice."""
    unsure = Payoff(PayoffVerdict.UNKNOWN, speedup_low=0.4, speedup_high=1.1)
    found = (
        Finding(Severity.PROBLEM, "drafts are off", "Look."),
        Finding(Severity.HINT, "a", "b"),
    )
    none = Advice(reason="no advice: nothing is generated")
    keep = Advice(Action.KEEP, 3)
    bypassed = Activity(ActivityState.BYPASSED, "5 tokens without a draft")
    harmful = Payoff(PayoffVerdict.HARMFUL, 0.8)
    for expected, changes in (
        ("check its flags nothing is generated", {"activity": bypassed}),
        ("see the findings", {"activity": replace(bypassed, scheduled=True)}),
        ("switch speculation off", {"payoff": harmful}),
        ("switch speculation off", {"payoff": harmful, "advice": keep}),
        (
            "switch speculation off",
            {"payoff": harmful, "advice": replace(keep, doubted=True)},
        ),
        (
            "switch speculation off",
            {"payoff": harmful, "advice": Advice(Action.INCREASE_K, 4, doubted=True)},
        ),
        (
            "lower K to 2",
            {"payoff": harmful, "advice": Advice(Action.DECREASE_K, 2, doubted=True)},
        ),
        ("lower K to 2", {"payoff": unsure, "advice": Advice(Action.DECREASE_K, 2)}),
        ("measure", {"payoff": unsure}),
        (
            "switch off, or measure",
            {"payoff": replace(unsure, likely=PayoffVerdict.HARMFUL)},
        ),
        ("keep K=3", {"payoff": unsure, "advice": keep}),
        ("see the findings", {}),
        ("–", {"findings": found[1:]}),
    ):
        one = replace(
            engine(polls=1),
            **{"findings": found, "payoff": Payoff(), "advice": none, **changes},
        )
        assert answers(show(page_of(target(one))))["What to do"].startswith(expected), (
            expected
        )


def test_the_page_reloads_itself_as_its_parameter_says() -> None:
    expected = {
        None: 5,
        "0": 0,
        "0.5": 1,
        "2.5": 3,
        "60": 60,
        "-3": 0,
        "1e9": 3600,
        "nan": 5,
        "inf": 5,
        "x": 5,
    }
    for value, seconds in expected.items():
        query = parse_query({} if value is None else {"refresh": value}, 4.2)
        page = read(render(PAGES["healthy"], NOW, query))
        found = [
            e.attributes["content"]
            for e in page.all("meta", **{"http-equiv": "refresh"})
        ]
        assert found == ([f"{seconds}; url={query.link()}"] if seconds else []), value


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
