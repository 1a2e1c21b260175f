"""The K schedule of the speculative config: read as vLLM reads it, and looked up at a load."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from support.builders import refusal
from vllm_specdec_exporter.economics.speculative_config import ScheduleRow, Speculation, parse_schedule

ROWS = [[1, 64, 3], [65, 128, 1], [129, 512, 0]]


def test_an_idle_engine_is_at_the_first_row_and_the_last_goes_on_beyond_its_end() -> None:
    """Without a schedule or a load there is no scheduled K."""
    rows = parse_schedule(ROWS)
    assert rows == (ScheduleRow(1, 64, 3), ScheduleRow(65, 128, 1), ScheduleRow(129, 512, 0))
    ks = {0: 3, 0.4: 3, 1: 3, 64: 3, 65: 1, 128: 1, 129: 0, 512: 0, 9999: 0}
    assert {requests: Speculation(schedule=rows).scheduled_k(requests) for requests in ks} == ks
    assert Speculation(schedule=rows).scheduled_k(None) is None
    assert Speculation().scheduled_k(8) is None
    assert parse_schedule(None) == ()


def test_what_vllm_could_not_take_either_is_refused_and_the_key_is_named() -> None:
    from_to = "rows go from a first to a last batch size"
    for rows, message in (
        (3, "is a list of rows [first batch size, last batch size, K]"),
        ([[1, 64]], "is a list of rows"),
        ([[1, 64, 3.5]], "is a list of rows"),
        ([[1, 64, True]], "is a list of rows"),
        ([[0, 64, 3]], f"{from_to}, from 1 up"),
        ([[64, 1, 3]], from_to),
        ([[1, 64, -1]], from_to),
        ([[1, 64, 3], [64, 128, 1]], "rise and do not overlap"),
    ):
        said = refusal(ValueError, parse_schedule, rows)
        assert message in said, rows
        assert "num_speculative_tokens_per_batch_size" in said


@given(
    edges=st.lists(st.integers(1, 600), min_size=2, max_size=8, unique=True).map(sorted),
    ks=st.lists(st.integers(0, 8), min_size=7, max_size=7),
    requests=st.integers(1, 700),
)
def test_a_load_within_a_row_has_its_k(edges: list[int], ks: list[int], requests: int) -> None:
    """Whatever the rows: the one that holds the load decides."""
    rows = [[first, last - 1, k] for (first, last), k in zip(pairwise(edges), ks, strict=False)]
    found = Speculation(schedule=parse_schedule(rows)).scheduled_k(requests)
    for first, last, k in rows:
        if first <= requests <= last:
            assert found == k
