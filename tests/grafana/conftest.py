"""A Grafana, and what pushes to it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from grafana.fake_grafana import FakeGrafana
from grafana.pusher import Pusher


@pytest.fixture
async def grafana() -> AsyncIterator[FakeGrafana]:
    """An empty Grafana."""
    async with FakeGrafana() as server:
        yield server


@pytest.fixture
def push(tmp_path: Path) -> Pusher:
    """The command with three dashboards."""
    return Pusher(tmp_path)
