"""Streams as different servers send them; their events are read by the parser of single
requests.
"""

import json
from typing import Any

import pytest

from support.builders import refusal
from tap.streams import RECORD, chunk, usage_chunk
from vllm_specdec_exporter.commands.sweep.stream import (
    AnswerError,
    Stream,
    error_message,
)
from vllm_specdec_exporter.per_request.records import DraftRecord


def token(text: str = "", finish: str | None = None, **delta: str) -> dict[str, Any]:
    """An event of a chat with this text."""
    return chunk({"content": text, **delta}, finish)


def read(*events: tuple[float, dict[str, Any]]) -> Any:
    """The answer that these events with their times make, requested at 100 s."""
    stream = Stream(100.0)
    for time, event in events:
        stream.feed(b"data: " + json.dumps(event).encode() + b"\n\n", time)
    stream.feed(b"data: [DONE]\n\n", events[-1][0])
    return stream.answer(3, 1, events[-1][0])


ROLE = (100.1, token(role="assistant"))


def test_times_are_of_tokens_not_of_the_role_that_comes_first() -> None:
    events = [(100.5, token("a")), (101.0, token("b")), (102.5, token("", "length"))]
    answer = read(ROLE, *events, (109.0, usage_chunk(5)))
    assert answer.request == 3
    assert answer.prompt == 1
    assert answer.ttft_seconds == pytest.approx(0.5)
    assert answer.tpot_seconds == pytest.approx(2.0 / 4)
    assert answer.seconds == pytest.approx(9.0)
    assert answer.prompt_tokens == 4
    assert answer.completion_tokens == 5
    assert answer.events == 3
    assert answer.event_seconds == pytest.approx(1.0)


#: Events, and the seconds to the first token and from one token to the next.
TIMES = {
    # A letter of several bytes may be several tokens: the server sends its text with
    # the last of them.
    "text is held back": (
        [ROLE, (100.5, token()), (101.0, token()), (101.5, token("\u4e2d", "length"))],
        (0.5, 0.5),
    ),
    "every event names the role": (
        [
            ROLE,
            (100.5, token("a", role="assistant")),
            (101.5, token("b", "stop", role="assistant")),
        ],
        (0.5, 1.0),
    ),
    "a single token": ([(100.5, token("a", "stop"))], (0.5, None)),
    "completions have their text elsewhere": (
        [
            (100.2, {"choices": [{"text": "a", "finish_reason": None}]}),
            (100.4, {"choices": [{"text": "", "finish_reason": "x"}]}),
        ],
        (0.2, 0.2),
    ),
}


@pytest.mark.parametrize(("events", "seconds"), TIMES.values(), ids=TIMES)
def test_a_token_counts_when_it_comes(
    events: list[Any], seconds: tuple[float, float | None]
) -> None:
    tokens = len(events) - (ROLE in events)
    answer = read(*events, (102.0, usage_chunk(tokens)))
    assert (answer.ttft_seconds, answer.tpot_seconds) == pytest.approx(seconds)


def test_the_record_of_the_drafts_comes_with_the_usage_and_without_its_steps() -> None:
    answer = read((100.2, token("a")), (100.5, usage_chunk(9, RECORD)))
    assert answer.drafts == DraftRecord(4, 11, 5, (1, 1, 2, 0))
    assert answer.drafts.steps == {}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"metrics": None},
        {"metrics": {"speculative_decoding": None}},
        {
            "metrics": {
                "speculative_decoding": {"num_spec_steps": 1, "num_draft_tokens": -1}
            }
        },
        # llama.cpp does not count drafts
        {"timings": {"draft_n": 12, "draft_n_accepted": 5}},
    ],
)
def test_an_answer_without_a_usable_record_is_an_answer(more: dict[str, Any]) -> None:
    assert read((100.2, token("a")), (100.5, usage_chunk() | more)).drafts is None


def read_line(line: bytes) -> None:
    stream = Stream(0.0)
    stream.feed(line + b"\n\n", 1.0)
    stream.answer(0, 0, 1.0)


NOT_JSON = "an event of the stream is not the JSON of a response"
#: Lines of a stream by what is said about them.
BROKEN = {
    b"data: {broken": NOT_JSON,
    b"data: [1]": NOT_JSON,
    b'data: {"error": {"message": "engine\\n is dead"}}': "engine is dead",
    b'data: {"error": {"code": 5}}': "the stream says that the request failed",
    b"data: [DONE]": "the stream ended without usage",
    b'data: {"usage": {"completion_tokens": -3}, "choices": []}': (
        "the stream ended without usage"
    ),
    b"data: " + b"x" * 5 * 1024 * 1024: "an event is too large",
}


@pytest.mark.parametrize(("line", "message"), BROKEN.items(), ids=BROKEN.values())
def test_a_broken_stream_is_reported(line: bytes, message: str) -> None:
    assert message in refusal(AnswerError, read_line, line)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"error": {"message": "a\x1b[31m b"}}, "a [31m b"),
        ({"error": "no"}, "no"),
        ({"message": "m", "object": "error"}, "m"),
        ({"detail": "Not Found"}, "Not Found"),
        ({"detail": [{"loc": ["body"]}]}, ""),
        ([], ""),
    ],
)
def test_error_documents_are_read_in_every_form(document: object, message: str) -> None:
    assert error_message(document) == message
