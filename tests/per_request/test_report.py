"""The report on single requests as text: golden files.

`UPDATE_GOLDEN=1 pytest tests/per_request` writes the files anew; look at the
difference.
"""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from per_request.results import RESULTS
from per_request.traffic import MODEL, PROFILE, Kind, known
from statuspage.examples import PAGES, page_of
from support.golden import golden_text
from vllm_specdec_exporter.publish import terminal_report as report
from vllm_specdec_exporter.publish.request_report import Costs, render

HERE = Path(__file__).parent / "golden"
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
COSTS = {MODEL: Costs(PROFILE, (1.0, 16.0, 64.0))}


def shown(name: str, *, colour: bool = False, costs: bool = False) -> str:
    page = replace(page_of(), requests=RESULTS[name])
    return report.render(page, colour=colour, costs=COSTS if costs else None) + "\n"


@pytest.mark.parametrize("name", RESULTS)
def test_the_report_is_the_golden_file(name: str) -> None:
    """Every byte of the report is as committed."""
    report = shown(name, costs=name in ("varying", "summary"))
    assert golden_text(HERE / f"{name}.txt", report) == report


def test_every_golden_report_belongs_to_a_case() -> None:
    """No file is left over from a case that is gone."""
    assert {f"{name}.txt" for name in RESULTS} == {path.name for path in HERE.iterdir()}


def test_colours_and_lines() -> None:
    """Without its escape codes, the coloured report is the plain one: not a line is
    broken elsewhere.

    No line is longer than 100 columns, and none ends in blanks; names may be long, but
    for words.
    """
    wrong = []
    for name, published in RESULTS.items():
        plain = shown(name)
        painted = shown(name, colour=True)
        if ESCAPES.sub("", painted) != plain or (painted != plain) != bool(
            published.models
        ):
            wrong.append((name, "colours"))
        lines = shown(name, costs=True).splitlines()
        wrong += [
            (name, s)
            for s in lines
            if s != s.rstrip() or (len(s) > 100 and name != "hostile")
        ]
    assert wrong == []


def test_the_requests_stand_below_the_servers() -> None:
    """What is known of servers is told as ever; without tap and push, nothing is said
    of requests.
    """
    page = PAGES["healthy"]
    servers = report.render(page)
    both = report.render(replace(page, requests=RESULTS["mixed"]))
    assert both.startswith(servers)
    assert "\n\nsingle requests\n  records   1,000 detailed" in both
    assert "single requests" not in servers
    assert "requests" not in report.render(page_of())


def test_a_k_that_is_not_surely_faster_is_called_so() -> None:
    """A few drafts do not tell one K from the next."""
    few = known((Kind(50, 0.6, drafts=1),), batch=None)
    report_text = " ".join(" ".join(render(few, lambda text, _: text, COSTS)).split())
    assert "(not surely)" in report_text
