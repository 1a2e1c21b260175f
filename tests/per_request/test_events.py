"""The splitter of server-sent events: its limits do not depend on the pieces."""

from collections.abc import Iterable

import pytest

from vllm_specdec_exporter.per_request import exchange
from vllm_specdec_exporter.per_request.exchange import EventSizeError, EventSplitter

_TINY = b": x\n\n"
_USUAL = b"data: " + b"x" * exchange.SMALL + b"\n\n"


def _events_before_the_limit(pieces: Iterable[bytes]) -> int:
    splitter = EventSplitter(1 << 20)
    count = 0
    try:
        for piece in pieces:
            count += len(splitter.feed(piece))
    except EventSizeError:
        return count
    raise AssertionError("no limit was reached")


@pytest.fixture(autouse=True)
def _low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MAX_LACKING", 10 * exchange.SMALL)


def test_tiny_events_have_a_limit_however_they_are_cut() -> None:
    """Each in a piece of its own, in two, or with the end of the one before."""
    stream = _TINY * 100
    by_size = {
        size: [stream[start : start + size] for start in range(0, len(stream), size)]
        for size in (1, 2, len(_TINY), len(_TINY) + 1)
    }
    counts = {
        size: _events_before_the_limit(pieces) for size, pieces in by_size.items()
    }
    assert counts == dict.fromkeys(by_size, 10)


def test_events_of_usual_size_have_no_limit() -> None:
    """They also make up for tiny ones between them, such as comments of a proxy."""
    splitter = EventSplitter(1 << 20)
    for _ in range(1000):
        assert splitter.feed(_USUAL) == [_USUAL]
    for _ in range(1000):
        assert splitter.feed(_TINY) == [_TINY]
        for _ in range(20):
            assert splitter.feed(_USUAL) == [_USUAL]
