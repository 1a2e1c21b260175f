"""Streams as different servers send them; their events are read by the parser of single
requests.
"""

import json
from typing import Any

import pytest

from support.builders import refusal
from vllm_specdec_exporter.commands.sweep.stream import (
    AnswerError,
    Stream,
    error_message,
)
from vllm_specdec_exporter.per_request.records import DraftRecord

RECORD = {
    "num_spec_steps": 4,
    "num_draft_tokens": 12,
    "num_accepted_draft_tokens": 5,
    "acceptance_histogram": [1, 2, 0, 1],
}


def chunk(text: str = "", finish: str | None = None, **delta: str) -> dict[str, Any]:
    return {
        "choices": [
            {"index": 0, "delta": {"content": text, **delta}, "finish_reason": finish}
        ]
    }


def usage(tokens: int, **more: Any) -> dict[str, Any]:
    return {
        "choices": [],
        "usage": {"prompt_tokens": 7, "completion_tokens": tokens},
        **more,
    }


def read(*events: tuple[float, dict[str, Any]], started: float = 100.0) -> Any:
    stream = Stream(started)
    for time, event in events:
        stream.feed(b"data: " + json.dumps(event).encode() + b"\n\n", time)
    stream.feed(b"data: [DONE]\n\n", events[-1][0])
    return stream.answer(3, 1, events[-1][0])


ROLE = (100.1, chunk(role="assistant"))


def test_times_are_of_tokens_not_of_the_role_that_comes_first() -> None:
    answer = read(
        ROLE,
        (100.5, chunk("a")),
        (101.0, chunk("b")),
        (102.5, chunk("", "length")),
        (109.0, usage(5)),
    )
    assert (answer.request, answer.prompt) == (3, 1)
    assert answer.ttft_seconds == pytest.approx(0.5)
    assert answer.tpot_seconds == pytest.approx(2.0 / 4)
    assert answer.seconds == pytest.approx(9.0)
    assert (answer.prompt_tokens, answer.completion_tokens) == (7, 5)
    assert (answer.events, answer.event_seconds) == (3, pytest.approx(1.0))


TEXTS = ({"text": "a", "finish_reason": None}, {"text": "", "finish_reason": "x"})
#: Events, and the seconds to the first token and from one token to the next.
TIMES: dict[
    str, tuple[tuple[tuple[float, dict[str, Any]], ...], tuple[float, float | None]]
] = {
    # A letter of several bytes may be several tokens: the server sends its text with
    # the last of them.
    "text is held back": (
        (
            ROLE,
            (100.5, chunk()),
            (101.0, chunk()),
            (101.5, chunk("\u4e2d", "length")),
            (101.6, usage(3)),
        ),
        (0.5, 0.5),
    ),
    "every event names the role": (
        (
            ROLE,
            (100.5, chunk("a", role="assistant")),
            (101.5, chunk("b", "stop", role="assistant")),
            (101.6, usage(2)),
        ),
        (0.5, 1.0),
    ),
    "a single token": (((100.5, chunk("a", "stop")), (101.0, usage(1))), (0.5, None)),
    "completions have their text elsewhere": (
        (
            (100.2, {"choices": [TEXTS[0]]}),
            (100.4, {"choices": [TEXTS[1]]}),
            (100.5, usage(2)),
        ),
        (0.2, 0.2),
    ),
}


def test_a_token_counts_when_it_comes() -> None:
    answers = {name: read(*events) for name, (events, _) in TIMES.items()}
    times = {
        name: (answer.ttft_seconds, answer.tpot_seconds)
        for name, answer in answers.items()
    }
    assert times == {
        name: pytest.approx(seconds) for name, (_, seconds) in TIMES.items()
    }


def test_the_record_of_the_drafts_comes_with_the_usage_and_without_its_steps() -> None:
    steps = {"per_step_drafted": [3, 3, 3, 3], "per_step_accepted": [0, 1, 1, 3]}
    answer = read(
        (100.2, chunk("a")),
        (100.5, usage(9, metrics={"speculative_decoding": RECORD | steps})),
    )
    assert answer.drafts == DraftRecord(4, 12, 5, (1, 2, 0, 1))
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
    assert read((100.2, chunk("a")), (100.5, usage(9, **more))).drafts is None


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
