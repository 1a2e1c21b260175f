"""Single requests with numbers chosen one by one, and what real ones had drafted."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import fields

from support.builders import requests as recorded
from vllm_specdec_exporter.per_request.observation import Observation
from vllm_specdec_exporter.per_request.records import DraftRecord, parse_record
from vllm_specdec_exporter.per_request.summary import RequestsResult

#: What one step drafted, and how much of it was accepted.
Step = tuple[int, int]


def record(steps: Sequence[Step]) -> DraftRecord:
    """The record of these steps, as a server with `detailed` has it."""
    return DraftRecord(
        len(steps),
        sum(d for d, _ in steps),
        sum(a for _, a in steps),
        steps=dict(Counter(steps)),
    )


def totals(accepted: int, drafted: int = 100, drafts: int = 20) -> DraftRecord:
    """A record with totals only, as a server with `summary` has it."""
    return DraftRecord(drafts, drafted, accepted)


def request(
    accepted: int, drafted: int = 100, drafts: int = 20, **more: Any
) -> Observation:
    """A request that had so many of its drafted tokens accepted."""
    usual = {"time": 0.0, "model_name": "m", "temperature": 0.0, "request_type": "chat"}
    return Observation(**{**usual, "record": totals(accepted, drafted, drafts), **more})


def counters(found: RequestsResult) -> dict[Any, float]:
    """Every counter in a result, by its labels and name."""
    counted = {("rejected",): found.push_rejected_total}
    counted |= {(o.source, o.record): o.requests for o in found.observations}
    owners = [((g.model_name, g.temperature, g.request_type), g) for g in found.groups]
    owners += [((t.model_name, t.tenant), t) for t in found.tenants]
    assert len(dict(owners)) == len(owners), "two groups have the same labels"
    for labels, owner in owners:
        for field in fields(owner):
            value = getattr(owner, field.name)
            if isinstance(value, dict):
                counted |= {
                    (*labels, field.name, name): count for name, count in value.items()
                }
            elif isinstance(value, int):
                counted[*labels, field.name] = value
    for model in found.models:
        for name in ("drafted_per_position", "accepted_per_position"):
            counted |= {
                (model.model_name, name, i): n
                for i, n in enumerate(getattr(model, name))
            }
    return counted


def steps(
    k: int = 5, *, least: int = 0, most: int = 40
) -> st.SearchStrategy[list[Step]]:
    """Steps that draft up to `k` tokens; none where a grammar struck all out."""
    step = st.integers(0, k).flatmap(lambda d: st.tuples(st.just(d), st.integers(0, d)))
    return st.lists(step, min_size=least, max_size=most)


@cache
def real_records(scenario: str) -> tuple[DraftRecord, ...]:
    """What a real vLLM said of every request of a capture."""
    return tuple(parse_record(row["spec"]) for row in recorded(scenario))
