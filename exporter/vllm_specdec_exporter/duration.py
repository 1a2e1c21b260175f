"""Durations as Prometheus writes them: ``500ms``, ``5s``, ``1h30m``."""

from __future__ import annotations

import re
from functools import lru_cache

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_NUMBER = "([0-9]{1,15})"
_DURATION = re.compile("".join(f"(?:{_NUMBER}{unit})?" for unit in _UNITS))


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as ``30s``, ``5m``, ``1h30m`` or ``500ms``.

    Raises:
        ValueError: not such a duration; the message says what is allowed.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        msg = "a duration needs a unit: such as 500ms, 5s, 5m or 1h30m"
        raise ValueError(msg)
    scales = _UNITS.values()
    return sum(int(n) * s for n, s in zip(match.groups(), scales, strict=True) if n) / 1000


@lru_cache(maxsize=256)
def format_duration(seconds: float) -> str:
    """Return `seconds` in the shortest form that `parse_duration` reads back (``90`` is ``1m30s``)."""
    left = round(seconds * 1000)
    parts = []
    for unit, scale in _UNITS.items():
        count, left = divmod(left, scale)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
