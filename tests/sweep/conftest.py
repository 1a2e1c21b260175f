"""The fake endpoint as a fixture, and shorter waits for it."""

from collections.abc import AsyncIterator

import pytest

from sweep.fake import FakeServer
from vllm_specdec_exporter.commands.sweep import counters, runner


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the counters more often: the fake server's are right at once."""
    monkeypatch.setattr(counters, "BEAT", 0.02)
    monkeypatch.setattr(runner, "BUSY_LIMIT", 0.2)
    monkeypatch.setattr(runner, "REST_LIMIT", 3.0)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as fake:
        yield fake
