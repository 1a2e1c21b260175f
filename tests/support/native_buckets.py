"""The bounds of Prometheus' native buckets, by the definition: in whole numbers, without what is tested."""

import math
from fractions import Fraction
from functools import cache

from vllm_specdec_exporter.exposition.histogram import SCHEMA


def holds(index: int, value: float) -> bool:
    """Tell whether 2^((index-1)/8) < value <= 2^(index/8)."""
    power = Fraction(value) ** 2**SCHEMA
    return Fraction(2) ** (index - 1) < power <= Fraction(2) ** index


@cache
def bound_of(index: int) -> float:
    """Return the upper bound of a bucket: the largest float that it holds."""
    bound = 2.0 ** (index / 2**SCHEMA)
    while not holds(index, bound):
        bound = math.nextafter(bound, 0.0)
    while holds(index, above := math.nextafter(bound, math.inf)):
        bound = above
    return bound
