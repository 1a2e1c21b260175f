"""Recorded requests: every form of an entry, what cannot be used of it, and how files are split."""

import gzip
import io
import json
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from per_request.traffic import CODE, record_of, steps_of
from support.builders import refusal
from vllm_specdec_exporter.commands.requests.entries import Recording, entries, lines
from vllm_specdec_exporter.commands.requests.recorded import EntryError, EntryReader
from vllm_specdec_exporter.requests.grouping import Classification, parse_rule
from vllm_specdec_exporter.requests.observation import Observation, RecordState, parse_record

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
STEPS = steps_of(CODE, Random(1))
RECORD = record_of(STEPS)
MODEL = "some/model"
ID = "chatcmpl-0123456789abcdef0123456789abcdef"


def answer(kind: str = "chat.completion", **more: Any) -> dict[str, Any]:
    """Return an answer of vLLM."""
    return {
        "id": ID,
        "object": kind,
        "created": 1_790_000_000,
        "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "text"}}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 80, "total_tokens": 85},
        "metrics": {"speculative_decoding": RECORD},
        **more,
    }


CHAT = {"model": MODEL, "temperature": 0.7, "messages": [{"role": "user", "content": "hello"}]}


def read(entry: object, classification: Classification = Classification()) -> tuple[Observation, ...]:  # noqa: B008
    body = entry if isinstance(entry, bytes) else json.dumps(entry).encode()
    return EntryReader(classification).read(body)


def only(entry: object, classification: Classification = Classification()) -> Observation:  # noqa: B008
    (observation,) = read(entry, classification)
    return observation


def streamed(*, kind: str = "chat.completion.chunk", done: bool = True) -> bytes:
    """Return the events of a streamed answer."""
    head = {"id": ID, "object": kind, "created": 1_790_000_000, "model": MODEL}
    events = [
        {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
        {**head, "choices": [{"index": 0, "delta": {"content": "text"}}]},
        {**head, "choices": [], "usage": answer()["usage"], "metrics": answer()["metrics"]},
    ]
    texts = [json.dumps(event) for event in events] + (["[DONE]"] if done else [])
    return "".join(f"data: {text}\n\n" for text in texts).encode()


# --- the forms


def test_an_answer_alone_has_its_record_and_no_temperature() -> None:
    """Nothing is made up: who asked, and how, stands in the request. The type is what it looks like."""
    found = only(answer())
    assert found.record is not None
    assert (found.record.draft_tokens, found.record.accepted_tokens) == (
        RECORD["num_draft_tokens"],
        RECORD["num_accepted_draft_tokens"],
    )
    assert sum(found.record.steps.values()) == RECORD["num_spec_steps"]
    assert (found.temperature, found.model_name, found.completion_tokens) == (None, MODEL, 80)
    assert (found.time, found.request_id, found.stream) == (1_790_000_000.0, ID, False)
    assert (found.request_type, found.state) == ("chat", RecordState.DETAILED)
    for kind, request_type in (("text_completion", "completions"), ("something.else", "other")):
        assert only(answer(kind)).request_type == request_type


PAIRS: dict[str, dict[str, Any]] = {
    "bodies": {"request": CHAT, "response": answer()},
    "envelopes": {
        "request": {"path": "/v1/chat/completions", "headers": {"X-Kind": "rag"}, "body": CHAT},
        "response": {"status_code": 200, "body": answer()},
    },
    "whole addresses": {
        "request": {"url": "http://vllm:8000/v1/chat/completions?x=1", "body": CHAT},
        "response": {"status": 200, "body": answer()},
    },
    "texts": {"request": json.dumps(CHAT), "response": json.dumps(answer())},
    "texts in envelopes": {
        "request": {"body": json.dumps(CHAT)},
        "response": {"status": 200, "body": json.dumps(answer())},
    },
    "a streamed answer": {"request": CHAT, "response": streamed().decode()},
    "the temperature beside the answer": {"temperature": 0.7, "response": answer()},
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_request_and_its_answer_belong_together(name: str) -> None:
    """However they are wrapped, the temperature is the request's and the record the answer's."""
    found = only(PAIRS[name])
    assert (found.temperature, found.model_name, found.request_type) == (0.7, MODEL, "chat")
    assert found.record is not None
    assert found.record.draft_tokens == RECORD["num_draft_tokens"]
    assert found.stream == (name == "a streamed answer")


def test_requests_are_classified_as_the_tap_classifies_them() -> None:
    """By a header, by rules on what was asked, and by the path."""
    rules = (parse_rule("tools=field:tools"), parse_rule("rag=path:/rag/*"))
    classification = Classification(
        type_header="x-kind", rules=rules, tenant_header="x-tenant", tenants=frozenset({"acme"})
    )

    def kind(**more: Any) -> tuple[str, str]:
        request = {"body": {**CHAT, **more.pop("body", {})}, **more}
        found = only({"request": request, "response": answer()}, classification)
        return found.request_type, found.tenant

    assert kind(headers={"X-Kind": "code", "X-Tenant": "acme"}) == ("code", "acme")
    assert kind(headers={"X-Tenant": "somebody"}) == ("chat", "other")
    assert kind(body={"tools": [{"type": "function"}]}) == ("tools", "")
    assert kind(path="/rag/v1/chat/completions") == ("rag", "")
    assert kind(headers=[["X-Kind", "code"]]) == ("chat", "")


def test_what_is_pushed_can_be_read_from_a_file_too() -> None:
    """One observation a line, or a whole push; it names its tenant without a header.

    One that cannot be used does not take the others with it.
    """
    one = {"model": MODEL, "temperature": 0.4, "tenant": "acme", "speculative_decoding": RECORD}
    found = only({**one, "request_type": "code"}, Classification(tenants=frozenset({"acme"})))
    assert (found.request_type, found.tenant) == ("code", "acme")
    assert [found.temperature for found in read({"requests": [one, {**one, "temperature": 1}]})] == [0.4, 1.0]
    assert only({"model": MODEL, "completion_tokens": 12}).state is RecordState.NONE
    with pytest.raises(EntryError, match="temperature is -1") as caught:
        read({"requests": [one, {"temperature": -1}]})
    assert [found.model_name for found in caught.value.observations] == [MODEL]


def test_the_answers_of_a_batch_find_their_requests() -> None:
    """By `custom_id`, in any order; an answer whose request is not there is read too."""
    reader = EntryReader(Classification())
    asked = [
        {"custom_id": str(n), "url": "/v1/chat/completions", "body": {**CHAT, "temperature": n}}
        for n in (0, 1)
    ]
    answered = [{"custom_id": n, "response": {"status_code": 200, "body": answer()}} for n in ("1", "x", "0")]
    found = [
        one.temperature for entry in (*asked, *answered) for one in reader.read(json.dumps(entry).encode())
    ]
    assert (found, reader.unanswered) == ([1.0, None, 0.0], 0)


@pytest.mark.parametrize("scenario", ["ngram-phases", "nospec"])
def test_what_a_client_took_down_is_read(scenario: str) -> None:
    """Every recorded request is one observation, with the numbers that stand in it."""
    texts = gzip.decompress((CAPTURES / scenario / "requests.jsonl.gz").read_bytes()).splitlines()
    for text in texts:
        found, truth = only(text), json.loads(text)
        assert (found.temperature, found.time) == (truth["temperature"], truth["end"])
        assert found.completion_tokens == truth["usage"]["completion_tokens"]
        assert found.ttft_seconds == truth["ttft"]
        assert found.tpot_seconds == pytest.approx(truth["decode_s"] / (found.completion_tokens - 1))
        assert found.record == (truth["spec"] and parse_record(truth["spec"]))


# --- what cannot be used

FAILED = "the request failed"
UNKNOWN = "neither an answer nor any other known form of a recorded request"
UNUSABLE: dict[str, tuple[object, str]] = {
    "no JSON": (b"{", "not JSON"),
    "no UTF-8": (b'{"choices": [], "model": "\xff"}', "not the JSON of a request and its answer"),
    "a number": (b"7", "not a JSON object"),
    "another API": ({"object": "list", "data": [{"embedding": [0.1]}]}, UNKNOWN),
    "a request alone": (CHAT, "a request without its answer"),
    "a request of a pair alone": ({"request": CHAT}, "a request without its answer"),
    "no answer": ({"request": CHAT, "response": None}, FAILED),
    "an error": ({"error": {"message": "too long", "code": 400}}, FAILED),
    "an error as answer": ({"request": CHAT, "response": {"error": {"message": "x"}}}, FAILED),
    "an old error": ({"request": CHAT, "response": {"object": "error", "message": "x"}}, FAILED),
    "a status": ({"custom_id": "a", "response": {"status_code": 500, "body": {"object": "error"}}}, FAILED),
    "a status beside an answer": ({"response": {"status": 429, "body": answer()}}, FAILED),
    "a failed stream": (b'data: {"error": {"message": "x"}}\n\n', FAILED),
    "another route": (
        {"request": {"path": "/v1/embeddings", "body": CHAT}, "response": answer()},
        "the answers of this path have no record",
    ),
    "a text for a number": (
        {"temperature": "hot", "response": answer()},
        "not the JSON of a request and its answer",
    ),
    "a number for a text": (
        {"custom_id": 7, "response": {"status_code": 200, "body": answer()}},
        "a field has a value of the wrong type",
    ),
    "a number for a body": ({"request": 7, "response": answer()}, "a field has a value of the wrong type"),
    "a temperature below 0": ({"temperature": -1, "speculative_decoding": RECORD}, "temperature is -1"),
    "a wrong record of a client": ({"spec": 7}, "Expected `object | null`, got `int`"),
}


def test_what_cannot_be_used_says_why() -> None:
    """In the same words for all that fail alike, so that they can be counted."""
    said = {name: refusal(EntryError, read, entry) for name, (entry, _) in UNUSABLE.items()}
    assert {name: text for name, text in said.items() if UNUSABLE[name][1] not in text} == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    [
        *("request", "response", "body", "custom_id", "choices", "metrics", "error", "object", "requests"),
        *("spec", "usage", "temperature", "headers", "path", "status_code", "speculative_decoding"),
    ]
)


@given(
    st.dictionaries(NAMES, JSON | st.just(answer()) | st.just(CHAT) | st.just(RECORD), max_size=5).map(
        lambda entry: json.dumps(entry).encode()
    )
    | st.binary(max_size=60)
    | st.binary(max_size=40).map(lambda body: b"data: " + body + b"\n\n")
)
def test_no_entry_breaks_the_reader(body: bytes) -> None:
    """Whatever a file holds, it is observed or it says why not."""
    try:
        told = all(isinstance(observation, Observation) for observation in read(body))
    except EntryError as error:
        told = bool(str(error))
    assert told


# --- files


def split(body: bytes) -> list[tuple[str, bytes | None]]:
    return [tuple(entry) for entry in entries(lines(io.BufferedReader(io.BytesIO(body))))]  # type: ignore[arg-type]


#: Files, and their entries by place.
FILES: dict[bytes, list[tuple[str, bytes]]] = {
    # Blank lines count, and are no entries; a mark of the encoding is none either.
    b'\xef\xbb\xbf{"a":1}\n\n  {"b":2} \r\n{"c":3}': [
        ("line 1", b'{"a":1}'),
        ("line 3", b'{"b":2}'),
        ("line 4", b'{"c":3}'),
    ],
    # An array, on one line or many, is split into its items; an object on many lines is one entry.
    b'[{"a":1},{"b":2}]': [("item 1", b'{"a":1}'), ("item 2", b'{"b":2}')],
    b'[\n{"a":1},\n{"b":2}\n]\n': [("item 1", b'{"a":1}'), ("item 2", b'{"b":2}')],
    b'{\n"a":1\n}': [("line 1", b'{\n"a":1\n}')],
    b"[]": [],
    b"\n\n": [],
    # Documents one behind the other: on many lines each, or on one without anything between them.
    b'{\n"a": 1\n}\n{\n"b": {"c": [2]}\n}\n': [
        ("line 1", b'{\n"a": 1\n}'),
        ("line 4", b'{\n"b": {"c": [2]}\n}'),
    ],
    b'{"a":1}{"b":2} {"c":3}\n{"d":4}': [
        ("line 1", b'{"a":1}'),
        ("line 1", b'{"b":2}'),
        ("line 1", b'{"c":3}'),
        ("line 2", b'{"d":4}'),
    ],
    b'{"a":1}\n{\n"b":\n2\n}{"c":\n3}\n[\n{"d":4},\n{"e":5}]\n': [
        ("line 1", b'{"a":1}'),
        ("line 2", b'{\n"b":\n2\n}'),
        ("line 5", b'{"c":\n3}'),
        ("line 7, item 1", b'{"d":4}'),
        ("line 7, item 2", b'{"e":5}'),
    ],
    # A document that is cut off costs its own lines alone, also where it is the first.
    b'{\n"a":1\n}\n{\n"b":\n{"c":3}\ndata: [DONE]\n': [
        ("line 1", b'{\n"a":1\n}'),
        ("line 4", b"{"),
        ("line 5", b'"b":'),
        ("line 6", b'{"c":3}'),
        ("line 7", b"data: [DONE]\n\n"),
    ],
    b'{"a":1},\n{"b":2}': [("line 1", b'{"a":1},'), ("line 2", b'{"b":2}')],
    b'{"a":1}}\n{"b":2}': [("line 1", b'{"a":1}}'), ("line 2", b'{"b":2}')],
    b'{"a":\n{"b":2}\n': [("line 1", b'{"a":'), ("line 2", b'{"b":2}')],
}


def test_files_are_split_into_entries_with_their_places() -> None:
    """By lines, by items of an array, and by documents that stand one behind the other."""
    assert {body: split(body) for body in FILES} == FILES


def test_many_documents_behind_one_another_take_no_longer_each() -> None:
    """Time grows linearly with the bytes, also if nothing is between the documents."""
    begin = time.process_time()
    assert len(split(b'{"a":1}' * 50_000)) == 50_000
    assert time.process_time() - begin < 10


@given(st.text('{}[]\\"a☃ \n', max_size=6), st.sampled_from([None, 1]))
@example('a\\"}{"', None)
@example("☃}", 1)
def test_texts_may_hold_what_ends_a_document(text: str, indent: int | None) -> None:
    """Brackets in a text are none; of other than ASCII, places are still those of lines."""
    documents = [{"a": text, text: [number]} for number in range(3)]
    written = [json.dumps(one, indent=indent, ensure_ascii=False) for one in documents]
    found = split("\n".join(written).encode() + "".join(written).encode())
    size = written[0].count("\n") + 1

    assert [json.loads(body or b"") for _, body in found] == documents * 2
    assert [place for place, _ in found[:3]] == [f"line {1 + n * size}" for n in range(3)]


def test_a_document_too_large_is_read_by_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by what is held until its end comes; a line too long is in no document."""
    monkeypatch.setattr("vllm_specdec_exporter.commands.requests.entries.MAX_DOCUMENT", 8)
    assert split(b'{\n"a":\n1234\n}\n{"b":\n2}') == [
        ("line 1", b"{"),
        ("line 2", b'"a":'),
        ("line 3", b"1234"),
        ("line 4", b"}"),
        ("line 5", b'{"b":\n2}'),
    ]
    monkeypatch.setattr("vllm_specdec_exporter.commands.requests.entries.MAX_LINE", 6)
    assert split(b'{\n"a":1234567\n}') == [("line 1", b"{"), ("line 2", None), ("line 3", b"}")]
    assert split(b"{}\n" + b"x" * 50 + b"\n{}") == [("line 1", b"{}"), ("line 2", None), ("line 3", b"{}")]


def test_streams_are_told_apart_by_their_ends() -> None:
    """Comments and names of events belong to them; what stands between is an entry of its own."""
    body = streamed() + b": ping\nevent: x\n" + streamed(done=False) + b'{"a":1}\n' + streamed()
    found = split(body)
    assert [place for place, _ in found] == ["line 1", "line 9", "line 17", "line 18"]
    streams = [text for _, text in found if text is not None and b"data:" in text]
    assert [only(text).completion_tokens for text in streams] == [80, 80, 80]
    assert streams[0] == streamed()


def test_a_damaged_archive_is_an_error_that_says_where() -> None:
    """What was read of it is not taken for all of it."""
    body = gzip.compress(b"".join(b'{"a":%d}\n' % number for number in range(20_000)))
    for cut in (-20, 30):
        with pytest.raises(OSError, match=r"damaged behind line \d+: "):
            split(body[:cut])


def recorded(found: Iterable[object]) -> tuple[Recording, list[str]]:
    """Read a file of such entries; return the recording, and where the observations stand."""
    text = b"\n".join(entry if isinstance(entry, bytes) else json.dumps(entry).encode() for entry in found)
    recording = Recording(Classification())
    read_lines = lines(io.BufferedReader(io.BytesIO(text)))  # type: ignore[arg-type]
    places = [place for place, _ in recording.read("", read_lines)]
    recording.end()
    return recording, places


def test_what_cannot_be_used_is_counted_with_its_first_places() -> None:
    """By reason; what can be used has its place too."""
    recording, places = recorded([answer(), b"{", answer(), *[b"nothing"] * 4, CHAT])
    assert places == ["line 1", "line 3"]
    assert recording.entries.total() == 8
    assert {reason: (found.count, found.places) for reason, found in recording.unused.items()} == {
        "not JSON": (5, ["line 2", "line 4", "line 5"]),
        "a request without its answer": (1, ["line 8"]),
    }


def test_reasons_are_bounded() -> None:
    """Texts of errors may hold whatever stood in the file; of many, the rest is counted together."""
    recording, _ = recorded([{"temperature": -number, "completion_tokens": 1} for number in range(1, 40)])
    assert len(recording.unused) == 21
    assert recording.unused["other reasons"].count == 19
