"""What drafts delivered: their tokens that can have reached an answer.

vLLM counts a draft when it is verified, before the end of the answer is looked for. So
tokens accepted behind `max_tokens` or an end-of-sequence token count, K tokens are
drafted even if one is left, and a request with one uncached token is padded with a
draft that nobody made, in the step of its first token. Generated tokens are counted
behind that cut, so they bound what drafts gave::

    decoded tokens     = generated tokens - first tokens of requests
    steps without      = steps behind first tokens - drafts, a token from each
    delivered by drafts <= decoded tokens - steps without

Steps are counted by vLLM's inter-token latency, where it observes steps; without it,
none without drafts is known. Tokens behind a stop string count as generated as well,
because it is found behind the engine: no counter shows them. They are at most the last
draft of each request that stopped, but for its first token and what was cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from .history import Delta

#: Share below which a difference is that of floats: totals of several engines are
#: computed from their rates.
_ROUNDING = 1e-9
#: Steps below which there was none: they are counted in whole, but totals of several
#: engines come from their rates.
_NO_STEP = 0.5
#: Requests for each decode step from which the batch size is uncertain by more than the
#: cost of a step, which a calibration knows to 5 %: answers of less than 20 steps.
_SHORT_ANSWERS = 0.05


class Delivered(Struct, frozen=True):
    """The drafts of a window that can have emitted a token, and the most that they can
    have emitted.
    """

    drafts: float  # without those that pad the step of a first token
    tokens: float  # accepted and bonus tokens, at least `drafts`
    #: Share of the counted tokens (accepted tokens + all drafts) that reached no
    #: answer, 0 to 1: the least that it can be.
    undelivered_ratio: float = 0.0
    behind_stops: float = 0.0  # the most of `tokens` that may lie behind stop strings

    @property
    def accepted_tokens(self) -> float:
        """The most accepted tokens that can have reached an answer."""
        return self.tokens - self.drafts

    @property
    def length(self) -> float | None:
        """Tokens per draft, from 1 up; ``None`` without a draft that emitted any."""
        if not self.drafts:
            return None
        return self.tokens / self.drafts

    @property
    def least_length(self) -> float | None:
        """The same without what may lie behind stop strings."""
        if not self.drafts:
            return None
        return max(1.0, (self.tokens - self.behind_stops) / self.drafts)


def delivered(delta: Delta) -> Delivered | None:
    """Return what the drafts of a window delivered; ``None`` if drafts or accepted
    tokens are not known.
    """
    accepted = delta.accepted_tokens
    if delta.drafts is None or accepted is None:
        return None
    counted = delta.drafts + accepted
    decoded = decoded_tokens(delta)
    if decoded is None or not counted:
        return Delivered(delta.drafts, counted)
    steps = decoded
    undrafted = 0.0
    counted_steps = _counted_steps(delta)
    if counted_steps is not None:
        steps = min(counted_steps, decoded)
        undrafted = max(0.0, steps - delta.drafts)
    drafts = min(delta.drafts, steps)
    tokens = 0.0
    if drafts:
        tokens = min(drafts + accepted, decoded - undrafted)
    undelivered = 1 - tokens / counted
    if undelivered < _ROUNDING:
        undelivered = 0.0
    behind_stops = 0.0
    if drafts and delta.stopped_requests:
        of_last_drafts = delta.stopped_requests * (counted / delta.drafts - 1)
        cut_off = counted - tokens
        behind_stops = max(0.0, of_last_drafts - cut_off)
    return Delivered(drafts, tokens, undelivered, behind_stops)


def _counted_steps(delta: Delta) -> float | None:
    """Return the steps of each request behind its first token, ``None`` where the
    engine does not count them.

    None at all contradict the tokens: then they are not counted either.
    """
    if delta.decode_steps is None or delta.decode_steps < _NO_STEP:
        return None
    return delta.decode_steps


def decoded_tokens(delta: Delta) -> float | None:
    """Return the generated tokens behind the first ones, which come from prefill.

    ``None`` if generated tokens are not known. None at all beside drafts are not known
    either: the engine counts them later, or not.
    """
    if not delta.generation_tokens:
        return None
    return max(0.0, delta.generation_tokens - (delta.first_tokens or 0.0))


def within_length(survival: Sequence[float], length: float) -> tuple[float, ...]:
    """Return the share of drafts in which each position reached an answer, if drafts
    delivered `length` tokens.

    The end of an answer cuts off the deepest positions.
    """
    lengths = [min(each, length) for each in accumulate(survival, initial=1.0)]
    return tuple(longer - shorter for shorter, longer in pairwise(lengths))


def batch_size_high(delta: Delta, gained: Delivered | None) -> float | None:
    """Return the most requests that the batch can have had on average, where drafts
    delivered this; ``None`` if that hardly differs from its size by the gauge, or is
    not known.

    The gauge is that behind a step. A request with few steps is missing behind its last
    one: of a request with a prefill and one decode step, it shows half.
    """
    decoded = decoded_tokens(delta)
    if delta.batch_size is None or gained is None or not decoded:
        return None
    steps = _counted_steps(delta) or decoded - gained.accepted_tokens
    if steps < _NO_STEP:
        return None
    missing = (delta.first_tokens or 0.0) / steps
    if missing < _SHORT_ANSWERS:
        return None
    return delta.batch_size * (1 + missing)
