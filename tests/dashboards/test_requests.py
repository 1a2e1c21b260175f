"""The dashboard of requests shows what was counted of them, whatever is chosen.

Computed again from the counters as they were scraped, over the half hour of its shares.
"""

from collections.abc import Iterator

import pytest

from dashboards.documents import dashboards
from dashboards.grafana import Value, Viewing, resolve
from dashboards.live import look
from dashboards.reckoning import panel
from dashboards.worlds import World, open_world, shared_folder
from dashboards.worlds_catalogue import LLAMA, QWEN, ZONES
from dashboards.worlds_requests import ADAPTER, RECORDED
from vllm_specdec_exporter.config.thresholds import Thresholds

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]

KINDS = "requests: Requests by type and temperature"
POSITIONS = "requests: Positions, where drafted and of all drafts"
#: What tells the rows of this table apart.
KEY = ("model_name", "request_type", "temperature")
#: Types and temperatures of its rows.
ROWS = {
    ("code", "0"),
    ("code", "0.7-1"),
    ("extraction", "0"),
    ("chat", "unset"),
    ("chat", "0.5-0.7"),
    ("story", "0.7-1"),
    ("story", "1+"),
    ("support", "0-0.5"),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world("requests", shared_folder(tmp_path_factory)) as opened:
        yield opened


def grown(world: World, name: str, scrapes: int, **labels: str) -> float:
    """Return the increase of counters with these labels over the last scrapes, all
    together.
    """
    series = list(world.scraped.select(f"vllm_specdec_{name}", **labels))
    assert series, (name, labels)
    return float(sum(rows[-1] - rows[-1 - scrapes] for _, rows in series))


def is_ratio_of(
    world: World,
    shown: float,
    labels: dict[str, str],
    *,
    of: str,
    to: str,
    **more: str,
) -> None:
    """Hold a ratio to the counters of half an hour; `more` are labels of its numerator.

    The sample at its very beginning counts up to Prometheus 2, and does not from 3 on.
    Near 0 a counter is extrapolated to a shorter time.
    """
    expected = []
    for less in (0, 1):
        scrapes = round(1800 / world.interval) - less
        part = grown(world, of, scrapes, **labels, **more)
        expected.append(part / grown(world, to, scrapes, **labels))
    assert 0.98 * min(expected) <= shown <= 1.02 * max(expected), labels


def column(world: World, name: str, **values: Value) -> dict[tuple[str, ...], float]:
    """Return a column of the table of kinds of requests."""
    rows = panel(world, KINDS, **values).rows(*KEY)
    return {key: float(cells[name]) for key, cells in rows.items() if name in cells}


def test_a_row_is_a_ratio_of_sums_over_all_models_and_pods(world: World) -> None:
    rows = panel(world, KINDS).rows(*KEY)
    # Every column has a value.
    assert {key: len(cells) for key, cells in rows.items()} == dict.fromkeys(rows, 7)
    assert {(kind, heat) for _, kind, heat in rows} == ROWS
    outcomes = "request_outcomes_total"
    for key, cells in rows.items():
        labels = dict(zip(KEY, key, strict=True))
        lose = float(cells["Lose"])
        is_ratio_of(world, lose, labels, of=outcomes, to=outcomes, outcome="loses")
        is_ratio_of(
            world,
            float(cells["Acceptance"]),
            labels,
            of="request_accepted_tokens_total",
            to="request_draft_tokens_total",
        )
    parts = column(world, "Of all rejected").values()
    assert sum(parts) == pytest.approx(1, rel=1e-5)


def test_a_mean_that_looks_healthy_hides_rows_of_which_nearly_all_requests_lose(
    world: World,
) -> None:
    tile = panel(world, "requests: Losing share, and acceptance").values()
    assert tile["acceptance of all"] > Thresholds().healthy_acceptance_ratio
    assert tile["P10 of acceptance"] < ZONES["poor_request_acceptance_ratio"]
    assert {key for key, share in column(world, "Lose").items() if share > 0.8} == {
        (LLAMA, "story", "0.7-1"),
        (LLAMA, "story", "1+"),
    }
    assert panel(world, "requests: Data by request").values()["workload"] == 1


def test_a_choice_leaves_the_requests_that_it_names(world: World) -> None:
    """Also a model that only clients name: an adapter is a model to them, and none to
    the engine.
    """
    viewing = Viewing(world.end - 10_800, world.end, scrape_interval=world.interval)
    variables = resolve(world.prometheus, dashboards()["requests"], viewing)
    assert set(variables["model_name"].options) == {LLAMA, QWEN, ADAPTER}
    adapters = column(world, "Lose", model_name=(ADAPTER,))
    assert set(adapters) == {(ADAPTER, "support", "0-0.5")}
    filtered = Viewing(viewing.start, viewing.end, {}, {"request_type": "chat"})
    (kinds,) = (
        shown
        for shown in look(world.prometheus, filtered, ["requests"])
        if shown.name == KINDS
    )
    assert {key for key, *_ in kinds.rows("request_type")} == {"chat"}


def test_where_drafts_vary_the_share_of_all_drafts_understates_far_positions(
    world: World,
) -> None:
    """n-gram drafts of any length, whose tokens are accepted alike everywhere; full
    ones all reach it.
    """
    rows = panel(world, POSITIONS, model_name=(QWEN,)).rows("position")
    first, far = rows["0",], rows["8",]
    assert float(first["Drafts that reach it"]) == 1
    assert float(far["Drafts that reach it"]) < 0.4
    assert float(far["Of all drafts"]) < 0.5 * float(far["Where drafted"])
    full = panel(world, POSITIONS, model_name=(LLAMA,)).rows("position")
    assert {cells["Drafts that reach it"] for cells in full.values()} == {"1"}
    for (position,), cells in panel(world, POSITIONS).rows("position").items():
        is_ratio_of(
            world,
            float(cells["Where drafted"]),
            {"position": position},
            of="request_accepted_per_position_total",
            to="request_drafted_per_position_total",
        )


def test_shares_of_records_are_of_all_requests(world: World) -> None:
    shares = panel(world, "requests: Records in answers").values()
    assert set(shares) == {
        "detailed",
        "summary",
        "nothing drafted",
        "no record",
        "malformed",
    }
    assert sum(shares.values()) == pytest.approx(1)
    missing = RECORDED["none"] + RECORDED["malformed"]
    assert shares["no record"] + shares["malformed"] == pytest.approx(missing, abs=0.02)
    counts = panel(world, "requests: Observed and finished requests").values()
    # The world pushes some three requests a second; its simulated server finishes about
    # seven.
    assert 0.2 < counts["observed"] / counts["finished by vLLM"] < 1.0


def test_tenants_are_rows_and_all_others_are_one(world: World) -> None:
    rows = panel(world, "requests: Requests by tenant").rows("tenant")
    assert {tenant for (tenant,) in rows} == {"acme", "globex", "initech", "other"}
    name = "tenant_requests_total"
    for (tenant,), cells in rows.items():
        lose = float(cells["Lose"])
        is_ratio_of(world, lose, {"tenant": tenant}, of=name, to=name, outcome="loses")
