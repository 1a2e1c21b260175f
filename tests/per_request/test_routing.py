"""Routing: which requests to send away, against adding up the requests that go and those that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from per_request.exact import request
from vllm_specdec_exporter.economics import for_method
from vllm_specdec_exporter.per_request.book import Book
from vllm_specdec_exporter.per_request.classification import OTHER
from vllm_specdec_exporter.per_request.judgement import Load
from vllm_specdec_exporter.per_request.observation import Source
from vllm_specdec_exporter.per_request.settings import RequestSettings
from vllm_specdec_exporter.thresholds import Thresholds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_specdec_exporter.per_request.observation import Observation
    from vllm_specdec_exporter.per_request.result import Routing

PROFILE = for_method("draft_model")
THRESHOLDS = Thresholds()
LEAST = 20  # requests that a group needs to be judged: two fifths of those that a model needs
COOL, HOT = 0.2, 1.5


def many(
    requests: int, accepted: int, kind: str, temperature: float = COOL, drafted: int = 100
) -> list[Observation]:
    return [request(accepted, drafted, request_type=kind, temperature=temperature) for _ in range(requests)]


def routing(
    *groups: list[Observation], load: Load | None = None, thresholds: Thresholds = THRESHOLDS
) -> Routing | None:
    book = Book(RequestSettings(), thresholds, (Source.TAP,))
    for observation in (each for group in groups for each in group):
        book.add(observation, Source.TAP, 0.0)
    (model,) = book.result(0.0, {"m": load} if load else {}).models
    return model.routing


def acceptance(requests: Iterable[Observation]) -> float:
    records = [each.record for each in requests if each.record]
    return sum(r.accepted_tokens for r in records) / sum(r.draft_tokens for r in records)


def rejected(requests: Iterable[Observation]) -> int:
    return sum(each.record.draft_tokens - each.record.accepted_tokens for each in requests if each.record)


def cell(one: Observation) -> tuple[str, str]:
    return one.request_type, "1+" if one.temperature == HOT else "0-0.5"


def judged_cells(requests: Iterable[Observation]) -> dict[tuple[str, str], bool]:
    """Whether each group that is large enough to be judged loses."""
    by_cell: dict[tuple[str, str], list[Observation]] = {}
    for each in requests:
        by_cell.setdefault(cell(each), []).append(each)
    return {c: acceptance(own) < 0.5 for c, own in by_cell.items() if len(own) >= LEAST}


def losing(requests: Iterable[Observation], label: int) -> list[str]:
    """The types (label 0) or temperatures (1) of which every judged group loses."""
    cells = judged_cells(requests)
    spared = {each[label] for each, loses in cells.items() if not loses}
    return sorted({each[label] for each in cells} - spared)


class TestWhich:
    def test_a_type(self) -> None:
        """A type of which all lose, whatever its temperature."""
        found = routing(many(40, 82, "code"), many(30, 38, "chat"), many(30, 30, "chat", HOT))

        assert found is not None
        assert (found.request_types, found.temperatures) == (("chat",), ())

    def test_several_types(self) -> None:
        """All of them, in order."""
        found = routing(many(40, 82, "code"), many(30, 38, "rag"), many(30, 30, "chat"))

        assert found is not None
        assert found.request_types == ("chat", "rag")

    def test_temperatures_where_no_type_loses_as_a_whole(self) -> None:
        """Cool requests of both types gain, hot ones of both lose: the temperature is what to route by."""
        found = routing(
            many(30, 82, "code"), many(30, 80, "chat"), many(30, 38, "code", HOT), many(30, 30, "chat", HOT)
        )

        assert found is not None
        assert (found.request_types, found.temperatures) == ((), ("1+",))

    def test_types_come_first(self) -> None:
        """Where a type and a temperature lose alike, the type is named: it is the easier to route."""
        found = routing(many(60, 82, "code"), many(40, 38, "chat", HOT))

        assert found is not None
        assert (found.request_types, found.temperatures) == (("chat",), ())

    def test_a_small_group_is_routed_with_its_type(self) -> None:
        """A group that is too small to be judged goes where the judged ones of its type go."""
        found = routing(many(60, 82, "code"), many(40, 38, "chat"), many(LEAST - 1, 82, "chat", HOT))

        assert found is not None
        assert found.request_types == ("chat",)
        assert found.requests_ratio == (40 + LEAST - 1) / (100 + LEAST - 1)

    def test_no_type_is_none(self) -> None:
        """Requests of no known type have nothing in common to route them by, but for their temperature."""
        assert routing(many(60, 82, "code"), many(40, 38, OTHER)) is None
        found = routing(many(60, 82, "code"), many(40, 38, OTHER, HOT))

        assert found is not None
        assert (found.request_types, found.temperatures) == ((), ("1+",))


class TestNone:
    def test_nobody_loses(self) -> None:
        """Nothing is to be routed away from what gains or breaks even."""
        assert routing(many(60, 82, "code"), many(40, 50, "chat")) is None

    def test_all_lose(self) -> None:
        """Where all lose, speculation is to be given up as a whole; nobody is worth keeping it for."""
        assert routing(many(60, 38, "code"), many(40, 30, "chat")) is None

    @pytest.mark.parametrize("accepted", [0, 95])
    def test_all_that_can_be_judged_lose(self, accepted: int) -> None:
        """A few requests of another type are no reason to keep it either: they may be anything."""
        assert routing(many(60, 38, "code"), many(LEAST - 1, accepted, "chat")) is None

    def test_too_few_requests(self) -> None:
        """Below `minimum_requests` nothing is said, however bad it looks."""
        assert routing(many(29, 82, "code"), many(20, 38, "chat")) is None
        assert routing(many(30, 82, "code"), many(20, 38, "chat")) is not None

    def test_too_few_of_those_that_lose(self) -> None:
        """A group is judged from two fifths of them on."""
        assert routing(many(60, 82, "code"), many(LEAST - 1, 38, "chat")) is None
        assert routing(many(60, 82, "code"), many(LEAST, 38, "chat")) is not None

    def test_those_that_stay_would_do_no_better(self) -> None:
        """Groups too small to be judged may be worse still: then sending the judged one away is no use."""
        small = [many(LEAST - 1, 5, kind) for kind in ("a", "b", "c", "d")]

        assert routing(many(LEAST, 55, "code"), many(LEAST, 49, "chat"), *small) is None


class TestNumbers:
    def test_by_hand(self) -> None:
        """60 requests with 82 of 100 tokens accepted, 40 with 38."""
        found = routing(many(60, 82, "code"), many(40, 38, "chat"), load=Load(8, PROFILE))

        assert found is not None
        assert found.requests_ratio == 0.4
        assert found.rejected_ratio == pytest.approx(40 * 62 / (40 * 62 + 60 * 18))
        assert (found.acceptance_before, found.acceptance_after) == pytest.approx((0.644, 0.82))
        assert found.speedup == pytest.approx((1 + 38 / 20) / PROFILE.step_cost(100 / 20, 8))

    def test_without_a_batch(self) -> None:
        """What is spared is counted; only the speedup needs the load."""
        found = routing(many(60, 82, "code"), many(40, 38, "chat"))

        assert found is not None
        assert found.speedup is None

    @given(
        st.lists(
            st.tuples(
                st.integers(1, 45),
                st.integers(0, 100),
                st.sampled_from(["code", "chat", "rag"]),
                st.sampled_from([COOL, HOT]),
                st.sampled_from([50, 100, 400]),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def test_against_adding_up(self, groups: list[tuple[int, int, str, float, int]]) -> None:
        """Whoever is named: the shares are theirs, their judged groups lose, and the rest does better."""
        requests = [
            each
            for count, percent, kind, temperature, drafted in groups
            for each in many(count, percent * drafted // 100, kind, temperature, drafted)
        ]
        label = 0 if losing(requests, 0) else 1
        named = losing(requests, label)
        gone = [each for each in requests if cell(each)[label] in named]
        stay = [each for each in requests if cell(each)[label] not in named]
        found = routing(requests)

        assert (found is not None) is (
            len(requests) >= THRESHOLDS.minimum_requests
            and bool(gone)
            and any(each[label] not in named for each in judged_cells(requests))
            and acceptance(stay) > acceptance(requests)
        )
        if found is not None:
            assert [found.request_types, found.temperatures][label] == tuple(named)
            assert [found.request_types, found.temperatures][1 - label] == ()
            assert found.requests_ratio == pytest.approx(len(gone) / len(requests))
            assert found.rejected_ratio == pytest.approx(rejected(gone) / rejected(requests))
            assert found.acceptance_before == pytest.approx(acceptance(requests))
            assert found.acceptance_after == pytest.approx(acceptance(stay))
