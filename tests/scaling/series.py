"""How many series an exporter publishes: counted on real ones, and written into docs/operations.md.

PYTHONPATH=tests python -m scaling.series          # writes the block
PYTHONPATH=tests python -m scaling.series --check  # fails if it is not current
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from per_request.traffic import CHAT, CODE, Kind, observations
from support.calibrated import calibrated_file
from vllm_specdec_exporter.commands.baseline.recorder import Recorder
from vllm_specdec_exporter.commands.simulate import Simulation, SimulationConfig, SimulatorServer
from vllm_specdec_exporter.commands.simulate.simulation import parse_scenario
from vllm_specdec_exporter.economics.baseline import FORMAT, Baseline, encode
from vllm_specdec_exporter.engines import read
from vllm_specdec_exporter.measures.history import Sample
from vllm_specdec_exporter.publish.metrics import METRICS, PREFIX, Scope
from vllm_specdec_exporter.requests.observation import Source
from vllm_specdec_exporter.serve import configuration as config
from vllm_specdec_exporter.serve.endpoints import create_app
from vllm_specdec_exporter.serve.exporter import Exporter
from vllm_specdec_exporter.serve.tap.tap import Tap

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
BEGIN, END = "<!-- series: written by `make generate` -->", "<!-- end of series -->"
MODEL = "the-model"
#: Longer than the windows, which then are full.
_SECONDS, _POLL = 320, 10
#: Ratios of latencies of a window: three latencies with three percentiles each.
_LATENCY_RATIOS = 9
#: Requests in four groups of two models and three tenants, with drafts of four tokens.
_CODE, _CHAT = replace(CODE, requests=30), replace(CHAT, requests=30)
KINDS = (_CODE, _CHAT, replace(_CHAT, temperature=0.6), replace(_CODE, model="an-adapter", requests=50))
REQUESTS_K, MODELS, GROUPS, TENANTS = 4, 2, 4, 3


@dataclass(frozen=True)
class Formula:
    """How many series there are, by engines of one model, K and windows."""

    fixed: int
    engine: int
    engine_k: int  # for each engine and K
    window: int  # for each engine and window
    window_k: int  # for each engine, window and K
    single: int  # more, if there is one engine only

    def total(self, k: int, engines: int = 1, windows: int = 2) -> int:
        """Return the number of series."""
        each = self.engine + self.engine_k * k + windows * (self.window + self.window_k * k)
        return self.fixed + engines * each + (self.single if engines == 1 else 0)


@dataclass(frozen=True)
class RequestFormula:
    """How many series single requests behind a tap add."""

    fixed: int
    model: int
    model_k: int  # for each model and K
    group: int
    tenant: int

    def total(self, k: int, models: int = 0, groups: int = 0, tenants: int = 0) -> int:
        """Return the number of series."""
        return (
            self.fixed
            + models * (self.model + self.model_k * k)
            + groups * self.group
            + tenants * self.tenant
        )


def _simulation(engines: int, k: int) -> Simulation:
    """Return a server with two loads in turn and few prompt tokens: so the time of a step is learned."""
    phases = [
        {"phase": "healthy", "seconds": 30, "clients": clients * engines, "prompt_tokens": 20}
        for _ in range(40)
        for clients in (4, 24)
    ]
    scenario = parse_scenario({"phases": phases}, "two loads")
    configuration = SimulationConfig(
        model=MODEL, engines=engines, num_speculative_tokens=k, scenario=scenario
    )
    return Simulation(configuration, seed=7)


async def published(
    k: int,
    engines: int = 1,
    windows: int = 2,
    *,
    baseline: Path | None = None,
    kinds: tuple[Kind, ...] | None = None,
) -> Counter[tuple[str, bool]]:
    """Return how many series of each name, without and with positions, a real exporter has on /metrics.

    It is beside a simulated server. The tap saw requests of these kinds; without kinds there is no tap.
    """
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
    simulation = _simulation(engines, k)
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
        text = await (await client.get("/metrics")).text()
    return Counter(
        (sample.name.removeprefix(PREFIX), "position" in sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    )


async def formula() -> Formula:
    """Return the formula, from six exporters."""

    async def count(k: int, engines: int, windows: int) -> int:
        return (await published(k, engines, windows)).total()

    base, more_k = await count(3, 2, 1), await count(5, 2, 1)
    more_windows, more_of_both = await count(3, 2, 2), await count(5, 2, 2)
    per_engine = await count(3, 3, 1) - base
    window_k = (more_of_both - more_windows - more_k + base) // 4
    window = (more_windows - base) // 2 - 3 * window_k
    engine_k = (more_k - base) // 4 - window_k
    engine = per_engine - 3 * engine_k - window - 3 * window_k
    result = Formula(base - 2 * per_engine, engine, engine_k, window, window_k, 0)
    return replace(result, single=await count(3, 1, 1) - result.total(3, 1, 1))


async def formula_of_requests() -> RequestFormula:
    """Return the formula for single requests, from one exporter."""
    scopes = {row.name: row.scope for row in METRICS}
    counted: Counter[tuple[Scope, bool]] = Counter()
    for (name, by_position), number in (await published(REQUESTS_K, kinds=KINDS)).items():
        base = name if name in scopes else name.rpartition("_")[0]  # a part of a histogram
        if base in scopes:
            counted[scopes[base], by_position] += number
    of_models = (Scope.MODEL, Scope.RECENT)
    return RequestFormula(
        fixed=counted[Scope.REQUESTS, False],
        model=sum(counted[scope, False] for scope in of_models) // MODELS,
        model_k=sum(counted[scope, True] for scope in of_models) // (MODELS * REQUESTS_K),
        group=counted[Scope.GROUP, False] // GROUPS,
        tenant=counted[Scope.TENANT, False] // TENANTS,
    )


async def of_a_baseline(k: int = 5) -> int:
    """Return how many series a baseline adds to one engine with two windows, at most."""
    recorder, simulation = Recorder(0.0), _simulation(1, 0)
    for number in range(200):
        simulation.advance(_POLL)
        (engine,) = read(simulation.render("vllm"), latencies=True).engines
        load = engine.load.requests_running
        recorder.observe(Sample(number * _POLL, engine.counters, load, latencies=engine.latencies))
    recorded = Baseline(FORMAT, MODEL, "0.32.0", "vllm-v1", "2026-11-20T12:00:00Z", recorder.buckets())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "baseline.json"
        path.write_bytes(encode(recorded))
        with_one, without = await published(k, baseline=path), await published(k)
    ratios = with_one.pop(("latency_ratio", False))
    assert 0 < ratios <= 2 * _LATENCY_RATIOS
    return with_one.total() + 2 * _LATENCY_RATIOS - without.total()


async def block() -> str:
    """Return what the page says of the number of series."""
    own, requests, baseline = await formula(), await formula_of_requests(), await of_a_baseline()
    rows = "\n".join(
        f"| {k} | {one:,} | {own.total(k, 2):,} | {own.total(k, 8):,} | {one + baseline:,} |"
        for k in (3, 5, 7)
        for one in [own.total(k)]
    )
    of_window = f"({own.window} + {own.window_k} K)"
    of_models = f"models x ({requests.model} + {requests.model_k} K)"
    return f"""\
For a vLLM with speculation, an exporter publishes this many series, by engines (ranks of data parallelism)
of one model, K, and windows (2 by default):

`{own.fixed} + engines x ({own.engine} + {own.engine_k} K + windows x {of_window})`

and {own.single} more if a model has a single engine (the advised schedule). The formula is exact and tested:

| K | 1 engine | 2 engines | 8 engines | 1 engine with a baseline, at most |
|---|---|---|---|---|
{rows}

[Single requests](requests.md) add more. A group is an observed pair of temperature and type, with
four histograms:

`{requests.fixed} + {of_models} + groups x {requests.group} + tenants x {requests.tenant}`

For 1 model with K=5, 12 groups and 5 tenants: {requests.total(5, 1, 12, 5):,}."""


def main(words: list[str]) -> int:
    """Write the block into the page, or return by the exit code whether it is current."""
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(f"{BEGIN}\n")
    after = rest.partition(f"\n{END}")[2]
    wanted = f"{before}{BEGIN}\n\n{asyncio.run(block())}\n\n{END}{after}"
    if words != ["--check"]:
        PAGE.write_text(wanted, "utf-8")
    elif page != wanted:
        sys.stderr.write(f"not current: {PAGE.name}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
