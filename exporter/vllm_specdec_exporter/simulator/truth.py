"""The exact totals behind what a simulated server publishes."""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field

from .engine import Engine
from .speculation import DraftTotals


@dataclass(frozen=True)
class Truth:
    """Exact totals, kept apart from what is published.

    Attributes:
        drafts: Drafts verified.
        draft_tokens: Tokens in them.
        accepted_tokens: Tokens accepted, bonus tokens not counted.
        accepted_per_position: Drafts in which the token at this position was accepted.
        accepted_per_draft: Drafts of which exactly 0, 1, 2, ... tokens were accepted.
        generation_tokens: Tokens generated, with and without drafts.
        finished_requests: Requests answered.
    """

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    accepted_per_position: tuple[int, ...]
    accepted_per_draft: tuple[int, ...]
    generation_tokens: int
    finished_requests: int


@dataclass
class Ledger:
    """Totals of engines that are gone, to which those of others can be added."""

    drafts: DraftTotals = field(default_factory=DraftTotals)
    generation_tokens: int = 0
    finished_requests: int = 0

    def add(self, engines: Iterable[Engine]) -> "Ledger":
        """Add the totals of engines; return the ledger."""
        for engine in engines:
            self.drafts.add(engine.totals)
            self.generation_tokens += int(engine.measurements.get("generation_tokens"))
            self.finished_requests += engine.finished_requests
        return self

    def truth(self, engines: Iterable[Engine] = ()) -> Truth:
        """Return the totals of the ledger and of further engines, leaving the ledger as it is."""
        total = deepcopy(self).add(engines)
        return Truth(
            drafts=total.drafts.drafts,
            draft_tokens=total.drafts.draft_tokens,
            accepted_tokens=total.drafts.accepted_tokens,
            accepted_per_position=tuple(total.drafts.accepted_per_position),
            accepted_per_draft=tuple(total.drafts.accepted_per_draft),
            generation_tokens=total.generation_tokens,
            finished_requests=total.finished_requests,
        )
