"""Durations as Prometheus writes them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.builders import refusal
from vllm_specdec_exporter.config.values import format_duration, parse_duration

#: The shortest form, with the greatest units first.
DURATIONS = {
    "0s": 0.0,
    "1ms": 0.001,
    "500ms": 0.5,
    "5s": 5.0,
    "5s500ms": 5.5,
    "30s": 30.0,
    "1m30s": 90.0,
    "5m": 300.0,
    "1h30m": 5400.0,
    "1d": 86400.0,
    "1d1h1m1s1ms": 90061.001,
}
#: Units need not carry over, and space around does not matter. Fifteen digits are read, to the last.
SPELLINGS = {"90s": 90.0, " 5s ": 5.0, "300000ms": 300.0, "0m": 0.0, "9" * 15 + "ms": 999_999_999_999.999}
OTHERS = ["", " ", "5", "5 s", "s", "1.5h", "-5s", "+5s", "5s5m", "5s5s", "5S", "5sec", "1w", "1_0s"]
OTHERS += ["5s\x00", "٣s", "9" * 16 + "ms", "9" * 400 + "s", "9" * 5000 + "s"]


def test_a_duration_is_numbers_with_units() -> None:
    read = {text: parse_duration(text) for text in DURATIONS | SPELLINGS}
    assert read == DURATIONS | SPELLINGS
    assert {format_duration(seconds): seconds for seconds in DURATIONS.values()} == DURATIONS


def test_anything_else_is_refused_with_what_is_allowed() -> None:
    said = {text: refusal(ValueError, parse_duration, text) for text in OTHERS}
    assert said == dict.fromkeys(OTHERS, "a duration needs a unit: such as 500ms, 5s, 5m or 1h30m")


@given(st.integers(0, 10**12))
def test_what_is_written_is_read_back_to_the_millisecond(milliseconds: int) -> None:
    assert milliseconds / 1000 == parse_duration(format_duration(milliseconds / 1000))
