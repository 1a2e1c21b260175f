"""Consistency: what must hold between an engine's counters, and where an answer breaks it.

vLLM raises its four counters one after another while another thread prints them, so one answer may hold
the drafts of one step and the accepted tokens of the step before. Over a step from one sample to the next
these must hold::

    accepted per position <= drafts                  (position 0 is accepted at most once a draft)
    accepted at position i <= accepted at i - 1      (a token counts only behind accepted ones)
    accepted tokens <= draft tokens <= K * drafts
    accepted tokens = sum over positions             (but a torn answer may break it for one sample)

Totals that a server prints rounded may break them by as much as the rounding. What is not known breaks
nothing.

All are linear, so a window can only break them where one of its steps does: every step is checked and
counted once, and the values of a window are clamped without counting again. Coverage is clamped without
counting at all: vLLM counts tokens accepted behind the end of an answer, so a little over 1 is usual.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .window import delta

if TYPE_CHECKING:
    from .history import Sample


def defects(previous: Sample, current: Sample) -> tuple[str, ...]:
    """Return in words what is inconsistent in `current`, given the sample before it in the same life."""
    found = []
    step = delta(previous, current)
    positions = step.accepted_tokens_per_position
    blur = current.counters.resolution * (current.counters.draft_tokens or 0.0)
    bound = math.inf if step.drafts is None else step.drafts
    for position, accepted in enumerate(positions):
        if accepted > bound + blur:
            of = "drafts" if position == 0 else f"accepted at position {position - 1}"
            found.append(f"{accepted:g} accepted at position {position}, but only {bound:g} {of}")
        bound = accepted
    total, drafted = step.accepted_tokens, step.draft_tokens
    if total is not None and drafted is not None and total > drafted + blur:
        found.append(f"{total:g} accepted tokens, but only {drafted:g} draft tokens")
    most = len(positions) * (step.drafts or 0.0)
    if positions and step.drafts is not None and drafted is not None and drafted > most + blur:
        found.append(f"{drafted:g} draft tokens, but at most {most:g} in {step.drafts:g} drafts")
    before, now = _surplus(previous), _surplus(current)
    if positions and min(abs(before), abs(now)) > blur and (before > 0) is (now > 0):
        found.append(f"accepted tokens differ from the sum over positions by {now:+g}, twice in a row")
    return tuple(found)


def _surplus(sample: Sample) -> float:
    counters = sample.counters
    return (counters.accepted_tokens or 0.0) - sum(counters.accepted_tokens_per_position)
