"""The dashboard of requests shows what was counted of them, whatever is chosen.

Reckoned again from the counters as they were scraped, over the half hour that its shares are over.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from alerts.pushing import TOKEN, pushing
from dashboards.documents import dashboards
from dashboards.grafana import unfolded
from dashboards.grafana_timing import Viewing
from dashboards.grafana_variables import interpolate, resolve
from dashboards.live import look
from dashboards.worlds import World, open_world, shared_folder
from dashboards.worlds_catalogue import LLAMA, QWEN, ZONES
from dashboards.worlds_pods import JOB, VLLM_JOB
from dashboards.worlds_reckoning import answers, answers_of_rows, newest, panel_of, tile, value
from dashboards.worlds_requests import ADAPTER, KINDS, RECORDED
from support.exporter import running_exporter
from support.programs import simulator
from support.prometheus import PrometheusServer
from vllm_specdec_exporter.config.thresholds import Thresholds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dashboards.grafana_timing import Value

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

UID = "requests"
#: What Grafana's temperature and type say of each kind of request.
ROWS = {
    ("code", "0"), ("code", "0.7-1"), ("extraction", "0"), ("chat", "unset"), ("chat", "0.5-0.7"),
    ("story", "0.7-1"), ("story", "1+"), ("support", "0-0.5"),
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world("requests", shared_folder(tmp_path_factory)) as opened:
        yield opened


def grown(world: World, name: str, scrapes: int, **labels: str) -> float:
    """Return what counters with these labels have grown by over the last scrapes, all together."""
    found = list(world.scraped.select(f"vllm_specdec_{name}", **labels))
    assert found, (name, labels)
    return float(sum(rows[-1] - rows[-1 - scrapes] for _, rows in found))


def is_ratio_of(
    world: World, shown: float, of: tuple[str, dict[str, str]], to: tuple[str, dict[str, str]]
) -> None:
    """Hold a ratio to the counters of half an hour.

    The sample at its very beginning counts up to Prometheus 2, and does not from 3 on.
    """
    windows = [round(1800 / world.interval) - less for less in (0, 1)]
    expected = [grown(world, of[0], n, **of[1]) / grown(world, to[0], n, **to[1]) for n in windows]
    assert any(shown == pytest.approx(one, rel=1e-9) for one in expected), (shown, expected)


def rows(world: World, column: str, **values: Value) -> dict[tuple[str, str], float]:
    """Return a column of the table of kinds of requests."""
    return {
        (row["metric"]["request_type"], row["metric"]["temperature"]): float(row["value"][1])
        for row in answers_of_rows(world, "Which requests lose?", column, UID, **values)
    }


# --- the table of kinds


def test_every_kind_of_request_is_a_row_with_every_column(world: World) -> None:
    table = panel_of(UID, "Which requests lose?")
    columns = table["transformations"][1]["options"]["renameByName"]
    for name, column in columns.items():
        if name.startswith("Value"):
            assert set(rows(world, column)) == ROWS, column


def test_a_row_is_a_ratio_of_sums_over_all_models_and_pods(world: World) -> None:
    lose, accepted, parts = (rows(world, column) for column in ("Lose", "Acceptance", "Of all rejected"))
    outcomes, drafted = "request_outcomes_total", "request_draft_tokens_total"
    for kind, heat in ROWS:
        own = {"request_type": kind, "temperature": heat}
        is_ratio_of(world, lose[kind, heat], (outcomes, {**own, "outcome": "loses"}), (outcomes, own))
        is_ratio_of(world, accepted[kind, heat], ("request_accepted_tokens_total", own), (drafted, own))
    assert sum(parts.values()) == pytest.approx(1)
    assert max(parts, key=parts.__getitem__)[0] == "story"


def test_a_mean_that_looks_healthy_hides_rows_of_which_nearly_all_requests_lose(world: World) -> None:
    together = tile(world, UID, "P10 of acceptance", "together")
    lose = rows(world, "Lose")
    assert together > Thresholds().healthy_acceptance_ratio
    assert {key for key, share in lose.items() if share > 0.8} == {("story", "0.7-1"), ("story", "1+")}
    assert tile(world, UID, "P10 of acceptance", "P10") < ZONES["poor_request_acceptance_ratio"]
    assert tile(world, UID, "Is the workload mixed?", "mixed") == 1


def test_quantiles_lie_within_the_bucket_of_the_true_one(world: World) -> None:
    """Half of the requests are below P50, as far as buckets of a tenth tell."""
    for (kind, heat), found in rows(world, "P50").items():
        own = {"request_type": kind, "temperature": heat}
        bounds = sorted(
            {labels["le"] for labels, _ in world.scraped.select(f"{ACCEPTANCE}_bucket", **own)}, key=float
        )
        shares = [grown_bucket(world, own, le) / grown_bucket(world, own, "+Inf") for le in bounds]
        at = next(i for i, share in enumerate(shares) if share >= 0.5)
        assert (float(bounds[at - 1]) if at else 0.0) <= found <= float(bounds[at]), (kind, heat)


ACCEPTANCE = "vllm_specdec_request_acceptance_ratio"


def grown_bucket(world: World, own: dict[str, str], le: str) -> float:
    """Return how many requests fell into a bucket within half an hour."""
    return grown(world, "request_acceptance_ratio_bucket", round(1800 / world.interval), **own, le=le)


# --- what is chosen


def test_a_choice_leaves_the_requests_that_it_names(world: World) -> None:
    chosen: tuple[tuple[dict[str, Value], set[tuple[str, str]]], ...] = (
        ({"model_name": (LLAMA,)}, ROWS - {("support", "0-0.5")}),
        ({"model_name": (ADAPTER,)}, {("support", "0-0.5")}),
        ({"temperature": ("0", "unset")}, {("code", "0"), ("extraction", "0"), ("chat", "unset")}),
        ({"request_type": ("chat",)}, {("chat", "unset"), ("chat", "0.5-0.7")}),
        ({"pod": ("coder-0",), "request_type": ("story",)}, set()),
        ({"engine": ("0",)}, ROWS),
    )
    for values, expected in chosen:
        assert set(rows(world, "Lose", **values)) == expected, values


def test_models_that_only_clients_name_can_be_chosen(world: World) -> None:
    """An adapter is a model to those who ask, and none to the engine."""
    viewing = Viewing(world.end - 10_800, world.end, {}, scrape_interval=world.interval)
    known = resolve(world.prometheus, dashboards()[UID], viewing)
    assert set(known["model_name"].options) == {LLAMA, QWEN, ADAPTER}
    assert set(known["temperature"].options) == {heat for _, heat in ROWS}
    assert set(known["request_type"].options) == {kind.request_type for kind in KINDS}


def test_a_click_on_a_row_chooses_its_type_or_temperature_and_keeps_the_rest(world: World) -> None:
    viewing = Viewing(world.end - 10_800, world.end, {"model_name": (LLAMA,)}, scrape_interval=world.interval)
    known = resolve(world.prometheus, dashboards()[UID], viewing)
    table = panel_of(UID, "Which requests lose?")
    links = {
        override["matcher"]["options"]: item["value"][0]["url"]
        for override in table["fieldConfig"]["overrides"]
        for item in override["properties"]
        if item["id"] == "links"
    }
    url = links["Temperature"]
    kept, _, own = url.replace("${__url_time_range}", "from=1").rpartition("&")
    assert own == "var-temperature=${__data.fields.Temperature:percentencode}"
    assert "var-model_name=meta-llama%2FLlama-3.3-70B-Instruct" in interpolate(kept, known)
    assert "var-temperature" not in interpolate(kept, known)
    assert "var-request_type=$__all" in interpolate(kept, known)


def test_a_longer_time_to_look_over_takes_more_requests(world: World) -> None:
    """Shares are over what *Ratios over* says, whatever the range."""
    short, long = (tile(world, UID, "How much loses?", "requests", over=over) for over in ("5m", "1h"))
    assert short != long
    assert long == pytest.approx(tile(world, UID, "How much loses?", "requests"), abs=0.02)


# --- positions


def bars(world: World, title: str, **values: Value) -> list[float]:
    """Return the bars of a panel, one for each position."""
    found = answers(world, UID, title, **values)
    return [value(found[f"position {at}"]) for at in range(16)]


def test_where_drafts_vary_vllms_count_understates_far_positions_and_the_records_do_not(world: World) -> None:
    """n-gram drafts of any length, whose tokens are accepted alike wherever they are."""
    chosen: dict[str, Value] = {"model_name": (QWEN,)}
    true, pooled = (
        bars(world, title, **chosen)
        for title in ("Acceptance where a position was drafted", "Acceptance of all drafts")
    )
    reach = bars(world, "How far do drafts reach?", **chosen)
    assert reach[0] == 1
    assert reach[8] < 0.4
    assert pooled[8] < 0.5 * true[8]
    # Where all drafts are full, all reach the end.
    assert bars(world, "How far do drafts reach?", model_name=(LLAMA,)) == [1] * 16


def test_a_bar_is_exact_among_the_drafts_that_have_the_position(world: World) -> None:
    accepted, drafted = "request_accepted_per_position_total", "request_drafted_per_position_total"
    where_drafted = bars(world, "Acceptance where a position was drafted")
    reach = bars(world, "How far do drafts reach?")
    for position in (0, 3, 15):
        own = {"position": str(position)}
        is_ratio_of(world, where_drafted[position], (accepted, own), (drafted, own))
        is_ratio_of(world, reach[position], (drafted, own), (drafted, {"position": "0"}))


# --- what is observed


def word(title: str, code: float) -> str:
    """Return what a tile says."""
    (mapping,) = panel_of(UID, title)["fieldConfig"]["defaults"]["mappings"]
    return str(mapping["options"][f"{code:g}"]["text"])


@pytest.mark.parametrize(
    ("name", "said"),
    [("requests", "▲ YES"), ("variable-drafts", "● NO RECORDS"), ("healthy", "NO: means only")],
)
def test_the_first_tile_says_whether_requests_are_seen_and_tell_of_speculation(
    name: str, said: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with open_world(name, shared_folder(tmp_path_factory)) as world:
        assert word("Data by request?", tile(world, UID, "Data by request?", "per-request data")) == said


def test_shares_of_what_answers_tell_are_of_all_requests(world: World) -> None:
    (told,) = answers(world, UID, "Which records do answers have?").values()
    shares = newest(told, "record")
    assert set(shares) == {"detailed", "summary", "nothing drafted", "no record", "malformed"}
    assert sum(shares.values()) == pytest.approx(1)
    recorded = 1 - RECORDED["none"] - RECORDED["malformed"]
    assert tile(world, UID, "Answers with a record", "with a record") == pytest.approx(recorded, abs=0.02)
    assert shares["no record"] + shares["malformed"] == pytest.approx(1 - recorded, abs=0.02)
    found = answers(world, UID, "Is all traffic observed?")
    assert set(found) == {"observed", "finished by vLLM"}
    assert 0.5 < value(found["observed"]) / value(found["finished by vLLM"]) < 1.5


# --- tenants


def test_tenants_are_rows_and_those_nobody_wrote_down_are_one(world: World) -> None:
    lose = {
        row["metric"]["tenant"]: float(row["value"][1])
        for row in answers_of_rows(world, "Whose requests lose?", "Lose", UID)
    }
    assert set(lose) == {"acme", "globex", "initech", "other"}
    tenant = "tenant_requests_total"
    for name, shown in lose.items():
        is_ratio_of(world, shown, (tenant, {"tenant": name, "outcome": "loses"}), (tenant, {"tenant": name}))


def test_the_row_of_tenants_is_folded_and_opens_below_all_others() -> None:
    """Most services tell no tenants apart: their panels ask nothing until somebody opens the row."""
    dashboard = dashboards()[UID]
    (folded,) = (panel for panel in dashboard["panels"] if panel.get("collapsed"))
    assert folded == dashboard["panels"][-1]
    *_, row, first, second = unfolded(dashboard)["panels"]
    assert [first["title"], second["title"]] == [
        "Whose requests lose?",
        "Which tenant loses, and since when?",
    ]
    assert {first["gridPos"]["y"], second["gridPos"]["y"]} == {row["gridPos"]["y"] + 1}


# --- a live exporter


#: What nobody tells of an exporter to which requests are pushed without their steps.
UNTOLD = {
    "Acceptance where a position was drafted",
    "Acceptance where a position was drafted, over time",
    "How far do drafts reach?",
    "Requests and connections of the tap",
    "Why do connections to vLLM fail?",
    "Why is a request not observed?",
    "Whose requests lose?",
    "Which tenant loses, and since when?",
}
#: Of the classic histograms alone.
HEATMAPS = {"Acceptance of requests", "Accepted tokens per draft by request"}


def test_native_histograms_are_shown_in_the_place_of_classic_ones(tmp_path: Path) -> None:
    """Of an exporter to which requests are pushed: half of them accept 25 of 30 tokens, half 6."""
    token = tmp_path / "token"
    token.write_text(TOKEN, encoding="utf-8")
    with (
        simulator() as vllm,
        running_exporter("--vllm.url", vllm, "--push.bearer-token-file", str(token), fast=False) as found,
        pushing(found.address),
        PrometheusServer(
            {JOB: found.address, VLLM_JOB: vllm.removeprefix("http://")},
            flags=("--enable-feature=native-histograms",),
        ) as prometheus,
    ):
        for counter in ("vllm_specdec_request_outcomes", "vllm_specdec_drafts", "vllm:request_success"):
            # Lines have their points at whole seconds.
            prometheus.wait_for(f"sum(rate({counter}_total[10s] offset 2s)) > 0", 120)
        now = time.time()
        shown = look(prometheus, Viewing(now - 30, now, scrape_interval=1), only=f"vllm-specdec-{UID}")
        assert [wrong for one in shown for wrong in one.wrong()] == []
        assert {one.title for one in shown if one.empty} == UNTOLD | HEATMAPS
        (p10,) = (one.results["A"] for one in shown if one.title == "P10 of acceptance")
        assert 0.1 < value(p10) <= 0.211
