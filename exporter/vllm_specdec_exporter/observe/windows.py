"""The increase within each window, of the positions that its drafts had."""

from msgspec.structs import replace

from ..economics.speculative_config import Speculation
from ..measures.history import Delta, SampleHistory, Window, window_delta
from .settings import Settings


def window_deltas(
    history: SampleHistory, settings: Settings, time: float
) -> dict[Window, Delta]:
    """Return the increase within each window that holds two samples; `time` is that of
    the poll.
    """
    deltas = {}
    for window in settings.windows:
        delta = window_delta(history, window, settings.slack)
        if delta is not None:
            since = time - window.seconds - settings.slack
            k = _scheduled_k(settings.speculation, history, since)
            minimum = settings.thresholds.minimum_drafts
            deltas[window] = _without_undrafted(delta, k, minimum)
    return deltas


def _scheduled_k(
    speculation: Speculation, history: SampleHistory, since: float
) -> int | None:
    """Return the K that a schedule had since a time, ``None`` if that is not known."""
    if not speculation.schedule:
        return None
    batches = history.batch_sizes(since)
    if batches is None:
        return None
    return speculation.scheduled_k_of(*batches)


def _without_undrafted(
    delta: Delta, scheduled_k: int | None, minimum_drafts: float
) -> Delta:
    """Return the increase without the deep positions that no draft of the window had.

    A K schedule leaves them out: `scheduled_k` is the K that it had in the whole
    window, if that is known. Without one, or if the server does not follow it, all
    drafts, `minimum_drafts` of them or more, had as many tokens, and none was accepted
    beyond.
    """
    drafts = delta.drafts
    tokens = delta.draft_tokens
    positions = delta.accepted_tokens_per_position
    if not drafts or not tokens or delta.drafted_tokens_per_position:
        return delta
    equal_length = 0
    if tokens % drafts == 0 and drafts >= minimum_drafts:
        equal_length = int(tokens / drafts)
    for k in (scheduled_k or 0, equal_length):
        if 0 < k < len(positions) and not any(positions[k:]) and tokens <= k * drafts:
            return replace(delta, accepted_tokens_per_position=positions[:k])
    return delta
