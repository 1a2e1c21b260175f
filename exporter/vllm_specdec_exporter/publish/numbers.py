"""Numbers as people read them, on pages and in terminal reports. Pure."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
#: Units of a time span from the longest: name and seconds, and those of the smaller
#: unit that is shown beside it.
_UNITS = (
    ("d", _DAY, "h", _HOUR),
    ("h", _HOUR, "min", _MINUTE),
    ("min", _MINUTE, "s", 1),
)


def percent(ratio: float) -> str:
    """Return a ratio with one decimal: ``48.3%``."""
    return f"{ratio:.1%}"


def length(tokens: float) -> str:
    """Return a number of tokens per draft: ``2.94``."""
    return f"{tokens:.2f}"


def factor(ratio: float) -> str:
    """Return a ratio of speeds or times: ``1.96×``."""
    return f"{ratio:.2f}×"


def count(number: float) -> str:
    """Return a whole number with thousands separators: ``12,345``."""
    return f"{number:,.0f}"


def counts(numbers: Mapping[str, int]) -> str:
    """Return the numbers above 0 with their names: ``timeout 2, refused 1``."""
    return ", ".join(
        f"{name} {count(number)}" for name, number in numbers.items() if number
    )


def rate(per_second: float) -> str:
    """Return a rate with three significant digits.

    ``0.125``, ``12.5``, ``1,250``, ``1.25M``.
    """
    if per_second <= 0:
        return "0"
    if per_second < 0.0005:
        return "< 0.001"
    rounded = float(f"{per_second:.2e}")
    magnitude = math.floor(math.log10(rounded))
    if magnitude >= 6:
        return f"{rounded / 1e6:,.{max(0, 8 - magnitude)}f}M"
    # Rates below 0.01 lose digits: four decimals are as fine as anybody needs.
    decimals = min(max(0, 2 - magnitude), 4)
    return f"{rounded:,.{decimals}f}"


def duration(seconds: float) -> str:
    """Return a time span in at most two units.

    ``12 ms``, ``2.1 s``, ``3 min 20 s``, ``2 h 5 min``.
    """
    # The limits are those at which the rounded number would be that of the next unit.
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if round(seconds, 1) < _MINUTE:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    rounded = round(seconds)
    name, size, smaller_name, smaller = next(
        unit for unit in _UNITS if rounded >= unit[1]
    )
    remainder = rounded % size // smaller
    words = f"{rounded // size} {name}"
    return f"{words} {remainder} {smaller_name}" if remainder else words


def utc(timestamp: float) -> datetime | None:
    """Return a Unix time as a date and time, ``None`` if it is not one."""
    # Times of requests come from other programs.
    try:
        return datetime.fromtimestamp(timestamp, UTC)
    except (OverflowError, ValueError, OSError):
        return None
