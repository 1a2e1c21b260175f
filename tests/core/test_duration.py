from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_specdec_exporter.duration import format_duration, parse_duration

PAIRS = [
    ("0s", 0.0),
    ("1ms", 0.001),
    ("500ms", 0.5),
    ("5s", 5.0),
    ("5s500ms", 5.5),
    ("30s", 30.0),
    ("1m30s", 90.0),
    ("5m", 300.0),
    ("1h30m", 5400.0),
    ("1d", 86400.0),
    ("1d1h1m1s1ms", 90061.001),
]


@pytest.mark.parametrize(("text", "seconds"), PAIRS)
def test_parse(text: str, seconds: float) -> None:
    """A duration is numbers with units, the greatest first."""
    assert seconds == parse_duration(text)


@pytest.mark.parametrize(("text", "seconds"), PAIRS)
def test_format(text: str, seconds: float) -> None:
    """The shortest form, with the greatest units."""
    assert text == format_duration(seconds)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), (" 5s ", 5.0), ("300000ms", 300.0), ("0m", 0.0)]
)
def test_other_spellings(text: str, seconds: float) -> None:
    """Units need not carry over, and space around does not matter."""
    assert seconds == parse_duration(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "5",
        "5 s",
        "s",
        "1.5h",
        "-5s",
        "+5s",
        "5s5m",
        "5s5s",
        "5S",
        "5sec",
        "1w",
        "1_0s",
        "5s\x00",
        "٣s",
    ],
)
def test_not_a_duration(text: str) -> None:
    """Anything else is refused with what is allowed."""
    with pytest.raises(ValueError, match=r"^a duration needs a unit: such as 500ms, 5s, 5m or 1h30m$"):
        parse_duration(text)


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_number_of_absurd_length(digits: int) -> None:
    """A number too large to be one is refused like any other bad value."""
    with pytest.raises(ValueError, match=r"^a duration needs a unit"):
        parse_duration("9" * digits + "s")


def test_how_long_a_number_may_be() -> None:
    """Fifteen digits are read, to the last; a sixteenth is one too many."""
    assert parse_duration("9" * 15 + "ms") == 999_999_999_999.999

    with pytest.raises(ValueError, match=r"^a duration needs a unit"):
        parse_duration("9" * 16 + "ms")


@given(st.integers(0, 10**12))
def test_round_trip(milliseconds: int) -> None:
    """What is written is read back, to the millisecond."""
    assert milliseconds / 1000 == parse_duration(format_duration(milliseconds / 1000))


@given(st.text(max_size=12) | st.from_regex(r"[0-9dhms]{1,9}", fullmatch=True))
def test_any_text(text: str) -> None:
    """Any text is a duration from 0 up, or a ValueError."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0

    assert seconds >= 0
