"""The exporter beside a real llama.cpp server that accepts at prescribed rates: make
test-llamacpp.

pytest does not collect this file by itself, because it needs the server that install.sh
builds. `UPDATE_GOLDEN=1 make test-llamacpp` writes the answers of these runs and the
table in the documentation anew.
"""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llamacpp.prescribed import COST_FILE, REQUESTS, SETS, differences
from support.exporter import RunningExporter, running_exporter
from support.programs import Program
from vllm_specdec_exporter.observe.result import EngineResult
from vllm_specdec_exporter.publish.snapshot import decode

REPOSITORY = Path(__file__).parents[2]
BUILT = Path(os.environ.get("SPECDEC_LLAMACPP") or REPOSITORY / ".venv-llamacpp")
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))
DATA = REPOSITORY / "tests" / "data" / "upstream"
TABLE = REPOSITORY / "docs" / "reference" / "dialects.md"
BEGIN = "<!-- Written by `UPDATE_GOLDEN=1 make test-llamacpp`. -->\n"
END = "<!-- End. -->\n"

K = 4
SLOTS = 4
TOKENS = 400

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the two models."""
    folder = tmp_path_factory.mktemp("models")
    python = BUILT / "venv" / "bin" / "python"
    script = Path(__file__).with_name("model.py")
    made = subprocess.run(
        [python, script, folder], capture_output=True, text=True, timeout=300
    )
    assert made.returncode == 0, made.stderr
    return folder


@contextmanager
def llama_server(models: Path, rates: tuple[float, ...] = ()) -> Iterator[str]:
    """A server that drafts K tokens and accepts them at these rates, or honestly;
    yields its address.
    """
    # `{port}` is filled in by `Program`.
    flags = (
        f"--spec-type draft-simple --spec-draft-n-max {K} --metrics --no-warmup "
        f"--host 127.0.0.1 --port {{port}} -c 4096 -np {SLOTS} -t 1"
    )
    if rates:
        flags += f" --spec-synth-rates {','.join(f'{rate:g}' for rate in rates)}"
    # Paths may hold spaces, so they are not split.
    command = [f"{BUILT}/llama-server", "-m", f"{models}/target.gguf"]
    command += ["-md", f"{models}/draft.gguf", *flags.split()]
    with Program(command, ready="/health") as program:
        yield program.url


@contextmanager
def exporter(url: str, folder: Path) -> Iterator[RunningExporter]:
    """An exporter beside the server at `url`, with the cost by which the expectations
    were computed.
    """
    costs = folder / "cost.yml"
    costs.write_text(COST_FILE)
    flags = (
        f"--vllm.url={url}",
        f"--cost.file={costs}",
        "--cost.profile=known",
        "--poll.interval=1s",
        "--window=30s",
        "--window=15m",
    )
    with running_exporter(*flags, fast=False) as running:
        running.wait_until_up()
        yield running


def complete(url: str, number: int, tokens: int = TOKENS) -> dict[str, Any]:
    """Let the server generate, and return its timings."""
    body = {
        "prompt": f"request {number}",
        "n_predict": tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    header = {"Content-Type": "application/json"}
    asked = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), header
    )
    with urllib.request.urlopen(asked, timeout=900) as answer:
        return dict(json.loads(answer.read())["timings"])


def metrics_of(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def engine_of(running: RunningExporter) -> EngineResult:
    (target,) = decode(running.get("/api/v1/snapshot").body).targets
    (engine,) = target.engines
    return engine


def run(url: str, running: RunningExporter) -> tuple[EngineResult, int, int]:
    """Make all requests; return what is published once it has them all, and the sums of
    their timings.
    """
    with ThreadPoolExecutor(SLOTS) as pool:
        timings = list(pool.map(lambda number: complete(url, number), range(REQUESTS)))
    drafted = sum(timing["draft_n"] for timing in timings)
    running.wait_for(
        lambda metrics: metrics.value("draft_tokens_total") == drafted,
        "draft_tokens_total",
    )
    accepted = sum(timing["draft_n_accepted"] for timing in timings)
    return engine_of(running), drafted, accepted


def row(name: str, engine: EngineResult) -> str:
    window = engine.window(engine.judged_window)
    wanted = SETS[name]
    cells = (
        name,
        f"{window.drafts or 0:,.0f}",
        " ".join(f"{100 * rate:g}" for rate in wanted.rates),
        " ".join(f"{100 * rate:.1f}" for rate in window.position_acceptance_ratio),
        f"{wanted.length:.2f}",
        f"{window.mean_acceptance_length:.2f}",
        f"{engine.payoff.verdict}, {engine.payoff.speedup:.2f}x",
        f"{engine.advice.action}, K={engine.advice.num_speculative_tokens}",
    )
    return f"| {' | '.join(cells)} |\n"


def test_what_is_published_agrees_with_the_prescribed_rates(
    models: Path, tmp_path: Path
) -> None:
    measured = {}
    rows = []
    for name, wanted in SETS.items():
        with (
            llama_server(models, wanted.rates) as url,
            exporter(url, tmp_path) as running,
        ):
            engine, drafted, accepted = run(url, running)
            assert engine.counters.draft_tokens == drafted, name
            assert engine.counters.accepted_tokens == accepted, name
            if wrong := differences(engine, wanted, REQUESTS):
                measured[name] = wrong
            rows.append(row(name, engine))
            if UPDATE:
                (DATA / f"llamacpp-synth/{name}.txt").write_text(metrics_of(url))
    print("\n", *rows, sep="")
    assert measured == {}
    if UPDATE:
        head, remainder = TABLE.read_text().split(BEGIN)
        title = (
            "| rates | drafts | prescribed, % | published | length | published | "
            "verdict | advice |\n"
        )
        table = title + "|---|---|---|---|---|---|---|---|\n" + "".join(rows)
        TABLE.write_text(head + BEGIN + table + END + remainder.split(END, 1)[1])


def test_honest_drafts_are_counted_as_their_responses_say(
    models: Path, tmp_path: Path
) -> None:
    """Without prescribed rates: the sums of the timings of all requests."""
    with llama_server(models) as url, exporter(url, tmp_path) as running:
        engine, drafted, accepted = run(url, running)
    assert engine.counters.draft_tokens == drafted
    assert engine.counters.accepted_tokens == accepted
    assert engine.num_speculative_tokens == K
