"""Single requests with numbers chosen one by one, and what real ones had drafted."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from support.builders import requests as recorded
from vllm_specdec_exporter.requests.observation import DraftRecord, Observation, parse_record

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What one step drafted, and how much of it was accepted.
Step = tuple[int, int]


def record(steps: Sequence[Step]) -> DraftRecord:
    """The record of these steps, as a server with `detailed` has it."""
    return DraftRecord(
        len(steps), sum(d for d, _ in steps), sum(a for _, a in steps), steps=dict(Counter(steps))
    )


def totals(accepted: int, drafted: int = 100, drafts: int = 20) -> DraftRecord:
    """A record with totals only, as a server with `summary` has it."""
    return DraftRecord(drafts, drafted, accepted)


def request(accepted: int, drafted: int = 100, drafts: int = 20, **more: Any) -> Observation:
    """A request that had so many of its drafted tokens accepted."""
    known = {"time": 0.0, "model_name": "m", "temperature": 0.0, "request_type": "chat"}
    return Observation(**{**known, "record": totals(accepted, drafted, drafts), **more})


def steps(k: int = 5, *, least: int = 0, most: int = 40) -> st.SearchStrategy[list[Step]]:
    """Steps that draft up to `k` tokens; none where a grammar struck all of them out."""
    step = st.integers(0, k).flatmap(lambda d: st.tuples(st.just(d), st.integers(0, d)))
    return st.lists(step, min_size=least, max_size=most)


@cache
def real_records(scenario: str) -> tuple[DraftRecord, ...]:
    """What a real vLLM said of every request of a capture."""
    return tuple(parse_record(found["spec"]) for found in recorded(scenario))
