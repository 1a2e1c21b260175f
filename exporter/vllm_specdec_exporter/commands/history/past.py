"""What each configuration of a past did, from values on a grid of times. Pure."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from statistics import fmean

from msgspec import Struct, field

from .configuration import Configuration, Replica, Runs
from .document import ModelHistory, Summary
from .matching import Cells, Change, TimePerToken, judge_change

#: Values of replicas at the times of a grid, NaN where there is none.
GridValues = dict[Replica, "Sequence[float]"]

#: Times of the grid that are left out at the beginning of a run (it loads, warms up,
#: and its first increase is not known) and at its end (requests are cut off).
_WARMING = 2
_ENDING = 1
#: Tokens for each request up to which nothing is decoded: a prefill server emits one,
#: at no time per token.
_PREFILL = 1.02


class TimeGrid(Struct, frozen=True):
    """A grid of times: `number` of them, `step` seconds apart."""

    start: float
    step: float
    number: int

    def at(self, index: float) -> float:
        """Return the time at a place of the grid."""
        return self.start + index * self.step

    def index_of(self, time: float) -> int:
        """Return the place that is nearest to a time."""
        nearest = round((time - self.start) / self.step)
        return min(self.number - 1, max(0, nearest))

    def parts(self, points: int) -> list[TimeGrid]:
        """Return the grid in parts of at most so many points."""
        return [
            TimeGrid(self.at(index), self.step, min(points, self.number - index))
            for index in range(0, self.number, points)
        ]


class DecodingStep(Struct, frozen=True):
    """What a replica did in the step of time before a place of a grid."""

    replica: Replica
    configuration: Configuration
    index: int
    values: Mapping[str, float]  # increases and mean running requests, by name

    @property
    def running(self) -> float:
        """Mean running requests."""
        return self.values["requests_running"]


class ConfigurationTotals(Struct):
    """What a configuration did."""

    configuration: Configuration
    cells: Cells = field(default_factory=Cells)
    runs: list[range] = []
    #: Sums of all that is read, by name.
    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    #: The running requests of each step of time.
    running: array[float] = field(default_factory=lambda: array("d"))

    @property
    def indices(self) -> list[int]:
        """The places of the grid at which it ran, in order."""
        return sorted(set().union(*self.runs))

    def add(self, block: int, step: DecodingStep) -> None:
        """Add what a replica did in a step of time."""
        values = step.values
        generated = values["generation_tokens"]
        begun = values.get("requests", 0.0)
        prompt_tokens = math.nan
        if begun > 0:
            prompt_tokens = values.get("prompt_tokens", math.nan) / begun
        step_seconds = values.get("step_seconds", 0.0)
        tokens = 0.0
        if step_seconds:
            # The first token of a request is of its prefill, not of a step.
            tokens = max(0.0, generated - begun)
        self.cells.add(
            block,
            step.running,
            prompt_tokens,
            generated=generated,
            seconds=values.get("tpot_sum", 0.0),
            requests=values.get("tpot_count", 0.0),
            step_seconds=step_seconds,
            tokens=tokens,
        )
        for name, value in values.items():
            self.sums[name] += value
        self.running.append(step.running)


class Past:
    """Collects what replicas did in their runs on a grid."""

    def __init__(
        self,
        grid: TimeGrid,
        block: float,
        group: Callable[[Replica], str],
        runs: Mapping[Replica, Runs],
    ) -> None:
        """Begin with nothing.

        Args:
            grid: all times.
            block: seconds of a block of time.
            group: returns the name of what a replica belongs to.
            runs: of each replica.
        """
        self.grid = grid
        self.block = block
        self._runs = runs
        # what each replica belongs to
        self.groups = {replica: group(replica) for replica in runs}
        self._totals: dict[str, dict[Configuration, ConfigurationTotals]] = defaultdict(
            dict
        )
        self._loads: dict[str, dict[int, array[float]]] = defaultdict(
            lambda: defaultdict(lambda: array("d"))
        )
        self._decoding: set[Replica] = set()

    def add(self, part: TimeGrid, values: Mapping[str, GridValues]) -> None:
        """Add the values at a part of the times: gauges, and increases within the step
        before.
        """
        for step in self.decoding(part, values):
            group = self.groups[step.replica]
            totals = self._totals[group]
            if step.replica not in self._decoding:
                self._decoding.add(step.replica)
                for configuration, indices in self._runs[step.replica]:
                    if configuration not in totals:
                        totals[configuration] = ConfigurationTotals(configuration)
                    totals[configuration].runs.append(indices)
            block = math.floor(part.at(step.index - 0.5) / self.block)
            totals[step.configuration].add(block, step)
            self._loads[group][block].append(step.running)

    def decoding(
        self, part: TimeGrid, values: Mapping[str, GridValues]
    ) -> Iterator[DecodingStep]:
        """Yield what replicas did at the places of a part where they decode and no
        change of them is near.
        """
        offset = self.grid.index_of(part.start)
        for replica in values["requests_running"]:
            columns = {}
            for name, of_replicas in values.items():
                if replica in of_replicas:
                    columns[name] = of_replicas[replica]
            for configuration, indices in self._runs.get(replica, ()):
                begin = max(0, indices.start + _WARMING - offset)
                end = min(part.number, indices.stop - _ENDING - offset)
                for index in range(begin, end):
                    at_place = _values_at(columns, index)
                    if _decodes(at_place):
                        yield DecodingStep(replica, configuration, index, at_place)

    def histories(self) -> Iterator[ModelHistory]:
        """Yield the histories of all that generated something, by name."""
        for name, by_configuration in sorted(self._totals.items()):
            totals = list(filter(attrgetter("cells"), by_configuration.values()))
            if not totals:
                continue
            # Chosen times by name, configurations by their first time.
            totals.sort(key=lambda each: (each.configuration.name, each.indices[0]))
            changes = tuple(_changes(totals))
            problem = ""
            if not changes:
                problem = f"only {totals[0].configuration.words} had traffic"
            load = tuple(
                (block * self.block, fmean(running))
                for block, running in sorted(self._loads[name].items())
            )
            summaries = tuple(_summary(each, self.grid) for each in totals)
            yield ModelHistory(name, summaries, changes, load, problem=problem)


def _values_at(columns: Mapping[str, Sequence[float]], index: int) -> dict[str, float]:
    """Return what is known at a place: neither NaN nor, of a reset, below 0."""
    return {
        name: column[index] for name, column in columns.items() if column[index] >= 0
    }


def _decodes(values: Mapping[str, float]) -> bool:
    generated = values.get("generation_tokens", 0.0)
    decoded = generated > _PREFILL * values.get("requests", 0.0)
    return decoded and "requests_running" in values


def _changes(totals: Sequence[ConfigurationTotals]) -> Iterator[Change]:
    """Yield each configuration with speculation against none, and each against the one
    before it.
    """
    cells = list(map(attrgetter("cells"), totals))
    without = [
        index
        for index, each in enumerate(totals)
        if each.configuration.num_speculative_tokens == 0
    ]
    for new, each in enumerate(totals):
        olds = []
        if new not in without:
            version = each.configuration.version
            same_version = [
                index
                for index in without
                if totals[index].configuration.version == version
            ]
            olds += (same_version or without)[-1:]
        if new and (new in without) == (new - 1 in without):
            olds.append(new - 1)
        for old in dict.fromkeys(olds):
            yield judge_change(cells, new, old)


def _summary(totals: ConfigurationTotals, grid: TimeGrid) -> Summary:
    sums = totals.sums
    drafts = sums["drafts"]
    accepted = sums["accepted_tokens"]
    # SGLang: each verification emits one token more, and each prefill one
    if drafts and not accepted:
        accepted = max(0.0, sums["generation_tokens"] - sums["requests"] - drafts)
    k = totals.configuration.num_speculative_tokens or 0
    seconds, weight = totals.cells.seconds_and_weight(TimePerToken.OF_REQUESTS)
    if not weight:
        seconds, weight = totals.cells.seconds_and_weight(TimePerToken.OF_STEPS)
    indices = totals.indices
    gaps = sum(later - index > 2 for index, later in pairwise(indices))
    # Without the step of its end, in which its successor may begin.
    replicas = Counter(chain.from_iterable(run[:-1] for run in totals.runs))
    running = sorted(totals.running)
    seconds_of_decoding = len(running) * grid.step
    return Summary(
        configuration=totals.configuration,
        first_seconds=grid.at(indices[0]),
        last_seconds=grid.at(indices[-1]),
        periods=1 + gaps,
        replicas=max(replicas.values()),
        requests=sums["requests"] or sums["tpot_count"],
        running=fmean(running),
        running_p10=running[len(running) // 10],
        running_p90=running[len(running) * 9 // 10],
        acceptance_ratio=_ratio(accepted, sums["draft_tokens"] or drafts * k),
        mean_acceptance_length=_ratio(drafts + accepted, drafts),
        time_per_output_token_seconds=_ratio(seconds, weight),
        tokens_per_second=sums["generation_tokens"] / seconds_of_decoding,
    )


def _ratio(part: float, whole: float) -> float | None:
    if whole:
        return part / whole
    return None
