"""What each configuration of a past did, from values on a grid of times. Pure."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from operator import attrgetter
from statistics import fmean

from msgspec import Struct, field

from ...config.values import format_duration
from ...economics.equal_load import MINIMUM_BLOCKS
from ...measures.delivered import delivered
from ...measures.history import Delta
from .cells import BlockLength, Cells, TimePerToken
from .configuration import Configuration, Replica, Runs
from .document import ModelHistory, Summary
from .matching import Change, Compared, judge_change
from .series import CACHE_LABELS

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
    cells: Cells
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
            begun=begun,
            seconds=values.get("tpot_sum", 0.0),
            requests=values.get("tpot_count", 0.0),
            step_seconds=step_seconds,
            tokens=tokens,
            prefill_seconds=values.get("prefill_seconds", 0.0),
        )
        self.cells.prefix_cache_queries += values.get("prefix_cache_queries", 0.0)
        self.cells.prefix_cache_hits += values.get("prefix_cache_hits", 0.0)
        for name, value in values.items():
            self.sums[name] += value
        self.running.append(step.running)


class Past:
    """Collects what replicas did in their runs on a grid."""

    def __init__(
        self,
        grid: TimeGrid,
        block: BlockLength,
        group: Callable[[Replica], str],
        runs: Mapping[Replica, Runs],
    ) -> None:
        """Begin with nothing.

        Args:
            grid: all times.
            block: how long a block of time is.
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
        #: Requests near a start or an end.
        self._left_out: dict[tuple[Replica, Configuration], float] = defaultdict(float)

    def add(self, part: TimeGrid, values: Mapping[str, GridValues]) -> None:
        """Add the values at a part of the times: gauges, and increases within the step
        before.
        """
        self._count_left_out(part, values.get("requests", {}))
        for step in self.decoding(part, values):
            group = self.groups[step.replica]
            totals = self._totals[group]
            if step.replica not in self._decoding:
                self._decoding.add(step.replica)
                for configuration, indices in self._runs[step.replica]:
                    if configuration not in totals:
                        drafting = configuration.num_speculative_tokens != 0
                        totals[configuration] = ConfigurationTotals(
                            configuration, Cells(drafting=drafting)
                        )
                    totals[configuration].runs.append(indices)
            block = math.floor(part.at(step.index - 0.5) / self.block.seconds)
            totals[step.configuration].add(block, step)
            self._loads[group][block].append(step.running)

    def add_facts(self, part: TimeGrid, values: GridValues) -> None:
        """Add what servers said of themselves in labels, at a part of the times.

        Their series have no model's name.
        """
        by_server: dict[Replica, list[Replica]] = defaultdict(list)
        for replica in self._decoding:
            server = tuple(pair for pair in replica if pair[0] != "model_name")
            by_server[server].append(replica)
        for series, column in values.items():
            facts = [pair for pair in series if pair[0] in CACHE_LABELS]
            server = tuple(pair for pair in series if pair[0] not in CACHE_LABELS)
            for replica in by_server[server]:
                totals = self._totals[self.groups[replica]]
                for configuration, indices in self._runs[replica]:
                    seen = sum(
                        column[index] > 0 for index in self._settled(indices, part)
                    )
                    for name, value in facts:
                        if seen:
                            totals[configuration].cells.facts[name][value] += seen

    def _too_short(
        self, group: str, judged: Collection[Configuration]
    ) -> Iterator[str]:
        """Yield which configurations beside the judged ones ran too shortly."""
        longest: Counter[Configuration] = Counter()
        for replica, runs in self._runs.items():
            if self.groups[replica] == group:
                for configuration, indices in runs:
                    longest[configuration] = max(longest[configuration], len(indices))
        step = self.grid.step
        left_out = _WARMING + _ENDING
        for configuration, places in longest.items():
            if configuration in judged or places > left_out:
                continue
            text = (
                f"{configuration.words} ran too shortly: for "
                f"{format_duration(places * step)} at a time, and "
                f"{format_duration(left_out * step)} near start and end are left out"
            )
            if 0 < MINIMUM_BLOCKS * self.block.shortest <= places * step:
                text += ", or less with a shorter --block"
            yield text

    def _requests_left_out(self, group: str, configuration: Configuration) -> float:
        """Return the requests near starts and ends, of replicas that decode."""
        return math.fsum(
            self._left_out[replica, configuration]
            for replica in self._decoding
            if self.groups[replica] == group
        )

    def _count_left_out(self, part: TimeGrid, requests: GridValues) -> None:
        """Count the requests of steps that are too near to a change."""
        offset = self.grid.index_of(part.start)
        for replica, column in requests.items():
            for configuration, indices in self._runs.get(replica, ()):
                ends = indices[_WARMING:][-_ENDING:]
                for index in (*indices[:_WARMING], *ends):
                    here = index - offset
                    if 0 <= here < part.number and column[here] > 0:
                        self._left_out[replica, configuration] += column[here]

    def _settled(self, run: range, part: TimeGrid) -> range:
        """Return the places of a part that lie in a run, and not near its ends."""
        offset = self.grid.index_of(part.start)
        begin = run.start + _WARMING - offset
        end = run.stop - _ENDING - offset
        return range(max(0, begin), min(part.number, end))

    def decoding(
        self, part: TimeGrid, values: Mapping[str, GridValues]
    ) -> Iterator[DecodingStep]:
        """Yield what replicas did at the places of a part where they decode and no
        change of them is near.
        """
        for replica in values["requests_running"]:
            columns = {}
            for name, of_replicas in values.items():
                if replica in of_replicas:
                    columns[name] = of_replicas[replica]
            for configuration, indices in self._runs.get(replica, ()):
                for index in self._settled(indices, part):
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
            changes = tuple(_changes(totals, self.block))
            judged = [each.configuration for each in totals]
            problems = list(self._too_short(name, judged))
            if not changes:
                problems.insert(0, f"only {judged[0].words} had traffic")
            load = tuple(
                (block * self.block.seconds, fmean(running))
                for block, running in sorted(self._loads[name].items())
            )
            summaries = tuple(
                _summary(
                    each,
                    self.grid,
                    left_out=self._requests_left_out(name, each.configuration),
                    periods=_periods(each, totals, self.block.seconds / self.grid.step),
                )
                for each in totals
            )
            yield ModelHistory(
                name, summaries, changes, load, problem="; ".join(problems)
            )


def _values_at(columns: Mapping[str, Sequence[float]], index: int) -> dict[str, float]:
    """Return what is known at a place: neither NaN nor, of a reset, below 0."""
    return {
        name: column[index] for name, column in columns.items() if column[index] >= 0
    }


def _decodes(values: Mapping[str, float]) -> bool:
    generated = values.get("generation_tokens", 0.0)
    decoded = generated > _PREFILL * values.get("requests", 0.0)
    return decoded and "requests_running" in values


def _changes(
    totals: Sequence[ConfigurationTotals], time: BlockLength
) -> Iterator[Change]:
    """Yield each configuration with speculation against none, and each against the one
    before it.
    """
    compared = Compared(list(map(attrgetter("cells"), totals)), time)
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
            yield judge_change(compared, new, old)


def _periods(
    own: ConfigurationTotals, totals: Iterable[ConfigurationTotals], block: float
) -> int:
    """Return the times apart in which a configuration ran: with another one between, or
    a gap of a block of time. A restart or a lost sample is none.
    """
    others = sorted(
        {index for each in totals if each is not own for index in each.indices}
    )
    periods = 1
    for earlier, later in pairwise(own.indices):
        between = bisect_left(others, later) > bisect_right(others, earlier)
        if between or later - earlier > max(2.0, block):
            periods += 1
    return periods


def _summary(
    totals: ConfigurationTotals, grid: TimeGrid, *, left_out: float, periods: int
) -> Summary:
    sums = totals.sums
    drafts = sums["drafts"]
    accepted = sums["accepted_tokens"]
    # SGLang: each verification emits one token more, and each prefill one
    if drafts and not accepted:
        accepted = max(0.0, sums["generation_tokens"] - sums["requests"] - drafts)
    k = totals.configuration.num_speculative_tokens or 0
    gained = delivered(
        Delta(
            span=0.0,
            drafts=drafts,
            draft_tokens=sums["draft_tokens"],
            accepted_tokens=accepted,
            accepted_tokens_per_position=(),
            generation_tokens=sums["generation_tokens"],
            first_tokens=sums["requests"],
        )
    )
    seconds, weight = totals.cells.seconds_and_weight(TimePerToken.OF_REQUESTS)
    if not weight:
        seconds, weight = totals.cells.seconds_and_weight(TimePerToken.OF_STEPS)
    indices = totals.indices
    # Without the step of its end, in which its successor may begin.
    replicas = Counter(chain.from_iterable(run[:-1] for run in totals.runs))
    running = sorted(totals.running)
    seconds_of_decoding = len(running) * grid.step
    return Summary(
        configuration=totals.configuration,
        first_seconds=grid.at(indices[0]),
        last_seconds=grid.at(indices[-1]),
        periods=periods,
        replicas=max(replicas.values()),
        requests=sums["requests"] or sums["tpot_count"],
        requests_left_out=left_out,
        prompt_tokens=_ratio(sums["prompt_tokens"], sums["requests"]),
        prefix_cache_hit_ratio=totals.cells.prefix_cache_hit_ratio,
        answer_tokens=_ratio(sums["generation_tokens"], sums["requests"]),
        running=fmean(running),
        running_p10=running[len(running) // 10],
        running_p90=running[len(running) * 9 // 10],
        acceptance_ratio=_ratio(accepted, sums["draft_tokens"] or drafts * k),
        mean_acceptance_length=gained.length if gained else None,
        time_per_output_token_seconds=_ratio(seconds, weight),
        tokens_per_second=sums["generation_tokens"] / seconds_of_decoding,
    )


def _ratio(part: float, whole: float) -> float | None:
    if whole:
        return part / whole
    return None
