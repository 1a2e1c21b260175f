"""Recorded requests: every form of a line, and what cannot be used of it."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.builders import refusal
from tap.streams import ID, MODEL, RECORD, chat_answer
from vllm_specdec_exporter.commands.requests.recorded import EntryError, EntryReader
from vllm_specdec_exporter.per_request.grouping import Classification, parse_rule
from vllm_specdec_exporter.per_request.observation import Observation, RecordState


def answer(kind: str = "chat.completion", **more: Any) -> dict[str, Any]:
    return {**chat_answer(), "object": kind, "created": 1_790_000_000, **more}


CHAT = {
    "model": MODEL,
    "temperature": 0.7,
    "messages": [{"role": "user", "content": "hello"}],
}


BY_ROUTE = Classification()


def read(
    entry: object, classification: Classification = BY_ROUTE
) -> Observation | None:
    body = entry if isinstance(entry, bytes) else json.dumps(entry).encode()
    return EntryReader(classification).read(body)


# --- the forms


def test_an_answer_alone_has_its_record_and_no_temperature() -> None:
    """Nothing is made up: who asked, and how, stands in the request.

    The type is what it looks like.
    """
    observation = read(answer())
    assert observation.record.draft_tokens == RECORD["num_draft_tokens"]
    assert observation.record.accepted_tokens == RECORD["num_accepted_draft_tokens"]
    assert sum(observation.record.steps.values()) == RECORD["num_spec_steps"]
    assert observation.temperature is None
    assert observation.model_name == MODEL
    assert observation.completion_tokens == 9
    assert observation.time == 1_790_000_000.0
    assert observation.request_id == ID
    assert observation.stream is False
    assert observation.request_type == "chat"
    assert observation.state == RecordState.DETAILED
    for kind, request_type in (
        ("text_completion", "completions"),
        ("something.else", "other"),
    ):
        assert read(answer(kind)).request_type == request_type, (kind, request_type)


PAIRS: dict[str, dict[str, Any]] = {
    "bodies": {"request": CHAT, "response": answer()},
    "envelopes": {
        "request": {
            "url": "/v1/chat/completions",
            "headers": {"X-Kind": "rag"},
            "body": CHAT,
        },
        "response": {"status_code": 200, "body": answer()},
    },
    "whole addresses": {
        "request": {"url": "http://vllm:8000/v1/chat/completions?x=1", "body": CHAT},
        "response": {"status_code": 200, "body": answer()},
    },
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_request_and_its_answer_belong_together(name: str) -> None:
    """However they are wrapped, the temperature is the request's and the record the
    answer's.
    """
    observation = read(PAIRS[name])
    assert observation.temperature == 0.7
    assert observation.model_name == MODEL
    assert observation.request_type == "chat"
    assert observation.record.draft_tokens == RECORD["num_draft_tokens"]
    assert not observation.stream


def test_requests_are_classified_as_the_tap_classifies_them() -> None:
    """By a header, by rules on what was asked, and by the path."""
    rules = (parse_rule("tools=field:tools"), parse_rule("rag=path:/rag/*"))
    classification = Classification(
        type_header="x-kind",
        rules=rules,
        tenant_header="x-tenant",
        tenants=frozenset({"acme"}),
    )

    def kind(**more: Any) -> tuple[str, str]:
        request = {"body": {**CHAT, **more.pop("body", {})}, **more}
        observation = read({"request": request, "response": answer()}, classification)
        return observation.request_type, observation.tenant

    assert kind(headers={"X-Kind": "code", "X-Tenant": "acme"}) == ("code", "acme")
    assert kind(headers={"X-Tenant": "somebody"}) == ("chat", "other")
    assert kind(body={"tools": [{"type": "function"}]}) == ("tools", "")
    assert kind(url="/rag/v1/chat/completions") == ("rag", "")


def test_what_is_pushed_can_be_read_from_a_file_too() -> None:
    """One observation a line; it names its tenant without a header."""
    pushed = {
        "model": MODEL,
        "temperature": 0.4,
        "tenant": "acme",
        "speculative_decoding": RECORD,
    }
    observation = read(
        {**pushed, "request_type": "code"}, Classification(tenants=frozenset({"acme"}))
    )
    assert observation.request_type == "code"
    assert observation.tenant == "acme"
    assert observation.temperature == 0.4
    assert read({"model": MODEL, "completion_tokens": 12}).state is RecordState.NONE


def test_the_answers_of_a_batch_find_their_requests() -> None:
    """By `custom_id`, in any order; an answer without its request is read too."""
    reader = EntryReader(Classification())
    asked = [
        {
            "custom_id": str(n),
            "url": "/v1/chat/completions",
            "body": {**CHAT, "temperature": n},
        }
        for n in (0, 1)
    ]
    answered = [
        {"custom_id": n, "response": {"status_code": 200, "body": answer()}}
        for n in ("1", "x", "0")
    ]
    observations = [
        reader.read(json.dumps(entry).encode()) for entry in (*asked, *answered)
    ]
    assert [each and each.temperature for each in observations] == [
        None,
        None,
        1.0,
        None,
        0.0,
    ]
    reader.end()
    assert reader.unused == {}


# --- what cannot be used

FAILED = "the request failed"
UNKNOWN = "neither a response nor any other known form of a recorded request"
NO_JSON = "not JSON: each line has one object"
UNUSABLE: dict[str, tuple[object, str]] = {
    "no JSON": (b"{", NO_JSON),
    "no UTF-8": (
        b'{"choices": [], "model": "\xff"}',
        "not the JSON of a request and its response",
    ),
    "a number": (b"7", "not a JSON object"),
    "another API": ({"object": "list", "data": [{"embedding": [0.1]}]}, UNKNOWN),
    "a request alone": (CHAT, "a request without its response"),
    "a request of a pair alone": ({"request": CHAT}, "a request without its response"),
    "no answer": ({"request": CHAT, "response": None}, FAILED),
    "an error": ({"error": {"message": "too long", "code": 400}}, FAILED),
    "an error as answer": (
        {"request": CHAT, "response": {"error": {"message": "x"}}},
        FAILED,
    ),
    "a status": (
        {
            "custom_id": "a",
            "response": {"status_code": 500, "body": {"object": "error"}},
        },
        FAILED,
    ),
    "a status beside an answer": (
        {"response": {"status_code": 429, "body": answer()}},
        FAILED,
    ),
    "a text as answer": (
        {"request": CHAT, "response": "data: {}"},
        "a field has a value of the wrong type",
    ),
    "another route": (
        {"request": {"url": "/v1/embeddings", "body": CHAT}, "response": answer()},
        "the responses of this path have no record",
    ),
    "a text for a number": (
        {"request": {**CHAT, "temperature": "hot"}, "response": answer()},
        "not the JSON of a request and its response",
    ),
    "a number for a text": (
        {"custom_id": 7, "response": {"status_code": 200, "body": answer()}},
        "a field has a value of the wrong type",
    ),
    "a number for a body": (
        {"request": 7, "response": answer()},
        "a field has a value of the wrong type",
    ),
    "a temperature below 0": (
        {"temperature": -1, "speculative_decoding": RECORD},
        "Expected `float` >= 0.0 - at `$.temperature`",
    ),
}


def test_what_cannot_be_used_says_why() -> None:
    """In the same words for all that fail alike, so that they can be counted."""
    said = {
        name: refusal(EntryError, read, entry) for name, (entry, _) in UNUSABLE.items()
    }
    assert {
        name: text for name, text in said.items() if UNUSABLE[name][1] not in text
    } == {}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
NAMES = st.sampled_from(
    [
        "request",
        "response",
        "body",
        "custom_id",
        "choices",
        "metrics",
        "error",
        "object",
        "requests",
        "usage",
        "temperature",
        "headers",
        "url",
        "status_code",
        "speculative_decoding",
    ]
)


@given(
    st.dictionaries(
        NAMES, JSON | st.just(answer()) | st.just(CHAT) | st.just(RECORD), max_size=5
    ).map(lambda entry: json.dumps(entry).encode())
    | st.binary(max_size=60)
)
def test_no_entry_breaks_the_reader(body: bytes) -> None:
    """Whatever a file holds, it is observed or it says why not."""
    try:
        is_handled = isinstance(read(body), Observation | None)
    except EntryError as error:
        is_handled = bool(str(error))
    assert is_handled


# --- files


def recorded(lines: Iterable[object], name: str = "") -> tuple[EntryReader, list[str]]:
    """Read a file of such lines; return the reader, and the identifiers of its
    observations.
    """
    reader = EntryReader(Classification())
    texts = (
        line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines
    )
    identifiers = [
        observation.request_id
        for observation in reader.read_file(name, (text + b"\n" for text in texts))
    ]
    reader.end()
    return reader, identifiers


def test_what_cannot_be_used_is_counted_with_its_first_place() -> None:
    """By reason; a request without an identifier has its place.

    Blank lines count, and are no entries.
    """
    nameless = answer(id="somebody@example.com")
    reader, identifiers = recorded(
        [answer(), b"{", b" ", nameless, *[b"nothing"] * 4, CHAT], "a.jsonl"
    )
    assert identifiers == [ID, "a.jsonl, line 4"]
    assert reader.entries == 8
    assert reader.unused == {NO_JSON: 5, "a request without its response": 1}
    assert reader.first == {
        NO_JSON: "a.jsonl, line 2",
        "a request without its response": "a.jsonl, line 9",
    }


def test_batch_requests_without_a_response_are_counted() -> None:
    reader, _ = recorded(
        [{"custom_id": "1", "body": CHAT}, {"custom_id": "2", "body": CHAT}]
    )
    assert reader.unused == {"a request of a batch without its response": 2}
