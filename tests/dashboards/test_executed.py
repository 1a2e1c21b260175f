"""Every query of every panel on a real Prometheus, as Grafana would send it, in every
world.

A number that is none, a share below 0 or above 1, and a panel that answers a question
wrongly are faults.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from dashboards.documents import dashboards
from dashboards.grafana import Viewing, annotations, resolve
from dashboards.live import LIMIT, Shown, look, newest
from dashboards.worlds import ROOT, open_world, shared_folder
from dashboards.worlds_catalogue import GLM, LLAMA, QWEN, WORLDS

#: Worlds with several series of each kind, where it matters which are chosen, and a
#: label to filter by.
MANIFOLD = {"healthy": {"pod": "llama-0"}, "unlabelled": {"instance": "10.1.0.1:9850"}}
#: What annotations find where it happened, and nowhere else.
HAPPENED = {
    "Alerts": {"harmful": True, "healthy": False, "exporter-down": True},
    "K changes": {"changes": True, "healthy": False},
    "Starts": {"changes": True, "healthy": False},
}
#: Queries that no world answers: of mistakes, of percentiles within the first bucket,
#: and of another model than the one that is chosen, which `test_values` has.
UNSEEN = {
    ("deep-dive: Before and after each change", "B"),
    ("overview: What is missing", "E"),
    ("overview: What is missing", "G"),
}
#: What the Overview says is to be done first.
MISSING = {
    "healthy": set(),
    "idle": {"No traffic: send requests."},
    "no-exporter": {"No exporter: let Prometheus scrape port 9850."},
    "exporter-down": {"Exporter 10.0.19.1:9850 is down: see its log."},
    "states": {
        "Exporter 10.0.124.6:9850 is down: see its log.",
        "vLLM of 10.0.148.5:9850 is down: see its log.",
        "A verdict is uncertain: run history, or calibrate.",
    },
}
#: Verdicts, and what is to be done.
VERDICTS = {
    QWEN: ("BENEFICIAL", "-"),  # n-gram drafts vary in length: no advice on K
    "org/loses": ("HARMFUL", "switch off"),
    "org/leans": ("LIKELY HARMFUL", "switch off, or measure"),
    "org/bypassed": ("BYPASSED", "check its flags"),
    "org/warming-up": ("WARMING UP", "-"),
    "org/idle": ("IDLE", "-"),
    "org/off": ("OFF", "-"),
    "org/server-down": ("vLLM DOWN", "see vLLM's log"),
    "org/exporter-down": ("EXPORTER DOWN", "see exporter's log"),
}


@dataclass(frozen=True)
class Seen:
    """A world as all dashboards show it."""

    end: float  # Unix time of the view
    shown: Mapping[str, Shown]  # every panel by dashboard and title, with All chosen
    #: The same with two values of each variable, and with an ad hoc filter; only of
    #: some worlds
    chosen: tuple[Shown, ...]
    #: The responses to each dashboard's annotations, by name.
    marks: Mapping[str, Mapping[str, Any]]

    def line(self, name: str, pattern: str) -> list[tuple[float, float]]:
        """Return the only line of a panel whose name matches a pattern; where there are
        models, of Llama.
        """
        panel = self.shown[name]
        (samples,) = (
            series["values"]
            for target in panel.panel["targets"]
            if re.match(pattern, target["legendFormat"])
            for series in panel.results[target["refId"]]["result"]
            if series["metric"].get("model_name", LLAMA) == LLAMA
        )
        return [(float(time), float(value)) for time, value in samples]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """Every world, each opened once."""
    views_of_worlds = {}
    for name in WORLDS:
        with open_world(name, shared_folder(tmp_path_factory)) as world:
            where = (world.end - 3 * 3600, world.end)
            view = Viewing(*where, scrape_interval=world.interval)
            chosen: list[Shown] = []
            if name in MANIFOLD:
                variables = resolve(
                    world.prometheus, dashboards()["overview"], view
                ).values()
                two = {
                    variable.name: variable.options[:2]
                    for variable in variables
                    if variable.multi and variable.options[1:]
                }
                for values, filters in ((two, {}), ({}, MANIFOLD[name])):
                    chosen += look(world.prometheus, Viewing(*where, values, filters))
            # Where the worst model is another, Llama is chosen on the Deep dive.
            if name == "changes":
                values_of_board = {"namespace": "chat", "model_name": LLAMA}
            else:
                values_of_board = {}
            views = {
                "deep-dive": Viewing(
                    *where, values_of_board, scrape_interval=world.interval
                )
            }
            marks = {
                uid: annotations(world.prometheus, dashboard, views.get(uid, view))
                for uid, dashboard in dashboards().items()
            }
            shown = {
                panel.name: panel
                for uid in dashboards()
                for panel in look(world.prometheus, views.get(uid, view), [uid])
            }
            views_of_worlds[name] = Seen(world.end, shown, tuple(chosen), marks)
    return views_of_worlds


@pytest.mark.full
@pytest.mark.timeout(900)
def test_nothing_is_wrong_in_any_world_whatever_is_chosen(
    worlds: dict[str, Seen],
) -> None:
    """Valid queries, finite numbers, shares in 0..1, words for codes, a place for every
    column.
    """
    every = [
        (name, panel)
        for name, world in worlds.items()
        for panel in (*world.shown.values(), *world.chosen)
    ]
    assert [f"{name}: {said}" for name, panel in every for said in panel.wrong()] == []
    for world in worlds.values():
        assert {panel.dashboard for panel in world.chosen if not panel.empty} in (
            set(),
            set(dashboards()),
        )


@pytest.mark.full
def test_every_query_has_a_result_in_some_world(worlds: dict[str, Seen]) -> None:
    shown = [panel for world in worlds.values() for panel in world.shown.values()]
    every = {
        (panel.name, target["refId"])
        for panel in shown
        for target in panel.panel["targets"]
    }
    filled = {
        (panel.name, ref)
        for panel in shown
        for ref, data in panel.results.items()
        if data["result"]
    }
    assert every - filled == UNSEEN


@pytest.mark.full
def test_panels_need_no_label_of_a_cluster(worlds: dict[str, Seen]) -> None:
    """Whatever shows something with them does without them, but for the budget, which
    takes an hour.
    """
    filled, bare = (
        {name for name, panel in worlds[world].shown.items() if not panel.empty}
        for world in ("healthy", "unlabelled")
    )
    assert filled - bare == {"overview: Error budget left (30 d)"}


@pytest.mark.full
def test_no_threshold_is_drawn_at_0(worlds: dict[str, Seen]) -> None:
    """Drafters that cost little have thresholds of 0, which nothing is below."""
    assert {
        f"{name}: {panel.name}: {target['legendFormat']}"
        for name, world in worlds.items()
        for panel in world.shown.values()
        for target in panel.panel["targets"]
        if target["legendFormat"].startswith(LIMIT)
        for series in panel.results[target["refId"]]["result"]
        if newest(series) == 0
    } == set()


# --- the Overview


#: Columns of the tables of models that are not shown: their queries have a label for
#: each word.
WORDS = {
    "Judged",
    "Not judged",
    "Another K",
    "No other K",
    "Change",
    "Cluster",
    "Namespace",
}


def judged(text: str) -> str:
    """Return a verdict without its interval and basis."""
    return re.split(r" \d", text)[0]


@pytest.mark.full
def test_the_deep_dive_says_of_a_model_what_the_overview_says(
    worlds: dict[str, Seen],
) -> None:
    """Of the worst model, word for word."""
    for name in ("states", "harmful", "measured", "loads"):
        (only_row,) = (
            worlds[name]
            .shown["deep-dive: Verdict and what to do"]
            .rows("model_name")
            .items()
        )
        model, row = only_row
        assert (
            row.items()
            <= worlds[name].shown["overview: Models"].rows("model_name")[model].items()
        ), name
        assert row["Do"] != "-", name


@pytest.mark.full
def test_the_overview_counts_models_by_verdict_and_lists_them(
    worlds: dict[str, Seen],
) -> None:
    rows = worlds["states"].shown["overview: Models"].rows("model_name")
    said = {
        model: (judged(row["Verdict"]), row["Do"].partition(" (")[0])
        for (model,), row in rows.items()
    }
    assert said == VERDICTS
    assert float(rows["org/leans",]["Speedup"]) < 1
    assert re.fullmatch(
        r"LIKELY HARMFUL 0\.\d+–1\.\d+, modelled", rows["org/leans",]["Verdict"]
    )
    (row,) = worlds["measured"].shown["overview: Models"].rows("model_name").values()
    low, high = map(float, re.findall(r"\d\.\d+", row["Verdict"]))
    assert low < float(row["Speedup"]) < high
    assert row["Verdict"].endswith(", measured")
    tile = worlds["states"].shown["overview: Models by verdict"]
    name_of_code = {
        override["matcher"]["options"]: prop["value"]
        for override in tile.panel["fieldConfig"]["overrides"]
        for prop in override["properties"]
        if prop["id"] == "displayName"
    }
    assert {name_of_code[code]: count for code, count in tile.values().items()} == {
        "✖ DOWN": 2,
        "▼ HARMFUL": 1,
        "▼ LIKELY HARMFUL": 1,
        "BYPASSED": 1,
        "▲ BENEFICIAL": 1,
        "NO VERDICT": 3,
    }


@pytest.mark.full
def test_a_model_that_is_down_has_a_time(worlds: dict[str, Seen]) -> None:
    """Since its last sample."""
    rows = worlds["states"].shown["overview: Models"].rows("model_name")
    down, server, idle = (
        rows[f"org/{name}",] for name in ("exporter-down", "server-down", "idle")
    )
    # A scrape that fails is known at once; a server's last state is looked back at for
    # three minutes.
    assert float(down["Since"]) == pytest.approx(21 * 60, abs=61)
    assert float(server["Since"]) == pytest.approx(13 * 60, abs=120)
    # What windows of five minutes take to see that nothing is generated.
    assert 24 * 60 < float(idle["Since"]) < 31 * 60


@pytest.mark.full
def test_without_an_exporter_the_servers_own_series_are_shown(
    worlds: dict[str, Seen],
) -> None:
    """Acceptance and length are what they are with an exporter."""
    alone, watched = (worlds[name].shown for name in ("no-exporter", "exporter-down"))
    rows = alone["overview: Models"].rows("model_name")
    assert rows.keys() == {(LLAMA,), (QWEN,), (GLM,)}  # of vLLM, and two of SGLang
    assert alone["overview: Models by verdict"].values() == {"9": 3}
    # Two models of SGLang are not mixed: with K=5, of 0.6, 0.6 * 0.5 ... tokens for
    # each draft.
    mean = 1.0632
    glm = rows.pop((GLM,))
    assert float(glm["Acceptance"]) == pytest.approx(mean / 5, rel=0.05)
    names = {LLAMA, QWEN, GLM}
    for title in ("Verdict over time", "Acceptance length and break-even"):
        of_models = {
            series.split()[-1]: value
            for series, value in alone[f"overview: {title}"].values().items()
        }
        assert of_models.keys() == names, title
    assert of_models[GLM] == pytest.approx(1 + mean, rel=0.05)
    (series,) = alone["deep-dive: Acceptance rate"].values()
    assert series.split()[-1] in names
    # The same traffic: after its exporter, while vLLM is still there, the other world
    # shows as much.
    (judged_row,) = watched["overview: Models"].rows("model_name").values()
    for row in rows.values():
        assert row.keys() - WORDS == {"Verdict", "Do", "Since", "Acceptance", "Rank"}, (
            row
        )
        assert (row["Verdict"], row["Do"]) == ("NO EXPORTER", "run an exporter"), row
        assert float(row["Acceptance"]) == pytest.approx(
            float(judged_row["Acceptance"]), rel=0.05
        ), row
    for title in (
        "overview: Acceptance length and break-even",
        "deep-dive: Acceptance rate",
    ):
        assert not alone[title].empty, title
    assert [
        name
        for name, world in worlds.items()
        if name != "no-exporter"
        for cells in world.shown["overview: Models"].rows("model_name").values()
        if cells.get("Verdict") == "NO EXPORTER"
    ] == []


@pytest.mark.full
def test_engines_of_several_kinds_are_shown_alike(worlds: dict[str, Seen]) -> None:
    """Of the same traffic.

    SGLang counts no positions, and llama.cpp does not print the model.
    """
    shown = worlds["engines"].shown
    rows = shown["overview: Models"].rows("model_name")
    assert rows.keys() == {(LLAMA,), ("",)}
    assert {(judged(row["Verdict"]), row["K"]) for row in rows.values()} == {
        ("BENEFICIAL", "3")
    }
    assert [float(row["Acceptance"]) for row in rows.values()] == pytest.approx(
        [0.61] * 2, rel=0.02
    )
    lengths = shown["overview: Acceptance length and break-even"].values()
    drawn = [value for name, value in lengths.items() if not name.startswith(LIMIT)]
    assert drawn == pytest.approx([2.83] * 2, rel=0.02)
    for title in ("Acceptance by position", "Conditional acceptance by position"):
        assert shown[f"deep-dive: {title}"].values()["position 0"] == pytest.approx(
            0.8, rel=0.02
        ), title
    assert shown["overview: Firing alerts"].empty


@pytest.mark.full
def test_the_money_line_says_won_or_lost_and_a_young_budget_is_no_budget(
    worlds: dict[str, Seen],
) -> None:
    won = "overview: Time won or lost, 24 h"
    left = "overview: Error budget left (30 d)"
    outcomes = {
        name: next(iter(worlds[name].shown[won].values().items()), None)
        for name in ("healthy", "harmful", "no-exporter")
    }
    assert (
        outcomes["healthy"][0],
        outcomes["harmful"][0],
        outcomes["no-exporter"],
    ) == ("won", "lost", None)
    assert all(outcome[1] > 0 for outcome in outcomes.values() if outcome)
    # One is a minute old, one 45.
    assert [
        name
        for name in ("first-minute", "unlabelled")
        if not worlds[name].shown[left].empty
    ] == []
    assert worlds["healthy"].shown[left].values() == {"left": 1}


@pytest.mark.full
def test_a_mixture_of_clusters_has_no_verdict_of_its_own(
    worlds: dict[str, Seen],
) -> None:
    """Two rows and two counts, of which one gains: not one word for both."""
    shown = worlds["two-clusters"].shown
    rows = shown["overview: Models"].rows("cluster")
    assert {
        cluster: judged(cells["Verdict"]) for (cluster,), cells in rows.items()
    } == {
        "eu-1": "BENEFICIAL",
        "us-2": "HARMFUL",
    }
    assert sorted(shown["overview: Models by verdict"].values().values()) == [1, 1]
    won = shown["overview: Time won or lost, 24 h"].values()
    assert won["won"] < 2 * 0.68
    assert won["worth"] == pytest.approx(2 * won["won"]), (
        "at the price that the board opens with"
    )


@pytest.mark.full
def test_the_overview_says_what_is_missing(worlds: dict[str, Seen]) -> None:
    """No traffic, no exporter, an exporter or a server that is down: one sentence each."""
    sentences = {
        name: {
            sentence
            for (sentence,) in worlds[name]
            .shown["overview: What is missing"]
            .rows("sentence")
        }
        for name in MISSING
    }
    assert sentences == MISSING


@pytest.mark.full
def test_an_exporter_that_is_down_keeps_its_history(worlds: dict[str, Seen]) -> None:
    panel = worlds["exporter-down"].shown["exporter: Poll duration"]
    assert not panel.empty


@pytest.mark.full
def test_the_requests_dashboard_says_whether_it_has_data(
    worlds: dict[str, Seen],
) -> None:
    said = {"requests": "YES", "states": "NO RECORDS", "healthy": "NO: means only"}
    tiles = {name: worlds[name].shown["requests: Data by request"] for name in said}
    assert {
        name: tile.word(tile.values()["per-request data"])
        for name, tile in tiles.items()
    } == said


# --- questions of operators, whose answers are known; docs/dashboards.md has them, too


def since(world: Seen) -> str:
    """Read when the colour of the verdict that stands now began."""
    line = world.line("overview: Verdict over time", "")
    began = next(
        (time for time, value in reversed(line) if value != line[-1][1]), line[0][0]
    )
    return f"for about {round((world.end - began) / 900) * 15} minutes"


def change_of_k(world: Seen) -> str:
    """Read the annotations of K, and what the line did at them."""
    line = world.line("deep-dive: Acceptance length and break-even", "(?!limit)")
    marks = sorted(
        (time, series["metric"]["value"])
        for series in world.marks["deep-dive"]["K changes"]["result"]
        if series["metric"]["model_name"] == LLAMA
        for time, _ in series["values"]
    )
    said = {}
    for time, k in marks:
        earlier = [value for at, value in line if time - 900 < at < time - 180]
        later = [value for at, value in line if time + 300 < at < time + 900]
        said.setdefault(
            k,
            "longer"
            if sum(later) / len(later) > sum(earlier) / len(earlier)
            else "shorter",
        )
    return ", ".join(f"K {k}: {change}" for k, change in said.items())


def load_or_drafts(world: Seen) -> str:
    """Compare the beginning of three lines with their end."""
    name = "deep-dive: Load or drafts?"
    length, speed, requests = (
        line[-3][1] / line[len(line) // 5][1]
        for line in (
            world.line(name, word) for word in ("acceptance", "speedup", "running")
        )
    )
    blamed = [
        word
        for word, guilty in (("drafts", length < 0.9), ("load", requests > 1.5))
        if guilty
    ]
    return f"speedup {'falls' if speed < 0.95 else 'is level'}: {', '.join(blamed)}"


def marked(column: str) -> Callable[[Seen], str]:
    """Read the rows of the table of K that have a mark."""
    return lambda world: ", ".join(
        k for (k,), cells in rows_of(world, (
            "deep-dive: What each K gives"
        ), "num_speculative_tokens").items()
        if column in cells
    )  # fmt: skip


def rows_of(
    world: Seen, name: str, *labels: str
) -> dict[tuple[str, ...], dict[str, str]]:
    """Return the rows of a table."""
    return world.shown[name].rows(*labels)


def band(world: Seen) -> str:
    """Compare the end of a line with the band around the day before."""
    lines = world.shown[
        "deep-dive: Acceptance length, compared with the day before"
    ].values()
    here, low, high = (
        lines[name] for name in ("now", "usual, at least", "usual, at most")
    )
    if here < low:
        return "below"
    if here > high:
        return "above"
    return "as before"


def useless_positions(world: Seen) -> str:
    """Read the lines of positions that end below a tenth."""
    values = world.shown["deep-dive: Acceptance by position"].values()
    return ", ".join(sorted(name for name, value in values.items() if value < 0.1))


def measured(world: Seen) -> str:
    """Compare the measured line with the threshold."""
    name = "deep-dive: Speedup, estimated and measured"
    measured, limit = (world.line(name, word)[-1][1] for word in ("measured", LIMIT))
    if measured > limit:
        return "faster"
    return "slower"


def losing_kinds(world: Seen) -> str:
    """Read the rows of which more than half of the requests lose."""
    rows = rows_of(
        world,
        "requests: Requests by type and temperature",
        "request_type",
        "temperature",
    )
    return ", ".join(
        sorted(
            f"{kind} at {heat}"
            for (kind, heat), cells in rows.items()
            if float(cells["Lose"]) > 0.5
        )
    )


def cell(
    name: str, key: tuple[str, ...], labels: tuple[str, ...], *columns: str
) -> Callable[[Seen], str]:
    """Read cells of one row of a table."""
    return lambda world: ", ".join(
        rows_of(world, name, *labels)[key][column] for column in columns
    )


MODELS = "overview: Models"
QUESTIONS: tuple[tuple[str, str, str, Callable[[Seen], str], str], ...] = (
    ("Which model loses, and where?", "two-clusters", MODELS,
     lambda world: judged(rows_of(world, MODELS, "cluster")["us-2",]["Verdict"]), (
         "HARMFUL"
     )),
    ("Since when does it lose?", "harmful", "overview: Verdict over time", since, (
        "for about 75 minutes"
    )),
    ("Which K is in use, and which should it be?", "harmful", MODELS,
     cell(MODELS, (LLAMA,), ("model_name",), "K", "Do"), "5, switch off (+75 %)"),
    ("Why are there tokens but no gain?", "states", MODELS,
     cell(MODELS, ("org/bypassed",), ("model_name",), "Verdict"), "BYPASSED"),
    ("Why did the speedup change?", "day", MODELS,
     lambda world: rows_of(world, MODELS, "model_name")[LLAMA,]["Why"].split(" ")[1], (
         "drafts"
     )),
    ("How much would another K gain?", "harmful", (
        "deep-dive: What each K gives"
    ), marked("Advised"), "0"),
    ("Did the deployment at noon change acceptance?", "changes",
     "deep-dive: Acceptance length and break-even", change_of_k, (
         "K 5: longer, K 2: shorter"
     )),
    ("Is it the load or the drafts?", "loads", "deep-dive: Load or drafts?",
     load_or_drafts, "speedup falls: load"),
    ("Is acceptance as it was?", "day", (
        "deep-dive: Acceptance length, compared with the day before"
    ), band,
     "below"),
    ("Are the last positions drafted for nothing?", "harmful", (
        "deep-dive: Acceptance by position"
    ),
     useless_positions, "position 1, position 2, position 3, position 4"),
    ("Do users get their tokens faster than without?", "measured",
     "deep-dive: Speedup, estimated and measured", measured, "faster"),
    ("Is everything polled?", "exporter-down", "exporter: Target availability",
     lambda world: world.shown["exporter: Target availability"].word(
         world.line("exporter: Target availability", "")[-1][1]), "EXPORTER DOWN"),
    ("Who loses while the mean looks healthy?", "requests", (
        "requests: Requests by type and temperature"
    ),
     losing_kinds, "story at 0.7-1, story at 1+"),
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: asked[0])
def test_the_panel_answers_the_question(
    asked: tuple[str, str, str, Callable[[Seen], str], str], worlds: dict[str, Seen]
) -> None:
    _, world, _, answer, expected = asked
    assert answer(worlds[world]) == expected


def test_the_page_has_every_question_with_the_panel_that_answers_it() -> None:
    page = (ROOT / "docs" / "dashboards.md").read_text("utf-8")
    rows = re.findall(r"^\| \d+ \| (.+?) \| (.+?) \|", page, re.MULTILINE)
    assert rows == [
        (question, f"*{panel.partition(': ')[2]}*")
        for question, _, panel, *_ in QUESTIONS
    ]


@pytest.mark.full
def test_annotations_mark_what_happened_with_labels_that_they_have(
    worlds: dict[str, Seen],
) -> None:
    labels_of_marks: dict[str, set[str]] = {}
    for name, world in worlds.items():
        for uid, marks in world.marks.items():
            assert set(marks) == set(HAPPENED), uid
            for mark, data in marks.items():
                expected = HAPPENED[mark].get(name, bool(data["result"]))
                assert bool(data["result"]) == expected, (name, uid, mark)
                labels_of_marks.setdefault(mark, set()).update(
                    *(series["metric"] for series in data["result"])
                )
    for dashboard in dashboards().values():
        for mark in dashboard["annotations"]["list"][1:]:
            named = set(
                re.findall(r"\{\{(\w+)\}\}", mark["titleFormat"] + mark["textFormat"])
            )
            assert named <= labels_of_marks[mark["name"]], mark["name"]
