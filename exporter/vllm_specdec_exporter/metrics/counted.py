"""What the server counted, under one name whatever its dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..metric import Kind, Metric, Scope, each, row_of
from .upstream import ACCEPTED, DRAFT_TOKENS, DRAFTS, GENERATED, PER_POSITION

if TYPE_CHECKING:
    from ..metric import Samples
    from ..reading import Counters

_engine_counter = row_of(Scope.ENGINE, Kind.COUNTER)
_engine_histogram = row_of(Scope.ENGINE, Kind.HISTOGRAM)


def _reaching(counters: Counters) -> Samples:
    """Yield the drafts that got as far as each position: those accepted at the one before."""
    if counters.drafts is None or not counters.accepted_tokens_per_position:
        return ()
    return each((counters.drafts, *counters.accepted_tokens_per_position[:-1]))


#: Counters of an engine.
COUNTED: tuple[Metric, ...] = (
    _engine_counter(
        "drafts_total",
        "Verified drafts: one request in one step with drafted tokens.",
        DRAFTS,
        field="counters.drafts",
    ),
    _engine_counter(
        "draft_tokens_total",
        "Drafted tokens that were verified.",
        DRAFT_TOKENS,
        field="counters.draft_tokens",
    ),
    _engine_counter(
        "accepted_tokens_total",
        "Drafted tokens that were accepted; the bonus token of each draft does not count.",
        ACCEPTED,
        field="counters.accepted_tokens",
    ),
    _engine_counter(
        "accepted_tokens_per_position_total",
        "Drafts in which the token at this position, counted from 0, was accepted.",
        PER_POSITION,
        field="counters.accepted_tokens_per_position",
        expand=each,
        labels=("position",),
    ),
    _engine_counter(
        "drafts_reaching_position_total",
        "Drafts in which every position before this one was accepted: the ones behind its conditional "
        "acceptance. At position 0, all.",
        DRAFTS,
        PER_POSITION,
        field="counters",
        expand=_reaching,
        labels=("position",),
    ),
    _engine_counter(
        "generation_tokens_total",
        "Generated tokens, with and without speculation.",
        GENERATED,
        field="counters.generation_tokens",
    ),
    _engine_histogram(
        "accepted_tokens_per_draft",
        "Distribution of accepted tokens per draft, recovered exactly: the drafts with at most j "
        "accepted tokens are all drafts less those accepted at position j.",
        DRAFTS,
        PER_POSITION,
        ACCEPTED,
    ),
)
