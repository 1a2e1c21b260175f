"""The tap: what passes, and what is seen of it, does not hang on the pieces that it comes in.

The first byte of an input says what is fed (`_KINDS`), the second how it is cut into pieces. What is
promised:

- `EventSplitter`: the same events as a plain reading of the standard finds, and no byte lost; no event above
  the limit.
- `UsageEventRemover`: to a client, the answer is the same whatever the pieces.
- `UsageEventFilter`: likewise, of the events alone.
- `UsageRewriter`: what is sent is what came, but for the question, its length, and compression.
- `Observer`: no exception, the same observations and counts whatever the pieces, and nothing held at the end.
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
from vllm_specdec_exporter.requests.exchange import (
    MAX_BODY,
    MAX_EVENT,
    EventSizeError,
    EventSplitter,
    UsageEventFilter,
    data_of,
)
from vllm_specdec_exporter.requests.grouping import Classification
from vllm_specdec_exporter.requests.observation import Observation
from vllm_specdec_exporter.serve.tap.observer import UNOBSERVED, ObservationContext, Observer
from vllm_specdec_exporter.serve.tap.usage import UsageEventRemover, UsageRewriter

#: Between what the client sends and what the server sends.
_TURN = b"\x1e"

_LENGTH = re.compile(rb"(?im)^(content-length:[ \t]*)([0-9]{1,15})")
_CODINGS = re.compile(rb"(?im)^(accept-encoding:)[^\r\n]*")
_WANTED = b'{"include_usage":true}'
_OPTIONS = re.compile(rb'"stream_options"[ \t\r\n]*:[ \t\r\n]*(null|%s),?' % re.escape(_WANTED))


def check(data: bytes) -> None:
    """Raise unless the tap keeps its promises for one input."""
    if len(data) > 1 and data[:1] in _KINDS:
        _KINDS[data[:1]](data[2:], data[1])


def pieces(data: bytes, way: int) -> list[bytes]:
    """Return bytes cut in one of 256 ways: into equal pieces, or into pieces of lengths that go round.

    Single bytes are for short inputs: of a long one they would cost a hundred times the rest.
    """
    size = way % 32 + 1 + len(data) // 64
    step = way // 32
    cut, start = [], 0
    while start < len(data):
        cut.append(data[start : start + size])
        start += size
        size = (size * 5 + step) % 61 + 1 + len(data) // 128 if step else size
    return cut


# --- events


def _check_events(data: bytes, way: int) -> None:
    limit = 48 if way % 2 else 1 << 20
    expected = _by_the_standard(data)
    kept = [event for event in expected if len(event) <= limit]
    splitter, found, large = EventSplitter(limit), [], False
    for piece in pieces(data, way):
        try:
            found += splitter.feed(piece)
        except EventSizeError as error:
            found += error.before
            large = True
            break
    for event in found:
        lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        values = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
        assert data_of(event) == b"\n".join(values), f"{data_of(event)!r} of {event!r}"
        assert len(event) <= limit, f"an event of {len(event)} bytes"
    assert data.startswith(b"".join(found) + splitter.rest), "bytes are lost"
    if large:
        assert found == expected[: len(found)], f"{found} of {expected}"
        assert len(splitter.rest) > limit, f"{splitter.rest!r} is not large"
    else:
        assert b"".join(found) + splitter.rest == data, "bytes are lost"
        assert found == kept, f"{found} instead of {kept}"


def _by_the_standard(data: bytes) -> list[bytes]:
    """Return the whole events, read line by line; one whose last line may still go on is not whole."""
    events, start, position, empty = [], 0, 0, False
    while position < len(data):
        stop = min(
            (i for i in (data.find(b"\n", position), data.find(b"\r", position)) if i >= 0), default=-1
        )
        if stop < 0:
            break
        end = stop + (2 if data[stop : stop + 2] == b"\r\n" else 1)
        empty = stop == position
        # An empty line ends an event, also the first one: the bytes before it are its own.
        if empty and (position > start or _two_ends(data, start, end)):
            if end == len(data) and data[end - 1 : end] == b"\r":
                break
            events.append(data[start:end])
            start = end
        position = end
    return events


def _two_ends(data: bytes, start: int, end: int) -> bool:
    """Tell whether at least two line ends stand there: one alone ends no event, for it may be its first."""
    return len(re.findall(rb"\r\n|\n|\r", data[start:end])) > 1


# --- answers that lose an event


def _check_remover(data: bytes, way: int) -> None:
    whole, cut = UsageEventRemover(), UsageEventRemover()
    at_once = whole.feed(data) + whole.end()
    in_pieces = b"".join(map(cut.feed, pieces(data, way))) + cut.end()
    assert _as_read(at_once) == _as_read(in_pieces), f"{at_once!r} or {in_pieces!r}"
    expected = _as_read(data)
    if _LENGTH.search(data) and b"event-stream" in data.lower():
        return  # it goes on in chunks
    if _BROKEN not in expected and b"usage" not in expected and b"\\u" not in expected:
        assert _as_read(at_once) == expected, f"{at_once!r} of {data!r}"


#: Where a chunk does not end as it should: a client stops to read, and what it made of it is its own.
_BROKEN = b"<a chunk without its end>"


def _as_read(data: bytes) -> bytes:
    """Return an answer with its chunks as one, as far as they can be read."""
    done = b""
    while True:
        head, end, rest = data.partition(b"\r\n\r\n")
        if not end:
            return done + data
        done += head + end
        if not re.match(rb"HTTP/1\.[01] 1(?!01)[0-9]{2}[ \r]", head + b"\r"):
            break
        data = rest  # an interim answer
    body = b""
    while rest:
        line, end, after = rest.partition(b"\r\n")
        size = line.partition(b";")[0].strip()
        if not end or not re.fullmatch(rb"[0-9A-Fa-f]{1,15}", size) or not int(size, 16):
            break
        count = int(size, 16)
        if after[count : count + 2] != b"\r\n":
            break
        body, rest = body + after[:count], after[count + 2 :]
    # What follows the last whole chunk: of one that is cut off, its bytes are what is read.
    line, end, after = rest.partition(b"\r\n")
    size = line.partition(b";")[0].strip()
    if end and re.fullmatch(rb"[0-9A-Fa-f]{1,15}", size) and int(size, 16):
        count = int(size, 16)
        if len(after) > count and not b"\r\n".startswith(after[count : count + 2]):
            return done + body + after[:count] + _BROKEN
        body, rest = body + after[:count], b""
    return done + body + b"|" + rest


# --- requests that are asked


def _check_asking(data: bytes, way: int) -> None:
    if _WANTED in data:
        return
    asking = UsageRewriter()
    sent = b"".join(asking.request(piece, alone=way < 128) for piece in pieces(data, way)) + asking.release()
    if _WANTED not in sent:
        assert sent == data, f"{sent!r} instead of {data!r}"
        return
    after, before = _bare(sent), _bare(data)
    assert _OPTIONS.sub(b"", after) == _OPTIONS.sub(b"", before), f"{sent!r} of {data!r}"
    assert _lengths(sent) - _lengths(data) == len(after) - len(before), f"{sent!r} of {data!r}"


def _bare(data: bytes) -> bytes:
    return _CODINGS.sub(rb"\1", _LENGTH.sub(rb"\g<1>0", data))


def _lengths(data: bytes) -> int:
    return sum(int(match[2]) for match in _LENGTH.finditer(data))


# --- what is seen


def _check_observer(data: bytes, way: int) -> None:
    ends = way % 2 == 0
    seen = {
        step: _watch(data, cut, ends=ends)
        for step, cut in (("whole", _whole), ("cut", lambda d: pieces(d, way)))
    }
    assert seen["whole"] == seen["cut"], f"{seen}"


def _whole(data: bytes) -> list[bytes]:
    return [data] if data else []


def _watch(data: bytes, cut: Callable[[bytes], list[bytes]], *, ends: bool) -> tuple[object, ...]:
    told: list[Observation] = []
    watch = ObservationContext(told.append, Classification(), lambda: 1.0, lambda: 1e9)
    observer = Observer(watch)
    for turn, part in enumerate(data.split(_TURN)):
        for piece in cut(part):
            (observer.from_server if turn % 2 else observer.from_client)(piece)
            assert 0 <= watch.held <= 2 * MAX_BODY + MAX_EVENT, f"{watch.held} bytes are held"
            held = observer._exchange.held if observer._exchange is not None else 0
            assert watch.held == held <= len(data), f"{watch.held} and {held} bytes of {len(data)} are held"
    if ends:
        observer.server_ended()
    observer.closed()
    assert watch.held == 0, f"{watch.held} bytes are held of a connection that has ended"
    assert set(watch.unobserved) == set(UNOBSERVED), f"other reasons: {watch.unobserved}"
    assert sum(watch.unobserved.values()) + len(told) <= watch.requests, "more outcomes than requests"
    assert watch.unobserved["internal"] == 0
    for observation in told:
        for seconds in (observation.ttft_seconds, observation.tpot_seconds):
            assert seconds is None or seconds >= 0, f"{observation}"
    return watch.requests, dict(watch.unobserved), told


def _check_hider(data: bytes, way: int) -> None:
    whole, cut = UsageEventFilter(), UsageEventFilter()
    at_once = whole.feed(data) + whole.end()
    in_pieces = b"".join(map(cut.feed, pieces(data, way))) + cut.end()
    assert at_once == in_pieces, f"{at_once!r} or {in_pieces!r}"
    if b"usage" not in data:
        assert at_once == data, f"{at_once!r} of {data!r}"


_KINDS = {
    b"0": _check_events,
    b"1": _check_remover,
    b"2": _check_asking,
    b"3": _check_observer,
    b"4": _check_hider,
}


_UNTIL_THE_END = {"transfer-encoding": None}
_IN_CHUNKS = request(b"", Content_Type="application/json", Transfer_Encoding="chunked") + chunks(
    [dump(chat_request(stream=True)).encode()], trailers=b"X-T: 1\r\n"
)


def seeds() -> Iterator[bytes]:
    """Yield whole conversations, and streams with every kind of line end, in some ways of cutting."""
    for way in (b"\x00", b"\x07", b"\x1f", b"\xe3"):
        for end in ("\n", "\r\n", "\r"):
            yield b"0" + way + chat_stream(end=end)
            yield b"1" + way + stream_head() + chunks([chat_stream(end=end)[:900]])
        yield b"0" + way + b"data: a\r\ndata: b\r\n\r\n: ping\n\nid: 1\rdata\r\r"
        yield b"1" + way + STREAMED
        yield b"4" + way + chat_stream()
        yield b"1" + way + b"HTTP/1.1 100 Continue\r\n\r\n" + ANSWERED_PLAIN
        yield b"1" + way + stream_head(**_UNTIL_THE_END) + chat_stream()
        yield b"1" + way + stream_head(**_UNTIL_THE_END, content_length="900") + chat_stream()
        yield b"2" + way + request(chat_request(stream=True))
        yield b"2" + way + request(chat_request(stream=True, stream_options=None), Accept_Encoding="br")
        yield b"2" + way + _IN_CHUNKS + request(chat_request(stream=True))
        yield b"2" + way + ASKED + ASKED_PLAIN + request(method="GET", path="/health")
        yield b"3" + way + _TURN.join((ASKED, STREAMED, ASKED_PLAIN, ANSWERED_PLAIN))
        yield b"3" + way + _TURN.join((ASKED_PLAIN, answer({"error": {}}, "429 Too Many Requests")))
        yield b"3" + way + _TURN.join((ASKED, STREAMED[:-5]))
        yield b"3" + way + _TURN.join((ASKED, stream_head(**_UNTIL_THE_END) + chat_stream()))
        yield b"3" + way + _TURN.join((_IN_CHUNKS, answer(chat_answer(), Content_Length=None)))
        yield b"3" + way + _TURN.join((request(method="HEAD", path="/health"), answer(b""), ASKED, b""))
