"""Every query of every panel, asked as Grafana would ask it of a real Prometheus, in every world.

A panel that shows nothing where there is something, or something where there is nothing, is wrong; so is a
number that is none, and a share below 0 or above 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from dashboards.documents import dashboards
from dashboards.grafana import execute_annotations, panels, questions
from dashboards.grafana_timing import DashboardError, Viewing, timing
from dashboards.grafana_variables import ALL, Variable, interpolate, resolve
from dashboards.live import LIMIT, look
from dashboards.operator_questions import QUESTIONS, View
from dashboards.worlds import ROOT, open_world, shared_folder
from dashboards.worlds_catalogue import WORLDS
from dashboards.worlds_expected import EXPECTED
from dashboards.worlds_reckoning import value, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dashboards.documents import Json
    from dashboards.live import Shown
    from dashboards.operator_questions import Asked
    from dashboards.worlds import World

HOURS = 3
PANELS = {
    f"{uid}: {panel['title']}" for uid, dashboard in dashboards().items() for panel in panels(dashboard)
}
#: Worlds with several series of each kind, where it matters which are chosen.
MANIFOLD = ("healthy", "unlabelled", "two-clusters")
#: What annotations find where it happened, and nowhere else.
HAPPENED = {
    "Alerts": {"harmful": True, "idle": False, "exporter-down": True},
    "K changes": {"k-change": True, "healthy": False},
    "Starts": {"k-change": True, "healthy": False},
}
#: What the first tile of every dashboard that has it says, in words, by world.
VERDICTS = {
    "healthy": "BENEFICIAL",
    "measured": "BENEFICIAL",
    "day": "MARGINAL",
    "harmful": "HARMFUL",
    "saturated": "HARMFUL",
    "idle": "IDLE",
    "off": "OFF",
    "bypassed": "BYPASSED",
    "warming-up": "WARMING UP",
    "server-down": "✖ vLLM DOWN",
    "exporter-down": "✖ EXPORTER DOWN",
}


@dataclass(frozen=True)
class Seen:
    """A world as all dashboards show it.

    Attributes:
        end: Unix time of the view.
        shown: every panel, with All chosen.
        chosen: every panel, with single values chosen, and with two of each variable; only of some worlds.
        marks: the answers to each dashboard's annotations, by name.
    """

    end: float
    shown: tuple[Shown, ...]
    chosen: tuple[Shown, ...]
    marks: Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """Every world, each opened once."""
    found = {}
    for name in WORLDS:
        with open_world(name, shared_folder(tmp_path_factory)) as world:
            view = Viewing(world.end - 3600 * HOURS, world.end, scrape_interval=world.interval)
            chosen = list(_two_chosen(world, view)) if name in MANIFOLD else []
            if chosen:
                chosen += look(world.prometheus, view, single=True)
            marks = {
                uid: execute_annotations(world.prometheus, dashboard, view)
                for uid, dashboard in dashboards().items()
            }
            found[name] = Seen(world.end, look(world.prometheus, view), tuple(chosen), marks)
    return found


def _two_chosen(world: World, view: Viewing) -> Iterator[Shown]:
    for dashboard in dashboards().values():
        known = resolve(world.prometheus, dashboard, view)
        several = {one["name"] for one in dashboard["templating"]["list"] if one.get("multi")}
        two = {one.name: one.options[:2] for one in known.values() if one.name in several and one.options[1:]}
        yield from look(world.prometheus, replace(view, values=two), only=dashboard["uid"])


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_nothing_is_wrong_in_any_world(seen: dict[str, Seen]) -> None:
    """Valid queries, finite numbers, shares in 0..1, words for codes, a place for every column."""
    wrong = [f"{name}: {said}" for name, one in seen.items() for panel in one.shown for said in panel.wrong()]
    assert wrong == []


@pytest.mark.full
def test_no_threshold_is_drawn_at_0(seen: dict[str, Seen]) -> None:
    """Drafters that cost little have thresholds of 0, which nothing is below."""
    assert {
        f"{name}: {panel.name}: {target['legendFormat']}"
        for name, one in seen.items()
        for panel in one.shown
        for target in panel.panel["targets"]
        if target.get("legendFormat", "").startswith(LIMIT)
        for series in panel.results[target["refId"]]["result"]
        if any(float(number) == 0 for _, number in series["values"])
    } == set()


@pytest.mark.full
def test_every_panel_shows_something_in_the_worlds_where_there_is_something(seen: dict[str, Seen]) -> None:
    filled: dict[str, set[str]] = {panel: set() for panel in PANELS}
    for name, one in seen.items():
        for panel in one.shown:
            filled[panel.name] |= set() if panel.empty else {name}
    assert filled == EXPECTED
    bare = {panel for panel in PANELS if "healthy" in filled[panel] and "unlabelled" not in filled[panel]}
    assert bare == set(), "whatever shows something with labels of a cluster shows something without them"


@pytest.mark.full
def test_every_query_has_an_answer_in_some_world(seen: dict[str, Seen]) -> None:
    shown = [panel for one in seen.values() for panel in one.shown]
    answered = {(panel.name, ref) for panel in shown for ref, data in panel.results.items() if data["result"]}
    every = {(panel.name, target["refId"]) for panel in shown for target in panel.panel["targets"]}
    assert every - answered == set()


@pytest.mark.full
def test_queries_stay_valid_whatever_is_chosen(seen: dict[str, Seen]) -> None:
    """One value of every variable, or two, which become alternatives of a regular expression."""
    chosen = [panel for one in seen.values() for panel in one.chosen]
    assert [wrong for panel in chosen for wrong in panel.wrong()] == []
    assert {panel.dashboard for panel in chosen if not panel.empty} == set(dashboards())


@pytest.mark.full
def test_the_first_tile_says_the_verdict(seen: dict[str, Seen]) -> None:
    for name, verdict in VERDICTS.items():
        tiles = [panel for panel in seen[name].shown if panel.title == "Does speculation pay?"]
        assert {word(value(tile.results["A"])) for tile in tiles} == {verdict}, name


@pytest.mark.full
def test_annotations_mark_what_happened_with_labels_that_they_have(seen: dict[str, Seen]) -> None:
    found: dict[str, set[str]] = {}
    for name, one in seen.items():
        for uid, marks in one.marks.items():
            assert set(marks) == set(HAPPENED), uid
            for mark, data in marks.items():
                expected = HAPPENED[mark].get(name, bool(data["result"]))
                assert bool(data["result"]) == expected, (name, uid, mark)
                found.setdefault(mark, set()).update(*(series["metric"] for series in data["result"]))
    for dashboard in dashboards().values():
        for mark in dashboard["annotations"]["list"]:
            named = set(
                re.findall(r"\{\{(\w+)\}\}", mark.get("titleFormat", "") + mark.get("textFormat", ""))
            )
            assert named <= found.get(mark["name"], set()), mark["name"]


@pytest.mark.full
@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: asked.question)
def test_the_panel_answers_the_question(asked: Asked, seen: dict[str, Seen]) -> None:
    """An operator's question is answered by a panel on the first screen or one click away."""
    world = seen[asked.world]
    (shown,) = [one for one in world.shown if one.name == f"{asked.dashboard}: {asked.panel}"]
    view = View(shown.panel, shown.results, world.marks[asked.dashboard], world.end)
    assert asked.answer(view) == asked.expected


def test_the_page_has_every_question_with_the_panel_that_answers_it() -> None:
    page = (ROOT / "docs" / "dashboards.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \|", page, re.MULTILINE)
    assert [(question, panel) for _, question, panel in rows] == [
        (asked.question, f"*{asked.panel}*") for asked in QUESTIONS
    ]


def test_each_panel_has_an_expectation() -> None:
    assert set(EXPECTED) == PANELS


# --- what Grafana does before it asks


def test_values_take_the_place_of_variables() -> None:
    """Regular expressions are escaped for PromQL, All stands for its own value, formats are obeyed."""
    chosen = {
        variable.name: variable
        for variable in (
            Variable("one", ("a.b", "c"), ("a.b",), multi=True),
            Variable("two", ("a.b", "c|d"), ("a.b", "c|d"), multi=True),
            Variable("every", ("a", "b"), ALL, multi=True),
            Variable("any", ("a", "b"), ALL, multi=True, all_value=".*"),
            Variable("plain", ("a.b",), "a.b", multi=False),
        )
    }
    texts = {
        'x{l=~"$one"}': r'x{l=~"a\\.b"}',
        'x{l=~"${two}"}': r'x{l=~"(a\\.b|c\\|d)"}',
        'x{l=~"$every"}': 'x{l=~"(a|b)"}',
        'x{l=~"$any"}': 'x{l=~".*"}',
        'x{l="$plain"}': 'x{l="a.b"}',
        "${two:queryparam}&${any:queryparam}": f"var-two=a.b&var-two=c%7Cd&var-any={ALL}",
        'label_replace(x, "a", "$1", "b", "(.+)")': 'label_replace(x, "a", "$1", "b", "(.+)")',
    }
    assert {text: interpolate(text, chosen) for text in texts} == texts
    for text in ("$unknown", "${one:no_format}", "${one", "[[one]]", "$__rate_interval"):
        with pytest.raises(DashboardError):
            interpolate(text, chosen)


@pytest.mark.parametrize(
    ("hours", "panel", "target", "step", "rate"),
    [
        (1, {}, {}, 15, 60),  # 3.6 s a point: the scrape interval, and four of them
        (24, {}, {}, 60, 75),  # 86.4 s over 1,440 pixels
        (24, {"gridPos": {"w": 12}}, {}, 120, 135),
        (1, {}, {"interval": "1m"}, 60, 240),
        (24 * 30, {}, {}, 1800, 1815),
    ],
)
def test_steps_and_rate_intervals(hours: int, panel: Json, target: Json, step: int, rate: int) -> None:
    """As Grafana rounds them; the rate interval has room for four scrapes, or a step and a scrape."""
    found = timing(Viewing(0, 3600.0 * hours, pixels=1440), panel, target)
    assert (found.step, found.rate_interval) == (1000 * step, 1000 * rate)


def test_a_target_is_one_query() -> None:
    """Neither both an instant one and one over the range, nor none."""
    for target in ({"instant": True, "range": True}, {}):
        panel = {"title": "t", "targets": [{"refId": "A", "expr": "up", **target}]}
        with pytest.raises(DashboardError):
            questions(panel, Viewing(0, 3600), {})
