"""TensorRT-LLM: what follows from its counters by position and its configuration."""

from collections.abc import Mapping
from typing import Any

from .dialect import DRAFTED_PER_POSITION, MAX_POSITIONS, PER_POSITION, Formula


def _whole(text: str) -> float | None:
    # A label is text of any kind; no engine drafts a thousand tokens.
    if text.isascii() and text.isdecimal() and len(text) < 4:
        return float(text)
    return None


def _verified_tokens(values: Mapping[str, Any]) -> float:
    if values["spec_enabled"].lower() != "true":
        return 0.0
    k: float = values["num_speculative_tokens"]
    return k + 1


def _drafts(values: Mapping[str, Any]) -> float | None:
    """Return the drafts: those that had a token at the first position."""
    if DRAFTED_PER_POSITION in values:
        drafts: float = values[DRAFTED_PER_POSITION][0]
        return drafts
    # The other counters show whether the server counts drafts.
    if "generation_tokens" in values and not values.get("drafted_in_iterations"):
        return 0.0
    return None


def _padded(values: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the accepted tokens of every position; a count of 0 is not printed."""
    accepted: tuple[float, ...] = values.get(PER_POSITION, ())
    configured = min(int(values.get("num_speculative_tokens", 0)), MAX_POSITIONS)
    positions = max(len(values[DRAFTED_PER_POSITION]), configured)
    return accepted + (0.0,) * (positions - len(accepted))


#: Without any draft, `drafts` is 0, and so are the sums.
DERIVED: Mapping[str, Formula] = {
    "num_speculative_tokens": lambda v: _whole(v["spec_num_tokens"]),
    "verified_tokens": _verified_tokens,
    "method": lambda v: v["spec_method"].lower(),
    "drafts": _drafts,
    "draft_tokens": lambda v: v["drafts"] and sum(v[DRAFTED_PER_POSITION]),
    "accepted_tokens": lambda v: v["drafts"] and sum(_padded(v)),
    PER_POSITION: _padded,
}
