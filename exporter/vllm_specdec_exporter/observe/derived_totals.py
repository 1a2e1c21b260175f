"""Derived totals: those that an engine does not count, but that follow from its other
counters. Here they are made to rise.

Accepted tokens of such an engine are what it generated without a draft's help, taken
off all that it generated. So a request without drafts adds tokens that no draft had,
and the difference can fall for a moment without a restart. Draft tokens are drafts
times K, which holds while K does not change.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ..engines.dialect import MAX_POSITIONS
from ..engines.reading import Counters, Drafting, EngineReading
from ..judgement.messages import message
from ..measures.history import counters_reset


class Derivation(Struct, frozen=True):
    """What earlier polls showed of an engine with derived totals, since its counters
    were last reset.
    """

    excess: float = 0.0  # tokens in the difference that no draft can have had
    #: Of them, those of the newest answer: it may lack the drafts that they came from.
    newest_excess: float = 0.0
    #: Drafts of the newest answer that lacks their tokens.
    tokenless_drafts: float = 0.0
    k: float | None = None  # the newest K above 0
    changed: bool = False  # whether K changed
    #: The most tokens of a draft that can be accepted, by the largest K; 0 if not
    #: known.
    longest: float = 0.0
    #: When it last was seen to draft nothing although it speculates, in seconds.
    paused_at: float | None = None

    def with_drafting(self, drafting: Drafting | None, time: float) -> Derivation:
        """Return what is known after another poll at `time`, by its gauges."""
        if drafting is None or not drafting.verified_tokens:
            return self
        # Not by the steps: SGLang prints 0 of them for n-gram drafts.
        k = drafting.num_speculative_tokens
        changed = self.changed or k == 0 or (self.k is not None and k != self.k)
        return replace(
            self,
            k=k or self.k,
            changed=changed,
            longest=max(self.longest, drafting.depth or 0.0),
            paused_at=time if k == 0 else self.paused_at,
        )

    def interrupt(self) -> Derivation:
        """Return what is known after a failed poll: another K after it may be that of
        another process, so it shows no change.
        """
        return replace(self, k=None)


def with_rising_totals(
    engine: EngineReading,
    previous: Counters | None,
    derivation: Derivation,
    time: float,
) -> tuple[EngineReading, Derivation]:
    """Return the reading with totals that only rise, and what the next poll needs.

    `previous` are the counters of the sample before it, with totals that rise; `time`
    is that of the poll, in seconds.
    """
    if not engine.derived:
        return engine, derivation
    counters = engine.counters
    if previous is not None and counters_reset(_counted(previous), _counted(counters)):
        derivation = Derivation()
        previous = None
    derivation = derivation.with_drafting(engine.drafting, time)
    # Drafts times K, of which some had another K.
    if derivation.changed:
        counters = replace(counters, draft_tokens=None)
    if counters.accepted_tokens is None or counters.drafts is None:
        return replace(engine, counters=counters), derivation
    return _rising(engine, counters, previous or Counters(), derivation)


def _rising(
    engine: EngineReading,
    counters: Counters,
    previous: Counters,
    derivation: Derivation,
) -> tuple[EngineReading, Derivation]:
    """Return the reading with as many accepted tokens as its drafts can have given, and
    no fewer than before.
    """
    drafts = counters.drafts or 0.0
    generated = counters.generation_tokens or 0.0
    accepted_before = 0.0
    if previous.accepted_tokens is not None and previous.drafts is not None:
        drafts -= previous.drafts
        generated -= previous.generation_tokens or 0.0
        accepted_before = previous.accepted_tokens
    # Each draft gives a token, so these drafts and their tokens are in two answers.
    torn = drafts > generated
    excess = derivation.excess
    if torn:
        excess -= derivation.newest_excess
    accepted = (counters.accepted_tokens or 0.0) - excess
    possible_drafts = drafts + derivation.tokenless_drafts
    possible = accepted_before + possible_drafts * (derivation.longest or MAX_POSITIONS)
    beyond = max(0.0, accepted - possible)
    defects = engine.defects
    if beyond and drafts:
        defects = (
            *defects,
            message("defect.more_than_given", tokens=beyond, drafts=drafts),
        )
    counters = replace(
        counters, accepted_tokens=max(accepted_before, accepted - beyond)
    )
    tokenless = torn and not derivation.newest_excess
    derivation = replace(
        derivation,
        excess=excess + beyond,
        newest_excess=beyond,
        tokenless_drafts=drafts if tokenless else 0.0,
    )
    return replace(engine, counters=counters, defects=defects), derivation


def _counted(counters: Counters) -> Counters:
    """Return the counters without the totals that are derived, which may fall without a
    reset.
    """
    return replace(counters, draft_tokens=None, accepted_tokens=None)


def why_unadvisable(engine: EngineReading, derivation: Derivation) -> str:
    """Return why no K can be advised to an engine with derived totals, empty if it
    lacks positions only.
    """
    if not engine.derived:
        return ""
    if derivation.changed:
        return message("unadvisable.k_changes")
    if engine.drafting is None or not engine.drafting.tree:
        return ""
    if engine.drafting.topk is None:
        return message("unadvisable.trees_or_blocks")
    return message("unadvisable.trees")
