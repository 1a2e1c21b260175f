"""Server-sent events: the same events whatever the chunks, whatever ends lines."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tap.streams import chat_stream, cut_at, cuts
from vllm_specdec_exporter.requests.exchange import EventSplitter, EventTooLargeError, data_of

_MIXED = (
    b": a comment\n\n"
    b"event: message\r\ndata: one\r\n\r\n"
    b"data: two\rdata: lines\r\r"
    b"\n\n"
    b"data:without a space\n\r\n"
    b"data: ends\r\n\r"
    b"id: 7\ndata\ndata: \n\n"
    b"data: the rest"
)


def _feed(parts: list[bytes], limit: int = 1 << 20) -> tuple[list[bytes], bytes]:
    splitter = EventSplitter(limit)
    return [event for part in parts for event in splitter.feed(part)], splitter.rest


def _by_the_standard(stream: bytes) -> list[bytes]:
    """The values of the data of all events, line by line as the standard has it."""
    lines = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]
    values: list[bytes] = []
    found: list[bytes] = []
    for line in lines:
        if not line:
            found.append(b"\n".join(values))
            values = []
        name, colon, value = line.partition(b":")
        if name == b"data" and colon:
            values.append(value.removeprefix(b" "))
    return [value for value in found if value]


_PIECES = st.sampled_from([b"\n", b"\r", b"\r\n", b"data: ", b"data:", b":", b"x", b"{}", b"\xff", b"id: 1"])


@given(st.lists(_PIECES, max_size=40).map(b"".join), st.lists(st.integers(0, 200), max_size=12))
@example(chat_stream(), [])
@example(chat_stream(end="\r\n"), [])
@example(chat_stream(end="\r") + b"data", [])
@example(_MIXED, [])
def test_the_same_events_in_any_pieces(stream: bytes, places: list[int]) -> None:
    """Of any bytes; of streams as servers write them, cut anywhere."""
    whole, rest = _feed([stream])
    assert b"".join(whole) + rest == stream
    assert [data for event in whole if (data := data_of(event))] == _by_the_standard(b"".join(whole))
    for parts in [cut_at(stream, places)] if places else cuts(stream):
        assert _feed(parts) == (whole, rest), parts[0]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r\n\r\n"])
@pytest.mark.parametrize("size", [20, 21])
def test_what_is_too_large_is_so_whatever_the_chunks(size: int, end: bytes) -> None:
    """The events before it are told, and no byte is lost."""
    before, behind = b"data: 1\n\n", b"data: 2\n\n"
    large = b"x" * (size - len(end)) + end
    for parts in cuts(before + large + behind):
        splitter = EventSplitter(20)
        found: list[bytes] = []
        rest = list(parts)
        try:
            while rest:
                found += splitter.feed(rest.pop(0))
            assert (size, found) == (20, [before, large, behind]), parts[0]
        except EventTooLargeError as error:
            found += error.before
            assert (size, found) == (21, [before]), parts[0]
            assert b"".join(found) + splitter.rest + b"".join(rest) == before + large + behind
