"""Every query of every panel on a real Prometheus, as Grafana would send it, in every
world.

A number that is none, a share below 0 or above 1, and a panel that answers a question
wrongly are faults.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from statistics import mean
from typing import Any, NamedTuple

import pytest

from dashboards.documents import dashboards, fields
from dashboards.grafana import Viewing, annotations, resolve
from dashboards.live import LIMIT, Shown, look, newest
from dashboards.worlds import open_world, shared_folder
from dashboards.worlds_catalogue import GLM, LLAMA, QWEN, WORLDS
from support.repository import text_of

full = pytest.mark.full
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
    ("deep-dive: Before and after each change", "D"),
    ("deep-dive: What each K gives", "C"),
    ("deep-dive: Estimated best K by batch size", "B"),
    ("overview: What is missing", "F"),
    ("overview: What is missing", "H"),
    ("overview: What is missing", "I"),
}
#: What the Overview says is to be done first.
MISSING = {
    "healthy": set(),
    "idle": {f"No requests reach {LLAMA}: nothing to do here."},
    "no-exporter": {"No exporter: let Prometheus scrape port 9850."},
    "exporter-down": {"Exporter 10.0.19.1:9850 is down: see its log."},
    "states": {
        "Exporter 10.0.124.6:9850 is down: see its log.",
        "vLLM of 10.0.148.5:9850 is down: see its log.",
        "VLLMSpecDecodeRequestsUnobserved fires: see its runbook below.",
        "VLLMSpecDecodeTapFailing fires: see its runbook below.",
        "No requests reach org/idle: nothing to do here.",
        "A verdict is uncertain: run history, or calibrate.",
    },
}
#: Verdicts, and what is to be done.
VERDICTS = {
    QWEN: (
        "BENEFICIAL",
        "no advice on K",
    ),  # n-gram drafts vary in length: no advice on K
    "org/loses": ("HARMFUL", "switch off"),
    "org/leans": ("LIKELY HARMFUL", "switch off, or measure"),
    "org/bypassed": ("BYPASSED", "check its flags"),
    "org/warming-up": ("WARMING UP", "wait for drafts"),
    "org/idle": ("IDLE", "nothing: no requests"),
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
        (samples,) = (
            series["values"]
            for target, series in self.shown[name].series()
            if re.match(pattern, target["legendFormat"])
            and series["metric"].get("model_name", LLAMA) == LLAMA
        )
        return [(float(time), float(value)) for time, value in samples]


Worlds = dict[str, Seen]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    """Every world, each opened once."""
    views_of_worlds = {}
    for name in WORLDS:
        with open_world(name, shared_folder(tmp_path_factory)) as world:
            view = Viewing(
                world.end - 3 * 3600, world.end, scrape_interval=world.interval
            )
            chosen: list[Shown] = []
            if name in MANIFOLD:
                overview = dashboards()["overview"]
                two = {
                    variable.name: variable.options[:2]
                    for variable in resolve(world.prometheus, overview, view).values()
                    if variable.multi and variable.options[1:]
                }
                for changes in ({"values": two}, {"filters": MANIFOLD[name]}):
                    chosen += look(world.prometheus, replace(view, **changes))
            # Where the worst model is another, Llama is chosen on the Deep dive.
            views = dict.fromkeys(dashboards(), view)
            if name == "changes":
                llama = {"namespace": "chat", "model_name": LLAMA}
                views["deep-dive"] = replace(view, values=llama)
            marks = {}
            shown = {}
            for uid, dashboard in dashboards().items():
                marks[uid] = annotations(world.prometheus, dashboard, views[uid])
                for panel in look(world.prometheus, views[uid], [uid]):
                    shown[panel.name] = panel
            views_of_worlds[name] = Seen(world.end, shown, tuple(chosen), marks)
    return views_of_worlds


def every_shown(worlds: Worlds) -> Iterator[tuple[str, Shown]]:
    """Yield each panel with the name of its world."""
    for name, world in worlds.items():
        for panel in world.shown.values():
            yield name, panel


@full
@pytest.mark.timeout(900)
def test_nothing_is_wrong_in_any_world_whatever_is_chosen(worlds: Worlds) -> None:
    """Valid queries, finite numbers, shares in 0..1, words for codes, a place for every
    column.
    """
    wrong = {}
    for name, world in worlds.items():
        for panel in (*world.shown.values(), *world.chosen):
            if complaints := list(panel.wrong()):
                wrong[name, panel.name] = complaints
        filled = {panel.dashboard for panel in world.chosen if not panel.empty}
        assert filled in (set(), set(dashboards())), name
    assert wrong == {}


@full
def test_every_query_has_a_result_in_some_world(worlds: Worlds) -> None:
    every = set()
    filled = set()
    for _, panel in every_shown(worlds):
        every |= {(panel.name, target["refId"]) for target in panel.panel["targets"]}
        filled |= {(panel.name, target["refId"]) for target, _ in panel.series()}
    assert every - filled == UNSEEN


@full
def test_panels_need_no_label_of_a_cluster(worlds: Worlds) -> None:
    """Whatever shows something with them does without them."""
    healthy, unlabelled = (
        {panel.name for panel in worlds[name].shown.values() if panel.empty}
        for name in ("healthy", "unlabelled")
    )
    assert unlabelled - healthy == set()


@full
def test_no_threshold_is_drawn_at_0(worlds: Worlds) -> None:
    """Drafters that cost little have thresholds of 0, which nothing is below."""
    drawn_at_0 = set()
    for name, panel in every_shown(worlds):
        for target, series in panel.series():
            if target["legendFormat"].startswith(LIMIT) and not newest(series):
                drawn_at_0.add((name, panel.name, target["legendFormat"]))
    assert drawn_at_0 == set()


# --- the Overview


#: Columns of the tables of models that are not shown: their queries have a label for
#: each word.
WORDS = {
    "Judged",
    "Not judged",
    "Another K",
    "No other K",
    "Change",
    "No change",
    "Cluster",
    "Namespace",
}


def judged(text: str) -> str:
    """Return a verdict without its interval and basis."""
    return re.split(r" \d", text)[0]


@full
@pytest.mark.parametrize("name", ["states", "harmful", "measured", "loads"])
def test_the_deep_dive_says_of_a_model_what_the_overview_says(
    worlds: Worlds, name: str
) -> None:
    """Of the worst model, word for word."""
    world = worlds[name]
    ((model, row),) = rows_of(
        world, "deep-dive: Verdict and what to do", "model_name"
    ).items()
    assert row.items() <= rows_of(world, MODELS, "model_name")[model].items()
    assert row["Do"] != "-"


@full
def test_the_overview_lists_models_with_their_verdicts(worlds: Worlds) -> None:
    rows = rows_of(worlds["states"], MODELS, "model_name")
    said = {
        model: (judged(row["Verdict"]), row["Do"].partition(" (")[0])
        for (model,), row in rows.items()
    }
    assert said == VERDICTS
    leans = rows["org/leans",]
    assert float(leans["Speedup, 5 m"]) < 1
    interval = r"LIKELY HARMFUL 0\.\d+–1\.\d+, modelled"
    assert re.fullmatch(interval, leans["Verdict"])
    (row,) = rows_of(worlds["measured"], MODELS, "model_name").values()
    low, high = map(float, re.findall(r"\d\.\d+", row["Verdict"]))
    assert low < float(row["Speedup, 5 m"]) < high
    assert row["Verdict"].endswith(", measured")


@full
def test_the_overview_counts_models_by_verdict(worlds: Worlds) -> None:
    tile = worlds["states"].shown["overview: Models by verdict"]
    codes = tile.values()
    names = {code: options.get("displayName") for code, options in fields(tile.panel)}
    counts = {names[code]: count for code, count in codes.items()}
    assert len(counts) == len(codes)
    assert counts == {
        "✖ EXPORTER DOWN": 1,
        "✖ vLLM DOWN": 1,
        "▼ HARMFUL": 1,
        "▼ LIKELY HARMFUL": 1,
        "BYPASSED": 1,
        "▲ BENEFICIAL": 1,
        "NO VERDICT": 3,
    }


@full
def test_a_model_that_is_down_has_a_time(worlds: Worlds) -> None:
    """Since its last sample."""
    rows = rows_of(worlds["states"], MODELS, "model_name")
    down, server, idle = (
        rows[f"org/{name}",] for name in ("exporter-down", "server-down", "idle")
    )
    # A scrape that fails is known at once; a server's last state is looked back at for
    # three minutes.
    assert float(down["Since"]) == pytest.approx(21 * 60, abs=61)
    assert float(server["Since"]) == pytest.approx(13 * 60, abs=120)
    # What windows of five minutes take to see that nothing is generated.
    assert 24 * 60 < float(idle["Since"]) < 31 * 60


@full
def test_without_an_exporter_the_servers_own_series_are_shown(
    worlds: Worlds,
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
    wanted = {"Verdict": "NO EXPORTER", "Do": "run an exporter"}
    for row in rows.values():
        assert row.keys() - WORDS == {*wanted, "Why", "Since", "Acceptance", "Rank"}, (
            row
        )
        assert row.items() >= wanted.items(), row
        assert float(row["Acceptance"]) == pytest.approx(
            float(judged_row["Acceptance"]), rel=0.05
        ), row
    of_others = set()
    for name in worlds.keys() - {"no-exporter"}:
        for row in rows_of(worlds[name], MODELS, "model_name").values():
            of_others.add(row.get("Verdict"))
    assert "NO EXPORTER" not in of_others


@full
def test_engines_of_several_kinds_are_shown_alike(worlds: Worlds) -> None:
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


@full
@pytest.mark.parametrize(
    ("name", "word"), [("healthy", "won"), ("harmful", "lost"), ("no-exporter", None)]
)
def test_the_money_line_says_won_or_lost(
    worlds: Worlds, name: str, word: str | None
) -> None:
    """As a positive number."""
    shown = worlds[name].shown["overview: Engine-hours won or lost, 24 h"].values()
    assert next(iter(shown), None) == word
    assert word is None or shown[word] > 0


@full
def test_a_young_budget_is_no_budget(worlds: Worlds) -> None:
    """One world is a minute old, one 45, one two hours."""
    left = {
        name: worlds[name].shown["overview: Loss budget left (30 d)"].values()
        for name in ("first-minute", "unlabelled", "healthy")
    }
    allowed = {values.pop("of all drafts may lose") for values in left.values()}
    assert [0 < share < 0.5 for share in allowed] == [True]
    assert left.pop("healthy") == {"left, of the worst model": 1}
    until = {name: values["known after, at most"] for name, values in left.items()}
    assert until == pytest.approx({"first-minute": 7170, "unlabelled": 4500}, abs=200)


@full
def test_a_mixture_of_clusters_has_no_verdict_of_its_own(
    worlds: Worlds,
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
    won = shown["overview: Engine-hours won or lost, 24 h"].values()
    assert won["won"] < 2 * 0.68
    assert won["won, in your currency"] == pytest.approx(2 * won["won"]), (
        "at the price that the board opens with"
    )


@full
@pytest.mark.parametrize("name", MISSING)
def test_the_overview_says_what_is_missing(worlds: Worlds, name: str) -> None:
    """One sentence each for no traffic, no exporter, and what is down."""
    rows = rows_of(worlds[name], "overview: What is missing", "sentence")
    assert {text for (text,) in rows} == MISSING[name]


@full
def test_of_an_exporter_that_is_down_nothing_is_said_that_nobody_knows(
    worlds: Worlds,
) -> None:
    """No failed polls, and scrapes that are fast because they are refused: neither is
    good news.
    """
    world = worlds["exporter-down"]
    lines = {
        "Failed polls by reason": "no failed poll",
        "Scrape duration": "slowest",
        "Engine restarts and inconsistent samples, 1 h": "restarts",
    }
    for title, line in lines.items():
        panel = world.shown[f"overview: {title}"]
        ends = {
            target["legendFormat"].replace("{{reason}}", line): series["values"][-1][0]
            for target, series in panel.series()
        }
        assert world.end - 25 * 60 < float(ends[line]) < world.end - 14 * 60, title
    (row,) = rows_of(world, "overview: Exporters and servers", "instance").values()
    assert row.keys() == {"Cluster", "Namespace", "Pod", "State"}
    assert row["State"] == "EXPORTER DOWN"
    tile = world.shown["overview: Monitoring"]
    shown = tile.values()
    assert tile.word(shown["monitoring"]) == "BROKEN"
    assert shown["exporters down"] == 1
    assert shown["oldest data"] == pytest.approx(20 * 60, abs=120)


@full
def test_without_an_exporter_monitoring_is_not_broken(worlds: Worlds) -> None:
    """There never was one, so no alert fires either, and that is said."""
    shown = worlds["no-exporter"].shown
    assert shown["overview: Monitoring"].values()["monitoring"] == -1
    alerts = shown["overview: Firing alerts"].rows("severity", "alertname")
    assert set(alerts) == {("0", "no exporter: no alert on a verdict can fire")}


@full
def test_after_the_last_request_no_engine_becomes_an_outlier(worlds: Worlds) -> None:
    """One accepted half of what the other did, for less than half an hour."""
    assert worlds["idle"].shown["overview: Firing alerts"].empty


@full
def test_the_lite_board_needs_neither_exporter_nor_rules(worlds: Worlds) -> None:
    """Without a latency below the first bucket, of which only the mean is drawn."""
    for name in ("no-exporter", "healthy"):
        shown = worlds[name].shown
        lite = {panel for panel in shown if panel.startswith("lite: ")}
        assert {panel for panel in lite if shown[panel].empty} == set(), name
        queries = " ".join(
            target["expr"]
            for panel in lite - {"lite: Verdict, and what to do"}
            for target in shown[panel].panel["targets"]
        )
        assert "vllm_specdec_" not in queries
    rows = rows_of(worlds["healthy"], "lite: Verdict, and what to do", "model_name")
    assert {judged(row["Verdict"]) for row in rows.values()} == {"BENEFICIAL"}
    alone = worlds["no-exporter"].shown
    for title, of_glm in (("rate", 1.0632 / 5), ("length", 2.0632)):
        drawn = alone[f"lite: Acceptance {title}"].values()
        of_models = {name.split()[2]: value for name, value in drawn.items()}
        # Two are of SGLang.
        assert of_models.keys() == {LLAMA, QWEN, GLM}
        assert of_models[QWEN] == pytest.approx(of_models[LLAMA], rel=0.02)
        assert of_models[GLM] == pytest.approx(of_glm, rel=0.05)


@full
def test_the_tile_of_requests_says_how_many_are_observed(worlds: Worlds) -> None:
    shown = worlds["requests"].shown
    seen = shown["requests: Data by request"].values()["observed"]
    rates = shown["requests: Observed and finished requests"].values()
    share = rates["observed"] / rates["finished by vLLM"]
    assert seen == pytest.approx(share, abs=0.08)
    assert seen < 0.6
    # What is not observed went past the tap, but for some a minute.
    unread = rates["finished by vLLM"] - rates["observed"] - rates["past the tap"]
    assert 0 < 60 * unread < 10
    positions = shown["requests: Positions, where drafted and of all drafts"]
    for (position,), row in positions.rows("position").items():
        parts = [float(row[of]) for of in ("Where drafted", "Drafts that reach it")]
        assert float(row["Of all drafts"]) == pytest.approx(
            parts[0] * parts[1], rel=1e-4
        ), position
    kinds = shown["requests: Requests by type and temperature"]
    assert {model for (model,) in kinds.rows("model_name")} == {
        LLAMA,
        QWEN,
        "support-lora",
    }


@full
def test_hours_lost_are_positive_and_so_are_the_ends_of_their_interval(
    worlds: Worlds,
) -> None:
    shown = worlds["harmful"].shown["overview: Engine-hours won or lost, 24 h"].values()
    assert 0 < shown["lost, at least"] < shown["lost"] < shown["lost, at most"]
    assert shown["lost, in your currency"] == pytest.approx(2 * shown["lost"])


@full
def test_a_speedup_that_is_unknown_has_its_interval(worlds: Worlds) -> None:
    """The line stops where load has made it so, and two go on."""
    world = worlds["loads"]
    for name in ("deep-dive: Load or drafts?", "overview: Speedup"):
        shown = {
            series.split(" eu-1")[0]: value
            for series, value in world.shown[name].values().items()
        }
        assert (
            shown["speedup unknown, at least"] < 1 < shown["speedup unknown, at most"]
        )
    known = world.line("deep-dive: Load or drafts?", "speedup, ")
    unknown = world.line("deep-dive: Load or drafts?", "speedup unknown, at least")
    assert known[-1][0] < unknown[-1][0]
    assert abs(known[-1][0] - unknown[0][0]) < 400


@full
def test_the_limit_for_disabling_is_said_once_and_is_the_one_that_decides(
    worlds: Worlds,
) -> None:
    """A draft model's rule has 50 % and a length of 1.2, which with K=3 is 7 %."""
    shown = worlds["measured"].shown
    assert shown["deep-dive: Acceptance rate"].values()[
        "limit: disable below"
    ] == pytest.approx(0.5)
    names = shown["deep-dive: Acceptance length and break-even"].values()
    assert not [name for name in names if "disable" in name]


@full
def test_an_exporter_that_is_down_keeps_its_history(worlds: Worlds) -> None:
    assert not worlds["exporter-down"].shown["overview: Poll duration"].empty


@full
@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("requests", "PARTLY"),
        ("states", "NO RECORDS"),
        ("healthy", "no per-request data: only means"),
    ],
)
def test_the_requests_dashboard_says_whether_it_has_data(
    worlds: Worlds, name: str, word: str
) -> None:
    tile = worlds[name].shown["requests: Data by request"]
    assert tile.word(tile.values()["per-request data"]) == word


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
    began = {}
    for series in world.marks["deep-dive"]["K changes"]["result"]:
        if series["metric"]["model_name"] == LLAMA:
            k = series["metric"]["value"]
            began[k] = min(began.get(k, math.inf), series["values"][0][0])
    changes = []
    for k, time in sorted(began.items(), key=itemgetter(1)):
        earlier = mean(value for at, value in line if time - 900 < at < time - 180)
        later = mean(value for at, value in line if time + 300 < at < time + 900)
        change = "longer" if later > earlier else "shorter"
        changes.append(f"K {k}: {change}")
    return ", ".join(changes)


def load_or_drafts(world: Seen) -> str:
    """Compare the beginning of three lines with their end."""

    def change(name: str) -> float:
        line = world.line("deep-dive: Load or drafts?", name)
        return line[-3][1] / line[len(line) // 5][1]

    blamed = []
    if change("acceptance") < 0.9:
        blamed.append("drafts")
    if change("running") > 1.5:
        blamed.append("load")
    course = "falls" if change("speedup, ") < 0.95 else "is level"
    return f"speedup {course}: {', '.join(blamed)}"


def marked_advised(world: Seen) -> str:
    """Read the rows of the table of K that are advised."""
    rows = rows_of(world, "deep-dive: What each K gives", "num_speculative_tokens")
    return ", ".join(k for (k,), cells in rows.items() if "Advised" in cells)


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
    name = "requests: Requests by type and temperature"
    rows = rows_of(world, name, "request_type", "temperature")
    losing = (" at ".join(key) for key, row in rows.items() if float(row["Lose"]) > 0.5)
    return ", ".join(sorted(losing))


def of_model(model: str, *columns: str) -> Callable[[Seen], str]:
    """Read cells of one row of the table of models."""

    def read(world: Seen) -> str:
        row = rows_of(world, MODELS, "model_name")[model,]
        return ", ".join(row[column] for column in columns)

    return read


def verdict_in_us(world: Seen) -> str:
    """Read the verdict of one of two clusters."""
    return judged(rows_of(world, MODELS, "cluster")["us-2",]["Verdict"])


def cause(world: Seen) -> str:
    """Read what changed the speedup of a model, without the change."""
    _, _, causes = of_model(LLAMA, "Why")(world).partition(": ")
    return causes.split(" ")[0]


def polled(world: Seen) -> str:
    """Read the newest state of a target."""
    name = "overview: Target availability"
    return world.shown[name].word(world.line(name, "")[-1][1])


MODELS = "overview: Models"


class Question(NamedTuple):
    """A question, and the panel of a world that answers it."""

    text: str
    world: str
    panel: str
    answer: Callable[[Seen], str]
    expected: str


QUESTIONS = (
    Question(
        "Which model loses, and where?",
        world="two-clusters",
        panel=MODELS,
        answer=verdict_in_us,
        expected="HARMFUL",
    ),
    Question(
        "Since when does it lose?",
        world="harmful",
        panel="overview: Verdict over time",
        answer=since,
        expected="for about 75 minutes",
    ),
    Question(
        "Which K is in use, and which should it be?",
        world="harmful",
        panel=MODELS,
        answer=of_model(LLAMA, "K", "Do"),
        expected="5, switch off (+75 %, est.)",
    ),
    Question(
        "Why are there tokens but no gain?",
        world="states",
        panel=MODELS,
        answer=of_model("org/bypassed", "Verdict"),
        expected="BYPASSED",
    ),
    Question(
        "Why did the speedup change?",
        world="day",
        panel=MODELS,
        answer=cause,
        expected="drafts",
    ),
    Question(
        "How much would another K gain?",
        world="harmful",
        panel="deep-dive: What each K gives",
        answer=marked_advised,
        expected="0",
    ),
    Question(
        "Did the deployment at noon change acceptance?",
        world="changes",
        panel="deep-dive: Acceptance length and break-even",
        answer=change_of_k,
        expected="K 5: longer, K 2: shorter",
    ),
    Question(
        "Is it the load or the drafts?",
        world="loads",
        panel="deep-dive: Load or drafts?",
        answer=load_or_drafts,
        expected="speedup falls: load",
    ),
    Question(
        "Is acceptance as it was?",
        world="day",
        panel="deep-dive: Acceptance length, compared with the day before",
        answer=band,
        expected="below",
    ),
    Question(
        "Are the last positions drafted for nothing?",
        world="harmful",
        panel="deep-dive: Acceptance by position",
        answer=useless_positions,
        expected="position 1, position 2, position 3, position 4",
    ),
    Question(
        "Do users get their tokens faster than without?",
        world="measured",
        panel="deep-dive: Speedup, estimated and measured",
        answer=measured,
        expected="faster",
    ),
    Question(
        "Is everything polled?",
        world="exporter-down",
        panel="overview: Target availability",
        answer=polled,
        expected="EXPORTER DOWN",
    ),
    Question(
        "Who loses while the mean looks healthy?",
        world="requests",
        panel="requests: Requests by type and temperature",
        answer=losing_kinds,
        expected="story at 0.7-1, story at 1+",
    ),
)


@full
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.text)
def test_the_panel_answers_the_question(question: Question, worlds: Worlds) -> None:
    assert question.answer(worlds[question.world]) == question.expected


def test_the_page_has_every_question_with_the_panel_that_answers_it() -> None:
    page = text_of("docs/dashboards.md")
    rows = re.findall(r"(?m)^\| \d+ \| (.+?) \| (.+?) \|", page)
    assert rows == [
        (question.text, f"*{question.panel.partition(': ')[2]}*")
        for question in QUESTIONS
    ]


@full
def test_annotations_mark_what_happened_with_labels_that_they_have(
    worlds: Worlds,
) -> None:
    labels_of_marks: dict[str, set[str]] = {name: set() for name in HAPPENED}
    wrong = {}
    for name, world in worlds.items():
        for uid, marks in world.marks.items():
            assert marks.keys() == HAPPENED.keys(), (name, uid)
            for mark, data in marks.items():
                happened = bool(data["result"])
                if HAPPENED[mark].get(name, happened) != happened:
                    wrong[name, uid, mark] = happened
                for series in data["result"]:
                    labels_of_marks[mark] |= series["metric"].keys()
    assert wrong == {}
    for uid, dashboard in dashboards().items():
        for mark in dashboard["annotations"]["list"][1:]:
            text = mark["titleFormat"] + mark["textFormat"]
            named = set(re.findall(r"\{\{(\w+)\}\}", text))
            assert named <= labels_of_marks[mark["name"]], (uid, mark["name"])
