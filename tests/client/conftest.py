"""For tests of the client library: a vLLM and an exporter, started once for each
module.
"""

from collections.abc import Iterator

import pytest

from client.collector import Collector, accepted
from support.fake_vllm import FakeVLLM, Script


@pytest.fixture(scope="module")
def running_vllm() -> Iterator[FakeVLLM]:
    with FakeVLLM() as server:
        yield server


@pytest.fixture
def vllm(running_vllm: FakeVLLM) -> FakeVLLM:
    """A server without requests."""
    running_vllm.script = Script()
    running_vllm.asked.clear()
    return running_vllm


@pytest.fixture(scope="module")
def running_collector() -> Iterator[Collector]:
    with Collector() as server:
        yield server


@pytest.fixture
def collector(running_collector: Collector) -> Collector:
    """An exporter without pushes."""
    running_collector.reply = accepted
    running_collector.pushes.clear()
    return running_collector
