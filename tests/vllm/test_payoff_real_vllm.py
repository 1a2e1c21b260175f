"""Payoff and advice beside a real vLLM: drafters of known worth, and a baseline that clients can check.

The truth is what the clients of the server saw: vLLM's record with each answer, and the clock.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from vllm_specdec_exporter.baseline import load

from .conftest import Exporter
from .server import RequestRecord, VllmServer, drive, polls, truth, wait_until_watched

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(400)]

K = 4
DRAFTERS = {"good": 0.0, "middling": 0.08, "poor": 0.4}
# How many requests it takes for enough drafts: a good drafter needs fewer for the same answers.
REQUESTS = {"good": 16, "middling": 10, "poor": 8}
# A minute of a tiny server's life is little: less than in production must do.
THRESHOLDS = ("advice_minimum_drafts=200", "measurement_minimum_requests=8")
WINDOW = "5m"


@dataclass(frozen=True)
class Trial:
    """A drafter, what its requests saw, and what the exporter made of it."""

    records: list[RequestRecord]
    engine: Any

    @property
    def window(self) -> Any:
        return next(w for w in self.engine["windows"] if w["window"] == WINDOW)


@dataclass(frozen=True)
class Story:
    """What happened, in order: no speculation, recorded as the baseline; then three drafters in turn."""

    baseline_file: Path
    baseline_output: str
    plain: list[RequestRecord]
    trials: dict[str, Trial]


def speculation(models: Path, noise: float) -> dict[str, object]:
    return {
        "method": "draft_model",
        "model": str(models / f"deep-draft-{noise}"),
        "num_speculative_tokens": K,
    }


def traffic(server: VllmServer, number: int) -> list[RequestRecord]:
    """Send requests one after another, so that load, and what it does to the clock, is always the same."""
    return drive(server, number=number, temperature=0.0, concurrency=1, max_tokens=80)


@pytest.fixture(scope="module")
def story(vllm_python: Path, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    directory = tmp_path_factory.mktemp("payoff")
    file = directory / "baseline.json"
    server = VllmServer(vllm_python, models / "deep", directory / "server", speculation=None)
    with server:
        traffic(server, 2)  # the first requests compile
        plain, output = record(server, file)
        trials = {}
        for name, noise in DRAFTERS.items():
            config = speculation(models, noise)
            server.restart(speculation=config)
            server.wait_until_ready()
            traffic(server, 2)
            trials[name] = watch(server, directory / name, config, file, REQUESTS[name])
        yield Story(file, output, plain, trials)


def record(server: VllmServer, file: Path) -> tuple[list[RequestRecord], str]:
    """Run the baseline command around some traffic, as a user does; return the requests and its output."""
    command = Path(sys.executable).with_name("vllm-specdec-exporter")
    before = polls(server)
    process = subprocess.Popen(
        [command, "baseline", server.url, "--interval", "500ms", "--out", file],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait_until_watched(server, process, before)
        records = traffic(server, 10)
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0, output
    return records, output


def watch(
    server: VllmServer, directory: Path, config: dict[str, object], baseline: Path, requests: int
) -> Trial:
    arguments = ["--baseline.file", str(baseline), "--log.interval", "0s"]
    for threshold in THRESHOLDS:
        arguments += ["--threshold", threshold]
    with Exporter(server.url, directory, speculation=config, arguments=arguments) as exporter:
        exporter.wait_for(lambda scrape: scrape.value("up") == 1)
        records = traffic(server, requests)
        drafts = truth(records).drafts
        exporter.wait_for(lambda scrape: (scrape.value("window_drafts", window=WINDOW) or 0) >= drafts)
        exporter.wait_for(lambda s: (s.value("measured_requests", window=WINDOW) or 0) >= requests)
        snapshot = exporter.snapshot()
    return Trial(records, snapshot["targets"][0]["engines"][0])


def time_per_output_token(records: list[RequestRecord]) -> float:
    """Return the mean over requests, as the clients' clocks have it."""
    return statistics.mean(r.decode_seconds / (r.completion_tokens - 1) for r in records)


def test_the_baseline_is_what_the_clients_saw(story: Story) -> None:
    """Time per output token without speculation, by the server's histogram and by the clients' clocks."""
    baseline = load(str(story.baseline_file))
    histograms = [b.latencies.time_per_output_token for b in baseline.buckets]
    requests = sum(h.count for h in histograms if h)
    mean = sum(h.sum for h in histograms if h) / requests

    assert baseline.model_name == "tiny-llama"
    assert requests == len(story.plain)
    assert mean == pytest.approx(time_per_output_token(story.plain), rel=0.05)
    assert "without speculation" in story.baseline_output


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_measured_speedup_is_what_the_clients_saw(story: Story, drafter: str) -> None:
    """The clients' time per output token without speculation over that with it, within 5 %."""
    trial = story.trials[drafter]
    seen = time_per_output_token(story.plain) / time_per_output_token(trial.records)

    assert trial.window["measured"]["speedup"] == pytest.approx(seen, rel=0.05)
    assert trial.window["measured"]["requests"] == len(trial.records)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_payoff_goes_by_what_was_measured(story: Story, drafter: str) -> None:
    """What is measured beats what is estimated."""
    payoff = story.trials[drafter].engine["payoff"]
    speedup = story.trials[drafter].window["measured"]["speedup"]
    verdict = "harmful" if speedup < 1 else "marginal" if speedup <= 1.2 else "beneficial"

    assert (payoff["basis"], payoff["speedup"], payoff["verdict"]) == ("measured", speedup, verdict)


def test_a_good_drafter_pays_and_a_poor_one_pays_far_less(story: Story) -> None:
    """A tenth of the target's work for four tokens, of which three in four are accepted, or nearly none."""
    good, poor = story.trials["good"].engine["payoff"], story.trials["poor"].engine["payoff"]

    assert good["verdict"] == "beneficial"
    assert poor["speedup"] < good["speedup"] / 1.5


def test_drafters_are_ranked_by_worth(story: Story) -> None:
    """Acceptance length, estimated and measured speedup put the three in the order they were made in."""
    windows = [story.trials[drafter].window for drafter in DRAFTERS]
    lengths = [w["mean_acceptance_length"] for w in windows]
    estimates = [w["estimate"]["speedup"] for w in windows]
    measured = [w["measured"]["speedup"] for w in windows]

    assert lengths == sorted(lengths, reverse=True)
    assert estimates == sorted(estimates, reverse=True)
    assert measured == sorted(measured, reverse=True)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_smaller_k_is_what_the_records_say(story: Story, drafter: str) -> None:
    """Mean acceptance length for each K, from vLLM's own record of each request."""
    trial = story.trials[drafter]
    accepted = truth(trial.records).accepted_per_draft
    drafts = sum(accepted)
    expected = [1 + sum(min(n, k) * d for n, d in enumerate(accepted)) / drafts for k in range(1, K + 1)]

    assert trial.window["mean_acceptance_length_at"] == pytest.approx(expected, rel=0.02)


def test_advice_is_to_draft_less_the_worse_the_drafter(story: Story) -> None:
    """A drafter that fails behind its first position is not worth K=4; a poor one is not worth anything."""
    advised = [story.trials[drafter].engine["advice"] for drafter in DRAFTERS]
    ks = [advice["num_speculative_tokens"] for advice in advised]

    assert None not in ks, [advice["reason"] for advice in advised]
    assert ks == sorted(ks, reverse=True)
    assert ks[-1] < K
