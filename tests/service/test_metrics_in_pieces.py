"""`/metrics` is written in pieces: the same bytes as in one, and others have their turn meanwhile."""

import asyncio
import gzip
import time
from collections.abc import Iterator

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from golden.cases import CASES, run
from golden.test_golden import ACCEPT
from vllm_specdec_exporter.publish.collector import ResultCollector
from vllm_specdec_exporter.serve.endpoints import make_negotiating_handler


async def scraped(
    registry: CollectorRegistry, accept: str, query: str = "", encoding: str = ""
) -> web.Response:
    """What a scrape of this registry gets."""
    headers = {"Accept": accept, "Accept-Encoding": encoding}
    request = make_mocked_request("GET", f"/metrics{query}", headers)
    return await make_negotiating_handler(registry)(request)  # type: ignore[return-value]


@pytest.mark.parametrize("accept", ACCEPT.values(), ids=ACCEPT)
async def test_the_same_bytes(accept: str) -> None:
    """The joined pieces are what prometheus_client writes at once, with all families or some."""
    result = run(next(case for case in CASES if case.name == "ngram-requests"))
    registry = CollectorRegistry()
    registry.register(ResultCollector(lambda: result))
    encode, content_type = choose_encoder(accept)
    names = ["vllm_specdec_up", "vllm_specdec_accepted_tokens_per_draft_count"]

    whole = await scraped(registry, accept)
    assert whole.body == encode(registry)
    assert whole.headers["Content-Type"] == content_type
    packed = await scraped(registry, accept, encoding="gzip, deflate")
    assert gzip.decompress(packed.body) == whole.body  # type: ignore[arg-type]
    some = await scraped(registry, accept, "?" + "&".join(f"name[]={name}" for name in names))
    assert some.body == encode(registry.restricted_registry(names))  # type: ignore[arg-type]


async def test_a_version_that_is_none() -> None:
    """Whoever asks for one gets what everybody understands."""
    for kind in ("text/plain", "application/openmetrics-text"):
        answer = await scraped(CollectorRegistry(), f"{kind};version=x")
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain")


class _Slow(Collector):
    """A hundred families that take a millisecond each."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for number in range(100):
            time.sleep(0.001)
            yield GaugeMetricFamily(f"family_{number}", "Of many.", value=number)

    def describe(self) -> list[GaugeMetricFamily]:
        return []


async def test_others_have_their_turn() -> None:
    """A scrape that takes long does not stop the loop for all that time."""
    registry = CollectorRegistry()
    registry.register(_Slow())
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await scraped(registry, "text/plain")
    task.cancel()
    assert turns >= 90
