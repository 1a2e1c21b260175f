"""A Grafana, and what pushes to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from grafana.fake_grafana import FakeGrafana
from grafana.pusher import Pusher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def grafana() -> AsyncIterator[FakeGrafana]:
    """An empty Grafana."""
    async with FakeGrafana() as server:
        yield server


@pytest.fixture
def push(tmp_path: Path) -> Pusher:
    """The command with three dashboards."""
    return Pusher(tmp_path)
