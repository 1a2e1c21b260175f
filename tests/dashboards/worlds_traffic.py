"""What servers count over hours, made in seconds: increments of the simulator, strung
together.

The simulator is played for some minutes of each kind of traffic, and its whole
`/metrics` is read every `TICK`. A history is a sequence of these increments, drawn at
random, so that all series of an engine go together as vLLM's do: drafts, positions,
tokens, requests and every histogram.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from support.other_engines import written_by
from vllm_specdec_exporter.commands.simulate.phases import make_phase
from vllm_specdec_exporter.commands.simulate.simulation import (
    Scenario,
    Simulation,
    SimulationConfig,
)
from vllm_specdec_exporter.commands.simulate.speculation import EngineConfig
from vllm_specdec_exporter.exposition.text import parse_labels

Labels = tuple[tuple[str, str], ...]
#: Of a series, one for each tick or scrape; NaN where there is none.
Samples = NDArray[np.float64]
Key = tuple[str, Labels]

#: Seconds between two states of a server; the exporter polls as often.
TICK = 15
_WARM_UP = 30
_SAMPLES = 4
_LINE = re.compile(r"(?m)^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_TYPE = re.compile(r"(?m)^# TYPE (\S+) (\S+)$")


def pairs_of(labels: Mapping[str, str]) -> Labels:
    """Return labels as of a key, without those that are empty."""
    return tuple(sorted((name, value) for name, value in labels.items() if value))


@dataclass(frozen=True)
class Traffic:
    """A kind of traffic of one engine."""

    phase: str = "healthy"  # the simulator's, by name
    k: int = 3  # number of speculative tokens; 0 for a server without speculation
    parameters: tuple[tuple[str, object], ...] = ()  # of the phase
    kv_cache_tokens: int = 262_144  # size of the KV cache
    dialect: str = "vllm"  # of the server's metrics, as `written_by` has it


def traffic(
    phase: str = "healthy",
    k: int = 3,
    *,
    kv_cache_tokens: int = 262_144,
    **more: object,
) -> Traffic:
    """Return a kind of traffic, with parameters of the simulator's phase."""
    return Traffic(phase, k, tuple(sorted(more.items())), kv_cache_tokens)


@dataclass(frozen=True)
class Phase:
    """Some minutes of an engine, the same all through."""

    minutes: float  # how long
    #: What it goes through; None while the server does not answer.
    traffic: Traffic | None
    restart: bool = False  # whether its counters begin anew

    @property
    def ticks(self) -> int:
        """How many ticks it lasts."""
        return round(self.minutes * 60 / TICK)


@dataclass(frozen=True)
class _Pool:
    """Increments of counters and values of gauges, a row for each of some ticks."""

    counters: tuple[Key, ...]
    increments: Samples
    gauges: tuple[Key, ...]
    values: Samples


@lru_cache(maxsize=64)
def _pool(of: Traffic) -> _Pool:
    phase = make_phase(of.phase, dict(of.parameters))
    simulation = Simulation(
        SimulationConfig(
            model="",
            num_speculative_tokens=of.k,
            scenario=Scenario(of.phase, (phase,)),
            engine=EngineConfig(max_num_seqs=1024, kv_cache_tokens=of.kv_cache_tokens),
        ),
        seed=7,
    )
    simulation.advance(_WARM_UP)
    texts = [written_by(of.dialect, simulation.render().decode())]
    for _ in range(_SAMPLES):
        simulation.advance(TICK)
        texts.append(written_by(of.dialect, simulation.render().decode()))
    counters = {
        name
        for name, kind in _TYPE.findall(texts[-1])
        if kind in ("counter", "histogram", "summary")
    }
    states = list(map(_read, texts))
    keys = [key for key in states[-1] if not key[0].endswith("_created")]
    rising = tuple(key for key in keys if _family(key[0], counters) in counters)
    level = tuple(key for key in keys if _family(key[0], counters) not in counters)
    table = _table(states, rising)
    return _Pool(rising, np.diff(table, axis=0), level, _table(states[1:], level))


def _table(states: list[dict[Key, float]], keys: tuple[Key, ...]) -> Samples:
    """Return the values of these series, a row a state."""

    def row(state: dict[Key, float]) -> list[float]:
        return [state.get(key, 0.0) for key in keys]

    return np.array(list(map(row, states)))


def _family(name: str, families: set[str]) -> str:
    """Return the name in the TYPE line."""
    if name in families:
        return name
    return re.sub(r"_(bucket|count|sum|total)$", "", name)


def _read(text: str) -> dict[Key, float]:
    return {
        (name, parse_labels((inner or "").encode())): float(value)
        for name, inner, value in _LINE.findall(text)
    }


@dataclass
class Counts:
    """All series of an engine or a server by tick; NaN where there is none."""

    ticks: int  # how many
    #: By name and labels.
    series: dict[Key, Samples] = field(default_factory=dict)

    def of(self, key: Key) -> Samples:
        """Return the samples of a series, which may be new."""
        if key not in self.series:
            self.series[key] = np.full(self.ticks, np.nan)
        return self.series[key]


def count(story: Sequence[Phase], model: str, engine: str, seed: int) -> Counts:
    """Return what an engine counts while its story goes on."""
    random = np.random.default_rng(seed)
    counts = Counts(sum(phase.ticks for phase in story))
    totals: dict[Key, float] = {}
    at = 0
    for phase in story:
        if phase.restart:
            totals = {}
        if phase.traffic is not None and phase.ticks:
            _add(
                counts,
                totals,
                pool=_pool(phase.traffic),
                at=at,
                drawn=random.integers(_SAMPLES, size=phase.ticks),
            )
        at += phase.ticks
    renamed = {
        (name, _owned(labels, model, engine)): rows
        for (name, labels), rows in counts.series.items()
    }
    return Counts(counts.ticks, renamed)


def _add(
    counts: Counts,
    totals: dict[Key, float],
    pool: _Pool,
    at: int,
    drawn: NDArray[np.int64],
) -> None:
    end = at + len(drawn)
    for key in totals:  # what does not move stays
        counts.of(key)[at:end] = totals[key]
    sums = np.cumsum(pool.increments[drawn], axis=0)
    for index, key in enumerate(pool.counters):
        rows = totals.get(key, 0.0) + sums[:, index]
        # Times are sums of many small parts, which a computer does not add up exactly.
        counts.of(key)[at:end] = np.round(rows, 9)
        totals[key] = float(rows[-1])
    for index, key in enumerate(pool.gauges):
        counts.of(key)[at:end] = pool.values[drawn, index]


def _owned(labels: Labels, model: str, engine: str) -> Labels:
    names = {"model_name": model, "engine": engine}
    return tuple((name, names.get(name, value)) for name, value in labels)


def together(engines: Iterable[Counts]) -> Counts:
    """Return what a server prints of its engines: what they share, such as HTTP
    requests, is added up.
    """
    parts = list(engines)
    summed = Counts(parts[0].ticks)
    for part in parts:
        for key, rows in part.series.items():
            summed_rows = summed.series.get(key)
            shared = summed_rows is not None and not key[0].startswith("process_")
            summed.series[key] = (
                summed_rows + rows if shared and summed_rows is not None else rows
            )
    return summed


def answer(counts: Counts, keys: Mapping[Key, str], tick: int) -> bytes:
    """Return those lines of a server's `/metrics` that the exporter reads, as text by
    series.
    """
    lines = []
    for key, text in keys.items():
        value = counts.series[key][tick]
        if not np.isnan(value):
            lines.append(f"{text} {float(value)!r}")
    return ("\n".join(lines) + "\n").encode()


def texts(counts: Counts, prefixes: str | tuple[str, ...]) -> dict[Key, str]:
    """Return the series of a server whose names begin so, as its `/metrics` writes
    them.
    """
    written = {}
    for name, labels in counts.series:
        if name.startswith(prefixes):
            inner = ",".join(f'{label}="{value}"' for label, value in labels)
            written[name, labels] = f"{name}{{{inner}}}"
    return written
