"""What finished in a configuration, sorted by block of time, load and prompt length.

Pure.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from ...economics.baseline import LOADS
from ...economics.equal_load import Finished, prefix_cache_share

#: Cells per doubling of the running requests, so that loads within a cell differ by 19
#: % at most.
LOADS_IN_DOUBLING = 4
_MAX_LOAD = LOADS_IN_DOUBLING * (len(LOADS) - 1)
#: Cells per doubling of the prompt length. They may be wide: what prompts differ by
#: within a cell widens the interval.
_PROMPTS_IN_DOUBLING = 2


class TimePerToken(Enum):
    """Which time per output token is compared: its sums of seconds, and of what these
    are summed over.
    """

    OF_REQUESTS = ("seconds", "requests")
    #: Of their tokens, for want of one by requests.
    OF_STEPS = ("step_seconds", "tokens")
    #: Of their prompt tokens: the negative control.
    OF_PREFILLS = ("prefill_seconds", "prefilled")


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


class Cells:
    """What finished in a configuration, by block of time, load and prompt length."""

    def __init__(self, *, drafting: bool = False) -> None:
        """Begin with nothing; `drafting` is whether the configuration speculates."""
        self.drafting = drafting
        #: Sums of what finished in each, by name.
        self._cells: dict[CellKey, dict[str, float]] = defaultdict(
            lambda: defaultdict(float)
        )
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
        begun: float = 0.0,
        seconds: float = 0.0,
        requests: float = 0.0,
        step_seconds: float = 0.0,
        tokens: float = 0.0,
        prefill_seconds: float = 0.0,
    ) -> None:
        """Add what finished in a block at a load; the prompt length is NaN if it is not
        known.

        Args:
            block: number of the block.
            running: running requests.
            prompt_tokens: mean tokens of a prompt.
            generated: tokens that were generated.
            begun: requests that began.
            seconds: sum of the times per output token of `requests`.
            requests: requests that finished.
            step_seconds: sum of the times of steps that generated `tokens`.
            tokens: tokens of these steps.
            prefill_seconds: sum of the times of the prefills of what began.
        """
        load = 0
        if running > 1:
            load = min(_MAX_LOAD, math.ceil(LOADS_IN_DOUBLING * math.log2(running)))
        prompt = 0
        sums = {
            "generated": generated,
            "log_load": generated * math.log(max(1.0, running)),
            "begun": begun,
            "seconds": seconds,
            "requests": requests,
            "step_seconds": step_seconds,
            "tokens": tokens,
        }
        if prompt_tokens >= 0:
            length = max(1.0, prompt_tokens)
            prompt = 1 + round(_PROMPTS_IN_DOUBLING * math.log2(length))
            sums["prompt_tokens"] = begun * prompt_tokens
        if prefill_seconds > 0 and prompt_tokens > 0:
            sums["prefill_seconds"] = prefill_seconds
            sums["prefilled"] = sums["prompt_tokens"]
        cell = self._cells[CellKey(block, load, prompt)]
        for name, value in sums.items():
            cell[name] += value

    @property
    def prefix_cache_hit_ratio(self) -> float | None:
        """Share of the prompt tokens that the prefix cache had, 0 to 1; ``None`` if
        none was looked up.
        """
        return prefix_cache_share(self.prefix_cache_hits, self.prefix_cache_queries)

    @property
    def know_prompts(self) -> bool:
        """Whether a prompt length is known."""
        return any(key.prompt for key in self._cells)

    def seconds_and_weight(self, measure: TimePerToken) -> tuple[float, float]:
        """Return the sum of the times per output token, and what it is a sum over."""
        seconds, weight = (
            math.fsum(cell[name] for cell in self._cells.values())
            for name in measure.value
        )
        return seconds, weight

    def finished(self, measure: TimePerToken) -> Iterator[tuple[CellKey, Finished]]:
        """Yield what finished in each cell, in the order of time."""
        seconds, weight = measure.value
        for key, cell in sorted(self._cells.items()):
            if cell[weight] > 0:
                yield (
                    key,
                    Finished(
                        seconds=cell[seconds],
                        weight=cell[weight],
                        log_load=cell["log_load"],
                        generated=cell["generated"],
                        begun=cell["begun"],
                        prompt_tokens=cell["prompt_tokens"],
                    ),
                )
