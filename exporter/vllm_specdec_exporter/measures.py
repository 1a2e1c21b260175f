"""Measures: the values derived from what happened within a window.

All follow from the increases of the counters. Vocabulary and sources: vLLM's own definitions
(`vllm/v1/spec_decode/metrics.py`) for acceptance ratio, mean acceptance length and position ratios; the
rest is arithmetic on them:

* a *draft* is one verification: one request in one step with drafted tokens;
* it emits its accepted tokens plus one *bonus* token, hence the 1 in every length;
* `accepted at i` counts the drafts that had more than i tokens accepted, so each position is conditional on
  the ones before it, and a smaller K would have given exactly the first of them.

A ratio whose denominator is 0 is ``None``: it does not exist. Ratios are clamped to their range, because an
answer may be torn between two counters; `consistency` counts such answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

# These stand in annotations that are read at run time, to decode and to describe the JSON.
from .baseline.match import Measured
from .economics.estimate import Estimate
from .economics.returns import Return
from .latency import Latency

if TYPE_CHECKING:
    from .window import Delta

#: Where drafts hold fewer than this share of K tokens on average, deep positions are understated.
FULL_DRAFT_SHARE = 0.95

#: The name of the window of values that a server itself averages over its whole life (vLLM V0).
LIFETIME = "lifetime"


@dataclass(frozen=True, slots=True)
class Measures:
    """Everything derived from one window of one engine. ``None`` or an empty tuple: cannot be known.

    Attributes:
        window: the window's name, such as ``5m``; ``lifetime`` for means over a server's whole life (V0).
        span_seconds: the real distance of the samples behind the values; at first shorter than the window.
        drafts: drafts in the window: the sample size of every ratio here.
        acceptance_ratio: accepted over draft tokens, 0 to 1.
        mean_acceptance_length: tokens emitted per draft, 1 to 1 + K: 1 + accepted / drafts.
        position_acceptance_ratio: at index i, the share of drafts in which position i was accepted.
        position_conditional_acceptance_ratio: at index i, the share of the drafts accepted at i - 1 that
            were accepted at i; at 0, of all drafts. ``None`` where no draft got that far.
        expected_tokens_per_step: 1 + the sum of the position ratios.
        mean_acceptance_length_at: at index i, the mean acceptance length that K = i + 1 would have given.
        mean_draft_length: draft tokens per draft, 0 to K.
        position_decay_ratio: geometric mean of the conditional ratios behind position 0, 0 to 1.
        coverage_ratio: share of the generated tokens that came out of drafts, 0 to 1.
        drafts_per_second: rate over the real span; the next three likewise, in tokens per second.
        batch_size: requests in the batch, averaged over the drafts.
        estimate: what speculation gains by the cost profile.
        measured: what it gains against the baseline at the same load.
        returns: the published return on speculation.
        latencies: how long the requests that finished in the window took, where that is read.
    """

    window: str
    span_seconds: float | None = None
    drafts: float | None = None
    acceptance_ratio: float | None = None
    mean_acceptance_length: float | None = None
    position_acceptance_ratio: tuple[float, ...] = ()
    position_conditional_acceptance_ratio: tuple[float | None, ...] = ()
    expected_tokens_per_step: float | None = None
    mean_acceptance_length_at: tuple[float, ...] = ()
    mean_draft_length: float | None = None
    position_decay_ratio: float | None = None
    coverage_ratio: float | None = None
    drafts_per_second: float | None = None
    draft_tokens_per_second: float | None = None
    accepted_tokens_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    batch_size: float | None = None
    estimate: Estimate = Estimate()
    measured: Measured = Measured()
    returns: Return = Return()
    latencies: tuple[Latency, ...] = ()

    @property
    def drafts_vary(self) -> bool:
        """Whether drafts are shorter than K often enough to understate the deep positions.

        Position ratios divide by all drafts, also by those too short to reach the position. n-gram and
        suffix drafting, a K schedule and drafts cut short at the end of a request all do this.
        """
        k = len(self.position_acceptance_ratio)
        return self.mean_draft_length is not None and self.mean_draft_length < FULL_DRAFT_SHARE * k


def derive(window: str, delta: Delta) -> Measures:
    """Return the measures of `delta`, the increases within the window called `window`."""
    drafts, draft_tokens, accepted = delta.drafts, delta.draft_tokens, delta.accepted_tokens
    k = len(delta.accepted_tokens_per_position)
    positions = survival(delta.accepted_tokens_per_position, drafts or 0.0)
    conditional = _conditional(positions)
    lengths = _lengths(positions)
    per_draft = _mean(accepted, drafts, k)
    emitted = None if drafts is None or accepted is None else drafts + accepted
    return Measures(
        window=window,
        span_seconds=delta.span,
        drafts=drafts or 0.0,
        acceptance_ratio=_ratio(accepted, draft_tokens),
        mean_acceptance_length=None if per_draft is None else 1 + per_draft,
        position_acceptance_ratio=positions,
        position_conditional_acceptance_ratio=conditional,
        expected_tokens_per_step=lengths[-1] if lengths else None,
        mean_acceptance_length_at=lengths,
        mean_draft_length=_mean(draft_tokens, drafts, k),
        position_decay_ratio=_decay(conditional),
        coverage_ratio=_ratio(emitted, delta.generation_tokens),
        drafts_per_second=_rate(delta.drafts, delta.span),
        draft_tokens_per_second=_rate(delta.draft_tokens, delta.span),
        accepted_tokens_per_second=_rate(delta.accepted_tokens, delta.span),
        generation_tokens_per_second=_rate(delta.generation_tokens, delta.span),
        batch_size=delta.batch_size,
        latencies=delta.latencies,
    )


def derive_lifetime(acceptance_ratio: float | None, efficiency: float | None, k: int | None) -> Measures:
    """Return what vLLM V0's two gauges tell: means over the server's whole life.

    Args:
        acceptance_ratio: accepted over draft tokens since the start.
        efficiency: emitted tokens over the most possible, which is K + 1 a draft.
        k: drafted tokens per draft, where known; without it there is no mean acceptance length.
    """
    return Measures(
        window=LIFETIME,
        acceptance_ratio=None if acceptance_ratio is None else min(acceptance_ratio, 1.0),
        mean_acceptance_length=None
        if efficiency is None or k is None
        else min(max(1.0, efficiency * (k + 1)), k + 1.0),
    )


def _ratio(part: float | None, whole: float | None) -> float | None:
    return min(part / whole, 1.0) if part is not None and whole else None


def _rate(increase: float | None, span: float) -> float | None:
    return None if increase is None or span <= 0 else increase / span


def _mean(tokens: float | None, drafts: float | None, k: int) -> float | None:
    """Return tokens per draft, of which there are at most K where K is known."""
    if tokens is None or not drafts:
        return None
    return min(tokens / drafts, k) if k else tokens / drafts


def survival(accepted: tuple[float, ...], drafts: float) -> tuple[float, ...]:
    """Return the share of drafts accepted at each position; none may exceed the one before it."""
    if drafts <= 0:
        return ()
    ratios, bound = [], 1.0
    for count in accepted:
        bound = min(count / drafts, bound)
        ratios.append(bound)
    return tuple(ratios)


def _conditional(survival: tuple[float, ...]) -> tuple[float | None, ...]:
    before = (1.0, *survival[:-1])
    return tuple(
        here / earlier if earlier > 0 else None
        for here, earlier in zip(survival, before, strict=False)  # without drafts there is only the 1
    )


def _lengths(survival: tuple[float, ...]) -> tuple[float, ...]:
    lengths, total = [], 1.0
    for ratio in survival:
        total += ratio
        lengths.append(total)
    return tuple(lengths)


def _decay(conditional: tuple[float | None, ...]) -> float | None:
    behind_first = [ratio for ratio in conditional[1:] if ratio is not None]
    if not behind_first:
        return None
    return math.prod(behind_first) ** (1 / len(behind_first))
