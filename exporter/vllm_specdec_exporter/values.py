"""Values of settings: from text to what it means, or a ValueError that says what is allowed."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from .duration import format_duration, parse_duration
from .speculation import Speculation, parse_schedule
from .target import mask_query, parse_target
from .thresholds import Thresholds

if TYPE_CHECKING:
    from collections.abc import Callable


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


def parse_speculation(text: str) -> Speculation:
    """Return what the JSON given to vLLM's ``--speculative-config`` says.

    Keys that mean nothing here are left alone: the JSON is vLLM's, not ours.

    Raises:
        ValueError: not a JSON object, or a value that vLLM could not take either.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"not JSON ({error}); allowed: the very JSON given to vLLM's --speculative-config"
        raise ValueError(msg) from error
    if not isinstance(document, dict):
        msg = 'a JSON object is expected, such as {"method": "ngram", "num_speculative_tokens": 4}'
        raise ValueError(msg)
    k = document.get("num_speculative_tokens")
    if k is not None and (isinstance(k, bool) or not isinstance(k, int) or not 1 <= k < 2**31):
        msg = "num_speculative_tokens is a whole number from 1 up"
        raise ValueError(msg)
    for name in ("method", "model"):
        if not isinstance(document.get(name) or "", str):
            msg = f"{name} is a string"
            raise ValueError(msg)
    return Speculation(
        configured=True,
        method=document.get("method") or "",
        draft_model=document.get("model") or "",
        num_speculative_tokens=k,
        document=json.dumps(document),
        schedule=parse_schedule(document.get("num_speculative_tokens_per_batch_size")),
    )
