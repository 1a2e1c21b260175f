"""From a real vLLM to the pager: its acceptance is made to collapse by temperature, and to recover.

Everything in between is real as well: the exporter, Prometheus with the committed rules, Alertmanager with
the committed configuration, and `act`, on a clock that runs 60 times as fast. The truth is vLLM's record of
each request.
"""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from paging.stack import Stack, seconds, stack

from .server import Told, VllmServer, drive, truth

if TYPE_CHECKING:
    from .conftest import Servers

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

K = 4
#: What docs/reference/detection.md promises, and Alertmanager's group_wait, in minutes of production.
PROMISED = 12.5
# A tiny server on a shared CPU drafts little in the five seconds that are five minutes here.
THRESHOLDS = ("minimum_drafts=10", "advice_minimum_drafts=20")


@dataclass
class Traffic:
    """Requests without end, at a temperature that can be changed."""

    server: VllmServer
    temperature: float = 0.0
    told: list[Told] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        """Send requests until `stop` is set."""
        while not stop.is_set():
            self.told += drive(self.server, 4, temperature=self.temperature, max_tokens=60, stop=stop)

    def acceptance(self) -> float:
        """Return the acceptance rate of the requests so far at the present temperature, by vLLM's records."""
        return truth(one for one in self.told if one.ask.temperature == self.temperature).acceptance


@dataclass(frozen=True)
class Story:
    """What happened: acceptance by the requests' records, and what the receivers got."""

    cold: float
    hot: float
    quiet: list[dict[str, Any]]
    pages: list[dict[str, Any]]
    took: float
    actions: list[dict[str, Any]]
    resolved: list[dict[str, Any]]
    at_last: list[dict[str, Any]]


@pytest.fixture(scope="module")
def story(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Story:
    speculation = servers.drafter("deep-draft-0.0", K)
    (server,) = servers.running("deep", speculation)
    flags = [part for one in THRESHOLDS for part in ("--threshold", one)]
    traffic, stop = Traffic(server), threading.Event()
    with (
        ThreadPoolExecutor(1) as pool,
        stack(tmp_path_factory.mktemp("paging"), server.url, speculation, *flags) as running,
    ):
        pool.submit(traffic.run, stop)
        try:
            return tell(traffic, running)
        finally:
            stop.set()


def tell(traffic: Traffic, running: Stack) -> Story:
    running.wait(lambda: running.prometheus.query("model:vllm_specdec_speedup:ratio_rate5m > 1"), 20, 30)
    time.sleep(seconds(15))
    quiet = running.pages("trigger") + running.slack("#specdec-tickets")
    cold = traffic.acceptance()

    traffic.temperature = 1.0
    took = running.wait(lambda: running.pages("trigger"), PROMISED, 10)
    running.wait(lambda: any(e["event"] == "would_act" for e in running.actions()), 25, 30)
    # A slow processor may not have answered one whole request yet.
    running.wait(lambda: any(one.ask.temperature == 1.0 for one in traffic.told), 10, 60)
    pages, hot = running.pages("trigger"), traffic.acceptance()

    traffic.temperature = 0.0
    running.wait(lambda: running.pages("resolve"), 35, 60)
    return Story(
        cold, hot, quiet, pages, took, running.actions(), running.pages("resolve"), running.pages("trigger")
    )


def test_good_speculation_is_quiet_and_its_collapse_pages_once_and_in_time(story: Story) -> None:
    """By the requests' own records: greedy, the drafter is mostly right; at temperature 1, seldom."""
    assert story.cold > 0.6
    assert story.quiet == []
    assert story.hot < 0.05
    assert len({page["dedup_key"] for page in story.pages}) == 1
    assert story.took <= PROMISED + 10
    text = json.dumps(story.pages[0])
    assert "tiny-llama" in text
    assert "Speculation makes users wait longer than without it." in text


def test_the_advice_reaches_the_program(story: Story) -> None:
    """Disable, which a webhook can act on; it only tells, because it was not asked to execute."""
    would = {(e["action"], e["recommended_k"]) for e in story.actions if e["event"] == "would_act"}
    assert ("disable", "0") in would
    assert not any(e["event"] == "acted" for e in story.actions)


def test_the_recovery_resolves(story: Story) -> None:
    """The page ends when acceptance is back, and no other began in between."""
    assert len(story.resolved) == 1
    assert len({page["dedup_key"] for page in story.at_last}) == 1
