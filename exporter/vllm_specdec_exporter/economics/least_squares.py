"""Weighted linear least squares by the normal equations.

A pure-Python solution of at most six coefficients, so that a sidecar needs no numerical
library, which would be larger than all the rest of it.
"""

from collections.abc import Sequence
from itertools import product

from msgspec import Struct

#: Share of the largest element of the diagonal below which a pivot is rounding error:
#: features are scaled to 1, and a float has about 16 digits.
_SINGULAR = 1e-12

#: Features, value and weight of an observation.
Observation = tuple[tuple[float, ...], float, float]


class LeastSquares(Struct, frozen=True):
    """Coefficients with the least weighted squares, and their covariance where
    residuals vary by 1.
    """

    coefficients: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]

    def variance(self, direction: Sequence[float]) -> float:
        """Return the variance of the coefficients' sum, weighted by `direction`."""
        pairs = product(enumerate(direction), repeat=2)
        variance = sum(
            left * right * self.covariance[i][j] for (i, left), (j, right) in pairs
        )
        return max(0.0, variance)


def least_squares(observations: Sequence[Observation]) -> LeastSquares | None:
    """Return the coefficients with the least weighted squares, ``None`` if the features
    are collinear.

    For relative errors, the weight of an observation is 1 / scale².
    """
    # Features differ by orders of magnitude, such as a constant of 1 and a context of
    # 100,000 tokens: unscaled, no limit would tell a small pivot from rounding error.
    columns = zip(*(features for features, _, _ in observations), strict=True)
    scale = [max(map(abs, column)) or 1.0 for column in columns]
    matrix = _normal_equations(observations, scale)
    if not _reduce(matrix):
        return None
    size = len(scale)
    coefficients = tuple(
        row[size] / unit for row, unit in zip(matrix, scale, strict=True)
    )
    covariance = []
    for row, unit in zip(matrix, scale, strict=True):
        inverse = zip(row[size + 1 :], scale, strict=True)
        covariance.append(tuple(value / unit / other for value, other in inverse))
    return LeastSquares(coefficients, tuple(covariance))


def _normal_equations(
    observations: Sequence[Observation], scale: Sequence[float]
) -> list[list[float]]:
    """Return the normal matrix, the right side, and the unit matrix, side by side."""
    size = len(scale)
    matrix = []
    for i in range(size):
        row = [0.0] * (2 * size + 1)
        row[size + 1 + i] = 1.0
        matrix.append(row)
    for features, value, weight in observations:
        scaled = [feature / unit for feature, unit in zip(features, scale, strict=True)]
        for row, left in zip(matrix, scaled, strict=True):
            for j, right in enumerate(scaled):
                row[j] += weight * left * right
            row[size] += weight * left * value
    return matrix


def _reduce(matrix: list[list[float]]) -> bool:
    """Reduce the left square to the unit matrix (Gauss-Jordan with pivots), which turns
    the unit matrix at the right into the inverse; return whether it has one.
    """
    size = len(matrix)
    largest = max(1e-300, *(abs(matrix[i][i]) for i in range(size)))
    for i in range(size):
        pivot = max(range(i, size), key=lambda row: abs(matrix[row][i]))
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        divisor = matrix[i][i]
        if abs(divisor) < _SINGULAR * largest:
            return False
        matrix[i] = [value / divisor for value in matrix[i]]
        for j in range(size):
            if j != i:
                factor = matrix[j][i]
                rows = zip(matrix[j], matrix[i], strict=True)
                matrix[j] = [value - factor * above for value, above in rows]
    return True
