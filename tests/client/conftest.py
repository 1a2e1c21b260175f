"""For tests of the client library: a vLLM, an exporter and a reporter, started once for each module."""

from collections.abc import Iterator

import pytest

from client.collector import Collector, taken
from support.fake_vllm import FakeVLLM, Script
from vllm_specdec_exporter.client import Reporter


@pytest.fixture(scope="module")
def running_vllm() -> Iterator[FakeVLLM]:
    with FakeVLLM() as server:
        yield server


@pytest.fixture
def vllm(running_vllm: FakeVLLM) -> FakeVLLM:
    """A server that has not been asked anything."""
    running_vllm.script = Script()
    running_vllm.asked.clear()
    return running_vllm


@pytest.fixture(scope="module")
def running_collector() -> Iterator[Collector]:
    with Collector() as server:
        yield server


@pytest.fixture
def collector(running_collector: Collector) -> Collector:
    """An exporter to which nothing was pushed."""
    running_collector.reply = taken
    running_collector.pushes.clear()
    return running_collector


@pytest.fixture
def reporter(collector: Collector) -> Iterator[Reporter]:
    with Reporter(collector.url, token="a-token", timeout=60) as reporter:
        yield reporter
