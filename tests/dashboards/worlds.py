"""Worlds: hours of history of some service, in a Prometheus of its own, made in
seconds.

    with worlds.open_world("harmful", folder) as world:
        world.prometheus.value("sum(vllm_specdec_up)", at=world.end)

What happens in each is in `worlds_catalogue`. `folder` is shared by all workers of a
test run: the first one who asks makes the world. A world ends at most ten minutes
before now.
"""

import contextlib
import fcntl
import pickle
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from alerts.promtool import alert_names
from dashboards import worlds_write
from dashboards.worlds_catalogue import WORLDS, WorldSpec
from dashboards.worlds_pods import JOB, Storage, scrape
from dashboards.worlds_rules import evaluate
from dashboards.worlds_traffic import TICK
from support.prometheus import PrometheusServer
from support.repository import ROOT

DASHBOARDS = ROOT / "dashboards/json"
RULES = ROOT / "alerts/rules"
#: Worlds end so many seconds after a multiple of `_GRID`: no label of a time axis is
#: cut off at its end.
_GRID = 600
_OFF = 420


@dataclass(frozen=True)
class World:
    """A world, while its Prometheus runs."""

    name: str  # its name in `WORLDS`
    prometheus: PrometheusServer  # with all that was scraped and recorded
    scraped: Storage  # what was scraped, as numbers
    recorded: Storage  # what rules made of it, as numbers

    @property
    def start(self) -> float:
        """Unix time of the first scrape."""
        return float(self.scraped.times[0])

    @property
    def end(self) -> float:
        """Unix time of a view: a few seconds after the last scrape."""
        return float(self.scraped.times[-1]) + 4.0

    @property
    def interval(self) -> float:
        """Seconds between two scrapes."""
        return float(self.scraped.times[1] - self.scraped.times[0])


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all workers of this test run share."""
    base = factory.getbasetemp()
    return (base.parent if base.name.startswith("popen-") else base) / "worlds"


@contextlib.contextmanager
def open_world(name: str, folder: Path) -> Iterator[World]:
    """Let the Prometheus of a world run; the first worker that opens it makes it."""
    path = folder / f"{name}.pickle"
    with PrometheusServer(
        {}, config=worlds_write.CONFIG, flags=worlds_write.FLAGS
    ) as prometheus:
        with _alone(folder / f"{name}.lock"):
            made = path.exists()
            if not made:
                scraped = _scraped(WORLDS[name], folder, _now(folder))
                worlds_write.push(prometheus.url, scraped.times, scraped.series)
                recorded = evaluate(
                    prometheus,
                    scraped.times,
                    alert_names() | _asked(),
                    WORLDS[name].evaluated,
                )
                path.write_bytes(pickle.dumps((scraped, recorded)))
        if made:
            scraped, recorded = pickle.loads(path.read_bytes())
            for storage in (scraped, recorded):
                worlds_write.push(prometheus.url, storage.times, storage.series)
        yield World(name, prometheus, scraped, recorded)


def _scraped(spec: WorldSpec, folder: Path, end: float) -> Storage:
    """Let a world happen, and return what Prometheus scrapes of it."""
    step = spec.every * TICK
    scrapes = round(spec.hours * 3600 / step)
    storage = Storage(end - step * np.arange(scrapes - 1, -1, -1, dtype=float))
    scrape(storage, spec.pods(folder), spec.every, _kept)
    storage.series = {
        key: np.ascontiguousarray(rows)
        for key, rows in storage.series.items()
        if spec.exporter or ("job", JOB) not in key[1]
    }
    return storage


def _now(folder: Path) -> float:
    """Return when all worlds of a test run end: whole minutes, so that steps always
    fall alike.
    """
    with _alone(folder / "now.lock"):
        path = folder / "now"
        if not path.exists():
            path.write_text(
                str((time.time() - _OFF) // _GRID * _GRID + _OFF), encoding="utf-8"
            )
        return float(path.read_text("utf-8"))


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock against the other workers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@cache
def _asked() -> frozenset[str]:
    """Return all words of the dashboards and rules that may be names of series."""
    texts = [
        path.read_text("utf-8")
        for path in (*DASHBOARDS.glob("*.json"), *RULES.glob("*.yml"))
    ]
    words = re.findall(r"[a-z_]+:[\w:]+", "\n".join(texts))
    # A gauge is asked for by a pattern of all its spellings.
    patterns = re.findall(r'__name__=~\\?"\(([^)]+)\)(\w+)', "\n".join(texts))
    spelled = [
        prefix + name for prefixes, name in patterns for prefix in prefixes.split("|")
    ]
    return frozenset((*words, *spelled))


def _kept(name: str) -> bool:
    """Tell whether anybody asks for a series of a server; the others would only take
    time.
    """
    return name in _asked() or not name.startswith(
        ("vllm:", "sglang:", "llamacpp:", "http_", "python_")
    )
