"""The fake endpoint as a fixture, and shorter waits for it."""

from collections.abc import AsyncIterator

import pytest

from sweep.fake import FakeServer
from vllm_specdec_exporter.commands.sweep import client


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the counters more often: the fake server's are right at once."""
    monkeypatch.setattr(client, "BEAT", 0.02)
    monkeypatch.setattr(client, "QUIET", 0.04)
    monkeypatch.setattr(client, "MAX_BUSY_REST", 0.2)
    monkeypatch.setattr(client, "MAX_REST", 3.0)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as fake:
        yield fake
