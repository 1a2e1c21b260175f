"""Contradictions: what the counters of two samples in succession cannot both say."""

import math

from ..judgement.messages import Message, message
from ..measures.history import Delta, Sample, counter_increase


def contradictions(previous: Sample, current: Sample) -> list[Message]:
    """Return what is inconsistent in `current`, compared with the sample before it."""
    counters = current.counters
    increase = counter_increase(previous.counters, counters)
    tolerance = counters.resolution * (counters.draft_tokens or 0.0)
    return [
        *_between_positions(increase, tolerance),
        *_beyond_drafted_positions(increase, tolerance),
        *_between_totals(increase, tolerance),
        *_between_sums(previous, current, tolerance),
    ]


def _between_positions(increase: Delta, tolerance: float) -> list[Message]:
    """A token is accepted only in a draft that was accepted up to it."""
    messages = []
    bound = math.inf if increase.drafts is None else increase.drafts
    for position, accepted in enumerate(increase.accepted_tokens_per_position):
        if accepted > bound + tolerance:
            if position == 0:
                text = message(
                    "defect.more_than_drafts", accepted=accepted, drafts=bound
                )
            else:
                text = message(
                    "defect.more_than_before",
                    accepted=accepted,
                    position=position,
                    accepted_before=bound,
                    position_before=position - 1,
                )
            messages.append(text)
        bound = accepted
    return messages


def _beyond_drafted_positions(increase: Delta, tolerance: float) -> list[Message]:
    """A token is accepted only where one was drafted, if that is counted."""
    by_position = zip(
        increase.accepted_tokens_per_position,
        increase.drafted_tokens_per_position,
        strict=False,
    )
    return [
        message(
            "defect.more_than_drafted_there",
            accepted=accepted,
            position=position,
            drafted=drafted,
        )
        for position, (accepted, drafted) in enumerate(by_position)
        if accepted > drafted + tolerance
    ]


def _between_totals(increase: Delta, tolerance: float) -> list[Message]:
    """No more tokens are accepted than drafted, nor drafted than fit into drafts."""
    messages = []
    drafted = increase.draft_tokens
    if drafted is None:
        return []
    accepted = increase.accepted_tokens
    if accepted is not None and accepted > drafted + tolerance:
        messages.append(
            message("defect.more_than_drafted", accepted=accepted, drafted=drafted)
        )
    k = len(increase.accepted_tokens_per_position)
    drafts = increase.drafts
    if k and drafts is not None and drafted > k * drafts + tolerance:
        messages.append(
            message(
                "defect.more_than_fit", drafted=drafted, most=k * drafts, drafts=drafts
            )
        )
    return messages


def _between_sums(previous: Sample, current: Sample, tolerance: float) -> list[Message]:
    """The total of accepted tokens is the sum over positions.

    Once it may differ, as counters are read at slightly different times. Twice in a
    row, the same way, it is a defect.
    """
    earlier = _surplus(previous)
    surplus = _surplus(current)
    twice = min(abs(earlier), abs(surplus)) > tolerance
    same_way = (earlier > 0) is (surplus > 0)
    if current.counters.accepted_tokens_per_position and twice and same_way:
        return [message("defect.sum_differs", surplus=surplus)]
    return []


def _surplus(sample: Sample) -> float:
    """Return the accepted tokens in excess of the sum over positions."""
    counters = sample.counters
    accepted = counters.accepted_tokens or 0.0
    return accepted - sum(counters.accepted_tokens_per_position)
