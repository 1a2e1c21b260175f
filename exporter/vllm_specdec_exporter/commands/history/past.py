"""The configurations of a past, and what each of them did, from values on a grid of
times. Pure.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, pairwise
from statistics import fmean

from .matching import (
    SECONDS,
    STEP_SECONDS,
    Cells,
    Comparison,
    add,
    cell_of,
    compare,
    total,
)

#: Labels of a replica, without those that it lacks: name and value.
Replica = tuple[tuple[str, str], ...]
#: Values of replicas at the times of a grid, NaN where there is none.
Grid = dict[Replica, "Sequence[float]"]
#: What a replica did at a place of a grid: its configuration, the place, and its values
#: by name.
Decoding = tuple[Replica, "Configuration", int, dict[str, float]]

#: Times of the grid that are left out at the beginning of a run (it loads, warms up,
#: and its first increase is not known) and at its end (requests are cut off).
_WARMING = 2
_ENDING = 1
#: Tokens for each request up to which nothing is decoded: a prefill server emits one,
#: at no time per token.
_PREFILL = 1.02


@dataclass(frozen=True, slots=True)
class Times:
    """A grid of times: `number` of them, `step` seconds apart."""

    start: float
    step: float
    number: int

    def at(self, place: float) -> float:
        """Return the time at a place of the grid."""
        return self.start + place * self.step

    def place(self, time: float) -> int:
        """Return the place that is nearest to a time."""
        return min(self.number - 1, max(0, round((time - self.start) / self.step)))

    def parts(self, points: int) -> list[Times]:
        """Return the grid in parts of at most so many points."""
        starts = range(0, self.number, points)
        return [
            Times(self.at(place), self.step, min(points, self.number - place))
            for place in starts
        ]


@dataclass(frozen=True, slots=True)
class Configuration:
    """How a server drafts: tokens of a draft, 0 without speculation, ``None`` if not
    known.
    """

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
        parts = [
            "no speculation" if k == 0 else "speculation" if k is None else f"K={k}"
        ]
        return ", ".join(
            [*parts, *filter(None, (self.method if k != 0 else "", self.version))]
        )

    def completed(self, near: Configuration | None) -> Configuration:
        """Return it with what is not known of it as in the one before or after it, if K
        is the same.
        """
        if (
            near is None
            or near is self
            or near.num_speculative_tokens != self.num_speculative_tokens
        ):
            return self
        whole = replace(
            self,
            method=self.method or near.method,
            version=self.version or near.version,
        )
        if whole == near:
            return near
        return whole


#: Each run of a replica: its configuration, and the places of the grid, one after the
#: other.
Runs = list[tuple[Configuration, range]]


def runs_of(shown: list[Configuration | None]) -> Runs:
    """Return the runs of a replica by its configuration at each time, ``None`` where it
    does not run.

    What is not shown for a time, as by an exporter that is down, is as before or after
    it.
    """
    shown = shown.copy()
    forwards = range(len(shown))
    for order in (forwards, forwards[::-1]):
        near: Configuration | None = None
        for place in order:
            if configuration := shown[place]:
                near = shown[place] = configuration.completed(near)
    runs = []
    begin = 0
    for configuration, same in groupby(shown):
        places = range(begin, begin + sum(1 for _ in same))
        begin = places.stop
        if configuration:
            runs.append((configuration, places))
    return runs


@dataclass(slots=True)
class Record:
    """What a configuration did: by cell, its runs, sums of all that is read, and the
    load at each point.
    """

    cells: Cells = field(default_factory=dict)
    runs: list[range] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    running: array[float] = field(default_factory=lambda: array("d"))

    def add(self, block: int, point: Mapping[str, float]) -> None:
        """Add what a replica did in a step of time."""
        running = point["requests_running"]
        generated = point["generation_tokens"]
        begun = point.get("requests", 0.0)
        steps = point.get("step_seconds", 0.0)
        if begun > 0:
            prompt = point.get("prompt_tokens", math.nan) / begun
        else:
            prompt = math.nan
        finished = point.get("tpot_sum", 0.0), point.get("tpot_count", 0.0)
        by_steps = steps, max(0.0, generated - begun) if steps else 0.0
        logs = (
            generated * math.log(max(1.0, size))
            for size in (running, prompt if prompt > 0 else 1.0)
        )
        add(
            self.cells,
            cell_of(block, running, prompt),
            (*finished, *by_steps, *logs, generated),
        )
        for name, value in point.items():
            self.sums[name] += value
        self.running.append(running)


@dataclass(frozen=True, slots=True)
class Summary:
    """A configuration and what it did; ``None`` for what is not known.

    Times are Unix times in seconds.
    """

    configuration: Configuration
    first_seconds: float
    last_seconds: float
    periods: int  # times apart in which it ran
    replicas: int  # the most at once
    requests: float
    running: float  # requests in a replica's batch: mean
    running_p10: float  # and what is not exceeded a tenth of the time
    running_p90: float  # and nine tenths of it
    acceptance_ratio: float | None  # accepted of drafted tokens
    mean_acceptance_length: float | None  # tokens of a step with a draft
    #: The mean at its own loads: not to be compared.
    time_per_output_token_seconds: float | None
    tokens_per_second: float  # of a replica while it generates


@dataclass(frozen=True, slots=True)
class ModelHistory:
    """The past of a model, or of an instance of it."""

    name: str
    configurations: tuple[Summary, ...]  # by their first time; chosen times by name
    comparisons: tuple[Comparison, ...]
    #: Unix time of each block, and the mean running requests of a replica in it.
    load: tuple[tuple[float, float], ...]
    problem: str = ""  # why there is no comparison


@dataclass(frozen=True, slots=True)
class History:
    """The document of ``--json``."""

    format: str
    version: str  # of this program
    since_seconds: float  # Unix time from which was read
    until_seconds: float  # Unix time up to which was read
    block_seconds: float  # length of a block of time
    models: tuple[ModelHistory, ...]
    warnings: tuple[str, ...] = ()  # of the server: the results may be incomplete


class Past:
    """Collects what replicas did in their runs on a grid; `group` names what a replica
    belongs to.
    """

    def __init__(
        self,
        times: Times,
        block: float,
        group: Callable[[Replica], str],
        runs: Mapping[Replica, Runs],
    ) -> None:
        self._times = times
        self._block = block
        self._runs = runs
        # what each replica belongs to
        self.groups = {replica: group(replica) for replica in runs}
        self._records: dict[str, dict[Configuration, Record]] = defaultdict(dict)
        self._loads: dict[str, dict[int, array[float]]] = defaultdict(
            lambda: defaultdict(lambda: array("d"))
        )
        self._decoding: set[Replica] = set()

    def add(self, part: Times, values: Mapping[str, Grid]) -> None:
        """Add the values at a part of the times: gauges, and increases within the step
        before.
        """
        for replica, configuration, place, point in self.decoding(part, values):
            group = self.groups[replica]
            if replica not in self._decoding:
                self._decoding.add(replica)
                for each, places in self._runs[replica]:
                    self._records[group].setdefault(each, Record()).runs.append(places)
            block = math.floor(part.at(place - 0.5) / self._block)
            self._records[group][configuration].add(block, point)
            self._loads[group][block].append(point["requests_running"])

    def decoding(self, part: Times, values: Mapping[str, Grid]) -> Iterator[Decoding]:
        """Yield what replicas did at the places of a part where they decode and no
        change of them is near.
        """
        offset = self._times.place(part.start)
        for replica in values["requests_running"]:
            own = {
                name: grid[replica] for name, grid in values.items() if replica in grid
            }
            for configuration, places in self._runs.get(replica, ()):
                first = places.start + _WARMING - offset
                end = places.stop - _ENDING - offset
                for place in range(max(0, first), min(part.number, end)):
                    point = {
                        name: column[place]
                        for name, column in own.items()
                        if column[place] >= 0
                    }
                    decoded = point.get(
                        "generation_tokens", 0.0
                    ) > _PREFILL * point.get("requests", 0.0)
                    if decoded and "requests_running" in point:
                        yield replica, configuration, place, point

    def histories(self) -> Iterator[ModelHistory]:
        """Yield the histories of all that generated something, by name."""
        for name, records in sorted(self._records.items()):
            found = [
                (_summary(c, own, self._times), own)
                for c, own in records.items()
                if own.cells
            ]
            if found:
                found.sort(
                    key=lambda one: (one[0].configuration.name, one[0].first_seconds)
                )
                summaries = tuple(summary for summary, _ in found)
                loads = sorted(self._loads[name].items())
                load = tuple(
                    (block * self._block, fmean(running)) for block, running in loads
                )
                comparisons = tuple(_comparisons(found))
                if comparisons:
                    problem = ""
                else:
                    problem = f"only {summaries[0].configuration.words} had traffic"
                yield ModelHistory(name, summaries, comparisons, load, problem)


def _comparisons(found: Sequence[tuple[Summary, Record]]) -> Iterator[Comparison]:
    """Yield each configuration with speculation against none, and each against the one
    before it.
    """
    shown = [summary.configuration for summary, _ in found]
    cells = [record.cells for _, record in found]
    without = [
        place for place, each in enumerate(shown) if each.num_speculative_tokens == 0
    ]
    for new in range(len(found)):
        olds = []
        if new not in without:
            same = [
                place for place in without if shown[place].version == shown[new].version
            ]
            olds = (same or without)[-1:]
        if new and (new in without) == (new - 1 in without):
            olds.append(new - 1)
        for old in dict.fromkeys(olds):
            yield compare(cells, new, old)


def _summary(configuration: Configuration, record: Record, times: Times) -> Summary:
    sums = record.sums
    loads = sorted(record.running)
    drafts = sums["drafts"]
    accepted = sums["accepted_tokens"]
    # SGLang: each verification emits one token more, and each prefill one
    if drafts and not accepted:
        accepted = max(0.0, sums["generation_tokens"] - sums["requests"] - drafts)
    drafted = sums["draft_tokens"] or drafts * (
        configuration.num_speculative_tokens or 0
    )
    first = SECONDS if sums["tpot_count"] else STEP_SECONDS
    seconds = total(record.cells, first)
    weight = total(record.cells, first + 1)
    places = sorted(set(chain.from_iterable(record.runs)))
    # Without the step of its end, in which its successor may begin.
    replicas = Counter(chain.from_iterable(run[:-1] for run in record.runs))
    return Summary(
        configuration=configuration,
        first_seconds=times.at(places[0]),
        last_seconds=times.at(places[-1]),
        periods=1 + sum(later - place > 2 for place, later in pairwise(places)),
        replicas=max(replicas.values()),
        requests=sums["requests"] or sums["tpot_count"],
        running=fmean(loads),
        running_p10=loads[len(loads) // 10],
        running_p90=loads[len(loads) * 9 // 10],
        acceptance_ratio=accepted / drafted if drafted else None,
        mean_acceptance_length=1 + accepted / drafts if drafts else None,
        time_per_output_token_seconds=seconds / weight if weight else None,
        tokens_per_second=sums["generation_tokens"] / (len(loads) * times.step),
    )
