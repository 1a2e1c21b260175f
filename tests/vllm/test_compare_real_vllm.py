"""`compare` against two real vLLM servers: a draft model beside none, under the same traffic.

Both are watched from before the first request to after the last, so what `compare` says of them must be what
their clients saw: the same requests, drafts and accepted tokens, and the same times, which the clients took
themselves. Whether speculation is faster on this machine does not matter; that both agree on it does.
"""

import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pytest

from support.programs import COMMAND, clean_environment

from .conftest import Servers
from .server import Told, drive, truth

pytestmark = [pytest.mark.vllm, pytest.mark.clock, pytest.mark.timeout(900)]

# Long enough for a conclusion on a slow processor, such as one without AVX-512.
WATCHED, DRIVEN = 30, 20.0
CONCURRENCY = 6
# Two servers and their clients share two cores, so tokens reach the clients' clocks late, and unevenly so.
TOLERANCE = 0.2
TRAFFIC: dict[str, Any] = {"concurrency": CONCURRENCY, "max_tokens": 24}
K = 4
PLAIN, DRAFTING = "plain", "drafting"


@dataclass(frozen=True)
class Story:
    """What `compare --json` printed, and what the clients of each side were told meanwhile."""

    code: int
    error: str
    document: Any
    told: dict[str, list[Told]]

    @property
    def pair(self) -> Any:
        (found,) = self.document["pairs"]
        return found

    def side(self, name: str) -> Any:
        (found,) = (side for side in self.document["sides"] if side["name"] == name)
        return found

    def latency(self, side: str, name: str) -> Any:
        (found,) = (item for item in self.side(side)["latencies"] if item["name"] == name)
        return found

    def per_token(self, name: str) -> float:
        """Return the mean time per output token as the clients took it, in seconds."""
        return fmean(one.per_token for one in self.told[name])

    @property
    def speedup(self) -> float:
        """As the clients saw it."""
        return self.per_token(PLAIN) / self.per_token(DRAFTING)


@pytest.fixture(scope="module")
def story(servers: Servers) -> Story:
    drafting, plain = servers.running("deep", servers.drafter("deep-draft-0.0", K), None)
    both = {PLAIN: plain, DRAFTING: drafting}
    command = [COMMAND, "compare", *(f"{name}={server.url}" for name, server in both.items())]
    command += ["--for", f"{WATCHED}s", "--json", "--claim", "30"]
    for server in both.values():  # the first steps are slower than all later ones
        drive(server, CONCURRENCY, **TRAFFIC)
    before = {name: server.polls() for name, server in both.items()}
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    ) as process:
        try:
            for name, server in both.items():
                server.wait_until_watched(process, before[name])
            stop = threading.Event()
            threading.Timer(DRIVEN, stop.set).start()
            with ThreadPoolExecutor(len(both)) as pool:
                # More than a server can do; each is a task of the pool.
                loads = {n: pool.submit(drive, s, 1_000, stop=stop, **TRAFFIC) for n, s in both.items()}
                told = {name: load.result(timeout=120) for name, load in loads.items()}
            out, error = process.communicate(timeout=60)
        finally:
            process.kill()
    return Story(process.returncode, error, json.loads(out) if out else None, told)


def test_every_request_of_the_clients_is_counted(story: Story) -> None:
    assert (story.code, story.error) == (0, "")
    for name, told in story.told.items():
        assert len(told) >= 10
        assert story.latency(name, "time_per_output_token")["requests"] == len(told)
        assert story.latency(name, "end_to_end")["requests"] == len(told)
        side = story.side(name)
        tokens = side["generation_tokens_per_second"] * side["span_seconds"]
        assert tokens == pytest.approx(truth(told).completion_tokens, rel=1e-9)


def test_times_and_speedup_are_those_of_the_clients(story: Story) -> None:
    measured = {name: story.latency(name, "time_per_output_token")["mean_seconds"] for name in story.told}
    assert measured == pytest.approx({name: story.per_token(name) for name in story.told}, rel=TOLERANCE)
    assert story.pair["speed"]["speedup"]["value"] == pytest.approx(story.speedup, rel=TOLERANCE)


def test_the_verdicts_are_consistent_with_the_clients_own_numbers(story: Story) -> None:
    """Also that a claim of 30 times as fast is refuted, and that the load was the same."""
    pair, speed = story.pair, story.pair["speed"]
    allowed = {
        "faster": story.speedup > 1,
        "slower": story.speedup < 1,
        "no_difference": 0.9 * speed["low"] <= story.speedup <= 1.1 * speed["high"],
    }
    assert allowed[speed["outcome"]], (speed, story.speedup)
    assert pair["claim"]["outcome"] == "refuted"
    assert pair["gain"]["speculating"] == DRAFTING
    assert pair["gain"]["speedup"] == speed["speedup"]
    assert pair["load"]["same"] is True, pair["load"]


def test_one_side_is_off_and_the_other_drafts_as_its_records_say(story: Story) -> None:
    assert story.side(PLAIN)["speculating"] is False
    drafting, sums = story.side(DRAFTING), truth(story.told[DRAFTING])
    assert drafting["speculating"] is True
    assert drafting["num_speculative_tokens"] == K
    assert drafting["drafts"] == sums.drafts
    ratio, length = drafting["acceptance_ratio"], drafting["mean_acceptance_length"]
    assert ratio["value"] == pytest.approx(sums.acceptance, rel=1e-9)
    assert length["value"] == pytest.approx(1 + sums.accepted_tokens / sums.drafts, rel=1e-9)
    assert ratio["low"] < ratio["value"] < ratio["high"]
    assert length["low"] < length["value"] < length["high"]
