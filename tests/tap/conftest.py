"""A server and a tap before it."""

from collections.abc import AsyncIterator

import pytest

from tap.ends import Road, road


@pytest.fixture
async def built() -> AsyncIterator[Road]:
    """Both run; at the end there are no connections."""
    async with road() as running:
        yield running
