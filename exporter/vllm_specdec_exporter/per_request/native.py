"""Native histograms: which bucket of Prometheus' exponential ones a value falls into. Pure.

Between one power of two and the next lie eight buckets (schema 3): a bucket's upper bound is 9 % above its
lower one, so a quantile is known to that, at any size and without bounds to choose.
"""

from __future__ import annotations

import math
from bisect import bisect_left

#: Prometheus' name for eight buckets to a power of two.
SCHEMA = 3

#: Values of at most this count as zero. One for ratios and for seconds: 1 of 16,384 drafted tokens accepted
#: is as good as none, and no stream has a token every 61 microseconds. It bounds the buckets to 112 for
#: ratios and to 186 for times of up to ten minutes; as a bucket's bound it cuts none in two.
ZERO_THRESHOLD = 2.0**-14

_BUCKETS: int = 2**SCHEMA
_DIGITS = 53  # of a float


def _root(place: int) -> float:
    """Return 2^(place/8 - 1): where it is no float, the next one below.

    That one, unlike the nearest, tells right whether any other float is above. Hence the whole numbers.
    """
    number = 2 ** (_BUCKETS * (_DIGITS - 1) + place)
    for _ in range(SCHEMA):
        number = math.isqrt(number)
    return math.ldexp(number, -_DIGITS)


#: Upper bounds of the buckets from a half to one, as `math.frexp` splits a number.
_BOUNDS = tuple(_root(place) for place in range(_BUCKETS))


def index_of(value: float) -> int | None:
    """Return the index of the bucket that holds `value`, ``None`` for the zero bucket.

    Index i holds the values above 2^((i-1)/8), up to 2^(i/8).

    Raises:
        ValueError: a value below zero, infinite or not a number.
    """
    if not 0.0 <= value < math.inf:
        msg = f"{value} has no bucket: only finite values from 0 on have"
        raise ValueError(msg)
    if value <= ZERO_THRESHOLD:
        return None
    share, exponent = math.frexp(value)
    return bisect_left(_BOUNDS, share) + _BUCKETS * (exponent - 1)
