"""Native buckets: every value is in the bucket that the definition says, to the last bit."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.native_buckets import bound_of, holds
from vllm_specdec_exporter.exposition.histogram import SCHEMA, ZERO_THRESHOLD, index_of

VALUES = st.floats(ZERO_THRESHOLD, 1e300, exclude_min=True)
INDICES = st.integers(-111, 8000)


@given(VALUES)
@example(1.0)
@example(math.nextafter(1.0, 2.0))
@example(math.nextafter(math.sqrt(0.5), 0.0))
def test_a_value_is_in_the_bucket_whose_bounds_enclose_it(value: float) -> None:
    index = index_of(value)

    assert index is not None
    assert holds(index, value)


@given(INDICES)
def test_a_bound_is_the_largest_value_of_its_bucket(index: int) -> None:
    bound = bound_of(index)

    assert index_of(bound) == index
    assert index_of(math.nextafter(bound, math.inf)) == index + 1


@given(st.integers(-13, 1000))
def test_powers_of_two_are_bounds(exponent: int) -> None:
    assert bound_of(8 * exponent) == 2.0**exponent
    assert index_of(2.0**exponent) == 8 * exponent
    assert 2**SCHEMA == 8


@given(st.floats(0.0, ZERO_THRESHOLD))
@example(0.0)
@example(ZERO_THRESHOLD)
@example(5e-324)
def test_values_up_to_the_threshold_are_in_the_zero_bucket(value: float) -> None:
    assert index_of(value) is None


def test_the_first_bucket_begins_where_the_zero_bucket_ends() -> None:
    first = index_of(math.nextafter(ZERO_THRESHOLD, 1.0))

    assert first is not None
    assert bound_of(first - 1) == ZERO_THRESHOLD


def test_what_no_bucket_holds_is_refused() -> None:
    for value in (-1e-9, -1.0, math.inf, -math.inf, math.nan):
        with pytest.raises(ValueError, match="has no bucket"):
            index_of(value)
