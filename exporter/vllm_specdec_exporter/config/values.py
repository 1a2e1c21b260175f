"""Durations as Prometheus writes them: ``500ms``, ``5s``, ``1h30m``."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from .addresses import mask_query, parse_target
from .thresholds import Thresholds

if TYPE_CHECKING:
    from collections.abc import Callable


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


def duration(least: float = 0.001) -> Callable[[str], float]:
    """Return a parser of durations of at least `least` seconds."""

    def parse(text: str) -> float:
        seconds = parse_duration(text)
        if seconds < least:
            msg = f"at least {format_duration(least)} is needed"
            raise ValueError(msg)
        return seconds

    return parse


def choice(*allowed: str) -> Callable[[str], str]:
    """Return a parser that takes just these words."""

    def parse(text: str) -> str:
        if text not in allowed:
            msg = f"allowed: {', '.join(allowed)}"
            raise ValueError(msg)
        return text

    return parse


def boolean(text: str) -> bool:
    """Return what ``true`` or ``false`` means."""
    return choice("true", "false")(text.lower()) == "true"


def file(text: str) -> str:
    """Return the path of a file that can be read."""
    try:
        with Path(text).open("rb"):
            return text
    except OSError as error:
        msg = f"cannot be read: {error.strerror}"
        raise ValueError(msg) from error


def whole_number(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers of at least `least`."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 10) or int(text) < least:
            msg = f"a whole number of at least {least} is expected"
            raise ValueError(msg)
        return int(text)

    return parse


def number(least: float) -> Callable[[str], float]:
    """Return a parser of finite numbers of at least `least`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value < math.inf:
            msg = f"a number of at least {least:g} is expected"
            raise ValueError(msg)
        return value

    return parse


def header_name(text: str) -> str:
    """Return the name of a request header."""
    name = text.strip()
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
        msg = "the name of a header is expected, such as X-Request-Type"
        raise ValueError(msg)
    return name


def header(text: str) -> tuple[str, str]:
    """Return name and value of a request header."""
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    token = name.replace("-", "").replace("_", "")
    if not colon or not (token.isascii() and token.isalnum()) or not value.isprintable():
        msg = "allowed: Name: value"
        raise ValueError(msg)
    return name, value


def mask_header(text: str) -> str:
    """Return what may be shown of a header: its name."""
    name, colon, _ = text.partition(":")
    return f"{name}: <secret>" if colon else "<secret>"


def mask_url(text: str) -> str:
    """Return what may be shown of an address: all but credentials."""
    text = mask_query(text)
    try:
        parse_target(text)
    except ValueError:
        # Up to the last @: a password may hold anything, above all where it breaks the address.
        return re.sub(r"^(\w+://)?.*@", r"\1<secret>@", text, flags=re.DOTALL)
    return re.sub(r"//[^/]*@", "//<secret>@", text)


def threshold(text: str) -> tuple[str, float]:
    """Return name and value of a threshold."""
    name, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        equals = ""
    if not equals:
        msg = "allowed: name=number"
        raise ValueError(msg)
    Thresholds().with_values({name.strip(): number}, ordered=False)
    return name.strip(), number


_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT])(i?)B", re.IGNORECASE)


def memory(text: str) -> float:
    """Return the bytes of an amount of memory: ``80GB`` is 80e9, ``80GiB`` 80 x 2^30."""
    match = _MEMORY.fullmatch(text.strip())
    number = 0.0
    if match is not None:
        power = "KMGT".index(match[2].upper()) + 1
        number = float(match[1]) * (1024.0 if match[3] else 1000.0) ** power
    if not 0 < number < math.inf:
        msg = "allowed: an amount above 0 with its unit, such as 16GB or 16GiB"
        raise ValueError(msg)
    return number


def share(text: str) -> float:
    """Return a number above 0 and at most 1; ``1:9`` is a ninth."""
    part, colon, whole = text.partition(":")
    try:
        number = float(part) / float(whole) if colon else float(part)
    except (ValueError, ZeroDivisionError):
        number = 0.0
    if not 0 < number <= 1:
        msg = "allowed: a number above 0 and at most 1, such as 0.11 or 1:9"
        raise ValueError(msg)
    return number
