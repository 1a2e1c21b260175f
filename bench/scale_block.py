"""What a sample of an exporter takes on disk: two hours of some engines, made a block by promtool."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from scale_exporters import INTERVAL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Engines in the block; each has its own series, so what is alike in them is not shared.
ENGINES = 5


def bytes_per_sample(frames: list[bytes]) -> float:
    """Return how much a sample takes in a block of two hours, index included."""
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as name:
        text, blocks = Path(name, "hours.txt"), Path(name, "data")
        samples = 0
        with text.open("w", encoding="utf-8") as file:
            for line in _open_metrics(frames):
                samples += not line.startswith("#")
                file.write(line)
        subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", str(text), str(blocks)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        size = sum(path.stat().st_size for path in blocks.rglob("*") if path.is_file())
    return size / samples


def _open_metrics(frames: list[bytes]) -> Iterator[str]:
    """Yield the two hours of a few engines as OpenMetrics with times, family by family.

    They end on the bounds of a block, so that it is one.
    """
    first = int(time.time()) // 7200 * 7200 - 7200
    history: dict[str, list[tuple[str, int, float]]] = {}
    for number, frame in enumerate(frames):
        for family in text_string_to_metric_families(frame.decode()):
            for sample in family.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
                rows = history.setdefault(sample.name, [])
                rows.append((labels, first + round(number * INTERVAL_SECONDS), sample.value))
    for name, rows in history.items():
        yield f"# TYPE {name} unknown\n"
        for labels, at, value in sorted(rows):
            for engine in range(ENGINES):
                more = f'instance="pod-{engine}:9850",namespace="chat",pod="pod-{engine}"'
                yield f"{name}{{{labels}{',' if labels else ''}{more}}} {value + 0.0} {at}\n"
    yield "# EOF\n"
