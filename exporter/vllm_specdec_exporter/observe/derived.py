"""Totals that an engine does not count but that follow from its other counters, from poll to poll.

Accepted tokens of such an engine are what it generated without a draft's help, taken off all that it
generated. So a request without drafts adds tokens that no draft had, and the difference can fall for a moment
without a restart. Draft tokens are drafts times K, which holds while K does not change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engines.reading import Counters, Drafting, EngineReading


@dataclass(frozen=True, slots=True)
class Derivation:
    """What earlier polls showed of an engine with derived totals, since its counters were last reset.

    Attributes:
        excess: tokens in the difference that no draft can have had.
        k: the newest K above 0.
        changed: whether K changed.
        paused_at: when it last was seen to draft nothing although it speculates, in seconds.
    """

    excess: float = 0.0
    k: float | None = None
    changed: bool = False
    paused_at: float | None = None


def settle(
    engine: EngineReading, earlier: Derivation, previous: Counters | None, time: float
) -> tuple[EngineReading, Derivation]:
    """Return the reading with totals that only rise, and what the next poll needs.

    Args:
        engine: a reading with derived totals.
        earlier: the result of the poll before.
        previous: the counters that were returned at the poll before; ``None`` if there are none.
        time: of the reading, in seconds.
    """
    now, drafting = engine.counters, engine.drafting
    if previous is not None and _restarted(previous, now):
        earlier, previous = Derivation(), None
    seen = _of_k(earlier, drafting, time)
    draft_tokens = None if seen.changed else now.draft_tokens
    if now.accepted_tokens is None or now.drafts is None:
        return replace(engine, counters=replace(now, draft_tokens=draft_tokens)), seen
    before, drafts = 0.0, now.drafts
    if previous is not None and None not in (previous.accepted_tokens, previous.drafts):
        before, drafts = previous.accepted_tokens or 0.0, now.drafts - (previous.drafts or 0.0)
    accepted = now.accepted_tokens - seen.excess
    k = drafting.num_speculative_tokens if drafting and not seen.changed else None
    most = before if not drafts else None if k is None else before + drafts * k
    defects = engine.defects
    if most is not None and accepted > most:
        if drafts:
            defects = (*defects, f"{accepted - most:g} tokens more than {drafts:g} drafts can have given")
        seen = replace(seen, excess=seen.excess + accepted - most)
        accepted = most
    counters = replace(now, accepted_tokens=max(before, accepted), draft_tokens=draft_tokens)
    return replace(engine, counters=counters, defects=defects), seen


def _restarted(previous: Counters, now: Counters) -> bool:
    pairs = ((previous.drafts, now.drafts), (previous.generation_tokens, now.generation_tokens))
    return any(before is not None and after is not None and after < before for before, after in pairs)


def _of_k(earlier: Derivation, drafting: Drafting | None, time: float) -> Derivation:
    if drafting is None or not drafting.verified_tokens:
        return earlier
    k = drafting.num_speculative_tokens if drafting.draft_steps else None
    other = None not in (k, earlier.k) and k != earlier.k
    return replace(
        earlier,
        k=k or earlier.k,
        changed=earlier.changed or other or drafting.draft_steps == 0,
        paused_at=time if drafting.draft_steps == 0 else earlier.paused_at,
    )


def why_no_advice(engine: EngineReading, seen: Derivation) -> str:
    """Return why no K can be advised to an engine with derived totals, empty if it lacks positions only."""
    if seen.changed:
        return "the server changes K itself (--speculative-adaptive)"
    if engine.drafting is not None and engine.drafting.tree:
        return "drafts are trees (--speculative-eagle-topk above 1), so their tokens have no positions"
    return ""
