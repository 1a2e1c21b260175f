"""The series budget in docs/scaling.md: the formula from the metric table, held against real /metrics."""

from __future__ import annotations

import contextlib
import gzip
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from dashboards.worlds import open_world, shared_folder
from per_request.traffic import CHAT, CODE, Kind, observations
from scaling.budget import (
    PROCESS_SERIES,
    Requests,
    Setup,
    formula,
    formula_of_requests,
    of_requests,
    series_of,
    table,
    total,
)
from scaling.clusters import ROOT, SAMPLES
from support.calibrated import calibrated_file
from vllm_specdec_exporter.commands.baseline.recorder import Recorder
from vllm_specdec_exporter.commands.simulate import Simulation, SimulationConfig
from vllm_specdec_exporter.commands.simulate.command import SimulatorServer
from vllm_specdec_exporter.commands.simulate.simulation import parse_scenario
from vllm_specdec_exporter.economics.baseline import FORMAT, Baseline, encode
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.measures.history import Sample
from vllm_specdec_exporter.publish.metrics import METRICS
from vllm_specdec_exporter.publish.metrics.metric import Kind as MetricKind
from vllm_specdec_exporter.publish.metrics.metric import Scope
from vllm_specdec_exporter.requests.observation import Source
from vllm_specdec_exporter.serve import configuration as config
from vllm_specdec_exporter.serve.endpoints import create_app
from vllm_specdec_exporter.serve.exporter import Exporter
from vllm_specdec_exporter.serve.tap.tap import Tap

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.full

CAPTURES = ROOT / "tests" / "data" / "captures" / "rendered"
MODEL = "the-model"
#: Longer than the windows, which then are full.
_SECONDS, _POLL = 420, 5


def _simulation(engines: int, k: int) -> Simulation:
    """Return a server with two loads in turn and few prompt tokens: so the time of a step is learned."""
    phases = [
        {"phase": "healthy", "seconds": 30, "clients": clients * engines, "prompt_tokens": 20}
        for _ in range(40)
        for clients in (4, 24)
    ]
    scenario = parse_scenario({"phases": phases}, "two loads")
    config = SimulationConfig(models=(MODEL,), engines=engines, num_speculative_tokens=k, scenario=scenario)
    return Simulation(config, seed=7)


async def published(
    setup: Setup, baseline: Path | None = None, token: Path | None = None, kinds: tuple[Kind, ...] = ()
) -> Counter[str]:
    """Return how many series of each name a real exporter beside a simulated server has on /metrics.

    Args:
        setup: of the server.
        baseline: its file.
        token: file of the token for pushes; with it there is a tap too.
        kinds: of requests that the tap saw.
    """
    simulation = _simulation(setup.engines, setup.k)
    flags: dict[str, object] = {
        "spec.config": f'{{"method": "eagle3", "num_speculative_tokens": {setup.k}}}',
        "cost.file": calibrated_file(),
    }
    if setup.windows != 2:
        flags["window"] = [f"{60 * number}s" for number in range(1, setup.windows + 1)]
    if baseline is not None:
        flags["baseline.file"] = str(baseline)
    if token is not None:
        flags |= {"push.bearer-token-file": str(token), "tap.listen-address": "127.0.0.1:0"}
        flags["requests.tenant"] = ["acme", "globex"]
    async with SimulatorServer(simulation, speed=0) as server, contextlib.AsyncExitStack() as stack:
        now = 0.0
        given = {"vllm.url": [server.url], **flags}
        exporter = Exporter(lambda: config.load(given, {}), clock=lambda: now)
        client = await stack.enter_async_context(TestClient(TestServer(create_app(exporter))))
        if exporter.config.tap is not None:
            exporter.requests.attach_tap(Tap(exporter.config.tap))
            for seen in observations(kinds):
                exporter.requests.observe(Source.TAP, seen)
        (poller,) = exporter._pollers
        stack.push_async_callback(poller.close)
        while now < _SECONDS:
            await server.advance(_POLL)
            now += _POLL
            await poller.poll()
        answer = await client.get("/metrics")
        text = await answer.text()
    return Counter(
        sample.name for family in text_string_to_metric_families(text) for sample in family.samples
    )


def expected(setup: Setup) -> Counter[str]:
    """Return what the metric table says for each name."""
    found: Counter[str] = Counter()
    groups = setup.requests.groups if setup.requests else 0
    for metric in METRICS:
        count = series_of(metric, setup)
        if metric.kind is MetricKind.HISTOGRAM:
            each = groups if metric.scope is Scope.GROUP else setup.engines
            found[f"{metric.full_name}_bucket"] = count - 2 * each
            found[f"{metric.full_name}_count"] = found[f"{metric.full_name}_sum"] = each
        elif count:
            found[metric.full_name] = count
    return found


def own(found: Counter[str]) -> Counter[str]:
    """Leave out the series of the process."""
    return Counter({name: count for name, count in found.items() if name.startswith("vllm_specdec_")})


@pytest.mark.parametrize(("k", "engines", "windows"), [(3, 1, 2), (7, 2, 3), (5, 8, 1)])
async def test_the_formula_is_exact(k: int, engines: int, windows: int) -> None:
    """Every name has as many series as the metric table says, and all together as the formula."""
    setup = Setup(k, engines, windows)
    found = await published(setup)
    assert own(found) == expected(setup)
    assert found.total() == total(setup)
    assert found.total() - own(found).total() == PROCESS_SERIES


async def test_a_baseline_adds_what_is_measured(tmp_path: Path) -> None:
    """With a baseline there are speedup, requests and latencies; of latencies at most nine in a window."""
    recorder = Recorder(0.0)
    simulation = _simulation(1, 0)
    version = ""
    for number in range(200):
        simulation.advance(_POLL)
        reading = read(simulation.render("vllm"), latencies=True)
        (engine,) = reading.engines
        version = "0.32.0"
        load = engine.load.requests_running
        recorder.observe(Sample(number * _POLL, engine.counters, load, latencies=engine.latencies))
    path = tmp_path / "baseline.json"
    path.write_bytes(
        encode(Baseline(FORMAT, MODEL, version, "vllm-v1", "2026-11-20T12:00:00Z", recorder.buckets()))
    )
    setup = Setup(5, baseline=True)
    found, budget = own(await published(setup, path)), expected(setup)
    ratios = "vllm_specdec_latency_ratio"
    assert 0 < found.pop(ratios) <= budget.pop(ratios)
    assert found == budget


async def test_single_requests_add_what_their_groups_have(tmp_path: Path) -> None:
    """By model, by group and by tenant; and what the tap and the pushes count whatever comes."""
    token = tmp_path / "token"
    token.write_text("secret")
    code, chat = replace(CODE, requests=30), replace(CHAT, requests=30)
    kinds = (code, chat, replace(chat, temperature=0.6), replace(code, model="an-adapter", requests=50))
    known = Requests(models=2, groups=4, tenants=3, tap=True, push=True)
    setup = Setup(4, requests=known)
    assert own(await published(setup, token=token, kinds=kinds)) == expected(setup)
    nothing = Setup(4, requests=Requests(models=0, groups=0, push=True))
    assert own(await published(nothing, token=token)) == expected(nothing)


def test_what_rules_add_for_engines_and_pods(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Recorded series of each engine and each pod, as the document has them for every K."""
    with open_world("healthy", shared_folder(tmp_path_factory)) as world:
        ks = {
            dict(labels)["model_name"]: int(rows[-1])
            for (name, labels), rows in world.scraped.series.items()
            if name == "vllm_specdec_num_speculative_tokens"
        }
        recorded: Counter[tuple[str, ...]] = Counter()
        for name, pairs in world.recorded.series:
            labels = dict(pairs)
            own = ("model_name",) if name.startswith("model:") else ("model_name", "instance", "engine")
            if not name.startswith(("ALERTS", "namespace:")):
                recorded[name.partition(":")[0], *(labels.get(label, "") for label in own)] += 1
    assert len(set(ks.values())) > 1
    for (level, model, *_), count in recorded.items():
        fixed = {"engine": 9, "instance": 3, "model": 77 + 2 * ks[model]}[level]
        assert count == fixed, (level, model)


@pytest.mark.parametrize(
    ("name", "whole", "kept"),
    [("vllm-0.32.0-1engine-k3.classic", 421, 144), ("vllm-0.32.0-8engine-k5.classic", 3260, 1168)],
)
def test_what_vllm_itself_has(name: str, whole: int, kept: int) -> None:
    """The document's numbers are those of recorded answers, before and behind the agent's sample."""
    body = gzip.decompress((CAPTURES / f"{name}.txt.gz").read_bytes()).decode()
    names = [re.split("[{ ]", line)[0] for line in body.splitlines() if line and not line.startswith("#")]
    jobs = yaml.safe_load((SAMPLES / "remote-write" / "agent.yml").read_text("utf-8"))["scrape_configs"]
    keep = re.compile(jobs[1]["metric_relabel_configs"][0]["regex"])
    assert len(names) == whole
    assert sum(keep.fullmatch(one) is not None for one in names) == kept
    text = (ROOT / "docs" / "scaling.md").read_text("utf-8")
    assert f"{whole:,}" in text
    assert f"{kept:,}" in text


def test_the_document_has_the_formula_and_the_table() -> None:
    """docs/scaling.md says what the metric table gives."""
    text = (ROOT / "docs" / "scaling.md").read_text("utf-8")
    assert f"`{formula()}`" in text
    assert f"`{formula_of_requests()}`" in text
    example = of_requests(Requests(models=1, groups=12, tenants=5), 5)
    assert f"1 model with K=5, 12 groups and 5 tenants: {example:,}" in text
    assert "\n".join(table()) in text
