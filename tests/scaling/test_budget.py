"""The numbers of series in docs/scaling.md, held against the /metrics of a real exporter."""

import contextlib
import gzip
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from dashboards.worlds import open_world, shared_folder
from per_request.traffic import CHAT, CODE, Kind, observations
from scaling.clusters import ROOT, SAMPLES
from support.calibrated import calibrated_file
from vllm_specdec_exporter.commands.baseline.recorder import Recorder
from vllm_specdec_exporter.commands.simulate import Simulation, SimulationConfig, SimulatorServer
from vllm_specdec_exporter.commands.simulate.simulation import parse_scenario
from vllm_specdec_exporter.economics.baseline import FORMAT, Baseline, encode
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.measures.history import Sample
from vllm_specdec_exporter.requests.observation import Source
from vllm_specdec_exporter.serve import configuration as config
from vllm_specdec_exporter.serve.endpoints import create_app
from vllm_specdec_exporter.serve.exporter import Exporter
from vllm_specdec_exporter.serve.tap.tap import Tap

pytestmark = pytest.mark.full

CAPTURES = ROOT / "tests" / "data" / "captures" / "rendered"
DOCUMENT = (ROOT / "docs" / "scaling.md").read_text("utf-8")
MODEL = "the-model"
#: Longer than the windows, which then are full.
_SECONDS, _POLL = 320, 10


def near(series: int) -> object:
    """A number of series for a budget: a metric more does not change what anybody plans."""
    return pytest.approx(series, rel=0.1, abs=3)


def documented(pattern: str) -> list[int]:
    """Return the numbers in the one place of the document that has this form; N stands for a number."""
    found = re.search(re.escape(pattern).replace("N", r"([\d,]+)"), DOCUMENT)
    assert found is not None, pattern
    return [int(number.replace(",", "")) for number in found.groups()]


def total(k: int, engines: int = 1, windows: int = 2) -> int:
    """Return how many series the document's formula gives."""
    fixed, engine, per_k, window, per_window_k = documented("`N + engines x (N + N K + windows x (N + N K))`")
    (single,) = documented("and N more if a model has a single engine")
    each = engine + per_k * k + windows * (window + per_window_k * k)
    return fixed + engines * each + (single if engines == 1 else 0)


def total_of_requests(k: int, models: int = 0, groups: int = 0, tenants: int = 0) -> int:
    """Return how many series the document's formula gives for single requests behind a tap."""
    fixed, model, per_k, group, tenant = documented("`N + models x (N + N K) + groups x N + tenants x N`")
    return fixed + models * (model + per_k * k) + groups * group + tenants * tenant


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
    k: int,
    engines: int = 1,
    windows: int = 2,
    *,
    baseline: Path | None = None,
    kinds: tuple[Kind, ...] | None = None,
) -> Counter[str]:
    """Return how many series of each name a real exporter beside a simulated server has on /metrics.

    The tap saw requests of these kinds; without kinds there is no tap.
    """
    simulation = _simulation(engines, k)
    flags: dict[str, object] = {
        "spec.config": f'{{"method": "eagle3", "num_speculative_tokens": {k}}}',
        "cost.file": calibrated_file(),
    }
    if windows != 2:
        flags["window"] = [f"{60 * number}s" for number in range(1, windows + 1)]
    if baseline is not None:
        flags["baseline.file"] = str(baseline)
    if kinds is not None:
        flags |= {"tap.listen-address": "127.0.0.1:0", "requests.tenant-header": "x-tenant"}
        flags["requests.tenant"] = ["acme", "globex"]
    async with SimulatorServer(simulation, speed=0) as server, contextlib.AsyncExitStack() as stack:
        now = 0.0
        given = {"vllm.url": [server.url], **flags}
        exporter = Exporter(lambda: config.load(given, {}), clock=lambda: now)
        client = await stack.enter_async_context(TestClient(TestServer(create_app(exporter))))
        if exporter.config.tap is not None:
            exporter.requests.attach_tap(Tap(exporter.config.tap))
            for seen in observations(kinds or ()):
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


@pytest.mark.parametrize(("k", "engines", "windows"), [(3, 1, 2), (7, 2, 3), (5, 3, 1)])
async def test_the_formula_is_near(k: int, engines: int, windows: int) -> None:
    assert (await published(k, engines, windows)).total() == near(total(k, engines, windows))


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
    found = await published(5, baseline=path)
    ratios, most = found.pop("vllm_specdec_latency_ratio"), 2 * 9
    assert 0 < ratios <= most
    assert found.total() + most == near(documented("| 5 | N | N | N | N |")[-1])


async def test_single_requests_add_what_their_groups_have() -> None:
    """By model, by group and by tenant; and what the tap counts in any case."""
    code, chat = replace(CODE, requests=30), replace(CHAT, requests=30)
    kinds = (code, chat, replace(chat, temperature=0.6), replace(code, model="an-adapter", requests=50))
    some, none = await published(4, kinds=kinds), await published(4, kinds=())
    plain = (await published(4)).total()
    assert some.total() - plain == near(total_of_requests(4, models=2, groups=4, tenants=3))
    assert none.total() - plain == near(total_of_requests(4))


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
        fixed = {"engine": 9, "instance": 3, "model": 79 + 2 * ks[model]}[level]
        assert count == fixed, (level, model)


@pytest.mark.parametrize(
    ("name", "whole", "kept"),
    [("vllm-0.32.0-1engine-k3.classic", 421, 116), ("vllm-0.32.0-8engine-k5.classic", 3260, 944)],
)
def test_what_vllm_itself_has(name: str, whole: int, kept: int) -> None:
    """The document's numbers are those of recorded answers, before and behind the agent's sample."""
    body = gzip.decompress((CAPTURES / f"{name}.txt.gz").read_bytes()).decode()
    names = [re.split("[{ ]", line)[0] for line in body.splitlines() if line and not line.startswith("#")]
    jobs = yaml.safe_load((SAMPLES / "remote-write" / "agent.yml").read_text("utf-8"))["scrape_configs"]
    keep = re.compile(jobs[1]["metric_relabel_configs"][0]["regex"])
    assert len(names) == whole
    assert sum(keep.fullmatch(one) is not None for one in names) == kept
    assert f"{whole:,}" in DOCUMENT
    assert f"{kept:,}" in DOCUMENT


def test_the_examples_follow_from_the_formulas() -> None:
    more = {k: documented(f"| {k} | N | N | N | N |") for k in (3, 5, 7)}
    with_baseline = {k: row.pop() - row[0] for k, row in more.items()}
    assert more == {k: [total(k, engines) for engines in (1, 2, 8)] for k in more}
    assert len(set(with_baseline.values())) == 1
    example = documented("1 model with K=5, 12 groups and 5 tenants: N.")
    assert example == [total_of_requests(5, models=1, groups=12, tenants=5)]
