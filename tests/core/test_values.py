"""Values as people write them: durations and addresses of servers."""

from pathlib import Path

import yaml

from support.builders import refusal
from vllm_specdec_exporter.config.values import (
    Target,
    format_duration,
    parse_duration,
    parse_target,
)

#: The shortest form, with the greatest units first.
DURATIONS = {
    "0s": 0.0,
    "1ms": 0.001,
    "500ms": 0.5,
    "1m30s": 90.0,
    "5m": 300.0,
    "1d": 86400.0,
    "1d1h1m1s1ms": 90061.001,
}
#: Units need not carry over, and space around does not matter. Fifteen digits are read,
#: to the last.
SPELLINGS = {
    "90s": 90.0,
    " 5s ": 5.0,
    "300000ms": 300.0,
    "0m": 0.0,
    "9" * 15 + "ms": 999_999_999_999.999,
}
OTHERS = [
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
]
OTHERS += ["5s\x00", "٣s", "9" * 16 + "ms", "9" * 400 + "s", "9" * 5000 + "s"]


def test_a_duration_is_numbers_with_units() -> None:
    read = {text: parse_duration(text) for text in DURATIONS | SPELLINGS}
    assert read == DURATIONS | SPELLINGS
    assert {
        format_duration(seconds): seconds for seconds in DURATIONS.values()
    } == DURATIONS


def test_anything_else_is_refused_with_what_is_allowed() -> None:
    said = {text: refusal(ValueError, parse_duration, text) for text in OTHERS}
    assert said == dict.fromkeys(
        OTHERS, "a duration needs a unit: such as 500ms, 5s, 5m or 1h30m"
    )


ADDRESSES = yaml.safe_load(Path(__file__).with_name("addresses.yml").read_text("utf-8"))
TARGETS = {text: Target(**parts) for text, parts in ADDRESSES["targets"].items()}
#: None is repeated when it is refused, for it may hold a password.
NO_ADDRESSES = [
    "",
    "host",
    "//host:8000",
    "ftp://host",
    "http://",
    "http:///metrics",
    "8000",
]
NO_ADDRESSES += [
    "http://host/#a",
    "http://host:x",
    "http://host:99999",
    "http://host:-1",
    "http://[::1",
]
NO_ADDRESSES += [
    "http://me:hunter2@host:x",
    *(f"http://a{sign}b:8000" for sign in " \x00\x7f"),
]
NO_SOCKETS = ["unix:", "unix:run/vllm.sock", "unix:./vllm.sock", "unix://host/x"]


def test_an_address_is_read_named_and_asked_for_its_version() -> None:
    assert {text: parse_target(text) for text in TARGETS} == TARGETS
    assert {text: parse_target(text).name for text in ADDRESSES["names"]} == ADDRESSES[
        "names"
    ]
    versions = ADDRESSES["versions"]
    assert {
        text: parse_target(text).sibling_url("version") for text in versions
    } == versions


def test_what_is_no_address_is_refused_with_what_is_one() -> None:
    allowed = (
        "not an address; allowed: http://host:port, https://host:port or "
        "unix:/path/to.sock"
    )
    assert [refusal(ValueError, parse_target, text) for text in NO_ADDRESSES] == [
        allowed
    ] * len(NO_ADDRESSES)
    socket = "a Unix socket is written unix:/path/to.sock, with /metrics or "
    said = [
        refusal(ValueError, parse_target, text)[: len(socket)] for text in NO_SOCKETS
    ]
    assert said == [socket] * len(NO_SOCKETS)
