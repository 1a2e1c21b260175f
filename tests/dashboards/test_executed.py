"""Every query of every panel, asked as Grafana would ask it of a real Prometheus, in every world.

A panel that shows nothing where there is something, or something where there is nothing, is wrong; so is a
number that is none, and a share below 0 or above 1.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from dashboards.live import Shown, look
from dashboards.worlds import World, open_world, shared_folder
from dashboards.worlds_catalogue import WORLDS
from dashboards.worlds_expected import EXPECTED, SILENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)

HOURS = 3
PANELS = tuple(
    f"{uid}: {panel['title']}" for uid, dashboard in live.dashboards().items() for panel in panels(dashboard)
)
VARIABLES = tuple(
    dict.fromkeys(
        variable["name"]
        for dashboard in live.dashboards().values()
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    )
)
#: Worlds with several series of each kind, where it matters which are chosen.
MANIFOLD = ("healthy", "unlabelled", "two-clusters")


@dataclass(frozen=True)
class Seen:
    """What is left of a look at all panels: only what tests ask for, so that all worlds fit in the memory.

    Attributes:
        empty: panels that show nothing but thresholds.
        answered: targets whose query found something, as `dashboard: title, refId`.
        wrong: what cannot be right, by panel.
    """

    empty: frozenset[str]
    answered: frozenset[str]
    wrong: dict[str, list[str]]


def summary(shown: tuple[Shown, ...]) -> Seen:
    """Keep what tests ask for."""
    return Seen(
        frozenset(one.name for one in shown if one.empty),
        frozenset(
            f"{one.name}, {ref}" for one in shown for ref, data in one.results.items() if data["result"]
        ),
        {one.name: list(one.wrong()) for one in shown},
    )


def viewing(world: World, **values: str | tuple[str, ...]) -> Viewing:
    """Return somebody who looks at the last hours of a world."""
    end = world.end
    return Viewing(end - 3600 * HOURS, end, values, scrape_interval=world.interval)


@dataclass(frozen=True)
class Looks:
    """A world looked at twice: with All, and with the first value of every variable."""

    everything: Seen
    first: Seen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_folder(tmp_path_factory)


@pytest.fixture(scope="module")
def seen(folder: Path) -> dict[str, Looks]:
    """What is seen in every world, by its name."""
    found = {}
    for name in WORLDS:
        with open_world(name, folder) as world:
            found[name] = Looks(
                summary(look(world.prometheus, viewing(world))),
                summary(look(world.prometheus, viewing(world), single=True)),
            )
    return found


@pytest.fixture(scope="module", params=MANIFOLD)
def world(request: pytest.FixtureRequest, folder: Path) -> Iterator[World]:
    with open_world(request.param, folder) as opened:
        yield opened


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_asks_and_is_answered_soundly(panel: str, seen: dict[str, Looks]) -> None:
    """In every world, with All and with single values: valid queries, finite numbers, shares in 0..1."""
    wrong = {
        f"{name}, {how}": look.wrong[panel]
        for name, looks in seen.items()
        for how, look in (("All", looks.everything), ("one value each", looks.first))
        if look.wrong[panel]
    }
    assert not wrong, f"{panel}: {wrong}"


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_shows_something_where_there_is_something(panel: str, seen: dict[str, Looks]) -> None:
    """It is empty in the worlds without anything to show, and in no other."""
    shown = {name for name, looks in seen.items() if panel not in looks.everything.empty}
    assert shown == EXPECTED.get(panel), f"missing in EXPECTED, or in other worlds than it says: {panel}"


@pytest.mark.parametrize("variable", VARIABLES)
def test_one_variable_at_one_value(world: World, variable: str) -> None:
    """Queries stay valid whichever single choice is made; a label that is absent has nothing to choose."""
    base = viewing(world)
    for dashboard in live.dashboards().values():
        known = resolve(world.prometheus, dashboard, live.restricted(base, dashboard))
        for option in known[variable].options[:1] if variable in known else ():
            chosen = (option,) if _several(dashboard, variable) else option
            shown = look(world.prometheus, viewing(world, **{variable: chosen}), only=dashboard["uid"])
            assert [wrong for one in shown for wrong in one.wrong()] == []


def _several(dashboard: live.Json, name: str) -> bool:
    return any(v["name"] == name and v["multi"] for v in dashboard["templating"]["list"])


def test_two_values_of_every_variable(world: World) -> None:
    """Several values become alternatives of a regular expression, whatever characters they have."""
    for dashboard in live.dashboards().values():
        base = live.restricted(viewing(world), dashboard)
        known = resolve(world.prometheus, dashboard, base)
        values = {
            name: variable.options[:2]
            for name, variable in known.items()
            if len(variable.options) > 1 and _several(dashboard, name)
        }
        shown = look(world.prometheus, viewing(world, **values), only=dashboard["uid"])
        assert [wrong for one in shown for wrong in one.wrong()] == []
        assert any(not one.empty for one in shown)


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_works_without_cluster_namespace_and_pod(panel: str, seen: dict[str, Looks]) -> None:
    """Whatever shows something with these labels shows something without them."""
    labelled, bare = seen["healthy"].everything, seen["unlabelled"].everything
    assert panel in labelled.empty or panel not in bare.empty


def test_annotations_are_valid_and_mark_what_happened(folder: Path) -> None:
    """Each of a dashboard's own annotations finds something where it happened, and nothing elsewhere."""
    happened = {
        "Alerts": {"harmful": True, "idle": False, "exporter-down": True},
        "K changes": {"k-change": True, "healthy": False},
        "Starts": {"k-change": True, "healthy": False},
    }
    names = {name for worlds in happened.values() for name in worlds}
    for name in sorted(names):
        with open_world(name, folder) as world:
            for dashboard in live.dashboards().values():
                base = live.restricted(viewing(world), dashboard)
                found = execute_annotations(world.prometheus, dashboard, base)
                assert set(found) == set(happened), dashboard["uid"]
                for annotation, data in found.items():
                    if name in happened[annotation]:
                        assert bool(data["result"]) == happened[annotation][name], (annotation, name)


def test_every_panel_and_every_target_shows_something_somewhere(seen: dict[str, Looks]) -> None:
    """Nothing is on a dashboard that no world of these tests can fill."""
    filled = {
        panel: [name for name, looks in seen.items() if panel not in looks.everything.empty]
        for panel in PANELS
    }
    answered = frozenset().union(*(looks.everything.answered for looks in seen.values()))
    silent = [
        target
        for uid, dashboard in live.dashboards().items()
        for panel in panels(dashboard)
        for target in (f"{uid}: {panel['title']}, {ref['refId']}" for ref in panel["targets"])
        if target not in answered and target not in SILENT
    ]
    table = "\n".join(f"{len(worlds):3} of {len(seen)}  {panel}" for panel, worlds in filled.items())
    assert all(filled.values()), f"worlds in which a panel shows something:\n{table}"
    assert silent == []


def test_the_table_of_expectations_is_of_these_dashboards() -> None:
    """No panel is forgotten, none is left over, and none is told apart by its title alone."""
    assert set(EXPECTED) == set(PANELS)
    assert len(set(PANELS)) == len(PANELS)


# --- what Grafana does before it asks


CHOSEN = {
    variable.name: variable
    for variable in (
        Variable("one", ("a.b", "c"), ("a.b",), multi=True),
        Variable("two", ("a.b", "c|d"), ("a.b", "c|d"), multi=True),
        Variable("every", ("a", "b"), ALL, multi=True),
        Variable("any", ("a", "b"), ALL, multi=True, all_value=".*"),
        Variable("plain", ("a.b",), "a.b", multi=False),
    )
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('x{l=~"$one"}', r'x{l=~"a\\.b"}'),
        ('x{l=~"${two}"}', r'x{l=~"(a\\.b|c\\|d)"}'),
        ('x{l=~"$every"}', 'x{l=~"(a|b)"}'),
        ('x{l=~"$any"}', 'x{l=~".*"}'),
        ('x{l="$plain"}', 'x{l="a.b"}'),
        ("${two:pipe} ${two:csv} ${two:raw}", "a.b|c|d a.b,c|d a.b,c|d"),
        ("${two:regex}", r"(a\.b|c\|d)"),
        ("${two:queryparam}&${any:queryparam}", f"var-two=a.b&var-two=c%7Cd&var-any={ALL}"),
        ('label_replace(x, "a", "$1", "b", "(.+)")', 'label_replace(x, "a", "$1", "b", "(.+)")'),
    ],
)
def test_values_take_the_place_of_variables(text: str, expected: str) -> None:
    """Regular expressions are escaped for PromQL, All stands for its own value, formats are obeyed."""
    assert interpolate(text, CHOSEN) == expected


@pytest.mark.parametrize("text", ["$unknown", "${one:no_format}", "${one", "[[one]]", "$__rate_interval"])
def test_what_grafana_would_leave_in_a_query_is_an_error(text: str) -> None:
    """Grafana sends it to Prometheus as it stands."""
    with pytest.raises(DashboardError):
        interpolate(text, CHOSEN)


@pytest.mark.parametrize(
    ("hours", "panel", "target", "step", "rate"),
    [
        (1, {}, {}, 15, 60),  # 3.6 s a point: the scrape interval, and four of them
        (24, {}, {}, 60, 75),  # 86.4 s over 1,440 pixels
        (24, {"gridPos": {"w": 12}}, {}, 120, 135),
        (24, {"maxDataPoints": 100}, {}, 900, 915),
        (1, {"interval": "1m"}, {}, 60, 75),
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
