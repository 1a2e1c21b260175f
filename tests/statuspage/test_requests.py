"""What the status page says of single requests."""

import pytest
from msgspec.structs import replace

from per_request.results import RESULTS, TAP, few
from per_request.traffic import CHAT, CODE, known
from statuspage.document import Element, read
from statuspage.examples import FLEET, NOW, page_of
from statuspage.test_render import panel, rows
from vllm_specdec_exporter.per_request.summary import RequestsResult
from vllm_specdec_exporter.publish.status_page import render


def show(requests: RequestsResult) -> Element:
    """Return the section alone, of a page without servers."""
    page = read(render(replace(page_of(), requests=requests), NOW))
    return page.one("section", class_="target")


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("mixed", "mixed"),
        ("gaining", "gaining"),
        ("losing", "losing"),
        ("partly-losing", "partly losing"),
        ("break-even", "near break-even"),
    ],
)
def test_the_colour_is_never_alone(name: str, state: str) -> None:
    """The state is a word, in the tile as in the class that colours the border."""
    page = show(RESULTS[name])
    kind = page.all("article")[0].attributes["class"]
    pill = page.one("dl", class_="answer").one("span", class_="pill")
    assert pill.attributes["class"] == f"pill {kind}"
    assert pill.text == state


def test_the_state_of_the_tap_and_requests_to_send_elsewhere_are_shown() -> None:
    by_heat = known((few(CODE, 100), replace(CHAT, requests=100, request_type="code")))
    assert "Requests at temperature 1+" in show(by_heat).text
    quiet = replace(TAP, unobserved_total={}, upstream_errors_total={})
    tap = panel(show(known((), tap=quiet)), "Tap").text
    assert "Not observed 0 Failed connections to the server 0" in tap
    assert "Tap" not in show(RESULTS["gaining"]).text
    rejected = panel(show(RESULTS["rejected"]), "Records of speculation")
    assert "7 pushed observations could not be used." in rejected.text


def test_a_problem_is_told_at_the_top_of_a_long_page() -> None:
    """A line leads down to the model; where all is well there is none."""
    page = read(render(replace(FLEET, requests=RESULTS["two-models"]), NOW))
    first = page.one("main").content[0]
    assert isinstance(first, Element)
    assert first.text == "Single requests: losing · an-adapter"
    assert first.one("a").attributes["href"] == "#requests-0"
    fine = read(render(replace(FLEET, requests=RESULTS["gaining"]), NOW))
    assert not fine.all("a", href="#requests-0")


def test_a_request_without_a_name_is_a_dash() -> None:
    requests = RESULTS["mixed"]
    (model,) = requests.models
    nameless = replace(model.worst[0], request_id="", completion_tokens=None)
    requests = replace(requests, models=(replace(model, worst=(nameless,)),))
    page = panel(show(requests), "Requests with the lowest acceptance")
    assert [cells[0] for cells in rows(page)] == ["–"]
