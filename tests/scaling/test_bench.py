"""The benchmark behind the sizing table measures what it says: with a small fleet, and ratios only."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scaling.clusters import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

pytestmark = pytest.mark.full

SMALL, LARGE = 2, 8


@pytest.fixture(scope="module")
def scale() -> Iterator[ModuleType]:
    """The benchmark's module, which stands beside those that it imports."""
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import scale

        yield scale
    finally:
        sys.path.remove(str(ROOT / "bench"))


@pytest.fixture(scope="module")
def frames(scale: ModuleType) -> list[bytes]:
    """Some minutes of an exporter."""
    recorded: list[bytes] = asyncio.run(scale.record(24))
    return recorded


@pytest.fixture(scope="module")
def costs(
    scale: ModuleType, frames: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Any]:
    """What a small and a larger fleet cost."""
    folder = tmp_path_factory.mktemp("frames")
    for number, frame in enumerate(frames):
        Path(folder, f"{number:04}").write_bytes(frame)
    watch = scale.Watch(interval=1.0, evaluation=2.0, warm=12.0, watched=4.0)
    with ThreadPoolExecutor() as pool:
        small, large = pool.map(lambda engines: scale.measure(engines, folder, watch), (SMALL, LARGE))
    return small, large


def test_series_and_samples_grow_with_the_fleet(costs: tuple[Any, Any]) -> None:
    """Four times the engines are four times the scraped series and samples; what models have is shared."""
    small, large = costs
    assert large.scraped == pytest.approx(small.scraped * LARGE / SMALL)
    assert large.samples_per_second / small.samples_per_second == pytest.approx(LARGE / SMALL, rel=0.3)
    assert 2 < large.recorded / small.recorded < LARGE / SMALL
    assert 0 < large.memory_bytes / small.memory_bytes < LARGE / SMALL
    assert all(cost.core_share > 0 and 0 < cost.rule_share < cost.engines for cost in costs)


def test_a_sample_takes_less_on_disk_than_in_text(scale: ModuleType, frames: list[bytes]) -> None:
    """A block takes some bytes a sample, the index of such a short one included; text takes dozens."""
    samples = sum(not line.startswith(b"#") for line in frames[-1].splitlines())
    size = scale.bytes_per_sample(frames)
    assert 1.0 < size < len(frames[-1]) / samples / 2


def test_the_table_is_put_between_its_marks(
    scale: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What people wrote around the table stays, and an older table goes; a page without marks is refused."""
    page = tmp_path / "scaling.md"
    monkeypatch.setattr(scale, "PAGE", page)
    page.write_text(f"before\n\n{scale.BEGIN}\nold\n{scale.END}\n\nbehind\n", encoding="utf-8")
    scale.write(["| new |"])
    assert page.read_text("utf-8") == f"before\n\n{scale.BEGIN}\n\n| new |\n\n{scale.END}\n\nbehind\n"
    page.write_text("nothing", encoding="utf-8")
    with pytest.raises(AssertionError, match="has no"):
        scale.write(["| new |"])
