"""How many series an exporter publishes: counted on real ones, and written into
docs/operations.md.
"""

import asyncio
import contextlib
import sys
from collections import Counter

from aiohttp.test_utils import TestClient, TestServer
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from per_request.traffic import CHAT, CODE, Kind, observations
from support.calibrated import calibrated_file
from support.repository import ROOT
from vllm_specdec_exporter.commands.simulate import (
    Simulation,
    SimulationConfig,
    SimulatorServer,
)
from vllm_specdec_exporter.commands.simulate.simulation import parse_scenario
from vllm_specdec_exporter.per_request.observation import Source
from vllm_specdec_exporter.publish.metrics import METRICS, PREFIX, MetricScope
from vllm_specdec_exporter.serve.endpoints import create_app
from vllm_specdec_exporter.serve.exporter import Exporter
from vllm_specdec_exporter.serve.tap.tap import Tap
from vllm_specdec_exporter.settings import configuration as config

PAGE = ROOT / "docs/operations.md"
BEGIN = "<!-- series: written by `make generate` -->"
END = "<!-- end of series -->"
MODEL = "the-model"
#: Longer than the windows, which then are full.
_SECONDS = 320
_POLL = 10
#: Requests in four groups of two models and three tenants, with drafts of four tokens.
_CODE = replace(CODE, requests=30)
_CHAT = replace(CHAT, requests=30)
KINDS = (
    _CODE,
    _CHAT,
    replace(_CHAT, temperature=0.6),
    replace(_CODE, model="an-adapter", requests=50),
)
REQUESTS_K = 4
MODELS = 2
GROUPS = 4
TENANTS = 3


def _simulation(engines: int, k: int) -> Simulation:
    """Return a server with two loads in turn and few prompt tokens: so the time of a
    step is learned.
    """
    phase = {"phase": "healthy", "seconds": 30, "prompt_tokens": 20}
    few = {**phase, "clients": 4 * engines}
    many = {**phase, "clients": 24 * engines}
    phases = [few, many] * 40
    scenario = parse_scenario({"phases": phases}, "two loads")
    configuration = SimulationConfig(
        model=MODEL, engines=engines, num_speculative_tokens=k, scenario=scenario
    )
    return Simulation(configuration, seed=7)


async def published(
    k: int,
    engines: int = 1,
    *,
    kinds: tuple[Kind, ...] | None = None,
) -> Counter[tuple[str, bool]]:
    """Return how many series of each name, without and with positions, a real exporter
    has on /metrics.

    It is beside a simulated server. The tap saw requests of these kinds; without kinds
    there is no tap.
    """
    flags: dict[str, object] = {
        "spec.config": f'{{"method": "eagle3", "num_speculative_tokens": {k}}}',
        "cost.file": calibrated_file(),
    }
    if kinds is not None:
        flags |= {
            "tap.listen-address": "127.0.0.1:0",
            "requests.tenant-header": "x-tenant",
        }
        flags["requests.tenant"] = ["acme", "globex"]
    simulation = _simulation(engines, k)
    async with (
        SimulatorServer(simulation, speed=0) as server,
        contextlib.AsyncExitStack() as stack,
    ):
        time = 0.0
        settings = {"vllm.url": [server.url], **flags}
        exporter = Exporter(lambda: config.load(settings, {}), clock=lambda: time)
        client = await stack.enter_async_context(
            TestClient(TestServer(create_app(exporter)))
        )
        if exporter.config.tap is not None:
            exporter.requests.attach_tap(Tap(exporter.config.tap))
            for observation in observations(kinds or ()):
                exporter.requests.observe(Source.TAP, observation)
        (poller,) = exporter._pollers
        stack.push_async_callback(poller.close)
        while time < _SECONDS:
            await server.advance(_POLL)
            time += _POLL
            await poller.poll()
        text = await (await client.get("/metrics")).text()
    counts: Counter[tuple[str, bool]] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix(PREFIX)
            counts[name, "position" in sample.labels] += 1
    return counts


async def of_requests() -> dict[str, int]:
    """Return how many series single requests behind a tap add: in all, and for each of
    these.
    """
    scopes = {row.name: row.scope for row in METRICS}
    counted: Counter[tuple[MetricScope, bool]] = Counter()
    series = await published(REQUESTS_K, kinds=KINDS)
    for (name, by_position), number in series.items():
        base = name
        if name not in scopes:
            base = name.rpartition("_")[0]  # a part of a histogram
        if base in scopes:
            counted[scopes[base], by_position] += number
    models = counted[MetricScope.MODEL, False] + counted[MetricScope.RECENT, False]
    positions = counted[MetricScope.MODEL, True] + counted[MetricScope.RECENT, True]
    return {
        "fixed": counted[MetricScope.REQUESTS, False],
        "model": models // MODELS,
        "position": positions // (MODELS * REQUESTS_K),
        "group": counted[MetricScope.GROUP, False] // GROUPS,
        "tenant": counted[MetricScope.TENANT, False] // TENANTS,
    }


async def block() -> str:
    """Return what the page says of the number of series."""
    rows = []
    for k in (3, 5, 7):
        counts = [(await published(k, engines)).total() for engines in (1, 2, 8)]
        rows.append(f"| {k} | " + " | ".join(f"{count:,}" for count in counts) + " |")
    table = "\n".join(rows)
    more = await of_requests()
    return f"""\
For a vLLM with speculation, an exporter publishes this many series, by K and by
engines (ranks of data parallelism) of one model. Each further engine adds
the same number.

| K | 1 engine | 2 engines | 8 engines |
|---|---|---|---|
{table}

[Single requests](requests.md) add {more["fixed"]}, and

- {more["model"]} for each model, and {more["position"]} for each of its positions
- {more["group"]} for each observed pair of temperature and type
- {more["tenant"]} for each tenant"""


def main(arguments: list[str]) -> int:
    """Write the block into the page, or return by the exit code whether it is
    current.
    """
    page = PAGE.read_text("utf-8")
    head, _, remainder = page.partition(f"{BEGIN}\n")
    tail = remainder.partition(f"\n{END}")[2]
    wanted = f"{head}{BEGIN}\n\n{asyncio.run(block())}\n\n{END}{tail}"
    if arguments != ["--check"]:
        PAGE.write_text(wanted, "utf-8")
    elif page != wanted:
        sys.stderr.write(f"not current: {PAGE.name}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
