"""The tap before a real vLLM: what it counts is what each client was told of its own
request.
"""

import socket
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import pytest

from support.exporter import Metrics
from support.programs import eventually

from .conftest import by, scrape_when, tap, total
from .server import HOST, REPETITIVE_PROMPTS, Ask, Told, VllmServer, send_all

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

K = 4
#: Prompts of which the draft model guesses the greedy continuation well.
EASY = (REPETITIVE_PROMPTS[2], REPETITIVE_PROMPTS[3])
#: The label that a temperature is counted under.
BUCKETS = {
    None: "unset",
    0.0: "0",
    0.4: "0-0.5",
    0.6: "0.5-0.7",
    1.0: "0.7-1",
    1.3: "1+",
}


@dataclass(frozen=True)
class Story:
    """A mixed load, what its clients were told, and what was published."""

    answers: list[Told]
    silent: list[Told]
    scrape: Metrics

    def groups(self) -> dict[tuple[str, str], list[Told]]:
        """What was told, by temperature and type as they are counted."""
        groups = defaultdict(list)
        for answer in self.answers:
            groups[
                BUCKETS[answer.ask.temperature], answer.ask.kind or answer.ask.api
            ].append(answer)
        return groups

    def records(self) -> list[dict[str, Any]]:
        return [answer.record for answer in self.answers if answer.record is not None]


@pytest.fixture(scope="module")
def story(server: VllmServer) -> Story:
    asks = [
        Ask(
            REPETITIVE_PROMPTS[index % len(REPETITIVE_PROMPTS)],
            temperature=(0.0, 1.0, 0.4, None, 0.6, 1.3)[(index // 4) % 6],
            kind=("", "code", "prose")[index % 3],
            api=("completions", "chat")[(index // 2) % 2],
            stream=bool(index % 2),
            seed=index,
            max_tokens=24,
        )
        for index in range(48)
    ]
    silent = []
    for seed in (0, 1):
        silent.append(Ask(EASY[0], include_usage=False, seed=seed))
        silent.append(Ask(EASY[0], stream=False, choices=2, temperature=1.0, seed=seed))
    with tap(server, "--requests.window", "1h") as (port, running):
        answers = send_all(port, asks)
        quiet = send_all(port, silent)
        wanted = len(asks) + len(silent)
        scrape_when(
            running,
            lambda scrape: total(scrape, "request_observations_total") == wanted,
        )
        time.sleep(1.1)  # what is judged is drawn once a second
        return Story(answers, quiet, running.metrics())


def test_every_request_of_a_mixed_load_is_observed_once(story: Story) -> None:
    assert len(story.groups()) >= 12
    ratios = [answer.ratio for answer in story.answers if answer.ratio is not None]
    assert min(ratios) < 0.5 < 0.65 < max(ratios)
    recorded = len(story.records())
    assert by(
        story.scrape, "record", "request_observations_total", source="tap"
    ).items() >= {
        ("detailed", len(ratios)),
        ("not_drafted", recorded - len(ratios)),
        ("none", len(story.silent) + len(story.answers) - recorded),
        ("malformed", 0),
    }
    assert total(story.scrape, "tap_unobserved_total") == 0


def test_counters_and_histograms_of_a_group_are_those_of_its_clients(
    story: Story,
) -> None:
    bounds = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.8, 0.9, 0.95, 1.0]
    sums = {
        "request_drafts_total": "num_spec_steps",
        "request_draft_tokens_total": "num_draft_tokens",
        "request_accepted_tokens_total": "num_accepted_draft_tokens",
    }
    for (temperature, kind), answers in story.groups().items():
        labels = {"temperature": temperature, "request_type": kind}
        ratios = [answer.ratio for answer in answers if answer.ratio is not None]
        buckets = by(story.scrape, "le", "request_acceptance_ratio_bucket", **labels)
        counts = {float(le): count for le, count in buckets.items()}
        assert [counts.get(bound, 0) for bound in bounds] == [
            sum(ratio <= bound for ratio in ratios) for bound in bounds
        ], labels
        if ratios:
            published = story.scrape.value("request_acceptance_ratio_sum", **labels)
            assert published == pytest.approx(sum(ratios)), labels
        for metric, name in sums.items():
            expected = sum(
                answer.record[name] for answer in answers if answer.record is not None
            )
            assert story.scrape.value(metric, **labels) == expected, (metric, labels)


def test_positions_have_the_drafts_that_reached_them_as_denominator(
    story: Story,
) -> None:
    drafted = Counter[int]()
    accepted = Counter[int]()
    for record in story.records():
        for length, taken in zip(
            record["per_step_drafted"], record["per_step_accepted"], strict=True
        ):
            drafted.update(range(length))
            accepted.update(range(taken))
    for position in range(K):
        at = {"position": str(position)}
        published = story.scrape.value("request_drafted_per_position_total", **at)
        assert published == drafted[position], position
        published = story.scrape.value("request_accepted_per_position_total", **at)
        assert published == accepted[position], position


def test_outcomes_follow_the_published_zones(story: Story) -> None:
    drafted = [answer for answer in story.answers if answer.ratio is not None]
    losing = [
        answer for answer in drafted if answer.ratio is not None and answer.ratio < 0.5
    ]
    scrape = story.scrape
    assert total(scrape, "request_outcomes_total", outcome="loses") == len(losing)
    tokens = sum(answer.tokens or 0 for answer in losing)
    counted = total(scrape, "request_generation_tokens_total", outcome="loses")
    assert counted == tokens
    assert story.scrape.value("request_losing_ratio") == pytest.approx(
        len(losing) / len(drafted)
    )


def test_streams_have_times_and_the_others_none(story: Story) -> None:
    streamed = [
        answer for answer in (*story.answers, *story.silent) if answer.ask.stream
    ]
    assert total(story.scrape, "request_time_to_first_token_seconds_count") == len(
        streamed
    )
    counted = [answer for answer in streamed if answer.tokens is not None]
    assert total(story.scrape, "request_time_per_output_token_seconds_count") == len(
        counted
    )
    measured = sum(answer.ttft for answer in streamed if answer.ttft is not None)
    counted_seconds = total(story.scrape, "request_time_to_first_token_seconds_sum")
    # The clients' threads wait for the processor too, and on a busy machine longer than
    # for the server.
    assert 0.05 * measured < counted_seconds <= measured


def test_client_that_leaves_ends_its_request_at_the_server(server: VllmServer) -> None:
    ask = Ask(EASY[0], max_tokens=900)
    head = f"POST {ask.path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(ask.body())}\r\n\r\n"
    with tap(server) as (port, running):
        with socket.create_connection((HOST, port), timeout=30) as client:
            client.sendall(head.encode() + ask.body())
            assert b"200 OK" in client.recv(4096)
        eventually(
            lambda: total(Metrics(server.metrics()), "vllm:num_requests_running") == 0
        )
        scrape = scrape_when(
            running,
            lambda scrape: scrape.value("tap_unobserved_total", reason="aborted") == 1,
        )
        assert scrape.value("tap_open_connections") == 0
