"""The observer: from the bytes of a connection to observations, the same whatever the pieces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tap.streams import (
    COMPLETIONS,
    DONE,
    ID,
    MODEL,
    RECORD,
    answer,
    chat_answer,
    chat_documents,
    chat_request,
    chat_stream,
    chunk,
    chunks,
    cut_at,
    cuts,
    dump,
    events,
    request,
    split,
    stream_head,
    streamed,
    usage_chunk,
)
from tap.watching import Watched, observe
from vllm_specdec_exporter.requests import exchange
from vllm_specdec_exporter.requests.grouping import Classification, parse_rule
from vllm_specdec_exporter.requests.observation import RecordState
from vllm_specdec_exporter.serve.tap import observer

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_specdec_exporter.requests.observation import Observation

_ASKED = {"include_usage": True}
_STREAM = request(chat_request(stream=True, stream_options=_ASKED))
_STREAMED = streamed(events([*chat_documents(), usage_chunk(record=RECORD), DONE]))
_PLAIN = request(chat_request())
_TOKENS = chat_documents()
_LAST = {name: usage_chunk(record=RECORD)[name] for name in ("usage", "metrics")}

EXCHANGES = {
    "stream": (_STREAM, _STREAMED),
    "stream in CRLF and odd chunks": (
        _STREAM,
        stream_head() + chunks(cut_at(chat_stream(end="\r\n"), range(0, 5000, 311)), upper=True),
    ),
    "extensions and trailers": (
        _STREAM,
        stream_head() + chunks(events([*chat_documents(), DONE]), extension=b";a=b", trailers=b"X-T: 1\r\n"),
    ),
    "plain": (_PLAIN, answer(chat_answer())),
    "plain in chunks": (
        request(chat_request(), Content_Length=None, Transfer_Encoding="chunked")[
            : -len(dump(chat_request()).encode())
        ]
        + chunks(cut_at(dump(chat_request()).encode(), range(0, 500, 11))),
        answer(b"", Content_Length=None, Transfer_Encoding="chunked", Content_Type="application/json")
        + chunks(cut_at(dump(chat_answer()).encode(), range(0, 900, 101))),
    ),
    "continued": (
        request(chat_request(), Expect="100-continue"),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        + answer(chat_answer()),
    ),
    "usage with the last token": (
        _STREAM,
        streamed(events([*_TOKENS[:-1], {**_TOKENS[-1], **_LAST}, DONE])),
    ),
    "usage with each token": (
        _STREAM,
        streamed(
            events(
                [
                    *({**token, "usage": {"completion_tokens": 1}} for token in _TOKENS),
                    usage_chunk(record=RECORD),
                    DONE,
                ]
            )
        ),
    ),
    "refused": (_PLAIN, answer({"error": {"message": "no"}}, "400 Bad Request")),
    "malformed": (_PLAIN, answer(b"{not json")),
    "no JSON": (_PLAIN, answer(b"<html>", Content_Type="text/html")),
    "encoded": (_PLAIN, answer(b"\x1f\x8b", Content_Encoding="gzip")),
}


def _result(watched: Watched) -> tuple[tuple[Observation, ...], dict[str, int], int]:
    return tuple(watched.told), watched.unobserved, watched.watch.requests


@pytest.mark.parametrize("name", EXCHANGES)
def test_the_same_observation_whatever_the_pieces(name: str) -> None:
    """Every way to cut the request in two, every way to cut the answer, byte by byte, and all at once."""
    asked, answered = EXCHANGES[name]
    whole = _result(observe(([asked], [answered]), ([asked], [answered])))
    assert len(whole[0]) + sum(whole[1].values()) == whole[2] == 2
    if name not in ("refused", "malformed", "no JSON", "encoded"):
        assert [seen.completion_tokens for seen in whole[0]] == ([None] if "trailers" in name else [9]) * 2
    for parts in cuts(asked):
        assert _result(observe((parts, [answered]), (parts, [answered]))) == whole, parts[0]
    for parts in cuts(answered):
        assert _result(observe(([asked], parts), ([asked], parts))) == whole, parts[0]


@given(st.lists(st.integers(0, 5000), max_size=20), st.lists(st.integers(0, 5000), max_size=20))
def test_the_same_observation_of_a_stream_in_any_pieces(before: list[int], after: list[int]) -> None:
    (observation,) = observe((cut_at(_STREAM, before), cut_at(_STREAMED, after))).told
    assert observation.record is not None
    assert observation.record.steps == {(3, 2): 2, (3, 0): 1, (2, 1): 1}


def test_what_is_observed_of_a_stream() -> None:
    (seen,) = observe(([_STREAM], [_STREAMED])).told
    assert (seen.model_name, seen.temperature, seen.request_type) == (MODEL, 0.3, "chat")
    assert (seen.stream, seen.request_id, seen.completion_tokens) == (True, ID, 9)
    assert seen.state is RecordState.DETAILED
    assert seen.record is not None
    assert (seen.record.drafts, seen.record.draft_tokens, seen.record.accepted_tokens) == (4, 11, 5)
    assert seen.time == 1e9 + 100


def test_what_is_observed_without_a_stream() -> None:
    """Its times are the server's own, the queue before the first token included."""
    document = chat_answer({key: value for key, value in RECORD.items() if not key.startswith("per_")})
    document["metrics"] |= {"time_to_first_token_ms": 40.0, "queue_time_ms": 2.0, "mean_itl_ms": 5.0}
    body = {"model": "m", "prompt": "p"}
    (seen,) = observe(([request(body, COMPLETIONS)], [answer(document)])).told
    assert (seen.stream, seen.temperature, seen.request_type) == (False, None, "completions")
    assert seen.state is RecordState.SUMMARY
    assert (seen.ttft_seconds, seen.tpot_seconds) == (0.042, 0.005)


def test_times_of_a_stream() -> None:
    """From the request's last byte to the first token, which the event with the role is not, and between."""
    watched = Watched()
    watched.client(_STREAM[:-1])
    watched.now = 101.0
    watched.client(_STREAM[-1:])
    role, *rest = events(chat_documents(("Hi", " you")))
    watched.server(stream_head())
    for now, event in zip((101.25, 101.5, 102.0, 102.5), (role, *rest), strict=True):
        watched.now = now
        watched.server(chunks([event])[:-5])
    watched.now = 110.0
    watched.server(chunks(events([usage_chunk(tokens=6), DONE])))
    (seen,) = watched.told
    assert (seen.ttft_seconds, seen.tpot_seconds) == (0.5, 0.2)


def test_times_of_several_answers_are_not_told() -> None:
    """Whose token an event has is then open."""
    asked = request(chat_request(stream=True, n=2, stream_options=_ASKED))
    (seen,) = observe(([asked], [_STREAMED])).told
    assert seen.ttft_seconds is not None
    assert seen.tpot_seconds is None


def test_types_and_tenants() -> None:
    """By header, by rules, by route; a tenant only where the operator knows it."""
    watched = Watched(
        Classification("x-type", (parse_rule("tools=field:tools"),), "x-tenant", frozenset({"blue"}))
    )
    asked = [
        request(chat_request(), X_Type="batch", X_Tenant="blue"),
        request(chat_request(tools=[{"type": "function"}]), X_Tenant="red"),
        request(chat_request(tools=[])),
    ]
    for one in asked:
        watched.client(one)
        watched.server(answer(chat_answer()))
    found = [(seen.request_type, seen.tenant) for seen in watched.told]
    assert found == [("batch", "blue"), ("tools", "other"), ("chat", "")]


_PASSING = {
    "another method": (request(method="GET"), answer({"data": []})),
    "another route": (request({"input": "x"}, "/v1/embeddings"), answer({"data": []})),
    "a form": (request(b"a=b", Content_Type="application/x-www-form-urlencoded"), answer({})),
    "a compressed request": (request(b"\x1f\x8b", Content_Encoding="gzip"), answer(chat_answer())),
    "HEAD": (request(method="HEAD"), answer(chat_answer()).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"),
    "204": (request(method="DELETE", path="/x"), b"HTTP/1.1 204 No Content\r\n\r\n"),
    "304": (request(method="GET", path="/x"), b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
}


@pytest.mark.parametrize("name", _PASSING)
def test_others_are_counted_only_and_hide_nothing(name: str) -> None:
    """What comes after them on the connection is observed."""
    asked, answered = _PASSING[name]
    watched = observe(([asked], [answered]), ([_PLAIN], [answer(chat_answer())]))
    assert len(watched.told) == 1
    assert (watched.watch.requests, watched.unobserved) == (2, {})


_UNOBSERVED: dict[str, tuple[bytes, bytes, str]] = {
    "400": (_PLAIN, answer({"error": {}}, "400 Bad Request"), "refused"),
    "500": (_PLAIN, answer(b"Internal Server Error", "500 Internal Server Error"), "refused"),
    "an error instead of an answer": (_PLAIN, answer({"error": {"message": "gone"}}), "refused"),
    "no content": (
        _PLAIN,
        b"HTTP/1.1 204 No Content\r\nContent-Type: application/json\r\n\r\n",
        "malformed",
    ),
    "an error with a token": (
        _STREAM,
        streamed(events([*chat_documents(), {**_TOKENS[-1], "error": {"message": "gone"}}, DONE])),
        "refused",
    ),
    "an error in a stream": (
        _STREAM,
        streamed(events([*chat_documents(), {"error": {"message": "gone"}}, DONE])),
        "refused",
    ),
    "a request that is no JSON": (request(b"{"), answer(chat_answer()), "malformed"),
    "an answer that is no JSON": (_PLAIN, answer(b"{"), "malformed"),
    "an answer of another kind": (_PLAIN, answer(b"x", Content_Type="text/plain"), "malformed"),
    "a compressed answer": (_PLAIN, answer(b"x", Content_Encoding="br"), "encoded"),
    "an answer whose end nobody tells": (_PLAIN, answer(chat_answer(), Content_Length=None), "aborted"),
    "no answer": (_PLAIN, b"", "aborted"),
    "half an answer": (_PLAIN, answer(chat_answer())[:-1], "aborted"),
    "half a stream": (_STREAM, _STREAMED[: _STREAMED.index(b"]\n\n\r\n0")], "aborted"),
    "the last word before the end of the request": (_STREAM[:-1], _STREAMED[:-5], "aborted"),
    "half a request": (_PLAIN[:-1], b"", "aborted"),
    "an answer before the end of the request": (_PLAIN[:-1], answer(chat_answer()), "malformed"),
    "no HTTP in the answer": (_PLAIN, b"SSH-2.0-OpenSSH\r\n", "connection"),
    "no HTTP in the chunks": (_STREAM, stream_head() + b"zz\r\n", "connection"),
    "another protocol": (
        request(chat_request(), Connection="Upgrade", Upgrade="h2c"),
        b"HTTP/1.1 101 Switching\r\n\r\n",
        "connection",
    ),
}


@pytest.mark.parametrize("name", _UNOBSERVED)
def test_what_is_not_observed_is_counted_once_and_says_why(name: str) -> None:
    asked, answered, reason = _UNOBSERVED[name]
    for pieces in ([answered], [bytes((byte,)) for byte in answered]):
        watched = observe(([asked], pieces))
        assert watched.told == []
        assert watched.unobserved == {reason: 1}


def test_the_state_of_the_record() -> None:
    """None, nothing drafted, and one that contradicts itself, which may hold anything."""
    nothing = {**RECORD, "num_spec_steps": 0, "num_draft_tokens": 0, "num_accepted_draft_tokens": 0}
    nothing |= {"acceptance_histogram": [0, 0, 0, 0], "per_step_accepted": [], "per_step_drafted": []}
    wrong: list[Any] = [
        {**RECORD, "num_draft_tokens": 1},
        {**RECORD, "num_spec_steps": "4"},
        {**RECORD, "num_spec_steps": 10**400},
        {**RECORD, "per_step_drafted": [3] * 5},
        {},
        [],
        "text",
        7,
    ]
    records = [None, nothing, *wrong]
    watched = observe(*(([_PLAIN], [answer(chat_answer(record))]) for record in records))
    states = [seen.state for seen in watched.told]
    assert states == [RecordState.NONE, RecordState.NOT_DRAFTED, *[RecordState.MALFORMED] * len(wrong)]


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "m", "n": "inf"}',
        b'{"model": "m", "n": "nan"}',
        b'{"model": "m", "n": 1e308}',
        b'{"model": "m", "n": -1, "temperature": "inf"}',
        b'{"model": "m", "x": "\xff\xfe"}',
        b'{"model": "m", "x": %s}' % (b"[" * 100_000),
        b'{"model": "m", "x": 1%s}' % (b"0" * 5000),
        b'{"model": 7}',
        b'["model"]',
        b"",
        b"\xff",
        b'\xef\xbb\xbf{"model": "m"}',
    ],
)
def test_no_request_is_a_defect(body: bytes) -> None:
    """Whatever clients send, it is observed or malformed."""
    watched = observe(([request(body, Content_Length=str(len(body)))], [answer(chat_answer())]))
    assert len(watched.told) + watched.unobserved.get("malformed", 0) == 1


@pytest.mark.parametrize(
    "document",
    [
        b'{"choices":[{"delta":{"\xff":1,"role":"x"}}]}',
        b'{"choices":[{"delta":[]}]}',
        b'{"choices":[{"delta":{"role":"a","content":{}}}],"metrics":{"speculative_decoding":{"\xff":0}}}',
        b'{"choices":[],"metrics":{"speculative_decoding":{"num_spec_steps":"\xff"}}}',
        b'{"choices":[],"metrics":{"speculative_decoding":%s}}' % (b"[" * 3000 + b"]" * 3000),
        b'{"choices":[],"usage":{"completion_tokens":123456789012345678901234567890}}',
        b'{"choices":[],"metrics":{"mean_itl_ms":1e999}}',
        b'{"id":"\\ud800","choices":[]}',
        b'{"model":"\xff","choices":[]}',
        b"[[[",
        b"null",
    ],
)
def test_no_answer_is_a_defect(document: bytes) -> None:
    """Whatever servers answer, stream or not, it is observed or malformed."""
    stream = b"data: " + document + b"\n\n"
    watched = observe(([_PLAIN], [answer(document)]), ([_STREAM], [streamed([stream, *events([DONE])])]))
    assert len(watched.told) + watched.unobserved.get("malformed", 0) == 2


_READ = [
    "model",
    "temperature",
    "n",
    "sampling_params",
    "stream",
    "id",
    "choices",
    "usage",
    "metrics",
    "error",
]
_NAMES = [*_READ, "speculative_decoding", "delta", "role", "content", "completion_tokens", *RECORD]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(_NAMES),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(_JSON, _JSON)
def test_no_json_is_a_defect(asked: Any, answered: Any) -> None:
    """With the very names that are read, and anything in them."""
    watched = observe(
        ([request(json.dumps(asked).encode())], [answer(json.dumps(answered).encode())]),
        ([_STREAM], [streamed(events([json.dumps(answered), DONE]))]),
    )
    assert "internal" not in watched.unobserved
    assert len(watched.told) + sum(watched.unobserved.values()) == 2


def _pipelined() -> list[bytes]:
    return [_PLAIN, request(method="GET"), _STREAM]


def test_pipelined_requests_are_not_observed_and_the_text_ones_are_counted() -> None:
    """Up to where the connection cannot be followed any more, whatever the pieces."""
    sent = b"".join([_PLAIN, _PLAIN, *_pipelined()])
    for parts in ([sent], [bytes((byte,)) for byte in sent], cut_at(sent, range(0, 5000, 100))):
        watched = Watched()
        watched.client(*parts)
        watched.server(answer(chat_answer()) * 2)
        watched.close()
        assert watched.told == []
        assert (watched.watch.requests, watched.unobserved) == (2, {"connection": 2})


def test_too_large_requests_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are dropped as soon as they are, and what comes after them is observed."""
    monkeypatch.setattr(exchange, "MAX_BODY", 2000)
    monkeypatch.setattr(exchange, "MAX_EVENT", 2000)
    large = chat_answer()
    large["padding"] = "x" * 2000
    watched = Watched()
    cases = [
        ([request(chat_request(padding="x" * 2000))], [answer(chat_answer())]),
        ([_PLAIN], [answer(large)]),
        ([_STREAM], [streamed(events([chunk({"content": "x" * 2000}), *chat_documents(), DONE]))]),
        ([_STREAM], [bytes((byte,)) for byte in streamed(events([chunk({"content": "x" * 2000}), DONE]))]),
        ([_PLAIN], [answer(chat_answer())]),
    ]
    for asked, answered in cases:
        watched.client(*asked)
        watched.server(*answered)
        assert watched.watch.held == 0
    assert watched.unobserved == {"too_large": 4}
    assert len(watched.told) == 1


def test_what_is_held_is_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all connections together; who would hold too much is not observed, and holds nothing."""
    asked = request(chat_request())
    most = 5 * len(split(asked)[1]) // 2
    monkeypatch.setattr(observer, "MAX_HELD", most)
    first = Watched()
    others = [Watched() for _ in range(3)]
    for other in others:
        other.watch = first.watch
        other.observer = observer.Observer(first.watch)
    for one in (first, *others):
        one.client(asked[:-1])
        assert 0 < first.watch.held <= most
    assert first.watch.unobserved["busy"] == 0  # they are not over
    for one in (first, *others):
        one.client(asked[-1:])
        one.server(answer(chat_answer()))
    assert (len(first.told), first.watch.unobserved["busy"], first.watch.held) == (2, 2, 0)


def _fails(*_: object, **__: object) -> Any:
    msg = "SECRET of the client"
    raise RuntimeError(msg)


_BREAKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "request": lambda patch: patch.setattr(exchange, "read_request", _fails),
    "answer": lambda patch: patch.setattr(exchange, "read_answer", _fails),
    "event": lambda patch: patch.setattr(exchange, "data_of", _fails),
    "concerns": lambda patch: patch.setattr(exchange.Exchange, "request_data", _fails),
    "head": lambda patch: patch.setattr(exchange.Exchange, "answer_head", _fails),
    "finish": lambda patch: patch.setattr(exchange.Exchange, "finish", _fails),
    "classification": lambda patch: patch.setattr(Classification, "type_of", _fails),
    "tell": lambda patch: patch.setattr(exchange, "Observation", _fails),
}


@pytest.mark.parametrize("broken", _BREAKS)
def test_a_defect_is_counted_and_said_once(
    broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for each place; and what the error quotes is not told."""
    _BREAKS[broken](monkeypatch)
    said: set[str] = set()
    for _ in range(2):
        watched = Watched()
        watched.watch.said = said
        watched.client(_STREAM)
        watched.server(_STREAMED)
        assert watched.told == []
        assert watched.unobserved == {"internal": 1}
        assert watched.observer.blind
        watched.close()
    (record,) = caplog.records
    assert "RuntimeError at " in record.fields["error"]  # type: ignore[attr-defined]
    assert "SECRET" not in caplog.text + repr(vars(record))
    assert "observer.py:" in record.fields["error"]  # type: ignore[attr-defined]


def test_who_is_told_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    """The request counts as one that was not observed."""
    watched = Watched()
    watched.watch.tell = _fails
    watched.client(_STREAM)
    watched.server(_STREAMED)
    watched.close()
    assert watched.unobserved == {"internal": 1}
    assert len(caplog.records) == 1
