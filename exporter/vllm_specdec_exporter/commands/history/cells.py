"""What finished in a configuration, sorted by block of time, load and prompt length.

Pure.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from ...economics.baseline import LOADS
from ...economics.equal_load import Finished

#: Cells per doubling of the running requests, so that loads within a cell differ by 19
#: % at most.
LOADS_IN_DOUBLING = 4
_MAX_LOAD = LOADS_IN_DOUBLING * (len(LOADS) - 1)
#: Cells per doubling of the prompt length. They may be wide: what prompts differ by
#: within a cell widens the interval.
_PROMPTS_IN_DOUBLING = 2


class TimePerToken(Enum):
    """Which time per output token is compared."""

    OF_REQUESTS = "of requests"
    OF_STEPS = "of steps over their tokens"  # for want of one by requests
    OF_PREFILLS = "of prefills over their prompt tokens"  # the negative control


class BlockLength(NamedTuple):
    """How long blocks of time are, in seconds."""

    seconds: float = 3600.0
    #: What ``--block`` may be at least, so that each has samples; 0 if it cannot be
    #: chosen.
    shortest: float = 0.0


#: Blocks of an hour, whose length was not chosen.
HOURS = BlockLength()


class CellKey(NamedTuple):
    """Where something finished. Numbers of load and prompt length rise with them."""

    block: int  # of time
    load: int
    prompt: int  # 0 where its length is not known


class _Cell(Struct):
    """Sums of what finished in one block at one load and prompt length."""

    seconds: float = 0.0  # times per output token of the requests
    requests: float = 0.0
    step_seconds: float = 0.0  # times of the steps that generated the tokens
    tokens: float = 0.0
    prefill_seconds: float = 0.0
    prefilled: float = 0.0  # prompt tokens of these prefills
    log_load: float = 0.0  # logarithms of the load over the generated tokens
    generated: float = 0.0
    begun: float = 0.0  # requests
    prompt_tokens: float = 0.0  # of these

    def finished(self, measure: TimePerToken) -> Finished:
        """Return the sums with one of the times."""
        seconds = self.seconds
        weight = self.requests
        if measure is TimePerToken.OF_STEPS:
            seconds = self.step_seconds
            weight = self.tokens
        elif measure is TimePerToken.OF_PREFILLS:
            seconds = self.prefill_seconds
            weight = self.prefilled
        return Finished(
            seconds=seconds,
            weight=weight,
            log_load=self.log_load,
            generated=self.generated,
            begun=self.begun,
            prompt_tokens=self.prompt_tokens,
        )


class Cells:
    """What finished in a configuration, by block of time, load and prompt length."""

    def __init__(self, *, drafting: bool = False) -> None:
        """Begin with nothing; `drafting` is whether the configuration speculates."""
        self.drafting = drafting
        self._cells: dict[CellKey, _Cell] = defaultdict(_Cell)
        #: By name, how often each value was seen of what a server says of itself.
        self.facts: dict[str, Counter[str]] = defaultdict(Counter)
        #: Prompt tokens that were looked up in the prefix cache, and found there.
        self.prefix_cache_queries = 0.0
        self.prefix_cache_hits = 0.0

    def __bool__(self) -> bool:
        return bool(self._cells)

    def add(
        self,
        block: int,
        running: float,
        prompt_tokens: float,
        *,
        generated: float,
        seconds: float = 0.0,
        requests: float = 0.0,
        step_seconds: float = 0.0,
        tokens: float = 0.0,
        begun: float = 0.0,
        prefill_seconds: float = 0.0,
    ) -> None:
        """Add what finished in a block at a load; the prompt length is NaN if it is not
        known.

        Args:
            block: number of the block.
            running: running requests.
            prompt_tokens: mean tokens of a prompt.
            generated: tokens that were generated.
            seconds: sum of the times per output token of `requests`.
            requests: requests that finished.
            step_seconds: sum of the times of steps that generated `tokens`.
            tokens: tokens of these steps.
            begun: requests that began.
            prefill_seconds: sum of the times of their prefills.
        """
        load = 0
        if running > 1:
            load = min(_MAX_LOAD, math.ceil(LOADS_IN_DOUBLING * math.log2(running)))
        prompt = 0
        if prompt_tokens >= 0:
            length = max(1.0, prompt_tokens)
            prompt = 1 + round(_PROMPTS_IN_DOUBLING * math.log2(length))
        cell = self._cells[CellKey(block, load, prompt)]
        cell.seconds += seconds
        cell.requests += requests
        cell.step_seconds += step_seconds
        cell.tokens += tokens
        cell.log_load += generated * math.log(max(1.0, running))
        cell.generated += generated
        cell.begun += begun
        if prompt_tokens >= 0:
            cell.prompt_tokens += begun * prompt_tokens
        if prefill_seconds > 0 and prompt_tokens > 0:
            cell.prefill_seconds += prefill_seconds
            cell.prefilled += begun * prompt_tokens

    @property
    def prefix_cache_hit_ratio(self) -> float | None:
        """Share of the prompt tokens that the prefix cache had, 0 to 1; ``None`` if
        none was looked up.
        """
        if not self.prefix_cache_queries:
            return None
        return min(1.0, self.prefix_cache_hits / self.prefix_cache_queries)

    @property
    def know_prompts(self) -> bool:
        """Whether a prompt length is known."""
        return any(key.prompt for key in self._cells)

    def seconds_and_weight(self, measure: TimePerToken) -> tuple[float, float]:
        """Return the sum of the times per output token, and what it is a sum over."""
        finished = [cell.finished(measure) for cell in self._cells.values()]
        return (
            math.fsum(each.seconds for each in finished),
            math.fsum(each.weight for each in finished),
        )

    def finished(self, measure: TimePerToken) -> Iterator[tuple[CellKey, Finished]]:
        """Yield what finished in each cell, in the order of time."""
        for key, cell in sorted(self._cells.items()):
            finished = cell.finished(measure)
            if finished.weight > 0:
                yield key, finished
