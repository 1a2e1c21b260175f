"""StepCounts: acceptance where a position was drafted, and what another K would draft, against each step."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from per_request.exact import Step, record, steps
from vllm_specdec_exporter.per_request.observation import DraftRecord
from vllm_specdec_exporter.per_request.recent_window import StepCounts


def positions(*records: DraftRecord) -> StepCounts:
    found = StepCounts()
    for each in records:
        found.change(each.steps)
    return found


class TestCounting:
    @given(st.lists(steps(k=6), max_size=6))
    def test_against_every_step(self, requests: list[list[Step]]) -> None:
        """Counted over requests: the same as looking at each step by itself."""
        found = positions(*map(record, requests))
        every = [step for request in requests for step in request]
        deepest = max((drafted for drafted, _ in every), default=0)

        assert found.drafts == len(every)
        assert found.drafted == tuple(sum(d > i for d, _ in every) for i in range(deepest))
        assert found.accepted == tuple(sum(a > i for _, a in every) for i in range(deepest))
        assert found.ratios == tuple(
            sum(a > i for _, a in every) / sum(d > i for d, _ in every) for i in range(deepest)
        )


class TestShape:
    @given(steps(k=6, least=1), st.integers(0, 6))
    @example([(4, 0), (0, 0)], 2)
    def test_any_smaller_k(self, found: list[Step], k: int) -> None:
        """A draft that is cut off behind K holds min(drafted, K) tokens; all drafts count, as in vLLM."""
        shape = positions(record(found)).shape
        exact = sum(min(drafted, k) for drafted, _ in found) / len(found)

        assert shape.of(6).length(k) == pytest.approx(exact)
        assert shape.of(6).mean_length == pytest.approx(sum(d for d, _ in found) / len(found))

    @given(st.integers(1, 4).flatmap(lambda k: st.tuples(st.just(k), steps(k=k, least=1))), st.integers(0, 5))
    @example((1, [(1, 1), (0, 0)]), 2)
    def test_a_larger_k(self, drafted: tuple[int, list[Step]], more: int) -> None:
        """Drafts that K cut off go on, the others stay as they are."""
        present, found = drafted
        shape = positions(record(found)).shape.of(present)
        longer = sum(d + more if d == present else d for d, _ in found) / len(found)

        assert shape.length(present + more) == pytest.approx(longer)
