"""UsageRewriter: streams are asked for their usage, and no other byte of what clients send changes."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tap.asked import STREAM, WITH, WITHOUT, after_asking, answers, requests, with_question
from tap.streams import (
    COMPLETIONS,
    MODEL,
    answer,
    chat_request,
    chunks,
    cut_at,
    cuts,
    dump,
    request,
    split,
    streamed,
    unchunk,
)
from vllm_specdec_exporter.serve.tap import usage as question
from vllm_specdec_exporter.serve.tap.http_framing import MAX_HEAD
from vllm_specdec_exporter.serve.tap.usage import UsageRewriter


def test_a_stream_is_asked_whatever_the_pieces() -> None:
    expected = with_question(STREAM)
    assert json.loads(split(expected)[1]) == {
        "stream_options": {"include_usage": True},
        **chat_request(stream=True),
    }
    for parts in cuts(STREAM):
        assert requests(UsageRewriter(), parts) == expected, parts[0]


@pytest.mark.parametrize(
    "sent",
    [
        request(b' \t\r\n{ "stream" : true }\n'),
        request({"stream": True}).replace(b"Content-Length", b"content-length"),
        request({"stream": True, "prompt": "p"}, "/base" + COMPLETIONS + "?key=1"),
        request({"stream": True, "model": MODEL}, "/invocations"),
        request({"stream": True, "token_ids": [1]}, "/inference/v1/generate"),
        request({"stream": True}, Content_Type=None),
        request({"stream": True}, Content_Type="application/json; charset=utf-8", Connection="close"),
        request({"stream": True, "extra": {"stream_options": {"include_usage": True}}}),
        request({"stream": True}, X_Content_Length="5", Cookie="content-length: 5"),
        request({"stream": True}, TE="Trailers", Accept_Encoding="identity"),
        request({"stream": True}, X_Accept_Encoding="gzip"),
    ],
)
def test_what_is_asked(sent: bytes) -> None:
    """Whatever the route, the white space and the other headers are."""
    assert requests(UsageRewriter(), [sent]) == with_question(sent)


_BODY = dump(chat_request(stream=True)).encode()
_NOT_ASKED = {
    "no stream": request(chat_request()),
    "stream 1": request(chat_request(stream=1)),
    "stream by a name in escapes": request(b'{"strea\\u006d": true, "stream_option\\u0073": null}'),
    "options": request(chat_request(stream=True, stream_options={"include_usage": True})),
    "options null, and those of another object": request(
        {"stream": True, "stream_options": None, "extra": {"stream_options": None}}
    ),
    "options null by a name in escapes": request(
        b'{"stream": true, "stream_option\\u0073": null, "extra": {"stream_options": null}}'
    ),
    "options null twice": request(b'{"stream": true, "stream_options": null, "stream_options": null}'),
    "the last options count": request(b'{"stream": true, "stream_options": null, "stream_options": {}}'),
    "the last stream counts": request(b'{"stream": true, "stream": false}'),
    "another route": request({"stream": True, "input": "x"}, "/v1/responses"),
    "another method": request({"stream": True}, method="PUT"),
    "a list": request(b'[{"stream": true}]'),
    "half JSON": request(b'{"stream": true'),
    "deep": request(b'{"stream": true, "x": %s}' % (b"[" * 3000)),
    "a mark before": request(b'\xef\xbb\xbf{"stream": true}'),
    "a form": request(chat_request(stream=True), Content_Type="multipart/form-data"),
    "compressed": request(_BODY, Content_Encoding="gzip"),
    "no body": request(b"", Content_Length="0"),
    "expect": request(chat_request(stream=True), Expect="100-continue"),
    "chunks": request(b"", Transfer_Encoding="chunked") + chunks([_BODY]),
    "chunks of another coding": request(b"", Transfer_Encoding="gzip, chunked") + chunks([_BODY]),
    "chunks twice": request(b"", Transfer_Encoding="chunked", transfer_encoding="chunked") + chunks([_BODY]),
    "a compressed answer, and no other": request(_BODY, Accept_Encoding="gzip, identity; q=0"),
    "a coding of the transfer": request(_BODY, TE="trailers, gzip"),
    "chunks, and another length": request(b"", Content_Length="5", Transfer_Encoding="chunked")
    + chunks([_BODY]),
    "two lengths": request(_BODY, content_length=str(len(_BODY))),
    "a request within a body of two lengths": request(STREAM, "/x", content_length="0"),
    "a request within a body": request(STREAM, "/x"),
    "a length of another kind": request(_BODY, Content_Length=f"+{len(_BODY)}"),
    "a length with another space": request(_BODY, Content_Length=f"{len(_BODY)}\xa0"),
    "an endless length": request(_BODY, Content_Length="9" * 5000),
    "HTTP/1.0": request(chat_request(stream=True), version="1.0"),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "upgrade": request(chat_request(stream=True), Connection="Upgrade", Upgrade="h2c"),
    "lines ended by LF": STREAM.replace(b"\r\n", b"\n"),
    "one line ended by LF": STREAM.replace(b"\r\nContent-Type", b"\nContent-Type"),
    "one line ended by CR": STREAM.replace(b"\r\nContent-Type", b"\rContent-Type"),
    "a folded header": STREAM.replace(b"\r\nContent-Type", b"\r\nX: a\r\n b\r\nContent-Type"),
    "a space before a colon": STREAM.replace(b"Content-Type:", b"Content-Type :"),
    "an empty line before": b"\r\n" + STREAM,
    "words": b"POST a b c HTTP/1.1\r\n\r\n",
    "zeros": bytes(64),
    "a large head": request(chat_request(stream=True), X_Large="x" * MAX_HEAD),
}


@pytest.mark.parametrize("name", _NOT_ASKED)
def test_what_is_not_asked_passes_byte_for_byte(name: str) -> None:
    """The answer too, even one that looks like what was asked for; and what follows on the connection."""
    sent = _NOT_ASKED[name]
    for parts in cuts(sent, most=5000):
        asking = UsageRewriter()
        assert requests(asking, parts) == sent, parts[0]
        assert answers(asking, [streamed(WITH)]) == streamed(WITH)
    asking = UsageRewriter()
    requests(asking, [sent])
    assert requests(asking, [request(method="GET")]) == request(method="GET")


_AT_ONCE = [name for name in _NOT_ASKED if not _NOT_ASKED[name].startswith(b"POST ")]


@pytest.mark.parametrize("name", [*_AT_ONCE, "lines ended by LF", "one line ended by LF"])
def test_what_cannot_be_asked_does_not_wait(name: str) -> None:
    """Whoever waits for its answer would wait in vain: each byte passes as it comes."""
    asking, sent = UsageRewriter(), _NOT_ASKED[name]
    alone = re.search(rb"(?<!\r)\n", sent)  # until the first line end of another kind, all may be well
    begin = alone.end() if alone and sent.startswith(b"POST ") else 0
    out = asking.request(sent[:begin])
    assert out == sent[:begin]
    for place in range(begin, len(sent)):
        out += asking.request(sent[place : place + 1])
        if not b"POST ".startswith(sent[: place + 1]):
            assert out == sent[: place + 1]


def test_a_large_request_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes as it comes."""
    head, body = split(STREAM)
    monkeypatch.setattr(question, "MAX_HELD_BODY", len(body))
    assert requests(UsageRewriter(), [STREAM]) == with_question(STREAM)
    monkeypatch.setattr(question, "MAX_HELD_BODY", len(body) - 1)
    asking = UsageRewriter()
    assert asking.request(head + body[:3]) == head + body[:3]
    assert asking.request(body[3:]) == body[3:]


def test_what_is_held_back_can_be_released() -> None:
    """What came of the request passes without a question. After a whole head, the next request is asked."""
    head = len(split(STREAM)[0])
    for place in range(1, len(STREAM)):
        asking = UsageRewriter()
        out = asking.request(STREAM[:place])
        assert (asking.held, asking.is_holding) == (max(place - head, 0), place >= head)
        assert out + asking.release() == STREAM[:place]
        assert (asking.held, asking.is_holding) == (0, False)
        assert asking.request(STREAM[place:]) == STREAM[place:]
        assert answers(asking, [streamed(WITH)]) == streamed(WITH)
        assert asking.request(STREAM) == (with_question(STREAM) if place >= head else STREAM)


def _chunked(parts: list[bytes]) -> bytes:
    more = chunks(parts, extension=b';a="b"', trailers=b"X-Sum: 1\r\nX-T:\r\n")
    return request(b"", Transfer_Encoding="Chunked") + more


@pytest.mark.parametrize(
    "sent", [_chunked(cut_at(_BODY, range(0, 400, 29))), request({"input": "x" * 100}, "/v1/embeddings")]
)
def test_bodies_that_are_not_asked_do_not_wait(sent: bytes) -> None:
    """Their bytes pass as they come."""
    head, body = split(sent)
    asking = UsageRewriter()
    assert asking.request(head) == head
    for byte in body:
        assert asking.request(bytes((byte,))) == bytes((byte,))


_DOUBTFUL = {
    "no size": b"zz\r\n",
    "a space": b"5 \r\nhello\r\n0\r\n\r\n",
    "an endless size": b"1" * 16 + b"\r\n",
    "a long line": b"5;" + b"x" * 5000 + b"\r\nhello\r\n0\r\n\r\n",
    "a line ended by LF": b"5\nhello\r\n0\r\n\r\n",
    "a line with a CR": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "a chunk ended by LF": b"5\r\nhello\n0\r\n\r\n",
    "a chunk without its end": b"5\r\nhello0\r\n\r\n",
    "a trailer ended by LF": b"0\r\nA: b\n\r\n",
    "a trailer without its colon": b"0\r\nA\r\n\r\n",
    "endless trailers": b"0\r\n" + b"A: %s\r\n" % (b"b" * 4000) * 20 + b"\r\n",
}


@pytest.mark.parametrize("name", _DOUBTFUL)
def test_after_chunks_that_leave_room_for_doubt_nothing_is_asked(name: str) -> None:
    """Another reader might see the end of the request elsewhere: everything passes, for good."""
    sent = request(b"", Transfer_Encoding="chunked") + _DOUBTFUL[name] + STREAM
    for parts in cuts(sent, most=3000):
        asking = UsageRewriter()
        assert requests(asking, parts) == sent, parts[0]
        assert asking.request(STREAM) == STREAM


@pytest.mark.parametrize(
    "name",
    ["chunks twice", "chunks of another coding", "chunks, and another length", "two lengths", "HTTP/1.0"],
)
def test_after_a_head_that_leaves_room_for_doubt_nothing_is_asked(name: str) -> None:
    asking = UsageRewriter()
    assert asking.request(_NOT_ASKED[name]) == _NOT_ASKED[name]
    assert asking.request(STREAM) == STREAM


@given(
    st.lists(st.sampled_from([STREAM, _BODY, b"0\r\n\r\n", b"\r\n", b"x"]), max_size=6).map(b"".join),
    st.lists(st.integers(0, 3000), max_size=8),
    st.lists(st.integers(0, 4000), max_size=8),
)
def test_any_body_in_chunks_passes_and_the_next_request_is_asked(
    body: bytes, sizes: list[int], places: list[int]
) -> None:
    """Also one that holds requests and ends of chunks."""
    sent = _chunked(cut_at(body, sizes))
    for parts in (cut_at(sent, places), [bytes((byte,)) for byte in sent]):
        asking = UsageRewriter()
        assert requests(asking, parts) == sent
        assert asking.response(streamed(WITH)) == streamed(WITH)
        assert asking.request(STREAM) == with_question(STREAM)
        assert unchunk(split(asking.response(streamed(WITH)))[1])[0] == b"".join(WITHOUT)


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        (
            b'{"stream":true,"stream_options":null}',
            b'{"stream":true,"stream_options":{"include_usage":true}}',
        ),
        (
            b'{"stream_options" :\n null , "stream":true,"":"\\"stream_options\\": null"}',
            b'{"stream_options" :\n {"include_usage":true} , "stream":true,"":"\\"stream_options\\": null"}',
        ),
        (
            b'{"stream":true,"stream_options":{},"stream_options":\tnull}',
            b'{"stream":true,"stream_options":{},"stream_options":\t{"include_usage":true}}',
        ),
    ],
)
def test_options_that_are_null_are_none(body: bytes, asked: bytes) -> None:
    """They give way to the question, in their place: a second field of that name might not be read."""
    for parts in cuts(request(body)):
        assert requests(UsageRewriter(), parts) == request(asked), parts[0]


def test_an_asked_request_asks_for_no_compressed_answer() -> None:
    """Nothing could be taken out of one. Other requests keep what they ask for."""
    codings = {"Accept_Encoding": "gzip, deflate", "accept_encoding": "br;q=0.5"}
    sent = request(chat_request(stream=True), **codings)
    plain = sent.replace(b"gzip, deflate", b"identity").replace(b"br;q=0.5", b"identity")
    for parts in cuts(sent):
        assert requests(UsageRewriter(), parts) == with_question(plain), parts[0]
    other = request(chat_request(), **codings)
    assert UsageRewriter().request(other) == other


@pytest.mark.parametrize("first", [request(method="GET"), request(chat_request()), STREAM])
def test_a_request_before_the_last_answer_is_not_asked(first: bytes) -> None:
    """Whose answer comes next would be open. Sent together or one after the other, in any pieces."""
    before = with_question(first) if first is STREAM else first
    together = first + STREAM
    for parts in ([together], [first, STREAM], [bytes((byte,)) for byte in together]):
        asking, out, sent = UsageRewriter(), b"", b""
        for part in parts:
            out += asking.request(part, alone=len(sent) < len(first))
            sent += part
        assert out == before + STREAM


def test_no_request_is_asked_while_an_asked_stream_goes_on() -> None:
    """Whatever the caller thinks of who is alone."""
    asking = after_asking()
    assert asking.request(STREAM) == STREAM
    assert unchunk(split(asking.response(streamed(WITH)))[1])[0] == b"".join(WITHOUT)
    assert asking.response(streamed(WITH)) == streamed(WITH)


def test_many_streams_on_one_connection() -> None:
    """Each is asked once its predecessor is answered, and what is between passes."""
    asking = UsageRewriter()
    between = request(method="GET", path="/health")
    for number in range(5):
        sent = request(chat_request(stream=True, user=str(number)))
        assert asking.request(sent) == with_question(sent)
        assert unchunk(split(asking.response(streamed(WITH)))[1])[0] == b"".join(WITHOUT)
        assert asking.request(between) == between
        assert asking.response(answer(b"")) == answer(b"")
        refused = answer({"error": {}}, "429 Too Many Requests")
        assert asking.request(sent) == with_question(sent)
        assert asking.response(refused) == refused


def test_many_tiny_chunks_end_the_asking() -> None:
    """All passes as it came, with all that follows on the connection."""
    asking = UsageRewriter()
    chunked = request(b"", Transfer_Encoding="chunked") + chunks([b"x"] * 20_000)
    assert asking.request(chunked) == chunked
    assert asking.request(STREAM) == STREAM
