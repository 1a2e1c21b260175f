"""`calibrate` beside a real vLLM: the calibrated speedup against clients' clocks, on
other prompts.

On a busy machine it may refuse the measurements. That is an outcome too: it is right
where the clients' own clocks scatter. Where they do not, the machine may have been busy
only while `calibrate` ran: the test then measures more often, as the refusal says, and
fails where that is refused too.
"""

import json
import math
import re
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.commands import run
from vllm_specdec_exporter.economics.cost import Basis, CostProfile
from vllm_specdec_exporter.economics.profiles import parse_profiles

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


#: The second is the target itself, and drafts greedily, so at this temperature it is
#: often wrong. A step still emits some 1.7 tokens, which looks beneficial where
#: drafting is taken for free.
DRAFTERS = {
    "good": Case("deep-draft-0.0", 4, 0.0, 24),
    "as-large-as-its-target": Case("deep", 2, 0.1, 16),
}
ROUNDS = 4
#: How often `calibrate` measures, the next where it refused and the clocks were quiet.
REPEATS = (3, 9, 9)
#: Scatter of clients' speedups, as a logarithm, up to which `calibrate` must give a
#: profile.
QUIET = 0.05
#: What it says of measurements that give no profile, with exit code 1.
REFUSALS = (
    r"cannot carry|does not rise with|rises more steeply|times as long as steps "
    r"without|% only;|no line"
)
#: Prompts that `calibrate` does not send.
PROMPTS = REPETITIVE_PROMPTS[2:4]


@dataclass(frozen=True)
class Round:
    """The same requests to both servers, as their clients saw them."""

    speedup: float
    answers: list[Told]  # with speculation
    plain_batch: float  # requests in a batch without speculation
    #: With it; less where requests with more accepted tokens end before others.
    drafting_batch: float


@dataclass(frozen=True)
class Clocked:
    """What clients saw at one batch size."""

    rounds: list[Round]

    def median(self, name: str) -> float:
        """Return that of a field: the speed of a shared processor changes from second
        to second.
        """
        return statistics.median(getattr(round_, name) for round_ in self.rounds)

    @property
    def scatter(self) -> float:
        """Standard deviation of the logarithm of a speedup."""
        return statistics.stdev(math.log(round_.speedup) for round_ in self.rounds)


@dataclass(frozen=True)
class Trial:
    """A server with speculation, its profile unless that was refused, and by batch size
    what clients saw.
    """

    server: VllmServer
    file: Path
    profile: CostProfile | None
    said: str  # on standard error
    clocked: dict[int, Clocked]

    @property
    def noise(self) -> float:
        """The largest scatter of the clients' clocks: what keeps the machine busy slows
        any batch size.
        """
        return max(clocked.scatter for clocked in self.clocked.values())

    @property
    def error(self) -> float:
        """Three standard errors of a median, as a logarithm."""
        return 3 * 1.25 * self.noise / ROUNDS**0.5


def clock(
    plain: VllmServer, drafting: VllmServer, batch: int, case: Case, number: int
) -> Round:
    """Send the same requests to both servers in turn."""
    means = []
    answers = []
    busy = []
    for server in (plain, drafting):
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
        means.append(statistics.mean(answer.per_token for answer in answers))
        seconds = sum(
            (answer.ttft or 0.0) + answer.decode_seconds for answer in answers
        )
        busy.append(max(1.0, seconds / took))
    return Round(means[0] / means[1], answers, *busy)


def tried(
    plain: VllmServer, drafting: VllmServer, case: Case, file: Path, repeats: int
) -> Trial:
    """Calibrate at batches of 1 and 4, then measure on other prompts."""
    flags = (
        f"--plain-url {plain.url} --method draft_model --concurrency 1,4 "
        f"--temperature {case.temperature} --max-tokens 24 --prompts code --context 0 "
        f"--repeats {repeats} --out {file} --quiet"
    )
    done = run("calibrate", drafting.url, *flags.split(), within=300)
    assert (done.code, file.exists()) in ((0, True), (1, False)), done.err
    profile = None
    if file.exists():
        (profile,) = parse_profiles(yaml.safe_load(file.read_text("utf-8"))).values()
    else:
        assert re.search(REFUSALS, done.err), done.err
    rounds = {batch: [] for batch in BATCHES}
    for number, batch in product(range(ROUNDS), BATCHES):
        rounds[batch].append(
            clock(plain, drafting, batch=batch, case=case, number=number)
        )
    clocked = {batch: Clocked(each) for batch, each in rounds.items()}
    return Trial(drafting, file, profile=profile, said=done.err, clocked=clocked)


@pytest.fixture(scope="module")
def trials(
    servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Trial]:
    """Calibrate each drafter."""
    drafters = [servers.drafter(case.model, case.k) for case in DRAFTERS.values()]
    plain, *others = servers.running("deep", None, *drafters)
    for server in (plain, *others):  # the first steps are slower than all later ones
        drive(server, 2, max_tokens=8)
    clocked = {}
    for (name, case), server in zip(DRAFTERS.items(), others, strict=True):
        file = tmp_path_factory.mktemp("calibrate") / f"{name}.yaml"
        for repeats in REPEATS:
            clocked[name] = trial = tried(
                plain, server, case=case, file=file, repeats=repeats
            )
            if trial.profile is not None or trial.noise > QUIET:
                break
        else:
            pytest.fail(f"refused without a reason: {trial}")
    return clocked


@pytest.mark.parametrize("name", DRAFTERS)
def test_calibrated_speedup_is_the_one_that_clients_see(
    trials: dict[str, Trial], name: str
) -> None:
    """At every batch size within the profile's own uncertainty, beyond what the clocks
    leave open.
    """
    trial = trials[name]
    if trial.profile is None:
        return
    assert trial.profile.basis is Basis.CALIBRATED
    estimates = {}
    for batch, clocked in trial.clocked.items():
        answers = list(chain.from_iterable(each.answers for each in clocked.rounds))
        sums = truth(answers)
        # What clients got: tokens accepted beyond the end of a request are not among
        # them.
        length = (sums.completion_tokens - len(answers)) / sums.drafts
        k = sums.draft_tokens / sums.drafts
        plain, _ = trial.profile.step_times(k, clocked.median("plain_batch"))
        _, drafting = trial.profile.step_times(k, clocked.median("drafting_batch"))
        estimates[batch] = (length * plain / drafting, clocked.median("speedup"))
    print(name, trial.profile.uncertainty, estimates, trial.error)
    within = math.log1p(trial.profile.uncertainty) + trial.error
    assert {
        batch: (estimated, true)
        for batch, (estimated, true) in estimates.items()
        if abs(math.log(estimated / true)) > within
    } == {}


def test_drafter_as_large_as_its_target_is_unknown_and_harmful_once_calibrated(
    trials: dict[str, Trial],
) -> None:
    """With --spec.config alone the payoff is unknown; after `calibrate` it is harmful,
    as clients see it.

    Where the uncertainty of the profile leaves that open, it is likely harmful.
    """
    trial = trials["as-large-as-its-target"]
    largest = max(clocked.median("speedup") for clocked in trial.clocked.values())
    assert largest < 1
    if trial.profile is None:
        return
    certain = largest * (1 + trial.profile.uncertainty) ** 2 < 1
    # The name says nothing of its size.
    config = json.dumps(
        {"method": "draft_model", "model": "some/draft", "num_speculative_tokens": 2}
    )
    with ThreadPoolExecutor(3) as pool:
        stop = threading.Event()
        temperature = DRAFTERS["as-large-as-its-target"].temperature
        load = pool.submit(
            drive,
            trial.server,
            10_000,
            concurrency=2,
            temperature=temperature,
            stop=stop,
        )
        flags = ("--spec.config", config)
        calibrated = (*flags, "--cost.file", str(trial.file))
        uncalibrated_check = pool.submit(check, trial.server, *flags)
        calibrated_check = pool.submit(check, trial.server, *calibrated)
        try:
            unknown = uncalibrated_check.result()
            harmful = calibrated_check.result()
            assert unknown["verdict"] == "unknown", unknown
            assert harmful["verdict"] == "harmful" or not certain, harmful
            assert harmful["loss_probability"] > 0.5, harmful
        finally:
            stop.set()
            load.result()


def check(server: VllmServer, *flags: str) -> dict[str, Any]:
    """Return the payoff by `check`."""
    brief = ("--for=8s", "--json", "--threshold=minimum_drafts=20")
    outcome = run("check", server.url, *brief, *flags)
    (engine,) = json.loads(outcome.out)["targets"][0]["engines"]
    return engine["payoff"]
