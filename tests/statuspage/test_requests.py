"""What the status page says of single requests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from per_request.results import HOSTILE, RESULTS, TAP, few
from per_request.traffic import CHAT, CODE, MODEL, known
from statuspage.document import Element, read
from statuspage.examples import FLEET, NOW, PAGES, page_of
from statuspage.test_render import NASTY, answers, panel, rows
from vllm_specdec_exporter.judgement.finding import Finding, Severity
from vllm_specdec_exporter.per_request.observation import Observation
from vllm_specdec_exporter.statuspage import render

if TYPE_CHECKING:
    from vllm_specdec_exporter.per_request.result import RequestsResult


def show(requests: RequestsResult) -> Element:
    """Return the section alone, of a page without servers."""
    page = read(render(replace(page_of(), requests=requests), NOW))
    return page.one("section", class_="target")


def test_without_tap_and_push_there_is_no_section() -> None:
    """Whoever has neither sees no difference."""
    page = read(render(PAGES["healthy"], NOW))
    assert not page.all(id="requests")
    assert "Single requests" not in page.text


def test_the_answer_leads() -> None:
    """How the requests stand, the acceptance of the worst tenth, and the share that loses."""
    said = answers(show(RESULTS["mixed"]))
    assert said["Single requests"] == "mixed 1,000 requests in the last 30m had something drafted"
    assert said["Acceptance by request, P10"] == (
        "33.7% nine in ten requests exceed it; P50 77.5%, P90 86.8% 64.5% of all drafted tokens together"
    )
    assert said["Losing requests"] == "39.0% of the requests; 59.7% gain 27.3% of the generated tokens"
    assert show(RESULTS["mixed"]).one("h3", id="requests-0").text == MODEL


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("mixed", "mixed"),
        ("gaining", "gaining"),
        ("losing", "losing"),
        ("partly-losing", "partly losing"),
        ("break-even", "near break-even"),
    ],
)
def test_the_colour_is_never_alone(name: str, word: str) -> None:
    """The state is a word, in the tile as in the class that colours the border."""
    page = show(RESULTS[name])
    article = page.all("article")[0]
    kind = article.attributes["class"]
    assert page.one("dl", class_="answer").one("span", class_="pill").attributes["class"] == f"pill {kind}"
    assert page.one("dl", class_="answer").one("span", class_="pill").text == word


def test_too_few_requests_are_a_dash_that_says_why() -> None:
    """Their numbers are shown, and no judgement."""
    said = answers(show(RESULTS["few"]))
    assert said["Single requests"] == (
        "– 16 requests in the last 30m had something drafted, too few to be judged"
    )
    assert said["Losing requests"].startswith("25.0% of the requests")
    assert [row[4] for row in rows(panel(show(RESULTS["few"]), "By temperature and type"))] == ["–", "–"]


def test_groups_say_who_gains_and_who_loses() -> None:
    """Each with its share, its quantiles, and what it wastes."""
    assert rows(panel(show(RESULTS["mixed"]), "By temperature and type")) == [
        [
            *("0", "code", "600", "60.0%", "gains", "82.1%", "75.0%", "82.5%"),
            *("4.28", "0.0%", "30.2%", "2.36×"),
        ],
        [
            *("1+", "chat", "400", "40.0%", "loses", "38.1%", "30.0%", "38.1%"),
            *("2.52", "97.5%", "69.8%", "1.39×"),
        ],
    ]


def test_a_speedup_that_is_not_known_says_why() -> None:
    """Without the number of running requests there is none."""
    cells = panel(show(RESULTS["gaining"]), "By temperature and type").one("tbody").all("td")
    assert cells[-1].one("span", class_="none").attributes["title"] == "the batch of the server is not known"


def test_findings_and_routing_name_the_type() -> None:
    """What is wrong stands above the groups, and whom to send elsewhere beside the numbers."""
    page = show(RESULTS["mixed"])
    items = [item.text for item in panel(page, "Findings").all("li")]
    assert [item.split()[0] for item in items] == ["problem", "problem", "hint"]
    assert "the workload is mixed: 60% of the requests gain and 39% lose" in items[1]
    assert "requests of type chat lose" in items[2]
    text = panel(page, "To send to a server without speculation").text
    assert "Requests of type chat" in text
    assert "Acceptance now 64.5% Acceptance without them 82.1%" in text
    by_heat = known((few(CODE, 100), replace(CHAT, requests=100, request_type="code")))
    assert "Requests at temperature 1+" in show(by_heat).text


def test_positions_are_shown_with_the_bias_of_short_drafts() -> None:
    """Where drafted, and of all drafts; the deep ones differ."""
    found = rows(panel(show(RESULTS["varying"]), "Acceptance where drafted"))
    assert found == [
        ["0", "88.4%", "88.4%"],
        ["1", "77.9%", "61.1%"],
        ["2", "65.9%", "37.6%"],
        ["3", "58.6%", "33.4%"],
    ]
    assert rows(panel(show(RESULTS["varying"]), "What a smaller K would have given"))[1] == [
        *("2", "1.78", "1.49", "2.49")
    ]


def test_without_detailed_records_the_flag_is_named() -> None:
    """Totals tell nothing of positions."""
    page = show(RESULTS["summary"])
    assert panel(page, "Acceptance where drafted").one("code").text == (
        "--per-request-spec-decode-metrics detailed"
    )
    assert "What a smaller K" not in page.text


def test_the_worst_requests_can_be_found_in_the_servers_log() -> None:
    """By the server's own name for them; where there is none, a dash says so."""
    requests = RESULTS["mixed"]
    (model,) = requests.models
    first = rows(panel(show(requests), "Requests with the lowest acceptance"))[0]
    assert first[0] == model.worst[0].request_id
    assert first[2:] == ["15.0%", "40", "160", "64", "1+", "chat", "12 ms"]
    unnamed = replace(model, worst=(replace(model.worst[0], request_id="", completion_tokens=None),))
    page = panel(show(replace(requests, models=(unnamed,))), "Requests with the lowest acceptance")
    assert [cell[0] for cell in rows(page)] == ["–"]


def test_the_state_of_the_tap_is_shown() -> None:
    """Where it stands, what passed, and what went wrong by reason."""
    text = panel(show(RESULTS["mixed"]), "Tap").text
    assert "Address 0.0.0.0:9851 Server behind http://127.0.0.1:8000 Connections open 3" in text
    assert (
        "Requests passed on 1,003 Not looked at aborted 2, too_large 1 Server not reached refused 2" in text
    )
    quiet = replace(TAP, unobserved_total={}, upstream_errors_total={})
    assert "Not looked at 0 Server not reached 0" in panel(show(known((), tap=quiet)), "Tap").text
    assert "Tap" not in show(RESULTS["gaining"]).text


def test_what_answers_told_is_counted() -> None:
    """By who saw them; what never occurred is left out, and each state says what it means."""
    found = rows(panel(show(RESULTS["mixed"]), "What answers told"))
    assert [cells[:3] for cells in found] == [
        ["push", "malformed", "1"],
        ["push", "none", "5"],
        ["push", "not drafted", "1"],
        ["tap", "detailed", "1,000"],
    ]
    assert found[0][3] == "a record that contradicts itself"
    rejected = panel(show(RESULTS["rejected"]), "What answers told")
    assert "7 pushed observations could not be used." in rejected.text


NOTICES = {
    "unrecorded": "No answer tells of speculation Start vLLM (0.29 or newer) with "
    "--per-request-spec-decode-metrics detailed .",
    "nothing": "No request was observed yet Requests pass through the tap, or are pushed; none has ended so "
    "far.",
}


@pytest.mark.parametrize("name", NOTICES)
def test_says_what_to_do_where_nothing_is_known(name: str) -> None:
    """An empty section would leave one guessing."""
    page = show(RESULTS[name])
    assert page.one("div", class_="notice").text == NOTICES[name]
    assert not page.all("dl", class_="answer")


def test_one_record_is_enough_for_no_notice() -> None:
    """Some requests have none by their nature, such as those that ask for several answers."""
    found = known((few(CODE, 1),), more=(Observation(NOW) for _ in range(100)))
    assert not show(found).all("div", class_="notice")


def test_tenants_are_shown_where_they_are_told_apart() -> None:
    """With what of theirs was accepted, and how many of their requests lose."""
    assert rows(panel(show(RESULTS["mixed"]), "By tenant")) == [
        ["acme", "600", "82.1%", "0.0%", MODEL],
        ["globex", "400", "38.1%", "97.5%", MODEL],
    ]


def test_every_model_has_an_article_of_its_own() -> None:
    """An adapter is a model to its clients."""
    page = show(RESULTS["two-models"])
    assert [a.attributes["aria-labelledby"] for a in page.all("article")] == [
        *("requests-0", "requests-1", "requests-sources")
    ]
    assert page.one(id="requests-0").text == "an-adapter"


def test_a_problem_is_told_at_the_top_of_a_long_page() -> None:
    """A line leads down to the model; where all is well there is none."""
    page = read(render(replace(FLEET, requests=RESULTS["two-models"]), NOW))
    first = page.one("main").content[0]
    assert isinstance(first, Element)
    assert first.text == "Single requests: losing · an-adapter"
    assert first.one("a").attributes["href"] == "#requests-0"
    fine = read(render(replace(FLEET, requests=RESULTS["gaining"]), NOW))
    assert not fine.all("a", href="#requests-0")


@pytest.mark.parametrize("nasty", [*NASTY, HOSTILE])
def test_nothing_from_outside_becomes_markup(nasty: str) -> None:
    """Whatever names of models, types, tenants, servers and requests hold, the elements are the same."""

    def everywhere(text: str) -> RequestsResult:
        found = known((few(CODE, 60), few(CHAT, 60)))
        (model,) = found.models
        assert model.routing is not None
        model = replace(
            model,
            model_name=text,
            groups=tuple(replace(g, temperature=text, request_type=text) for g in model.groups),
            worst=tuple(replace(w, request_id=text, temperature=text) for w in model.worst),
            findings=(Finding(Severity.PROBLEM, text, text),),
            routing=replace(model.routing, request_types=(text,)),
        )
        tap = replace(TAP, address=text, upstream=text, unobserved_total={text: 1})
        return replace(
            found,
            models=(model,),
            tenants=tuple(replace(t, tenant=text) for t in found.tenants),
            observations=tuple(replace(o, source=text, record=text) for o in found.observations),
            tap=tap,
        )

    def tags(root: Element) -> list[tuple[str, list[str]]]:
        return [(e.tag, sorted(e.attributes)) for e in root.all()]

    page = render(replace(page_of(), requests=everywhere(nasty)), NOW)
    assert tags(read(page)) == tags(read(render(replace(page_of(), requests=everywhere("plain")), NOW)))
    page.encode()
    assert not {"\x00", "\x1b"} & set(page)
