"""`compare` against two real vLLM servers: n-gram speculation beside none, under the same traffic.

Both are watched from before the first request to after the last, so what `compare` says of them must be what
their clients saw: the same requests, drafts and accepted tokens, and the same times, which the clients took
themselves. Whether speculation is faster on this machine does not matter; that both agree on it does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

from .server import Truth, VllmServer, drive, truth, wait_until_watched

if TYPE_CHECKING:
    from .server import RequestRecord

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

WATCHED, DRIVEN = 25, 16.0
CONCURRENCY = 6
# Two servers and their clients share two cores, so tokens reach the clients' clocks late, and unevenly so.
TOLERANCE = 0.2
MAX_TOKENS = 24
K = 4
NGRAM: dict[str, object] = {
    "method": "ngram",
    "num_speculative_tokens": K,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 1,
}
PLAIN, DRAFTING = "plain", "ngram"


@dataclass(frozen=True)
class Story:
    code: int
    error: str
    document: Any
    """What `compare --json` printed."""
    records: dict[str, list[RequestRecord]]
    saved: Path
    page: str

    def side(self, name: str) -> Any:
        (found,) = (side for side in self.document["sides"] if side["name"] == name)
        return found

    def latency(self, side: str, name: str) -> Any:
        (found,) = (item for item in self.side(side)["latencies"] if item["name"] == name)
        return found

    @property
    def truth(self) -> Truth:
        return truth(self.records[DRAFTING])


def per_token(records: list[RequestRecord]) -> float:
    """Return the mean time per output token as the clients took it, in seconds."""
    return fmean(record.decode_seconds / (record.completion_tokens - 1) for record in records)


@pytest.fixture(scope="module")
def story(vllm_python: Path, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    directory = tmp_path_factory.mktemp("compare")
    servers = {
        name: VllmServer(vllm_python, models / "deep", directory / name, speculation=speculation)
        for name, speculation in ((PLAIN, None), (DRAFTING, NGRAM))
    }
    saved, page = directory / "saved.json", directory / "report.html"
    command = [str(Path(sys.executable).with_name("vllm-specdec-exporter")), "compare"]
    command += [f"{name}={server.url}" for name, server in servers.items()]
    command += ["--for", f"{WATCHED}s", "--json", "--save", str(saved), "--html", str(page), "--claim", "30"]
    try:
        for server in servers.values():
            server.start()
        for server in servers.values():
            server.wait_until_ready()
        for server in servers.values():  # the first steps are slower than all later ones
            drive(
                server,
                number=2 * CONCURRENCY,
                temperature=0.0,
                concurrency=CONCURRENCY,
                max_tokens=MAX_TOKENS,
            )
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                for server in servers.values():
                    wait_until_watched(server, process)
                stop = threading.Event()
                timer = threading.Timer(DRIVEN, stop.set)
                timer.start()
                with ThreadPoolExecutor(len(servers)) as pool:
                    loads = {
                        name: pool.submit(
                            drive,
                            server,
                            number=1_000,  # more than it can do; each is a task of the pool
                            temperature=0.0,
                            concurrency=CONCURRENCY,
                            max_tokens=MAX_TOKENS,
                            stop=stop,
                        )
                        for name, server in servers.items()
                    }
                    records = {name: load.result(timeout=120) for name, load in loads.items()}
                out, error = process.communicate(timeout=60)
            finally:
                process.kill()
    finally:
        for server in servers.values():
            server.stop()
    return Story(
        process.returncode,
        error,
        json.loads(out) if out else None,
        records,
        saved,
        page.read_text() if page.exists() else "",
    )


def test_comes_to_a_conclusion(story: Story) -> None:
    assert (story.code, story.error) == (0, "")
    assert story.document["format"] == "vllm-specdec-compare/1"


def test_every_request_of_the_clients_is_counted(story: Story) -> None:
    for name, records in story.records.items():
        assert len(records) >= 10
        assert story.latency(name, "time_per_output_token")["requests"] == len(records)
        assert story.latency(name, "end_to_end")["requests"] == len(records)
        side = story.side(name)
        tokens = side["generation_tokens_per_second"] * side["span_seconds"]
        assert tokens == pytest.approx(sum(record.completion_tokens for record in records), rel=1e-9)


@pytest.mark.parametrize("name", [PLAIN, DRAFTING])
def test_the_time_per_output_token_is_what_the_clients_took(story: Story, name: str) -> None:
    measured = story.latency(name, "time_per_output_token")["mean_seconds"]
    assert measured == pytest.approx(per_token(story.records[name]), rel=TOLERANCE)


def test_the_speedup_is_that_of_the_clients(story: Story) -> None:
    (pair,) = story.document["pairs"]
    theirs = per_token(story.records[PLAIN]) / per_token(story.records[DRAFTING])
    assert pair["speed"]["speedup"]["value"] == pytest.approx(theirs, rel=TOLERANCE)


def test_the_verdict_is_consistent_with_the_clients_own_numbers(story: Story) -> None:
    (pair,) = story.document["pairs"]
    speed = pair["speed"]
    theirs = per_token(story.records[PLAIN]) / per_token(story.records[DRAFTING])
    allowed = {
        "faster": theirs > 1,
        "slower": theirs < 1,
        "no_difference": 0.9 * speed["low"] <= theirs <= 1.1 * speed["high"],
    }
    assert allowed[speed["outcome"]], (speed, theirs)


def test_one_side_is_off_and_the_other_drafts_as_its_records_say(story: Story) -> None:
    assert story.side(PLAIN)["speculating"] is False
    drafting, sums = story.side(DRAFTING), story.truth
    assert drafting["speculating"] is True
    assert drafting["num_speculative_tokens"] == K
    assert drafting["drafts"] == sums.drafts
    ratio, length = drafting["acceptance_ratio"], drafting["mean_acceptance_length"]
    assert ratio["value"] == pytest.approx(sums.accepted_tokens / sums.draft_tokens, rel=1e-9)
    assert length["value"] == pytest.approx(1 + sums.accepted_tokens / sums.drafts, rel=1e-9)
    assert ratio["low"] < ratio["value"] < ratio["high"]
    assert length["low"] < length["value"] < length["high"]


def test_an_absurd_claim_is_refuted(story: Story) -> None:
    (pair,) = story.document["pairs"]
    assert pair["claim"]["outcome"] == "refuted"


def test_the_gain_is_that_of_the_drafting_side(story: Story) -> None:
    (pair,) = story.document["pairs"]
    assert pair["gain"]["speculating"] == DRAFTING
    assert pair["gain"]["speedup"] == pair["speed"]["speedup"]


def test_the_load_is_found_to_be_the_same(story: Story) -> None:
    (pair,) = story.document["pairs"]
    assert pair["load"]["same"] is True, pair["load"]


def test_the_report_and_the_saved_sides_tell_the_same(story: Story) -> None:
    (pair,) = story.document["pairs"]
    assert pair["speed"]["text"] in story.page
    command = [str(Path(sys.executable).with_name("vllm-specdec-exporter")), "compare", "--json"]
    command += [f"{side['name']}={story.saved}#{side['source']}" for side in story.document["sides"]]
    again = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (again.returncode, again.stderr) == (0, "")
    assert json.loads(again.stdout)["pairs"][0]["speed"] == pair["speed"]
