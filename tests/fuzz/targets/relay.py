"""The tap: what it observes does not depend on the pieces that the bytes come in.

The first byte of an input says what is fed (`KINDS`), the second how it is cut into
pieces. What is promised:

- `EventSplitter`: the same events as a plain reading of the standard finds, and no
  byte lost; no event above the limit.
- `Observer`: no exception, the same observations and counts whatever the pieces, and
  nothing held at the end.
"""

import re
from collections.abc import Callable, Iterator

from tap.streams import (
    ANSWERED_PLAIN,
    ASKED,
    ASKED_PLAIN,
    STREAMED,
    answer,
    chat_answer,
    chat_request,
    chat_stream,
    chunks,
    dump,
    request,
    stream_head,
)
from vllm_specdec_exporter.per_request.exchange import (
    MAX_BODY,
    MAX_EVENT,
    EventSizeError,
    EventSplitter,
    data_of,
)
from vllm_specdec_exporter.per_request.grouping import Classification
from vllm_specdec_exporter.per_request.observation import Observation
from vllm_specdec_exporter.serve.tap.observer import (
    UNOBSERVED,
    ObservationContext,
    Observer,
)

#: Between what the client sends and what the server sends.
_TURN = b"\x1e"


def check(data: bytes) -> None:
    """Raise unless the tap keeps its promises for one input."""
    if len(data) > 1 and data[:1] in KINDS:
        KINDS[data[:1]](data[2:], data[1])


def pieces(data: bytes, way: int) -> list[bytes]:
    """Return bytes cut in one of 256 ways: into equal pieces, or into pieces of lengths
    that go round.

    Single bytes are for short inputs: of a long one they would cost a hundred times the
    rest.
    """
    size = way % 32 + 1 + len(data) // 64
    step = way // 32
    cut = []
    start = 0
    while start < len(data):
        cut.append(data[start : start + size])
        start += size
        if step:
            size = (size * 5 + step) % 61 + 1 + len(data) // 128
    return cut


# --- events


def _check_events(data: bytes, way: int) -> None:
    limit = 1 << 20
    if way % 2:
        limit = 48
    expected = _by_the_standard(data)
    splitter = EventSplitter(limit)
    events = []
    large = False
    for piece in pieces(data, way):
        try:
            events += splitter.feed(piece)
        except EventSizeError:
            large = True
            break
    for event in events:
        lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        values = [
            line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")
        ]
        assert data_of(event) == b"\n".join(values), f"{data_of(event)!r} of {event!r}"
        assert len(event) <= limit, f"an event of {len(event)} bytes"
    if large:
        assert events == expected[: len(events)], f"{events} of {expected}"
        remainder = data[sum(map(len, expected)) :]
        assert max(map(len, (*expected, remainder))) > limit, "no event is large"
    else:
        assert b"".join(events) + splitter.rest == data, "bytes are lost"
        assert events == expected, f"{events} instead of {expected}"


_LINE_END = re.compile(rb"\r\n|\n|\r")


def _by_the_standard(data: bytes) -> list[bytes]:
    """Return the whole events, read line by line; one whose last line may still go on
    is not whole.
    """
    events = []
    start = 0
    position = 0
    while position < len(data):
        line_end = _LINE_END.search(data, position)
        if line_end is None:
            break
        end = line_end.end()
        empty = line_end.start() == position
        # An empty line ends an event, also the first one: the bytes before it are its
        # own. One line end alone ends no event: it may be that of its first line.
        if empty and (position > start or len(_LINE_END.findall(data, start, end)) > 1):
            if end == len(data) and data[end - 1 : end] == b"\r":
                break
            events.append(data[start:end])
            start = end
        position = end
    return events


# --- what is seen


def _check_observer(data: bytes, way: int) -> None:
    ends = way % 2 == 0
    at_once = _watch(data, lambda part: list(filter(None, [part])), ends=ends)
    in_pieces = _watch(data, lambda part: pieces(part, way), ends=ends)
    assert in_pieces == at_once


def _watch(
    data: bytes, cut: Callable[[bytes], list[bytes]], *, ends: bool
) -> tuple[object, ...]:
    observations: list[Observation] = []
    watch = ObservationContext(
        observations.append, Classification(), lambda: 1.0, lambda: 1e9
    )
    observer = Observer(watch)
    for turn, part in enumerate(data.split(_TURN)):
        feed = observer.from_client
        if turn % 2:
            feed = observer.from_server
        for piece in cut(part):
            feed(piece)
            assert 0 <= watch.held <= 2 * MAX_BODY + MAX_EVENT, (
                f"{watch.held} bytes are held"
            )
            held = getattr(observer._exchange, "held", 0)
            # Beside bodies and events the heads that are not whole yet.
            assert held <= watch.held <= len(data), (
                f"{watch.held} and {held} bytes of {len(data)} are held"
            )
    if ends:
        observer.server_ended()
    observer.closed()
    assert watch.held == 0, (
        f"{watch.held} bytes are held of a connection that has ended"
    )
    assert set(watch.unobserved) == set(UNOBSERVED), (
        f"other reasons: {watch.unobserved}"
    )
    assert sum(watch.unobserved.values()) + len(observations) <= watch.requests, (
        "more outcomes than requests"
    )
    assert watch.unobserved["internal"] == 0
    for observation in observations:
        assert (observation.ttft_seconds or 0) >= 0, f"{observation}"
        assert (observation.tpot_seconds or 0) >= 0, f"{observation}"
    return watch.requests, dict(watch.unobserved), observations


#: What is fed, by the first byte of an input.
KINDS = {b"0": _check_events, b"3": _check_observer}


_IN_CHUNKS = request(
    b"", Content_Type="application/json", Transfer_Encoding="chunked"
) + chunks([dump(chat_request(stream=True)).encode()], trailers=b"X-T: 1\r\n")


def seeds() -> Iterator[bytes]:
    """Yield whole conversations, and streams with every kind of line end, in some ways
    of cutting.
    """
    conversations = (
        (ASKED, STREAMED, ASKED_PLAIN, ANSWERED_PLAIN),
        (ASKED_PLAIN, answer({"error": {}}, "429 Too Many Requests")),
        (ASKED, STREAMED[:-5]),
        (ASKED, stream_head(**{"transfer-encoding": None}) + chat_stream()),
        (_IN_CHUNKS, answer(chat_answer(), Content_Length=None)),
        (request(method="HEAD", path="/health"), answer(b""), ASKED, b""),
    )
    for way in (b"\x00", b"\x07", b"\x1f", b"\xe3"):
        for end in ("\n", "\r\n", "\r"):
            yield b"0" + way + chat_stream(end=end)
        yield b"0" + way + b"data: a\r\ndata: b\r\n\r\n: ping\n\nid: 1\rdata\r\r"
        for turns in conversations:
            yield b"3" + way + _TURN.join(turns)
