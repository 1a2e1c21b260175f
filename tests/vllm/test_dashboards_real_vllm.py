"""The dashboards beside a real vLLM: every panel is asked, and shows what each request recorded."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from dashboards.grafana import Viewing, execute_annotations
from dashboards.live import dashboards, look
from dashboards.operator_questions import View
from dashboards.worlds import RULES
from support.exporter import exporter
from support.prometheus import PrometheusServer

from .server import Truth, VllmServer, drive, truth

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dashboards.live import Shown

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

K = 4
#: Panels that this service has nothing to show in, and why.
EMPTY = {
    "cost: Return on speculation": "the cost of memory is not given",
    "load: Latency against the baseline": "there is no baseline",
    "compare: Tokens per second of a request": "nothing runs any more",
    "exporter: Why do polls fail?": "none does",
    "payoff: Which alerts fire?": "a minute is too short for an alert",
    "payoff: Budget left": "it is reckoned every three minutes",
}


@dataclass(frozen=True)
class Story:
    """What was asked of the server, and what every panel showed at its end."""

    truth: Truth
    shown: dict[str, Shown]
    marks: dict[str, Any]
    end: float

    def view(self, name: str) -> View:
        """Return a panel as somebody sees it."""
        one = self.shown[name]
        return View(dict(one.panel), dict(one.results), self.marks, self.end)


@pytest.fixture(scope="module")
def story(vllm_python: Path, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("dashboards")
    speculation = {
        "method": "draft_model",
        "model": str(models / "deep-draft-0.08"),
        "num_speculative_tokens": K,
    }
    flags = (
        *("--spec.config", json.dumps(speculation), "--poll.interval", "1s", "--poll.timeout", "900ms"),
        *("--threshold", "advice_minimum_drafts=100", "--threshold", "minimum_drafts=30"),
    )
    rules = {path.name: path.read_text("utf-8") for path in RULES.glob("*.yml")}
    with (
        VllmServer(vllm_python, models / "deep", folder / "server", speculation=speculation) as server,
        exporter("--vllm.url", server.url, *flags) as address,
        PrometheusServer(
            {"vllm-specdec-exporter": address, "vllm": server.url.removeprefix("http://")},
            config={"rule_files": sorted(rules)},
            files=rules,
        ) as prometheus,
    ):
        prometheus.wait_for("vllm_specdec_window_drafts == 0")
        start = time.time()
        records = drive(server, number=24, temperature=0.0, concurrency=2, max_tokens=80)
        expected = truth(records)
        prometheus.wait_for(f'vllm_specdec_window_drafts{{window="5m"}} == {expected.drafts}')
        end = time.time()
        viewing = Viewing(start - 15, end, scrape_interval=1.0)
        shown = {one.name: one for one in look(prometheus, viewing)}
        marks = execute_annotations(prometheus, dashboards()["payoff"], viewing)
        yield Story(expected, shown, marks, end)


def test_no_query_fails_or_yields_what_cannot_be(story: Story) -> None:
    assert [fault for one in story.shown.values() for fault in one.wrong()] == []


def test_every_panel_shows_something_where_there_is_something(story: Story) -> None:
    """Those by request are empty until an exporter tells requests apart; they say so."""
    awaited = {name for name in story.shown if name.startswith("requests: ")}
    empty = {name for name, one in story.shown.items() if one.empty} - awaited
    assert empty <= set(EMPTY)


def test_tiles_show_what_the_requests_recorded(story: Story) -> None:
    told = story.truth
    acceptance = story.view("acceptance: Acceptance rate").now()["acceptance"]
    length = story.view("acceptance: Acceptance length").now()["now"]
    assert acceptance == pytest.approx(told.accepted_tokens / told.draft_tokens, abs=1e-9)
    assert length == pytest.approx(1 + told.accepted_tokens / told.drafts, abs=1e-9)


def test_bars_show_what_the_requests_recorded_by_position(story: Story) -> None:
    bars = story.view("acceptance: Acceptance by position now").now()
    assert bars == pytest.approx(
        {
            f"position {index}": accepted / story.truth.drafts
            for index, accepted in enumerate(story.truth.accepted_per_position)
        },
        abs=1e-9,
    )


def test_bars_show_what_each_smaller_k_would_have_given(story: Story) -> None:
    """By the requests' records, draft by draft: what a K accepts of a draft is no more than K."""
    bars = story.view("acceptance: What would a smaller K have given?").now()
    per_draft = story.truth.accepted_per_draft
    assert bars == pytest.approx(
        {
            f"K={k}": 1
            + sum(min(accepted, k) * drafts for accepted, drafts in enumerate(per_draft)) / story.truth.drafts
            for k in range(1, K + 1)
        },
        abs=1e-9,
    )


def test_the_verdict_is_a_judgement(story: Story) -> None:
    view = story.view("payoff: Does speculation pay?")
    assert view.word(view.now()["verdict"]) in ("▲ BENEFICIAL", "● MARGINAL", "▼ HARMFUL")


def test_the_table_has_the_engine_with_its_k(story: Story) -> None:
    rows = story.view("payoff: Which pod or engine loses?").rows("model_name", "engine")
    assert list(rows) == [("tiny-llama", "0")]
    titles = [column.split(":")[0] for column in _columns(story.shown["payoff: Which pod or engine loses?"])]
    assert rows["tiny-llama", "0"][titles.index("K")] == K


def _columns(shown: Shown) -> list[str]:
    """Return the headings of a table's values in the order of its queries."""
    organize = next(one for one in shown.panel["transformations"] if one["id"] == "organize")
    renamed = organize["options"]["renameByName"]
    return [renamed[f"Value #{target['refId']}"] for target in shown.panel["targets"]]
