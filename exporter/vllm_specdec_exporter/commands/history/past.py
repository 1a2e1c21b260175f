"""The configurations of a past, and what each of them did, from values on a grid of times. Pure."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from .matching import SECONDS, STEP_SECONDS, Cells, Speedup, add, cell_of, compare

#: Labels of a replica, without those that it lacks: name and value.
Replica = tuple[tuple[str, str], ...]
#: Values of replicas at the times of a grid, NaN where there is none.
Grid = dict[Replica, "Sequence[float]"]

#: Times of the grid that are left out at the beginning of a run (it loads, warms up, and its first increase
#: is not known) and at its end (requests are cut off).
_WARMING, _ENDING = 2, 1


@dataclass(frozen=True, slots=True)
class Configuration:
    """How a server drafts: tokens of a draft, 0 without speculation, ``None`` if not known."""

    num_speculative_tokens: int | None
    method: str = ""  # empty if not known
    version: str = ""  # of the server, empty if not known
    name: str = ""  # of a chosen time, whatever ran in it

    @property
    def words(self) -> str:
        """The configuration in words."""
        if self.name:
            return self.name
        k = self.num_speculative_tokens
        parts = ["no speculation" if k == 0 else "speculation" if k is None else f"K={k}"]
        return ", ".join([*parts, *filter(None, (self.method if k != 0 else "", self.version))])


@dataclass(frozen=True, slots=True)
class Run:
    """A time in which a replica had one configuration: its first and last time on the grid."""

    first: float
    last: float
    configuration: Configuration


def extend(runs: list[Run], run: Run, step: float) -> None:
    """Add a run behind others; it continues the last one unless a time of the grid is between them."""
    if runs and runs[-1].configuration == run.configuration and run.first - runs[-1].last < 1.5 * step:
        run = replace(run, first=runs.pop().first)
    runs.append(run)


def filled(runs: Sequence[Run], step: float) -> list[Run]:
    """Return runs in which what is not shown for a time is as before or after it, if K is the same."""
    for _ in ("forwards", "backwards"):
        found: list[Run] = []
        for run in runs:
            mine = run.configuration
            near = found[-1].configuration if found else mine
            if near.num_speculative_tokens == mine.num_speculative_tokens:
                mine = replace(mine, method=mine.method or near.method, version=mine.version or near.version)
            found.append(replace(run, configuration=mine))
        runs = found[::-1]
    whole: list[Run] = []
    for run in runs:
        extend(whole, run, step)
    return whole


@dataclass(slots=True)
class Record:
    """What a configuration did: by cell, its runs, sums of all that is read, and the load at each point."""

    cells: Cells = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    running: array[float] = field(default_factory=lambda: array("d"))

    def add(self, block: int, point: Mapping[str, float]) -> None:
        """Add what a replica did in a step of time."""
        running, generated = point["requests_running"], point["generation_tokens"]
        begun, steps = point.get("requests", 0.0), point.get("step_seconds", 0.0)
        prompt = point.get("prompt_tokens", math.nan) / begun if begun > 0 else math.nan
        finished = point.get("tpot_sum", 0.0), point.get("tpot_count", 0.0)
        by_steps = steps, max(0.0, generated - begun) if steps else 0.0
        logs = (generated * math.log(max(1.0, size)) for size in (running, prompt if prompt > 0 else 1.0))
        add(self.cells, cell_of(block, running, prompt), (*finished, *by_steps, *logs, generated))
        for name, value in point.items():
            self.sums[name] += value
        self.running.append(running)


@dataclass(frozen=True, slots=True)
class Summary:
    """A configuration and what it did; ``None`` for what is not known. Times are Unix times in seconds."""

    configuration: Configuration
    first_seconds: float
    last_seconds: float
    periods: int  # times apart in which it ran
    replicas: int  # the most at once
    requests: float
    running: float | None  # requests in a replica's batch: mean
    running_p10: float | None  # and what is not exceeded a tenth of the time
    running_p90: float | None  # and nine tenths of it
    acceptance_ratio: float | None  # accepted of drafted tokens
    mean_acceptance_length: float | None  # tokens of a step with a draft
    time_per_output_token_seconds: float | None  # the mean at its own loads: not to be compared
    tokens_per_second: float | None  # of a replica while it generates


@dataclass(frozen=True, slots=True)
class Comparison:
    """A configuration against an earlier one, or against none: their places among the configurations."""

    new: int
    old: int
    speedup: Speedup


@dataclass(frozen=True, slots=True)
class ModelHistory:
    """The past of a model, or of an instance of it."""

    name: str
    configurations: tuple[Summary, ...]  # by their first time; chosen times by name
    comparisons: tuple[Comparison, ...]
    #: Unix time of each block, and the mean running requests of a replica in it.
    load: tuple[tuple[float, float], ...]
    problem: str = ""  # why there is no comparison


class Past:
    """Collects what replicas did in their runs; `group` names what a replica belongs to."""

    def __init__(
        self,
        step: float,
        block: float,
        group: Callable[[Replica], str],
        runs: Mapping[Replica, Sequence[Run]],
    ) -> None:
        self._step, self._block, self._group, self._runs = step, block, group, runs
        self._records: dict[str, dict[Configuration, Record]] = defaultdict(dict)
        self._loads: dict[str, dict[int, array[float]]] = defaultdict(lambda: defaultdict(lambda: array("d")))
        for replica, own in runs.items():
            for run in own:
                self._records[group(replica)].setdefault(run.configuration, Record()).runs.append(run)

    def add(self, start: float, values: Mapping[str, Grid]) -> None:
        """Add the values of a grid that begins at a time: gauges, and increases within the step before."""
        for replica, running in values["requests_running"].items():
            group = self._group(replica)
            own = {name: grid[replica] for name, grid in values.items() if replica in grid}
            for configuration, index in self.inside(replica, start, len(running)):
                point = {name: column[index] for name, column in own.items() if column[index] >= 0}
                if point.get("generation_tokens") and "requests_running" in point:
                    block = math.floor((start + (index - 0.5) * self._step) / self._block)
                    self._records[group][configuration].add(block, point)
                    self._loads[group][block].append(point["requests_running"])

    def inside(self, replica: Replica, start: float, number: int) -> Iterator[tuple[Configuration, int]]:
        """Yield the places of a grid at which no change of a replica is near, with its configuration."""
        for run in self._runs.get(replica, ()):
            first = math.ceil((run.first - start) / self._step - 1e-6) + _WARMING
            last = math.floor((run.last - start) / self._step + 1e-6) - _ENDING
            for index in range(max(0, first), min(number - 1, last) + 1):
                yield run.configuration, index

    def histories(self) -> Iterator[ModelHistory]:
        """Yield the histories of all that generated something, by name."""
        for name, records in sorted(self._records.items()):
            found = [
                (_summary(c, record, self._step), record) for c, record in records.items() if record.cells
            ]
            if found:
                found.sort(key=lambda one: (one[0].configuration.name, one[0].first_seconds))
                summaries = tuple(summary for summary, _ in found)
                load = tuple(
                    (at * self._block, fmean(all_)) for at, all_ in sorted(self._loads[name].items())
                )
                yield ModelHistory(name, summaries, tuple(_comparisons(found)), load)


def _comparisons(found: Sequence[tuple[Summary, Record]]) -> Iterator[Comparison]:
    """Yield each configuration with speculation against none, and each against the one before it."""
    shown = [summary.configuration for summary, _ in found]
    without = [place for place, each in enumerate(shown) if each.num_speculative_tokens == 0]
    for new, (_, record) in enumerate(found):
        olds = []
        if new not in without:
            same = [place for place in without if shown[place].version == shown[new].version]
            olds = (same or without)[-1:]
        if new and (new in without) == (new - 1 in without):
            olds.append(new - 1)
        for old in dict.fromkeys(olds):
            yield Comparison(new, old, compare(found[old][1].cells, record.cells))


def _summary(configuration: Configuration, record: Record, step: float) -> Summary:
    sums, loads = record.sums, sorted(record.running)
    drafts, accepted = sums["drafts"], sums["accepted_tokens"]
    if drafts and not accepted:  # SGLang: each verification emits one token more, and each prefill one
        accepted = max(0.0, sums["generation_tokens"] - sums["requests"] - drafts)
    drafted = sums["draft_tokens"] or drafts * (configuration.num_speculative_tokens or 0)
    first = SECONDS if sums["tpot_count"] else STEP_SECONDS
    seconds, weight = (math.fsum(cell[i] for cell in record.cells.values()) for i in (first, first + 1))
    return Summary(
        configuration=configuration,
        first_seconds=min(run.first for run in record.runs),
        last_seconds=max(run.last for run in record.runs),
        periods=_sweep(record.runs, step)[0],
        replicas=_sweep(record.runs, 0.0)[1],
        requests=sums["tpot_count"] or sums["requests"],
        running=fmean(loads),
        running_p10=loads[len(loads) // 10],
        running_p90=loads[len(loads) * 9 // 10],
        acceptance_ratio=accepted / drafted if drafted else None,
        mean_acceptance_length=1 + accepted / drafts if drafts else None,
        time_per_output_token_seconds=seconds / weight if weight else None,
        tokens_per_second=sums["generation_tokens"] / (len(loads) * step),
    )


def _sweep(runs: Iterable[Run], margin: float) -> tuple[int, int]:
    """Return in how many periods any of them ran, and how many at most at once; `margin` bridges gaps."""
    edges = [(run.first - margin, -1) for run in runs] + [(run.last + margin, 1) for run in runs]
    periods = most = now = 0
    for _, change in sorted(edges):
        periods += not now
        now -= change
        most = max(most, now)
    return periods, most
