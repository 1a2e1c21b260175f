"""`calibrate` beside a real vLLM: the calibrated speedup against clients' clocks, on other prompts."""

import json
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.commands import run
from vllm_specdec_exporter.economics import CostProfile, parse_profiles
from vllm_specdec_exporter.economics.cost import Basis

from .conftest import Servers
from .server import REPETITIVE_PROMPTS, Told, VllmServer, drive, truth

pytestmark = [pytest.mark.vllm, pytest.mark.clock, pytest.mark.timeout(900)]

#: Those that `calibrate` measures, and one between them.
BATCHES = (1, 2, 4)


@dataclass(frozen=True)
class Case:
    """A draft model, its K, and the temperature and length of the answers."""

    model: str
    k: int
    temperature: float
    tokens: int


#: The second is the target itself, and drafts greedily, so at this temperature it is often wrong. A step
#: still emits some 1.7 tokens, which looks beneficial where drafting is taken for free.
DRAFTERS = {
    "good": Case("deep-draft-0.0", 4, 0.0, 24),
    "as-large-as-its-target": Case("deep", 2, 0.1, 16),
}
ROUNDS = 4
#: Prompts that `calibrate` does not send.
PROMPTS = REPETITIVE_PROMPTS[2:4]


@dataclass(frozen=True)
class Clocked:
    """What clients saw at one batch size: the speedup in each round, and what they got with speculation."""

    speedups: list[float]
    told: list[Told]
    plain_batch: float  # requests in a batch without speculation
    drafting_batch: float  # with it; less where requests with more accepted tokens end before others

    @property
    def speedup(self) -> float:
        """The median: the speed of a shared processor changes from second to second."""
        return statistics.median(self.speedups)

    @property
    def error(self) -> float:
        """Three standard errors of the difference of two medians: `calibrate` used the same clock."""
        return 3 * 2**0.5 * 1.25 * statistics.stdev(self.speedups) / len(self.speedups) ** 0.5


@dataclass(frozen=True)
class Trial:
    """A server with speculation, its profile, and by batch size what clients saw."""

    server: VllmServer
    file: Path
    profile: CostProfile
    clocked: dict[int, Clocked]


def clock(plain: VllmServer, drafting: VllmServer, batch: int, case: Case) -> Clocked:
    """Send the same requests to both servers in turn."""
    speedups, told, busy = [], [], ([], [])
    for number in range(ROUNDS):
        mean = []
        for server, requests in zip((plain, drafting), busy, strict=True):
            begun = time.monotonic()
            answers = drive(
                server,
                batch,
                concurrency=batch,
                prompts=PROMPTS[number % 2 :],
                temperature=case.temperature,
                max_tokens=case.tokens,
            )
            took = time.monotonic() - begun
            mean.append(statistics.mean(one.per_token for one in answers))
            requests.append(sum((one.ttft or 0.0) + one.decode_seconds for one in answers) / took)
        told += answers
        speedups.append(mean[0] / mean[1])
    return Clocked(speedups, told, *(max(1.0, statistics.median(requests)) for requests in busy))


@pytest.fixture(scope="module")
def trials(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trial]:
    """Calibrate each drafter at batches of 1 and 4, then measure on other prompts."""
    drafters = [servers.drafter(case.model, case.k) for case in DRAFTERS.values()]
    plain, *others = servers.running("deep", None, *drafters)
    for server in (plain, *others):  # the first steps are slower than all later ones
        drive(server, 2, max_tokens=8)
    found = {}
    for (name, case), server in zip(DRAFTERS.items(), others, strict=True):
        file = tmp_path_factory.mktemp("calibrate") / f"{name}.yaml"
        done = run(
            *("calibrate", server.url, "--plain-url", plain.url, "--method", "draft_model"),
            *("--temperature", str(case.temperature), "--max-tokens", "24", "--prompts", "code"),
            *("--concurrency", "1,4", "--context", "0", "--out", str(file), "--quiet"),
            within=300,
        )
        assert done.code == 0, done.err
        (profile,) = parse_profiles(yaml.safe_load(file.read_text("utf-8"))).values()
        clocked = {batch: clock(plain, server, batch, case) for batch in BATCHES}
        found[name] = Trial(server, file, profile, clocked)
    return found


@pytest.mark.parametrize("name", DRAFTERS)
def test_calibrated_speedup_is_the_one_that_clients_see(trials: dict[str, Trial], name: str) -> None:
    """At every batch size within a tenth and on the same side of 1, beyond what the clocks leave open."""
    trial = trials[name]
    assert trial.profile.basis is Basis.CALIBRATED
    estimates = {}
    for batch, clocked in trial.clocked.items():
        sums = truth(clocked.told)
        # What clients got: tokens accepted beyond the end of a request are not among them.
        length = (sums.completion_tokens - len(clocked.told)) / sums.drafts
        k = sums.draft_tokens / sums.drafts
        plain, _ = trial.profile.times(k, clocked.plain_batch)
        _, drafting = trial.profile.times(k, clocked.drafting_batch)
        estimates[batch] = (length * plain / drafting, clocked.speedup, clocked.error)
    print(name, estimates)
    for estimated, true, error in estimates.values():
        within = 0.1 * true + error
        assert estimated == pytest.approx(true, abs=within), estimates
        assert abs(true - 1) <= within or (estimated > 1) is (true > 1), estimates


def test_drafter_as_large_as_its_target_is_unknown_and_harmful_once_calibrated(
    trials: dict[str, Trial],
) -> None:
    """With --spec.config alone the payoff is unknown; after `calibrate` it is harmful, as clients see it."""
    trial = trials["as-large-as-its-target"]
    assert all(clocked.speedup < 1 for clocked in trial.clocked.values())
    # The name says nothing of its size.
    config = json.dumps({"method": "draft_model", "model": "some/draft", "num_speculative_tokens": 2})
    with ThreadPoolExecutor(3) as pool:
        stop = threading.Event()
        temperature = DRAFTERS["as-large-as-its-target"].temperature
        load = pool.submit(drive, trial.server, 10_000, concurrency=2, temperature=temperature, stop=stop)
        checks = [
            pool.submit(check, trial.server, "--spec.config", config, *flags)
            for flags in ((), ("--cost.file", str(trial.file)))
        ]
        try:
            unknown, harmful = (one.result() for one in checks)
            assert unknown["verdict"] == "unknown", unknown
            assert harmful["verdict"] == "harmful", harmful
        finally:
            stop.set()
            load.result()


def check(server: VllmServer, *flags: str) -> dict[str, Any]:
    """Return the payoff by `check`."""
    outcome = run("check", server.url, "--for", "8s", "--json", "--threshold", "minimum_drafts=20", *flags)
    (engine,) = json.loads(outcome.out)["targets"][0]["engines"]
    payoff: dict[str, Any] = engine["payoff"]
    return payoff
