"""Every query of every panel, asked as Grafana would ask it of a real Prometheus, in every world.

A panel that shows nothing where there is something, or something where there is nothing, is wrong; so is a
number that is none, and a share below 0 or above 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dashboards import live
from dashboards.grafana import (
    ALL,
    DashboardError,
    Variable,
    Viewing,
    execute_annotations,
    interpolate,
    panels,
    questions,
    resolve,
    timing,
)
from dashboards.live import look
from dashboards.worlds import World, open_world, shared_folder
from dashboards.worlds_catalogue import WORLDS
from dashboards.worlds_expected import EXPECTED
from dashboards.worlds_reckoning import value, word

if TYPE_CHECKING:
    from pathlib import Path

HOURS = 3
PANELS = tuple(
    f"{uid}: {panel['title']}" for uid, dashboard in live.dashboards().items() for panel in panels(dashboard)
)
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_folder(tmp_path_factory)


def viewing(world: World, **values: str | tuple[str, ...]) -> Viewing:
    """Return somebody who looks at the last hours of a world."""
    end = world.end
    return Viewing(end - 3600 * HOURS, end, values, scrape_interval=world.interval)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_every_panel_shows_in_every_world_what_there_is_and_nothing_wrong(folder: Path) -> None:
    """With All chosen: valid queries, finite numbers, shares in 0..1, and no target without a world."""
    wrong: list[str] = []
    filled: dict[str, set[str]] = {panel: set() for panel in PANELS}
    answered: set[str] = set()
    for name in WORLDS:
        with open_world(name, folder) as world:
            for one in look(world.prometheus, viewing(world)):
                wrong += [f"{name}: {words}" for words in one.wrong()]
                filled[one.name] |= set() if one.empty else {name}
                if one.title == "Does speculation pay?":
                    said = word(value(one.results["A"]))
                    wrong += [f"{one.name} in {name}: {said}"] if VERDICTS.get(name, said) != said else []
                answered |= {f"{one.name}, {ref}" for ref, data in one.results.items() if data["result"]}
            for dashboard in live.dashboards().values():
                marked = execute_annotations(
                    world.prometheus, dashboard, live.restricted(viewing(world), dashboard)
                )
                assert set(marked) == set(HAPPENED), dashboard["uid"]
                for annotation, data in marked.items():
                    if HAPPENED[annotation].get(name, bool(data["result"])) != bool(data["result"]):
                        wrong.append(f"{name}: {dashboard['uid']} marks {annotation} wrongly")
    assert wrong == []
    assert filled == EXPECTED
    every = {
        f"{uid}: {panel['title']}, {target['refId']}"
        for uid, dashboard in live.dashboards().items()
        for panel in panels(dashboard)
        for target in panel["targets"]
    }
    assert every - answered == set()
    bare = {panel for panel in PANELS if "healthy" in filled[panel] and "unlabelled" not in filled[panel]}
    assert bare == set(), "whatever shows something with labels of a cluster shows something without them"


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MANIFOLD)
def test_queries_stay_valid_whatever_is_chosen(name: str, folder: Path) -> None:
    """One value of every variable, or two, which become alternatives of a regular expression."""
    with open_world(name, folder) as world:
        shown = list(look(world.prometheus, viewing(world), single=True))
        for dashboard in live.dashboards().values():
            known = resolve(world.prometheus, dashboard, live.restricted(viewing(world), dashboard))
            several = {v["name"] for v in dashboard["templating"]["list"] if v.get("multi")}
            two = {v.name: v.options[:2] for v in known.values() if v.name in several and v.options[1:]}
            chosen = look(world.prometheus, viewing(world, **two), only=dashboard["uid"])
            assert any(not one.empty for one in chosen), dashboard["uid"]
            shown += chosen
    assert [wrong for one in shown for wrong in one.wrong()] == []


def test_no_two_panels_of_a_dashboard_have_one_title_and_each_has_an_expectation() -> None:
    assert set(EXPECTED) == set(PANELS)
    assert len(set(PANELS)) == len(PANELS)


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
def test_steps_and_rate_intervals(
    hours: int, panel: live.Json, target: live.Json, step: int, rate: int
) -> None:
    """As Grafana rounds them; the rate interval has room for four scrapes, or a step and a scrape."""
    found = timing(Viewing(0, 3600.0 * hours, pixels=1440), panel, target)
    assert (found.step, found.rate_interval) == (1000 * step, 1000 * rate)


def test_a_target_is_one_query() -> None:
    """Neither both an instant one and one over the range, nor none."""
    for target in ({"instant": True, "range": True}, {}):
        panel = {"title": "t", "targets": [{"refId": "A", "expr": "up", **target}]}
        with pytest.raises(DashboardError):
            questions(panel, Viewing(0, 3600), {})
