"""`calibrate` beside a real vLLM: the calibrated speedup against clients' clocks, on prompts it has not seen.

Two drafters: a small one whose drafts are good, and one as large as its target. Of the second, the exporter
knew nothing but the method and called it beneficial, 1.72 times, while clients took one and a half to two
times as long as without it.
"""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import yaml

from support.commands import run
from vllm_specdec_exporter.commands.sweep import SweepPlan, endpoint, load_prompts, run_sweep
from vllm_specdec_exporter.economics import parse_profiles
from vllm_specdec_exporter.economics.cost import Basis

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_specdec_exporter.economics import CostProfile

    from .conftest import Servers
    from .server import VllmServer

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200)]

BATCHES = (1, 2, 4, 8)
DRAFTERS = {"good": "deep-draft-0.0", "as-large-as-its-target": "deep"}
#: The second drafts greedily, so at a temperature of 1 it is often wrong although it is the target itself.
TEMPERATURES = {"good": 0.0, "as-large-as-its-target": 1.0}
K = 4


@dataclass(frozen=True)
class Seen:
    """What clients saw of a server at one batch size, and what its counters say."""

    seconds_per_token: float
    length: float
    drafted: float
    busy: float


@dataclass(frozen=True)
class Trial:
    """A server with speculation, its profile, and by batch size what was seen of it and without it."""

    server: VllmServer
    file: Path
    profile: CostProfile
    with_drafts: dict[int, Seen]
    plain: dict[int, Seen]


def seen(server: VllmServer, batch: int, temperature: float = 0.0) -> Seen:
    """Measure with prompts that `calibrate` does not send."""
    plan = SweepPlan(
        prompts=load_prompts(["extraction"]),
        temperatures=(temperature,),
        concurrencies=(batch,),
        requests=max(4, 2 * batch),
        max_tokens=32,
        ignore_eos=True,
        watch=1.0,
    )
    cells = asyncio.run(run_sweep(plan, endpoint(server.url))).record.cells
    tokens = sum(cell.generated_tokens for cell in cells)
    accepted = sum(cell.counters.accepted_tokens or 0.0 for cell in cells if cell.counters)
    drafted = sum(cell.counters.draft_tokens or 0.0 for cell in cells if cell.counters)
    means = [cell.tpot.mean for cell in cells if cell.tpot.mean is not None]
    assert len(means) == len(cells)
    steps = tokens - accepted
    return Seen(
        seconds_per_token=sum(means) / len(means),
        length=tokens / steps,
        drafted=drafted / steps,
        busy=max(1.0, sum(a.seconds for cell in cells for a in cell.answers) / sum(c.seconds for c in cells)),
    )


@pytest.fixture(scope="module")
def trials(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trial]:
    """Calibrate each drafter at batches of 1 and 8, then measure on other prompts."""
    plain, *others = servers.running("deep", None, *(servers.drafter(name, K) for name in DRAFTERS.values()))
    without = {batch: seen(plain, batch) for batch in BATCHES}
    found = {}
    for name, server in zip(DRAFTERS, others, strict=True):
        file = tmp_path_factory.mktemp("calibrate") / f"{name}.yaml"
        done = run(
            *("calibrate", server.url, "--plain-url", plain.url, "--method", "draft_model"),
            *("--temperature", str(TEMPERATURES[name]), "--concurrency", "1,8", "--context", "0"),
            *("--max-tokens", "32", "--out", str(file), "--quiet"),
            within=600,
        )
        assert done.code == 0, done.err
        (profile,) = parse_profiles(yaml.safe_load(file.read_text("utf-8"))).values()
        drafting = {batch: seen(server, batch, TEMPERATURES[name]) for batch in BATCHES}
        found[name] = Trial(server, file, profile, drafting, without)
    return found


@pytest.mark.parametrize("name", DRAFTERS)
def test_the_calibrated_speedup_is_that_of_the_clients(trials: dict[str, Trial], name: str) -> None:
    """At every batch size within a tenth, and on the same side of 1."""
    trial = trials[name]
    assert trial.profile.basis is Basis.CALIBRATED
    told = {}
    for batch in BATCHES:
        drafting, plain = trial.with_drafts[batch], trial.plain[batch]
        true = plain.seconds_per_token / drafting.seconds_per_token
        told[batch] = (drafting.length / trial.profile.step_cost(drafting.drafted, drafting.busy), true)
    print(name, told)
    for estimated, true in told.values():
        assert estimated == pytest.approx(true, rel=0.1), told
        assert (estimated > 1) is (true > 1), told


def test_a_drafter_as_large_as_its_target(trials: dict[str, Trial]) -> None:
    """With --spec.config alone the payoff is unknown; after `calibrate` it is harmful, as clients see it."""
    trial = trials["as-large-as-its-target"]
    for batch in BATCHES:
        assert trial.with_drafts[batch].seconds_per_token > trial.plain[batch].seconds_per_token

    # The name says nothing of its size.
    config = json.dumps({"method": "draft_model", "model": "some/draft", "num_speculative_tokens": K})
    verdicts = {}
    for flags in ((), ("--cost.file", str(trial.file))):
        process = _check_under_load(trial.server, "--spec.config", config, *flags)
        verdicts[len(flags)] = process
    assert verdicts == {0: "unknown", 2: "harmful"}


def _check_under_load(server: VllmServer, *flags: str) -> str:
    """Return the verdict of `check` while requests run."""
    done = threading.Event()

    def load() -> None:
        while not done.is_set():
            seen(server, 2, 1.0)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        outcome = run(
            "check", server.url, "--for", "15s", "--json", "--threshold", "minimum_drafts=20", *flags
        )
    finally:
        done.set()
        thread.join()
    (engine,) = json.loads(outcome.out)["targets"][0]["engines"]
    return str(engine["payoff"]["verdict"])
