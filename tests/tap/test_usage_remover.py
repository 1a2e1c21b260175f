"""The remover: clients do not see the event they did not ask for, and all else as the server sent it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tap.asked import DOCUMENTS, STREAM, WITH, WITHOUT, after_asking, answers
from tap.streams import (
    DONE,
    answer,
    chat_answer,
    chunk,
    chunks,
    cut_at,
    cuts,
    events,
    split,
    stream_head,
    streamed,
    unchunk,
    usage_chunk,
)
from vllm_specdec_exporter.requests import exchange, openai_api
from vllm_specdec_exporter.serve.tap import usage
from vllm_specdec_exporter.serve.tap.http_framing import MAX_HEAD
from vllm_specdec_exporter.serve.tap.usage import UsageRewriter

_WHOLE = b"".join(WITH)
_NO_CHUNKS = stream_head(**{"transfer-encoding": None})
_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
_HEAD_OF_LENGTH = stream_head(**{"transfer-encoding": None, "content-length": str(len(_WHOLE))})
_HEAD_OF_CHUNKS = stream_head(**{"transfer-encoding": None, "Transfer-Encoding": "chunked"})
#: Streams, and what says where their body ends: chunks, its length or the end of the connection.
_STREAMS = {
    "as vLLM writes": (streamed(WITH), "chunks"),
    "extensions and trailers": (
        stream_head() + chunks(WITH, extension=b";a=b", trailers=b"X-Sum: 1\r\n"),
        "chunks",
    ),
    "other writing of headers": (
        streamed(
            WITH,
            **{"content-type": None, "transfer-encoding": None},
            Content_Type="Text/Event-Stream",
            Transfer_Encoding="Chunked",
        ).replace(b"Content-Type: ", b"Content-Type:"),
        "chunks",
    ),
    "HTTP/1.0": (streamed(WITH).replace(b"HTTP/1.1", b"HTTP/1.0"), "chunks"),
    "no coding": (streamed(WITH, **{"content-encoding": "identity"}), "chunks"),
    "without the last empty line": (streamed([*WITH[:-2], WITH[-1], WITH[-2][:-1]]), "chunks"),
    "interim answers": (_INTERIM + streamed(WITH), "chunks"),
    "until the end": (_NO_CHUNKS + _WHOLE, "end"),
    "until the end, after interim answers": (_INTERIM + _NO_CHUNKS + _WHOLE, "end"),
    # How long it will be is not known before its end; what follows it on the connection passes.
    "of known length": (_HEAD_OF_LENGTH + _WHOLE + answer(chat_answer()), "length"),
    "of known length in HTTP/1.0": (_HEAD_OF_LENGTH.replace(b"/1.1", b"/1.0") + _WHOLE, "length"),
}


@pytest.mark.parametrize(("answered", "framing"), _STREAMS.values(), ids=_STREAMS)
def test_the_extra_event_is_removed_whatever_the_pieces(answered: bytes, framing: str) -> None:
    """Head and trailers stay byte for byte; the body is that of the stream without the event.

    One of known length goes on in chunks, one until the connection ends as it is.
    """
    interim = _INTERIM if answered.startswith(_INTERIM) else b""
    head, data = split(answered.removeprefix(interim))
    after = b""
    if framing == "length":
        head, data, after = _HEAD_OF_CHUNKS, _WHOLE, b"\r\n" + data.removeprefix(_WHOLE)
    elif framing == "chunks":
        data, after = unchunk(data)
    expected = _without(data)
    assert data != expected
    for parts in cuts(answered):
        asking = after_asking()
        out = answers(asking, parts) + asking.end_of_responses()
        assert out.startswith(interim + head), parts[0]
        body = out.removeprefix(interim + head)
        assert ((body, b"") if framing == "end" else unchunk(body)) == (expected, after), parts[0]


@given(st.lists(st.integers(0, 3000), max_size=12), st.lists(st.integers(0, 4000), max_size=12))
def test_the_extra_event_is_removed_of_any_chunks_in_any_pieces(sizes: list[int], places: list[int]) -> None:
    answered = stream_head() + chunks(cut_at(b"".join(WITH), sizes))
    out = answers(after_asking(), cut_at(answered, places))
    assert unchunk(split(out)[1])[0] == b"".join(WITHOUT)


@pytest.mark.parametrize(
    "kept",
    [
        chunk({"content": "x"}, usage={"completion_tokens": 1}),
        chunk(None),
        {"choices": [], "usage": None},
        {"error": {"message": "usage"}},
        {**usage_chunk(), "error": {"message": "gone"}},
        '{"choices": [], "usage"',
        '"usage"',
        {"choices": [], "usage": "none"},
    ],
)
def test_other_events_stay(kept: object) -> None:
    """With choices, without usage, or none that can be read."""
    parts = [*WITHOUT[:1], *events([kept]), *WITHOUT[1:]]
    out = answers(after_asking(), [streamed(parts)])
    assert unchunk(split(out)[1])[0] == b"".join(parts)


_HEAD, _BLOCKS = split(streamed(WITH))
_ANSWERS = {
    "refused": answer({"error": {"message": "no", "usage": 1}}, "400 Bad Request"),
    "a failed stream": streamed(WITH).replace(b"200 OK", b"500 Oh"),
    "no stream": answer(chat_answer()),
    "of no length": stream_head(**{"transfer-encoding": None, "content-length": "0"}),
    "of a length that is none": stream_head(**{"transfer-encoding": None, "content-length": "-1"})
    + b"".join(WITH),
    "compressed": streamed(WITH, **{"content-encoding": "gzip"}),
    "another coding": streamed(WITH, **{"transfer-encoding": "gzip, chunked"}),
    "HTTP/2.0": streamed(WITH).replace(b"HTTP/1.1", b"HTTP/2.0"),
    "a large head": streamed(WITH, X_Large="x" * MAX_HEAD),
    "lines ended by LF": stream_head().replace(b"\r\n", b"\n") + _BLOCKS,
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + _BLOCKS,
    "no status": b"HTTP/1.1 20\r\n\r\n" + _BLOCKS,
    "a size that is none": _HEAD + b"zz\r\n" + _BLOCKS,
    "an endless size": _HEAD + b"f" * 40 + b"\r\n" + _BLOCKS,
    "an endless line": _HEAD + b"5;" + b"x" * 9000,
    "no chunk": _HEAD + b"0\r\n\r\n",
}


@pytest.mark.parametrize("name", _ANSWERS)
def test_other_answers_pass_byte_for_byte(name: str) -> None:
    """And so does all that follows on the connection, once it is not asked any more."""
    answered = _ANSWERS[name]
    for parts in cuts(answered, most=3000):
        asking = after_asking()
        assert answers(asking, parts) + asking.end_of_responses() == answered, parts[0]


def test_the_extra_event_with_white_space() -> None:
    """Some servers write their JSON with blanks, also within the empty list."""
    extra = b'data: {"choices": [ ], "usage": {"completion_tokens": 9}}\n\n'
    out = after_asking().response(streamed([*WITHOUT[:-1], extra, WITHOUT[-1]]))
    assert unchunk(split(out)[1])[0] == b"".join(WITHOUT)


@pytest.mark.parametrize("wrong", [b"zz", b"\n", b"\r\r", b"x\r\n", b"5\r\nworld\r\n0\r\n\r\n"])
def test_a_chunk_without_its_end(wrong: bytes) -> None:
    """It stays malformed: every byte passes as it came."""
    first = WITH[0]
    answered = _HEAD + b"%x\r\n%s" % (len(first), first) + wrong + b"and more"
    for parts in cuts(answered):
        asking = after_asking()
        out = answers(asking, parts)
        assert out == answered, parts[0]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("chunked", [True, False])
def test_events_are_not_delayed(end: str, chunked: bool) -> None:
    """Each is passed on with its last byte, before the next one comes."""
    asking, head = after_asking(), stream_head() if chunked else _NO_CHUNKS
    assert asking.response(head) == head
    extra = events([usage_chunk()], end)[0]
    for event in events([*DOCUMENTS, usage_chunk(), DONE], end):
        block = b"%x\r\n%s\r\n" % (len(event), event) if chunked else event
        assert asking.response(block[:-3]) == b""
        assert asking.response(block[-3:]) == (b"" if event == extra else block)
    assert asking.response(b"0\r\n\r\n") + asking.end_of_responses() == b"0\r\n\r\n"


def _without(data: bytes) -> bytes:
    """A stream without the extra event, also where the lines that end it are missing."""
    for ending in (b"\n\n", b"\n", b""):
        if data.endswith(WITH[-2].removesuffix(b"\n\n") + ending):
            return data[: data.rindex(b"data: ")]
    return data.replace(WITH[-2], b"")


@pytest.mark.parametrize(
    "answered", [streamed(WITH), *(head + b"".join(WITH) for head in (_HEAD_OF_LENGTH, _NO_CHUNKS))]
)
def test_a_stream_that_breaks_off(answered: bytes) -> None:
    """Wherever it does: what came of it passes, but for the extra event as soon as that can be read.

    It has a last chunk only where the server sent that.
    """
    head = len(split(answered)[0])
    for place in range(1, len(answered)):
        asking, sent = after_asking(), answered[:place]
        out = asking.response(sent) + asking.end_of_responses()
        if place < head:
            assert out == sent
        else:
            assert _data(out) == _without(_data(sent)), place
            assert out.endswith(b"0\r\n\r\n") == sent.endswith(b"0\r\n\r\n")


def _data(answered: bytes) -> bytes:
    """The body of an answer, as far as it came."""
    head, blocks = split(answered)
    if b"chunked" not in head:
        return blocks
    found = b""
    while blocks:
        line, end, blocks = blocks.partition(b"\r\n")
        size = int(line, 16) if end else 0
        found, blocks = found + blocks[:size], blocks[size + 2 :]
    return found


@pytest.mark.parametrize("limit", [40, 100, 250])
def test_a_large_event_ends_the_removing_and_loses_nothing(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those events that came with it."""
    monkeypatch.setattr(exchange, "MAX_EVENT", limit)
    small = [b": 1\n\n", b"data: 2\n\n"]
    large = events([chunk({"content": "x" * limit}), usage_chunk(), DONE])
    for parts in cuts(streamed([b"".join([*small, *large])])):
        out = answers(after_asking(), parts)
        assert unchunk(split(out)[1])[0] == b"".join([*small, *large]), parts[0]


def test_many_tiny_chunks_end_the_removing_and_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would cost more time than its byte is worth."""
    monkeypatch.setattr(usage, "MOST_LACKING", 3000)
    sent = b"".join(events([*[chunk({"content": "x"})] * 9, usage_chunk()]))
    tiny = b"".join(b"1\r\n%c\r\n" % byte for byte in sent) + b"0\r\n\r\n"
    asking = after_asking()
    out = b"".join(asking.response(part) for part in (stream_head(), tiny[:1000], tiny[1000:]))
    assert unchunk(split(out)[1])[0] == sent
    assert out.endswith(tiny[-6000:]), "the rest as it was sent"


def test_tiny_chunks_among_large_ones_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tiny ones lack, the large ones have."""
    monkeypatch.setattr(usage, "MOST_LACKING", 200)
    asking = after_asking()
    out = asking.response(stream_head())
    for event in [
        *[events([chunk({"content": "x" * 200})])[0], b": \n\n"] * 50,
        *events([usage_chunk(), DONE]),
    ]:
        out += asking.response(b"%x\r\n%b\r\n" % (len(event), event))
    assert b'"usage":' not in out
    assert out.count(b"xxx") >= 50


@pytest.mark.parametrize(
    "line", [b" %x", b"%x ", b"%x \x0b", b"%x;a\nb", b"%x;a\0", b"%x;a\rb", b"%x;", b"%x;=", b"%x;a b"]
)
@pytest.mark.parametrize("place", [0, -2])
def test_a_chunk_whose_size_others_reject(line: bytes, place: int) -> None:
    """It stays malformed: it and everything after it passes as it came."""
    parts = [b"%x\r\n%b\r\n" % (len(event), event) for event in WITH]
    parts[place] = line % len(WITH[place]) + parts[place][parts[place].index(b"\r\n") :]
    answered = _HEAD + b"".join(parts)
    for pieces in ([answered], cut_at(answered, range(len(answered))), [_HEAD, *parts]):
        asking = after_asking()
        out = answers(asking, pieces) + asking.end_of_responses()
        assert out.endswith(b"".join(parts[place:]))


def _fails(*_: object) -> bool:
    msg = "a defect"
    raise RuntimeError(msg)


def test_a_defect_in_the_reading_passes_traffic_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were nothing to ask, and nothing to remove."""
    asking = after_asking()
    monkeypatch.setattr(exchange, "read_response", _fails)
    out = asking.response(streamed(WITH))
    assert unchunk(split(out)[1])[0] == b"".join(WITH)
    monkeypatch.setattr(openai_api, "_stream_fields", _fails)
    assert UsageRewriter().request(STREAM) == STREAM
