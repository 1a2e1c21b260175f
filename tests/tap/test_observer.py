"""The observer: from the bytes of a connection to observations, the same whatever the
pieces.
"""

import re

import pytest

from tap.streams import (
    ANSWERED_PLAIN,
    ASKED,
    ASKED_PLAIN,
    COMPLETIONS,
    DONE,
    ID,
    MODEL,
    RECORD,
    STREAMED,
    answer,
    byte_by_byte,
    chat_answer,
    chat_documents,
    chat_request,
    chat_stream,
    chunk,
    chunks,
    cut_at,
    cuts,
    events,
    request,
    split,
    stream_head,
    streamed,
    usage_chunk,
)
from tap.watching import Watched, observe
from vllm_specdec_exporter.per_request import exchange
from vllm_specdec_exporter.per_request.grouping import Classification, parse_rule
from vllm_specdec_exporter.per_request.observation import Observation, RecordState
from vllm_specdec_exporter.serve.tap import observer

_TOKENS = chat_documents()
_COUNTED_TOKENS = [token | {"usage": {"completion_tokens": 1}} for token in _TOKENS]
_LAST = {name: usage_chunk(record=RECORD)[name] for name in ("usage", "metrics")}


def _rechunked(message: bytes, size: int) -> bytes:
    """The same message with its body in chunks of this size."""
    head, body = split(message)
    head = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", head)
    return head + chunks(cut_at(body, range(0, len(body), size)))


EXCHANGES = {
    "stream": (ASKED, STREAMED),
    "stream in CRLF and odd chunks": (
        ASKED,
        stream_head()
        + chunks(cut_at(chat_stream(end="\r\n"), range(0, 5000, 311)), upper=True),
    ),
    "extensions and trailers": (
        ASKED,
        stream_head()
        + chunks(
            events([*chat_documents(), DONE]), extension=b";a=b", trailers=b"X-T: 1\r\n"
        ),
    ),
    "plain": (ASKED_PLAIN, ANSWERED_PLAIN),
    "plain in chunks": (_rechunked(ASKED_PLAIN, 11), _rechunked(ANSWERED_PLAIN, 101)),
    "continued": (
        request(chat_request(), Expect="100-continue"),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        + ANSWERED_PLAIN,
    ),
    "usage with the last token": (
        ASKED,
        streamed(events([*_TOKENS[:-1], {**_TOKENS[-1], **_LAST}, DONE])),
    ),
    "usage with each token": (
        ASKED,
        streamed(events([*_COUNTED_TOKENS, usage_chunk(record=RECORD), DONE])),
    ),
}


def _result(watched: Watched) -> tuple[tuple[Observation, ...], dict[str, int], int]:
    return tuple(watched.observed), watched.unobserved, watched.watch.requests


@pytest.mark.parametrize("name", EXCHANGES)
def test_the_same_observation_whatever_the_pieces(name: str) -> None:
    """Request and answer cut in two, also within line ends, byte by byte, and all at
    once.
    """
    asked, answered = EXCHANGES[name]
    twice = observe(([asked], [answered]), ([asked], [answered]))
    assert len(twice.observed) == 2
    assert {observation.completion_tokens for observation in twice.observed} == {
        9 if "usage" in answered.decode() else None
    }
    expected = _result(observe(([asked], [answered])))
    for parts in cuts(asked):
        assert _result(observe((parts, [answered]))) == expected, parts[0]
    for parts in cuts(answered):
        assert _result(observe(([asked], parts))) == expected, parts[0]


def test_what_is_observed_of_a_stream() -> None:
    (observation,) = observe(([ASKED], [STREAMED])).observed
    assert observation.model_name == MODEL
    assert observation.temperature == 0.3
    assert observation.request_type == "chat"
    assert observation.stream
    assert observation.request_id == ID
    assert observation.completion_tokens == 9
    assert observation.state is RecordState.DETAILED
    record = observation.record
    assert record.drafts == 4
    assert record.draft_tokens == 11
    assert record.accepted_tokens == 5
    assert record.steps == {(3, 2): 2, (3, 0): 1, (2, 1): 1}
    assert observation.time == 1e9 + 100


def test_what_is_observed_without_a_stream() -> None:
    """It has no times: its tokens arrive together."""
    document = chat_answer(
        {key: value for key, value in RECORD.items() if not key.startswith("per_")}
    )
    body = {"model": "m", "prompt": "p"}
    (observation,) = observe(
        ([request(body, COMPLETIONS)], [answer(document)])
    ).observed
    assert not observation.stream
    assert observation.temperature is None
    assert observation.request_type == "completions"
    assert observation.state is RecordState.SUMMARY
    assert observation.ttft_seconds is observation.tpot_seconds is None


def test_times_of_a_stream() -> None:
    """From the request's last byte to the first token, which the event with the role is
    not, and between.
    """
    watched = Watched()
    watched.client(ASKED[:-1])
    watched.clock = 101.0
    watched.client(ASKED[-1:])
    watched.server(stream_head())
    # the role, two tokens, and the end of the text
    times = (101.25, 101.5, 102.0, 102.5)
    stream = events(chat_documents(("Hi", " you")))
    for watched.clock, event in zip(times, stream, strict=True):
        # without the last chunk: the stream goes on
        watched.server(chunks([event]).removesuffix(b"0\r\n\r\n"))
    watched.clock = 110.0
    watched.server(chunks(events([usage_chunk(tokens=6), DONE])))
    (observation,) = watched.observed
    assert observation.ttft_seconds == 0.5
    assert observation.tpot_seconds == 0.2


def test_types_and_tenants() -> None:
    """By header, by rules, by route; a tenant only where the operator knows it."""
    watched = Watched(
        Classification(
            "x-type",
            (parse_rule("tools=field:tools"),),
            "x-tenant",
            frozenset({"blue"}),
        )
    )
    asked = [
        request(chat_request(), X_Type="batch", X_Tenant="blue"),
        request(chat_request(tools=[{"type": "function"}]), X_Tenant="red"),
        request(chat_request(tools=[])),
    ]
    for text in asked:
        watched.client(text)
        watched.server(ANSWERED_PLAIN)
    groups = [
        (observation.request_type, observation.tenant)
        for observation in watched.observed
    ]
    assert groups == [("batch", "blue"), ("tools", "other"), ("chat", "")]


_PASSING = {
    "another method": (request(method="GET"), answer({"data": []})),
    "another route": (request({"input": "x"}, "/v1/embeddings"), answer({"data": []})),
    "a form": (
        request(b"a=b", Content_Type="application/x-www-form-urlencoded"),
        answer({}),
    ),
    "a compressed request": (
        request(b"\x1f\x8b", Content_Encoding="gzip"),
        ANSWERED_PLAIN,
    ),
    "HEAD": (
        request(method="HEAD"),
        ANSWERED_PLAIN.partition(b"\r\n\r\n")[0] + b"\r\n\r\n",
    ),
    "204": (request(method="DELETE", path="/x"), b"HTTP/1.1 204 No Content\r\n\r\n"),
    "304": (
        request(method="GET", path="/x"),
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
    ),
}


@pytest.mark.parametrize("name", _PASSING)
def test_others_are_counted_only_and_hide_nothing(name: str) -> None:
    """What comes after them on the connection is observed."""
    asked, answered = _PASSING[name]
    watched = observe(([asked], [answered]), ([ASKED_PLAIN], [ANSWERED_PLAIN]))
    assert len(watched.observed) == 1
    assert watched.watch.requests == 2
    assert watched.unobserved == {}


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages?beta=true"])
def test_text_of_an_api_without_records_is_unobserved(path: str) -> None:
    """Clients of these APIs do not look like no traffic."""
    watched = observe(([request({"input": "x"}, path)], [answer({"output": []})]))
    assert watched.watch.requests == 1
    assert watched.observed == []
    assert watched.unobserved == {"route": 1}


def _responses_stream(**last: object) -> bytes:
    """A stream of `/v1/responses`, of which the last event has further fields."""
    usage = {"input_tokens": 4, "output_tokens": 9, "total_tokens": 13}
    started = {"id": "resp_1", "model": MODEL, "status": "in_progress", "error": None}
    documents = [
        {"type": "response.created", "response": {**started, "usage": None}},
        {"type": "response.output_text.delta", "delta": "Hi"},
        {
            "type": "response.completed",
            "response": {**started, "status": "completed", "usage": usage},
            **last,
        },
    ]
    named = (
        f"event: {document['type']}\n".encode() + text
        for document, text in zip(documents, events(documents), strict=True)
    )
    return streamed(named)


_RESPONSES = request({"model": "x", "input": "x", "temperature": 0.3}, "/v1/responses")


def test_the_record_of_a_llamacpp_stream_of_responses_is_read() -> None:
    """Model and usage lie within the response there, the record beside it."""
    timings = {"predicted_n": 9, "draft_n": 12, "draft_n_accepted": 6}
    watched = observe(([_RESPONSES], [_responses_stream(timings=timings)]))
    (observation,) = watched.observed
    assert watched.unobserved == {}
    assert observation.model_name == MODEL
    assert observation.completion_tokens == 9
    assert observation.request_type == "responses"
    assert observation.temperature == 0.3
    assert observation.state is RecordState.SUMMARY
    record = observation.record
    assert (record.draft_tokens, record.accepted_tokens) == (12, 6)


def test_a_stream_of_responses_without_a_record_is_no_request_without_one() -> None:
    """Of vLLM's, none has a record, so none is missing."""
    for last in ({}, {"timings": {"predicted_n": 9}}):
        watched = observe(([_RESPONSES], [_responses_stream(**last)]))
        assert watched.observed == []
        assert watched.unobserved == {"route": 1}


#: By the reason, requests and responses that are not observed.
_UNOBSERVED = {
    "refused": {
        "400": (ASKED_PLAIN, answer({"error": {}}, "400 Bad Request")),
        "500": (
            ASKED_PLAIN,
            answer(b"Internal Server Error", "500 Internal Server Error"),
        ),
        "an error instead of an answer": (
            ASKED_PLAIN,
            answer({"error": {"message": "gone"}}),
        ),
        "an error with a token": (
            ASKED,
            streamed(
                events(
                    [
                        *chat_documents(),
                        {**_TOKENS[-1], "error": {"message": "gone"}},
                        DONE,
                    ]
                )
            ),
        ),
        "an error in a stream": (
            ASKED,
            streamed(events([*chat_documents(), {"error": {"message": "gone"}}, DONE])),
        ),
    },
    "malformed": {
        "no content": (
            ASKED_PLAIN,
            b"HTTP/1.1 204 No Content\r\nContent-Type: application/json\r\n\r\n",
        ),
        "a request that is no JSON": (request(b"{"), ANSWERED_PLAIN),
        "an answer that is no JSON": (ASKED_PLAIN, answer(b"{")),
        "an answer of another kind": (
            ASKED_PLAIN,
            answer(b"x", Content_Type="text/plain"),
        ),
        "an answer before the end of the request": (ASKED_PLAIN[:-1], ANSWERED_PLAIN),
    },
    "encoded": {
        "a compressed answer": (ASKED_PLAIN, answer(b"x", Content_Encoding="br"))
    },
    "aborted": {
        "an answer whose end nobody tells": (
            ASKED_PLAIN,
            answer(chat_answer(), Content_Length=None),
        ),
        "no answer": (ASKED_PLAIN, b""),
        "half an answer": (ASKED_PLAIN, ANSWERED_PLAIN[:-1]),
        "half a stream": (ASKED, STREAMED[: STREAMED.index(b"]\n\n\r\n0")]),
        "the last word before the end of the request": (ASKED[:-1], STREAMED[:-5]),
        "half a request": (ASKED_PLAIN[:-1], b""),
    },
    "connection": {
        "no HTTP in the answer": (ASKED_PLAIN, b"SSH-2.0-OpenSSH\r\n"),
        "no HTTP in the chunks": (ASKED, stream_head() + b"zz\r\n"),
        "another protocol": (
            request(chat_request(), Connection="Upgrade", Upgrade="h2c"),
            b"HTTP/1.1 101 Switching\r\n\r\n",
        ),
    },
}


@pytest.mark.parametrize("reason", _UNOBSERVED)
def test_what_is_not_observed_is_counted_once_and_says_why(reason: str) -> None:
    for name, (asked, answered) in _UNOBSERVED[reason].items():
        for pieces in ([answered], byte_by_byte(answered)):
            watched = observe(([asked], pieces))
            assert watched.observed == [], name
            assert watched.unobserved == {reason: 1}, name


def test_the_state_of_the_record() -> None:
    """None, nothing drafted, and one that contradicts itself or is none."""
    nothing = RECORD | {
        "num_spec_steps": 0,
        "num_draft_tokens": 0,
        "num_accepted_draft_tokens": 0,
        "acceptance_histogram": [0, 0, 0, 0],
        "per_step_accepted": [],
        "per_step_drafted": [],
    }
    records = [None, nothing, {**RECORD, "num_draft_tokens": 1}, "text"]
    watched = observe(
        *(([ASKED_PLAIN], [answer(chat_answer(record))]) for record in records)
    )
    states = [observation.state.value for observation in watched.observed]
    assert states == ["none", "not_drafted", "malformed", "malformed"]


_ODD = [
    b"",
    b"\xff",
    b"null",
    b"[[[",
    b'["model"]',
    b'\xef\xbb\xbf{"model": "m"}',
    b'{"model": 7}',
    b'{"model": "m", "n": 1e308}',
    b'{"model": "m", "n": -1, "temperature": "inf"}',
    b'{"model": "m", "x": "\xff\xfe"}',
    b'{"model": "m", "x": %s}' % (b"[" * 100_000),
    b'{"model": "m", "x": 1%s}' % (b"0" * 5000),
    b'{"id":"\\ud800","choices":[]}',
    b'{"model":"\xff","choices":[]}',
    b'{"choices":[{"delta":{"\xff":1,"role":"x"}}]}',
    b'{"choices":[{"delta":[]}]}',
    b'{"choices":[{"delta":{"role":"a","content":{}}}],"metrics":{"speculative_decoding":{"\xff":0}}}',
    b'{"choices":[],"metrics":{"speculative_decoding":{"num_spec_steps":"\xff"}}}',
    b'{"choices":[],"metrics":{"speculative_decoding":%s}}'
    % (b"[" * 3000 + b"]" * 3000),
    b'{"choices":[],"usage":{"completion_tokens":123456789012345678901234567890}}',
    b'{"choices":[],"usage":{"completion_tokens":1e999}}',
]


@pytest.mark.parametrize("odd", _ODD)
def test_no_bytes_are_a_defect(odd: bytes) -> None:
    """As a request, as an answer or as an event: they are observed or malformed."""
    stream = streamed([b"data: " + odd + b"\n\n", *events([DONE])])
    watched = observe(
        ([request(odd, Content_Length=str(len(odd)))], [ANSWERED_PLAIN]),
        ([ASKED_PLAIN], [answer(odd)]),
        ([ASKED], [stream]),
    )
    assert watched.unobserved.keys() <= {"malformed", "refused"}
    assert len(watched.observed) + sum(watched.unobserved.values()) == 3
    assert watched.watch.requests == 3


def test_pipelined_requests_are_not_observed_and_the_text_ones_are_counted() -> None:
    """Up to where the connection cannot be followed any more, whatever the pieces."""
    sent = b"".join(
        [ASKED_PLAIN, ASKED_PLAIN, ASKED_PLAIN, request(method="GET"), ASKED]
    )
    for parts in ([sent], byte_by_byte(sent), cut_at(sent, range(0, 5000, 100))):
        watched = Watched()
        watched.client(*parts)
        watched.server(ANSWERED_PLAIN * 2)
        watched.close()
        assert watched.observed == [], parts
        assert watched.watch.requests == 2, parts
        assert watched.unobserved == {"connection": 2}, parts


def test_too_large_requests_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are dropped as soon as they are, and what comes after them is observed."""
    monkeypatch.setattr(exchange, "MAX_BODY", 2000)
    monkeypatch.setattr(exchange, "MAX_EVENT", 2000)
    padding = "x" * 2000
    long_token = chunk({"content": padding})
    watched = Watched()
    cases = [
        ([request(chat_request(padding=padding))], [ANSWERED_PLAIN]),
        ([ASKED_PLAIN], [answer(chat_answer() | {"padding": padding})]),
        ([ASKED], [streamed(events([long_token, *_TOKENS, DONE]))]),
        ([ASKED], byte_by_byte(streamed(events([long_token, DONE])))),
        ([ASKED_PLAIN], [ANSWERED_PLAIN]),
    ]
    for asked, answered in cases:
        watched.client(*asked)
        watched.server(*answered)
        assert watched.watch.held == 0, asked
    assert watched.unobserved == {"too_large": 4}
    assert len(watched.observed) == 1


def test_what_is_held_is_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all connections together; who would hold too much is not observed, and holds
    nothing.
    """
    asked = request(chat_request())
    limit = 5 * len(split(asked)[1]) // 2
    monkeypatch.setattr(observer, "MAX_HELD", limit)
    first = Watched()
    others = [Watched() for _ in range(3)]
    for neighbour in others:
        neighbour.watch = first.watch
        neighbour.observer = observer.Observer(first.watch)
    for watched in (first, *others):
        watched.client(asked[:-1])
        assert 0 < first.watch.held <= limit, watched
    # Those that were dropped count when they are over.
    assert first.watch.unobserved["busy"] == 0
    for watched in (first, *others):
        watched.client(asked[-1:])
        watched.server(ANSWERED_PLAIN)
    assert len(first.observed) == 2
    assert first.watch.unobserved["busy"] == 2
    assert first.watch.held == 0


# --- when a response is complete: with [DONE], or with the end of its connection


_NO_CHUNKS = {"transfer-encoding": None, "connection": "close"}


@pytest.mark.parametrize(
    "body", [cut_at(chat_stream(), range(0, 3000, 7)), [chat_stream(end="\r\n")]]
)
def test_a_stream_is_whole_with_its_last_word(body: list[bytes]) -> None:
    """A client that has read it leaves, and the last chunk need not have come; before
    it, none is whole.
    """
    answered = stream_head() + chunks(body)
    (observation,) = observe(([ASKED], [answered])).observed
    done = answered.rindex(b"]") + 1
    # every place around the end, and some before: all of them take a minute
    for end in (*range(0, done - 50, 9), *range(done - 50, len(answered))):
        watched = observe(([ASKED], [answered[:end]]))
        outcome = (watched.observed, watched.unobserved, watched.watch.requests)
        if end < done:
            assert outcome == ([], {"aborted": 1}, 1), end
        else:
            assert outcome == ([observation], {}, 1), end


@pytest.mark.parametrize(
    "text",
    ["data: [DONE]", "\ndata: [DONE]", "\r\ndata:[DONE] ", '"}]}\n\ndata: [DONE]\n\n'],
)
def test_a_text_that_looks_like_the_last_word(text: str) -> None:
    """Whoever leaves behind it leaves in the middle."""
    answered = stream_head() + chunks(events([*chat_documents(("x", text)), DONE]))
    end = answered.index(b"DONE]")
    for cut in range(end, end + 30):
        observed = observe(([ASKED], [answered[:cut]]))
        assert observed.unobserved == {"aborted": 1}, cut


def test_the_last_word_of_another_answer() -> None:
    """It counts for its own only: neither for one that has not begun, nor for one that
    does not stream.
    """
    for begun in (b"", stream_head(), stream_head() + b"5\r\nda", ANSWERED_PLAIN[:-1]):
        watched = observe(([ASKED], [STREAMED]), ([ASKED], [begun]))
        assert len(watched.observed) == 1, begun
        assert watched.unobserved == {"aborted": 1}, begun
    plain = answer(b"\ndata: [DONE]", Content_Length="99")
    assert observe(([ASKED_PLAIN], [plain])).unobserved == {"aborted": 1}


def test_a_request_between_the_last_word_and_the_last_chunk() -> None:
    """It cannot be followed; the answer before it was whole."""
    watched = observe(([ASKED], [STREAMED[:-5]]), ([ASKED], []))
    assert len(watched.observed) == 1
    assert watched.unobserved == {"connection": 1}


_UNTIL_THE_END = {
    "a stream": (ASKED, stream_head(**_NO_CHUNKS) + chat_stream()),
    "a stream in CRLF": (ASKED, stream_head(**_NO_CHUNKS) + chat_stream(end="\r\n")),
    "a chat in HTTP/1.0": (
        ASKED_PLAIN,
        answer(chat_answer(), version="1.0", Content_Length=None),
    ),
}


@pytest.mark.parametrize("name", _UNTIL_THE_END)
def test_an_answer_that_ends_with_its_connection(name: str) -> None:
    """The server's end is its end, whatever the pieces, told at once and once."""
    asked, answered = _UNTIL_THE_END[name]
    for parts in cuts(answered):
        watched = Watched()
        watched.client(asked)
        watched.server(*parts)
        assert len(watched.observed) == 0, parts
        assert watched.observer.busy is True, parts
        watched.server_ends()
        (observation,) = watched.observed
        assert watched.observer.busy is False, parts
        assert watched.watch.held == 0, parts
        assert observation.state == RecordState.DETAILED, parts
        assert observation.completion_tokens == 9, parts
        watched.close()
        assert len(watched.observed) == 1, parts
        assert watched.unobserved == {}, parts


@pytest.mark.parametrize("name", _UNTIL_THE_END)
@pytest.mark.parametrize(
    ("ends", "reasons"), [(True, ("aborted", "malformed")), (False, ("aborted",))]
)
def test_half_an_answer_that_would_end_with_its_connection(
    name: str, ends: bool, reasons: tuple[str, ...]
) -> None:
    """It is not observed, whether the server ends its connection or not."""
    asked, answered = _UNTIL_THE_END[name]
    text, done_event, _ = answered.partition(b"[DONE]")
    done = len(text + done_event)
    for cut in (*range(0, done - 50, 7), *range(done - 50, done)):
        watched = Watched()
        watched.client(asked)
        watched.server(answered[:cut])
        if ends:
            watched.server_ends()
        watched.close()
        assert watched.observed == [], cut
        assert watched.unobserved in [{reason: 1} for reason in reasons], cut


def test_what_else_ends_with_its_connection() -> None:
    """It is no longer under way then; while a request is still being sent, it is."""
    watched = Watched()
    watched.client(request(method="GET"))
    watched.server(b"HTTP/1.1 200 OK\r\n\r\nhello")
    watched.server_ends()
    assert not watched.observer.busy
    watched = Watched()
    watched.client(ASKED_PLAIN[:-1])
    watched.server(answer(chat_answer(), Content_Length=None))
    watched.server_ends()
    assert watched.observer.busy
    watched.close()
    assert watched.unobserved == {"aborted": 1}


@pytest.mark.parametrize(
    "begun", [ANSWERED_PLAIN[:-1], STREAMED.partition(b"[DONE]")[0], b""]
)
def test_the_servers_end_is_none_of_an_answer_that_tells_its_own(begun: bytes) -> None:
    """Also behind an answer without a body, which does not tell it."""
    watched = Watched()
    watched.client(request(method="HEAD"))
    watched.server(b"HTTP/1.1 200 OK\r\n\r\n")
    watched.client(ASKED)
    watched.server(begun)
    watched.server_ends()
    assert watched.observer.busy
    watched.close()
    assert watched.unobserved == {"aborted": 1}
