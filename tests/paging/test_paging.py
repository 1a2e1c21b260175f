"""From a simulated server to the pager, through the real programs: who is paged, when,
and how often.

One story, told once: healthy, collapsed, recovered, idle, collapsed again and the
exporter killed.
"""

import json
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from paging.stack import Stack, seconds, stack
from support.programs import simulator

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

#: What docs/reference/detection.md promises, and Alertmanager's group_wait.
PROMISED_COLLAPSE = 12.5
PROMISED_DEATH = 7.5
SPECULATION = {"method": "draft_model", "num_speculative_tokens": 4}


@dataclass(frozen=True)
class Chapter:
    """What the receivers had at the end of a part of the story."""

    triggered: list[dict[str, Any]]  # pages that began something, since the part began
    resolved: list[dict[str, Any]]  # pages that ended something, since then
    tickets: list[dict[str, Any]]  # what the ticket channel got, since then
    actions: list[dict[str, Any]]  # what `act` wrote, since then
    took: float  # minutes of production until what the part waits for
    active: set[str]  # alerts that nothing silences, at the end
    suppressed: set[str]  # alerts that others silence, at the end
    watchdogs: int  # how often the dead man's switch was held down, in all


def set_phase(server: str, name: str, **parameters: object) -> None:
    """Put the simulator into a phase."""
    body = json.dumps({"phase": name, **parameters}).encode()
    with urllib.request.urlopen(f"{server}/simulator/phase", body, timeout=30):
        pass


def chapters_of(stack: Stack) -> Callable[..., Chapter]:
    """Return a function that returns what came since it was last asked."""
    counts = [0, 0, 0, 0]

    def chapter(took: float = 0.0) -> Chapter:
        pages = (stack.pages("trigger"), stack.pages("resolve"))
        every = [*pages, stack.slack("#specdec-tickets"), stack.actions()]
        new = [messages[count:] for messages, count in zip(every, counts, strict=True)]
        counts[:] = [len(messages) for messages in every]
        triggered, resolved, tickets, actions = new
        return Chapter(
            triggered,
            resolved,
            tickets=tickets,
            actions=actions,
            took=took,
            active=stack.active(),
            suppressed=stack.suppressed(),
            watchdogs=stack.watchdogs(),
        )

    return chapter


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Chapter]]:
    """The story, as it went."""
    folder = tmp_path_factory.mktemp("paging")
    with (
        simulator("--scenario", "healthy", "--seed", "1") as server,
        stack(folder, server, SPECULATION) as running,
    ):
        chapters = {}
        chapter = chapters_of(running)
        fast = "model:vllm_specdec_speedup:ratio_rate5m > 1"
        running.wait(lambda: running.prometheus.query(fast), 10, grace=20)
        time.sleep(seconds(8))
        chapters["healthy"] = chapter()

        set_phase(server, "collapse", acceptance=0.02)
        took = running.wait(lambda: running.pages("trigger"), PROMISED_COLLAPSE)
        running.wait(lambda: running.firing("Disable"), 25)
        running.wait(lambda: running.actions() and running.suppressed(), 10)
        # As long as a ticket would wait.
        time.sleep(seconds(20))
        chapters["collapsed"] = chapter(took)

        set_phase(server, "healthy")
        took = running.wait(lambda: running.pages("resolve"), 35)
        running.wait(lambda: not running.firing("Disable"), 5)
        chapters["recovered"] = chapter(took)

        set_phase(server, "idle")
        time.sleep(seconds(12))
        chapters["idle"] = chapter()

        set_phase(server, "collapse", acceptance=0.02)
        # It paged lately, so it pages after a loss of a quarter of an hour.
        running.wait(lambda: running.firing("Harmful", severity="critical"), 30)
        chapters["collapsed again"] = chapter()
        # without a word, as an out-of-memory kill does
        running.exporter.terminate(signal.SIGKILL)
        pages_before = len(running.pages("trigger"))

        def death_is_paged() -> bool:
            return any(
                "MonitoringLost" in json.dumps(page)
                for page in running.pages("trigger")[pages_before:]
            )

        took = running.wait(death_is_paged, PROMISED_DEATH)
        chapters["died"] = chapter(took)
        yield chapters


def test_a_healthy_service_is_quiet(story: dict[str, Chapter]) -> None:
    """No page, no ticket, no action; only the dead man's switch is held down."""
    healthy = story["healthy"]
    assert healthy.triggered == []
    assert healthy.tickets == []
    assert healthy.actions == []
    assert healthy.active == set()
    assert healthy.watchdogs > 0


def test_a_collapse_pages_once_and_in_time(story: dict[str, Chapter]) -> None:
    """One page, within what is promised, though it goes on and more alerts join."""
    collapsed = story["collapsed"]
    assert len(collapsed.triggered) == 1
    assert collapsed.took <= PROMISED_COLLAPSE + 8


def test_the_page_says_what_where_and_what_to_do(story: dict[str, Chapter]) -> None:
    """Model, value, threshold, sample, advice and links are in the page itself."""
    text = json.dumps(story["collapsed"].triggered[0])
    for part in (
        "Speculation makes users wait far longer than without it.",
        "meta-llama/Llama-3.1-8B-Instruct",
        "0.90x",  # the threshold
        "engines by the basis of their speedup",
        "Switch speculation off",
        "runbooks/VLLMSpecDecodeHarmful.md",
        "/d/vllm-specdec-overview",
    ):
        assert part in text, part


def test_a_collapse_becomes_a_decision_and_an_action(story: dict[str, Chapter]) -> None:
    """What to do is in the page, no ticket repeats it, and the program logs it and does
    nothing by itself.

    What else follows from the collapse waits behind the page; programs get decisions
    nevertheless.
    """
    collapsed = story["collapsed"]
    assert collapsed.active == {"Harmful", "Disable"}
    assert collapsed.tickets == []
    would = [event for event in collapsed.actions if event["event"] == "would_act"]
    assert {(event["action"], event["recommended_k"]) for event in would} == {
        ("disable", "0")
    }


def test_recovery_resolves(story: dict[str, Chapter]) -> None:
    """The page ends by itself, and nothing new begins."""
    recovered = story["recovered"]
    assert len(recovered.resolved) == 1
    assert recovered.triggered == []


def test_an_idle_night_is_quiet(story: dict[str, Chapter]) -> None:
    """Nobody is paged for a server of which nothing is asked."""
    assert story["idle"].triggered == []


def test_the_death_of_the_exporter_pages_and_silences_the_rest(
    story: dict[str, Chapter],
) -> None:
    """Lost monitoring pages in time; what the dead exporter said last is not
    repeated.
    """
    died = story["died"]
    assert died.took <= PROMISED_DEATH + 8
    assert died.active <= {"MonitoringLost"}
    assert "Harmful" in died.suppressed
