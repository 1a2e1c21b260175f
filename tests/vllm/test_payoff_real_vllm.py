"""Payoff and advice beside a real vLLM: drafters of known worth, and a baseline that
clients can check.
"""

import signal
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.programs import COMMAND, clean_environment, eventually
from vllm_specdec_exporter.settings.configuration import load_baseline as load

from .conftest import (
    LABELLED,
    MEASURES,
    Observation,
    Servers,
    exporter,
    observe,
    scrape_when,
    total,
    wait_until_up,
)
from .server import Told, VllmServer, drive, truth

pytestmark = [pytest.mark.vllm, pytest.mark.clock, pytest.mark.timeout(900)]

K = 4
DRAFTERS = {"good": 0.0, "poor": 0.4}
# How many requests it takes for enough drafts, and of how many tokens: a good drafter
# needs fewer drafts.
REQUESTS = {"good": (8, 72), "poor": (8, 24)}
# A minute of a tiny server's life is little: less than in production must do.
THRESHOLDS = (
    "--threshold=advice_minimum_drafts=100",
    "--threshold=measurement_minimum_requests=8",
)
WINDOW = "5m"


@dataclass(frozen=True)
class Trial:
    """A drafter, what its clients were told, and what the exporter made of it."""

    answers: list[Told]
    engine: Any

    @property
    def window(self) -> Any:
        return next(w for w in self.engine["windows"] if w["window"] == WINDOW)


@dataclass(frozen=True)
class Story:
    """What happened, in order: no speculation, recorded as the baseline; then two
    drafters in turn.
    """

    baseline_file: Path
    baseline_output: str
    plain: list[Told]
    off: Observation  # what an exporter made of the server without speculation before
    trials: dict[str, Trial]


def traffic(server: VllmServer, number: int, tokens: int) -> list[Told]:
    """Send requests one after another, so that load, and what it does to the clock, is
    always the same.
    """
    return drive(server, number, concurrency=1, max_tokens=tokens)


@pytest.fixture(scope="module")
def story(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Story:
    file = tmp_path_factory.mktemp("payoff") / "baseline.json"
    (server,) = servers.running("deep", None)
    with exporter(server) as running:
        metrics_before = wait_until_up(running)
        off = observe(running, traffic(server, 2, 8), metrics_before)
    plain, output = record(server, file)
    trials = {}
    for name, noise in DRAFTERS.items():
        (server,) = servers.running("deep", servers.drafter(f"deep-draft-{noise}", K))
        traffic(server, 2, 8)  # the first requests compile
        trials[name] = watch(server, file, *REQUESTS[name])
    return Story(file, output, plain=plain, off=off, trials=trials)


def record(server: VllmServer, file: Path) -> tuple[list[Told], str]:
    """Run the baseline command around some traffic, as a user does; return the requests
    and its output.
    """
    polls = server.polls()
    process = subprocess.Popen(
        [COMMAND, "baseline", server.url, "--interval", "500ms", "--out", file],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=clean_environment(),
    )
    try:
        server.wait_until_watched(process, polls)
        answers = traffic(server, 10, 40)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0, output
    return answers, output


def watch(server: VllmServer, baseline: Path, requests: int, tokens: int) -> Trial:
    """Send requests past an exporter that knows the baseline."""
    flags = (f"--baseline.file={baseline}", "--log.interval=0s", *THRESHOLDS)
    with exporter(server, *flags) as running:
        scrape_when(running, lambda scrape: scrape.value("up") == 1)
        answers = traffic(server, requests, tokens)
        drafts = truth(answers).drafts

        def is_counted() -> bool:
            windows = running.snapshot()["targets"][0]["engines"][0]["windows"]
            return any(
                (window["drafts"] or 0) >= drafts
                and (window["measured"]["requests"] or 0) >= requests
                for window in windows
                if window["window"] == WINDOW
            )

        eventually(is_counted, 240)
        return Trial(answers, running.snapshot()["targets"][0]["engines"][0])


def per_token(answers: list[Told]) -> float:
    """Return the mean time per output token over requests, as the clients' clocks have
    it.
    """
    return statistics.mean(answer.per_token for answer in answers)


def test_the_baseline_is_what_the_clients_saw(story: Story) -> None:
    """Time per output token without speculation, by the server's histogram and by the
    clients' clocks.
    """
    baseline = load(str(story.baseline_file))
    requests = 0
    seconds = 0.0
    for bucket in baseline.buckets:
        histogram = bucket.latencies.time_per_output_token
        if histogram is not None:
            requests += histogram.count
            seconds += histogram.sum
    assert baseline.model_name == "tiny-llama"
    assert requests == len(story.plain)
    assert seconds / requests == pytest.approx(per_token(story.plain), rel=0.05)
    assert "without speculation" in story.baseline_output


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_payoff_goes_by_the_speedup_that_the_clients_saw(
    story: Story, drafter: str
) -> None:
    """Their time per output token without speculation over that with it, within 5 %; no
    estimate counts.
    """
    trial = story.trials[drafter]
    measured = trial.window["measured"]
    payoff = trial.engine["payoff"]
    speedup = measured["speedup"]
    assert speedup == pytest.approx(
        per_token(story.plain) / per_token(trial.answers), rel=0.05
    )
    assert measured["requests"] == len(trial.answers)
    assert payoff["basis"] == "measured"
    assert payoff["speedup_low"] <= speedup <= payoff["speedup_high"]
    if payoff["speedup_low"] <= 1 <= payoff["speedup_high"]:
        assert payoff["verdict"] == "unknown"
        return
    if speedup < 1:
        verdict = "harmful"
    elif speedup <= 1.2:
        verdict = "marginal"
    else:
        verdict = "beneficial"
    assert payoff["speedup"] == speedup
    assert payoff["verdict"] == verdict


def test_a_good_drafter_gains_far_more_than_a_poor_one(story: Story) -> None:
    """A tenth of the target's work for four tokens, of which three in four are
    accepted, or nearly none.

    Acceptance length, estimated and measured speedup put the good drafter first; a poor
    one gets no larger K.
    """
    good = story.trials["good"]
    poor = story.trials["poor"]
    assert poor.window["measured"]["speedup"] < good.window["measured"]["speedup"] / 1.5
    assert poor.window["mean_acceptance_length"] < good.window["mean_acceptance_length"]
    assert poor.window["estimate"]["speedup"] < good.window["estimate"]["speedup"]
    # A few requests on a busy machine may leave open whether it pays. No larger K
    # follows from that.
    assert (poor.engine["advice"]["num_speculative_tokens"] or 0) <= K


def test_a_server_without_speculation_is_off_and_has_no_acceptance(
    story: Story,
) -> None:
    scrape = story.off.scrape
    assert scrape.one_hot("activity") == ["off"]
    assert scrape.one_hot("quality") == []
    tokens = story.off.increase("engine", "generation_tokens_total")
    assert tokens == {"0": story.off.truth.completion_tokens}
    assert (total(scrape, "drafts_total") or 0) == 0
    ratios = {
        name
        for name in (*MEASURES, *LABELLED)
        if "acceptance" in name or "position" in name
    }
    assert (ratios | {"mean_draft_length"}) & set(scrape.samples) == set()
