"""`sweep` against a real vLLM: one server with a draft model, the installed command, real requests.

The draft model is the target with a little noise. Greedy, it is right most of the time. At temperature 1 a
random model is nearly indifferent between all tokens, so two draws from it hardly ever agree.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from support.commands import run
from support.exporter import Metrics
from support.programs import COMMAND, clean_environment
from vllm_specdec_exporter.commands.sweep.record import Status
from vllm_specdec_exporter.commands.sweep.record import load as load_record

from .server import drive

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_specdec_exporter.commands.sweep.record import SweepRecord

    from .conftest import Servers
    from .server import VllmServer

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

K, REQUESTS, TOKENS = 4, 8, 48
GRID = ("--temperature", "0,1", "--concurrency", "1,4", "--prompts", "code", "--requests", str(REQUESTS))
GRID += ("--max-tokens", str(TOKENS), "--ignore-eos")


@pytest.fixture(scope="module")
def server(servers: Servers) -> VllmServer:
    (running,) = servers.running("target", servers.drafter("draft-0.02", K))
    return running


@dataclass(frozen=True)
class SweepStory:
    """A sweep that was interrupted after its first cell and then continued."""

    interrupted: int
    told: str
    kept: SweepRecord
    code: int
    out: str
    record: SweepRecord
    generated: float
    """Tokens that the server generated over all of it, by its own counters."""


def generated(server: VllmServer) -> float:
    return Metrics(server.metrics()).value("vllm:generation_tokens_total") or 0.0


@pytest.fixture(scope="module")
def story(server: VllmServer, tmp_path_factory: pytest.TempPathFactory) -> SweepStory:
    out = tmp_path_factory.mktemp("out") / "sweep"
    before = generated(server)
    words = (server.url, "--out", str(out), *GRID)
    told = ""
    with subprocess.Popen(
        [COMMAND, "sweep", *words], stderr=subprocess.PIPE, text=True, env=clean_environment()
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            told += line
            if line.startswith("[1/4]"):
                process.send_signal(signal.SIGINT)
    interrupted = process.returncode
    kept = load_record(out)
    assert kept is not None, told
    done = run("sweep", *words, "--json")
    record = load_record(out)
    assert record is not None, done.err
    return SweepStory(interrupted, told, kept, done.code, done.out, record, generated(server) - before)


def test_an_interrupted_sweep_keeps_its_cells_and_goes_on(story: SweepStory) -> None:
    assert story.interrupted == 130, story.told
    assert "goes on from there" in story.told
    assert len(story.kept.cells) == 1
    assert story.code == 0
    assert len(story.record.cells) == 4
    assert story.record.cells[0] == story.kept.cells[0]


def test_acceptance_falls_with_temperature_beyond_chance(story: SweepStory) -> None:
    for concurrency in (1, 4):
        cold, hot = (cell for cell in story.record.cells if cell.concurrency == concurrency)
        assert (cold.temperature, hot.temperature) == (0.0, 1.0)
        assert cold.acceptance_interval is not None
        assert hot.acceptance_interval is not None
        assert cold.acceptance_interval.unit == "request"
        assert cold.acceptance_interval.low > hot.acceptance_interval.high + 0.2
    document: Any = json.loads(story.out)
    assert len(document["conclusions"]) == 2
    assert all("acceptance falls from " in words for words in document["conclusions"])


def test_counters_and_records_agree_exactly(story: SweepStory) -> None:
    for cell in story.record.cells:
        assert cell.status is Status.OK, cell.reasons
        assert cell.counters is not None
        assert cell.counters == cell.records
        assert cell.counters.draft_tokens is not None
        assert cell.counters.draft_tokens > 0
        assert len(cell.counters.position_acceptance_ratio) == K
        assert cell.generated_tokens == cell.completion_tokens == REQUESTS * TOKENS


def test_the_server_generated_nothing_that_the_sweep_does_not_know_of(story: SweepStory) -> None:
    cells = sum(cell.completion_tokens for cell in story.record.cells)
    # Two probes of a token, two warm-ups of eight tokens a prompt, and the cell that was cut off.
    known = cells + 2 + 2 * REQUESTS * 8
    assert known <= story.generated <= known + REQUESTS * TOKENS


def test_times_are_those_of_a_client(story: SweepStory) -> None:
    for cell in story.record.cells:
        assert (cell.ttft.count, cell.tpot.count) == (REQUESTS, REQUESTS)
        for answer in cell.answers:
            assert answer.ttft_seconds is not None
            assert answer.tpot_seconds is not None
            assert 0 < answer.ttft_seconds < answer.seconds
            # All times of an answer: the first token, the others, and the closing of the stream.
            assert answer.ttft_seconds + (TOKENS - 1) * answer.tpot_seconds <= answer.seconds + 1e-6
            assert answer.finish_reason == "length"
        assert cell.latency.mean is not None
        assert cell.tokens_per_second == pytest.approx(REQUESTS * TOKENS / cell.seconds)
        # Every worker is busy all the time, but for the end.
        assert cell.latency.mean * REQUESTS / cell.concurrency <= cell.seconds * 1.05


def test_other_traffic_is_refused_before_and_seen_within_a_cell(
    server: VllmServer, story: SweepStory, tmp_path: Path
) -> None:
    stop = threading.Event()
    others = threading.Thread(target=drive, args=(server, 10_000), kwargs={"temperature": 1.0, "stop": stop})
    others.start()
    try:
        time.sleep(1)
        refused = run("sweep", server.url, "--out", str(tmp_path / "refused"), "--no-html", *GRID)
        allowed = run(
            *(
                "sweep",
                server.url,
                "--out",
                str(tmp_path / "allowed"),
                "--temperature",
                "0",
                "--prompts",
                "code",
            ),
            *("--requests", "4", "--max-tokens", "32", "--ignore-eos", "--no-html", "--allow-other-traffic"),
        )
    finally:
        stop.set()
        others.join(60)
    assert refused.code == 1
    assert refused.out == ""
    assert f"error: others use {server.url}: " in refused.err
    assert refused.err.count("\n") == 1
    assert not (tmp_path / "refused").exists()
    assert allowed.code == 1
    record = load_record(tmp_path / "allowed")
    assert record is not None
    (cell,) = record.cells
    assert cell.status is Status.DISTURBED
    assert cell.records is not None
    assert cell.counters is not None
    # The counters hold the drafts of others, too; the records only the cell's own.
    assert cell.records.drafts is not None
    assert cell.counters.drafts is not None
    assert cell.counters.drafts > 1.5 * cell.records.drafts
    assert cell.acceptance_ratio == cell.records.acceptance_ratio
    assert cell.completion_tokens == 4 * 32
