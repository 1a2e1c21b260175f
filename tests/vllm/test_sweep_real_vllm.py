"""`sweep` against a real vLLM: greedy its draft model is mostly right, at temperature 1
hardly ever.
"""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from support.commands import Outcome, run
from support.exporter import Metrics

from .server import VllmServer

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

K = 4
REQUESTS = 8
TOKENS = 32
GRID = (
    f"--temperature 0,1 --concurrency 1,4 --prompts code --requests {REQUESTS} "
    f"--max-tokens {TOKENS} --ignore-eos --json"
)


@dataclass(frozen=True)
class SweepStory:
    """A sweep's cells, and the tokens that the server generated over all of it, by its
    own counters.
    """

    outcome: Outcome
    cells: list[dict[str, Any]]
    generated: float


def generated(server: VllmServer) -> float:
    return Metrics(server.metrics()).value("vllm:generation_tokens_total") or 0.0


@pytest.fixture(scope="module")
def story(server: VllmServer, tmp_path_factory: pytest.TempPathFactory) -> SweepStory:
    out = tmp_path_factory.mktemp("out") / "sweep"
    generated_before = generated(server)
    done = run("sweep", server.url, *f"--out {out} {GRID}".split())
    cells = json.loads((out / "sweep.json").read_text("utf-8"))["cells"]
    return SweepStory(done, cells, generated(server) - generated_before)


def test_acceptance_falls_with_temperature_beyond_chance(story: SweepStory) -> None:
    for concurrency in (1, 4):
        cold, hot = (cell for cell in story.cells if cell["concurrency"] == concurrency)
        assert cold["temperature"] == 0.0, concurrency
        assert hot["temperature"] == 1.0, concurrency
        lowest = cold["acceptance_interval"]
        highest = hot["acceptance_interval"]
        assert lowest["unit"] == "request", concurrency
        assert lowest["low"] > highest["high"] + 0.2, concurrency
    assert story.outcome.code == 0
    document = json.loads(story.outcome.out)
    assert len(document["conclusions"]) == 2
    assert all("acceptance falls from " in text for text in document["conclusions"])


def test_counters_and_records_agree_exactly(story: SweepStory) -> None:
    for cell in story.cells:
        assert cell["status"] == "ok", cell["reasons"]
        counters = cell["counters"]
        assert counters == cell["records"], cell
        assert counters["draft_tokens"] > 0, cell
        assert len(counters["position_acceptance_ratio"]) == K, cell
        assert cell["generated_tokens"] == REQUESTS * TOKENS, cell
        assert cell["completion_tokens"] == REQUESTS * TOKENS, cell


def test_the_server_generated_nothing_that_the_sweep_does_not_know_of(
    story: SweepStory,
) -> None:
    cells = sum(cell["completion_tokens"] for cell in story.cells)
    # A probe of a token, and a warm-up of eight tokens a prompt.
    assert story.generated == cells + 1 + REQUESTS * 8


def test_times_are_those_of_a_client(story: SweepStory) -> None:
    for cell in story.cells:
        assert cell["ttft"]["count"] == REQUESTS, cell
        assert cell["tpot"]["count"] == REQUESTS, cell
        for answer in cell["answers"]:
            assert 0 < answer["ttft_seconds"] < answer["seconds"], answer
            # All times of an answer: the first token, the others, and the closing of
            # the stream.
            tokens = answer["ttft_seconds"] + (TOKENS - 1) * answer["tpot_seconds"]
            assert tokens <= answer["seconds"] + 1e-6, answer
        rate = REQUESTS * TOKENS / cell["seconds"]
        assert cell["tokens_per_second"] == pytest.approx(rate), cell
        # Every worker is busy all the time, but for the end.
        busy = cell["latency"]["mean"] * REQUESTS / cell["concurrency"]
        assert busy <= cell["seconds"] * 1.05, cell
