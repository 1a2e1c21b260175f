"""The K schedule of the speculative config: read as vLLM reads it, and looked up at a load."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_specdec_exporter.economics.schedule import ScheduleRow
from vllm_specdec_exporter.speculation import Speculation, parse_schedule

ROWS = [[1, 64, 3], [65, 128, 1], [129, 512, 0]]


@pytest.mark.parametrize(
    ("requests", "k"), [(0, 3), (0.4, 3), (1, 3), (64, 3), (65, 1), (128, 1), (129, 0), (512, 0), (9999, 0)]
)
def test_k_at_a_load(requests: float, k: int) -> None:
    """An idle engine is at the first row; the last one goes on beyond its end."""
    assert Speculation(schedule=parse_schedule(ROWS)).scheduled_k(requests) == k


def test_without_a_schedule_or_a_load_there_is_no_scheduled_k() -> None:
    assert Speculation().scheduled_k(8) is None
    assert Speculation(schedule=parse_schedule(ROWS)).scheduled_k(None) is None
    assert parse_schedule(None) == ()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (3, "is a list of rows [first batch size, last batch size, K]"),
        ([[1, 64]], "is a list of rows"),
        ([[1, 64, 3.5]], "is a list of rows"),
        ([[1, 64, True]], "is a list of rows"),
        ([[0, 64, 3]], "rows go from a first to a last batch size, from 1 up"),
        ([[64, 1, 3]], "rows go from a first to a last batch size"),
        ([[1, 64, -1]], "rows go from a first to a last batch size"),
        ([[1, 64, 3], [64, 128, 1]], "rise and do not overlap"),
    ],
)
def test_no_schedule(rows: object, message: str) -> None:
    """What vLLM could not take either is refused, and the key is named."""
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        parse_schedule(rows)
    assert "num_speculative_tokens_per_batch_size" in str(caught.value)


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


def test_rows_keep_their_numbers() -> None:
    assert parse_schedule(ROWS) == (ScheduleRow(1, 64, 3), ScheduleRow(65, 128, 1), ScheduleRow(129, 512, 0))
