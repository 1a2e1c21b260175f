"""Positions: acceptance where a position was drafted, and what another K would draft, against each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from per_request.exact import Step, real_records, record, steps
from support.builders import final_answer
from vllm_specdec_exporter.dialects import read
from vllm_specdec_exporter.per_request.positions import DraftShape, Positions

if TYPE_CHECKING:
    from vllm_specdec_exporter.per_request.record import DraftRecord

SCENARIOS = ["ngram-phases", "dp2"]


def positions(*records: DraftRecord) -> Positions:
    found = Positions()
    for each in records:
        found.add(each.steps)
    return found


class TestCounting:
    def test_by_hand(self) -> None:
        """Long drafts say something of deep positions, short ones nothing."""
        found = positions(record([(4, 4), (4, 1), (2, 2), (1, 0)]))

        assert (found.drafted, found.accepted) == ((4, 3, 2, 2), (3, 2, 1, 1))
        assert found.ratios == (3 / 4, 2 / 3, 1 / 2, 1 / 2)
        assert found.mean_lengths == (4 / 4, 7 / 4, 9 / 4, 11 / 4)
        assert found.drafts == 4

    @pytest.mark.parametrize("found", [[], [(0, 0)], [(0, 0), (0, 0)]])
    def test_no_position_at_all(self, found: list[Step]) -> None:
        """Where nothing was drafted there is no position."""
        counted = positions(record(found))

        assert (counted.drafted, counted.accepted, counted.ratios, counted.mean_lengths) == ((), (), (), ())
        assert counted.shape.length(3) == 0

    def test_a_position_that_nothing_reached(self) -> None:
        """Drafted and never accepted: a share of 0, not one that is missing."""
        assert positions(record([(3, 0), (2, 1)])).ratios == (1 / 2, 0.0, 0.0)

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

    @given(st.lists(steps(k=3, least=1)))
    def test_it_grows_with_what_can_differ(self, requests: list[list[Step]]) -> None:
        """Steps that are alike take no more room than one."""
        assert len(positions(*map(record, requests)).steps) <= 10


class TestShape:
    @given(steps(k=6, least=1), st.integers(0, 6))
    @example([(4, 0), (0, 0)], 2)
    def test_any_smaller_k(self, found: list[Step], k: int) -> None:
        """A draft that is cut off behind K holds min(drafted, K) tokens; all drafts count, as in vLLM."""
        shape = positions(record(found)).shape
        exact = sum(min(drafted, k) for drafted, _ in found) / len(found)

        assert shape.of(6).length(k) == pytest.approx(exact)
        assert shape.of(6).mean_length == pytest.approx(sum(d for d, _ in found) / len(found))

    @given(steps(k=4, least=1), st.integers(4, 9))
    def test_a_larger_k(self, found: list[Step], k: int) -> None:
        """Drafts that K cut off go on, the others stay as they are."""
        shape = positions(record(found)).shape.of(4)
        longer = sum(k if drafted == 4 else drafted for drafted, _ in found) / len(found)

        assert shape.length(k) == pytest.approx(longer)

    def test_drafts_that_never_reach_k(self) -> None:
        """Where the drafter finds no more than two tokens, a K of 4, 5 or 9 drafts two."""
        shape = positions(record([(2, 1), (2, 2), (1, 1)])).shape.of(4)

        assert [shape.length(k) for k in (1, 2, 3, 4, 5, 9)] == pytest.approx([1, *[5 / 3] * 5])

    def test_nothing_known(self) -> None:
        """Without detailed records nothing is said of lengths."""
        shape = DraftShape(0, ())

        assert (shape.mean_length, shape.length(1), shape.of(4).length(2)) == (0.0, 0.0, 0.0)


class TestRealServer:
    @pytest.mark.parametrize("scenario", SCENARIOS)
    def test_the_servers_own_counters(self, scenario: str) -> None:
        """What the records say of positions and lengths is what the server counted of all drafts."""
        engines = [engine.counters for engine in read(final_answer(scenario)).engines]
        found = positions(*real_records(scenario))
        by_position = zip(*(engine.accepted_tokens_per_position for engine in engines), strict=True)

        assert found.drafts == sum(engine.drafts or 0 for engine in engines)
        assert found.accepted == tuple(map(sum, by_position))
        assert sum(found.drafted) == sum(engine.draft_tokens or 0 for engine in engines)
        assert sum(found.accepted) == sum(engine.accepted_tokens or 0 for engine in engines)
        assert found.shape.mean_length == pytest.approx(sum(found.drafted) / found.drafts)

    @pytest.mark.parametrize("scenario", SCENARIOS)
    def test_counters_understate_deep_positions(self, scenario: str) -> None:
        """Over all drafts a deep position seems to be accepted less often than where it was drafted."""
        found = positions(*real_records(scenario))
        over_all = [accepted / found.drafts for accepted in found.accepted]

        assert found.drafted[0] > found.drafted[-1]
        assert all((true or 0) >= seen for true, seen in zip(found.ratios, over_all, strict=True))
        assert (found.ratios[-1] or 0) > 1.05 * over_all[-1]
