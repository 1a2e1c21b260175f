"""Requests and answers as clients and vLLM write them, as bytes; and ways to cut bytes
into pieces.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MODEL = "org/model"
DONE = "[DONE]"

ID = "chatcmpl-0123456789abcdef0123456789abcdef"

#: As vLLM has it with ``detailed``: 4 steps of K = 3, of which one drafted 2 only.
RECORD = {
    "mean_acceptance_length": 2.25,
    "draft_acceptance_rate": 0.4545,
    "acceptance_histogram": [1, 1, 2, 0],
    "num_spec_steps": 4,
    "num_accepted_draft_tokens": 5,
    "num_draft_tokens": 11,
    "num_spec_tokens": 3,
    "per_step_accepted": [2, 0, 1, 2],
    "per_step_drafted": [3, 3, 2, 3],
}


def dump(document: object) -> str:
    """The JSON of a document, as compact as servers write it."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def chunk(
    delta: Mapping[str, Any] | None, finish: str | None = None, **more: Any
) -> dict[str, Any]:
    """One event of a streamed chat; without a delta, one that has no choices."""
    choices = []
    if delta is not None:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {
        "id": ID,
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": choices,
        **more,
    }


def usage_chunk(
    tokens: int = 9, record: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The event that ``include_usage`` asks for, with the record if one is given."""
    usage = {
        "prompt_tokens": 4,
        "completion_tokens": tokens,
        "total_tokens": 4 + tokens,
    }
    if record is None:
        return chunk(None, usage=usage)
    return chunk(None, usage=usage, metrics={"speculative_decoding": record})


def chat_documents(
    words: Sequence[str] = ("Hi", " you", ", \u00e9t\u00e9 \U0001f600"),
) -> list[Any]:
    """The events of a streamed chat, before the one with usage and ``[DONE]``."""
    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": word}) for word in words),
        chunk({"content": "."}, "stop"),
    ]


def events(documents: Iterable[Any], end: str = "\n") -> list[bytes]:
    """Documents (texts stay as they are) as server-sent events with this line end."""
    texts = (text if isinstance(text, str) else dump(text) for text in documents)
    return [f"data: {text}{end}{end}".encode() for text in texts]


def chat_stream(*, end: str = "\n") -> bytes:
    """A whole streamed chat."""
    return b"".join(events([*chat_documents(), usage_chunk(record=RECORD), DONE], end))


def chat_answer(record: Mapping[str, Any] | None = RECORD) -> dict[str, Any]:
    """A chat that does not stream."""
    return {
        "id": ID,
        "object": "chat.completion",
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 4, "completion_tokens": 9, "total_tokens": 13},
        "metrics": {"speculative_decoding": record} if record is not None else None,
    }


def chat_request(**fields: Any) -> dict[str, Any]:
    """The body of a request for a chat."""
    return {
        "model": MODEL,
        "messages": [
            {"role": "user", "content": 'Say "hi", \u00fc {"stream_options": 1}'}
        ],
        "temperature": 0.3,
        **fields,
    }


def request(
    body: object = b"",
    path: str = CHAT,
    method: str = "POST",
    *,
    version: str = "1.1",
    **headers: str | None,
) -> bytes:
    """A request; underscores in header names mean dashes, ``None`` leaves one out."""
    data = body if isinstance(body, bytes) else dump(body).encode()
    defaults = {"Host": "vllm:8000"}
    if data:
        defaults |= {
            "Content_Type": "application/json",
            "Content_Length": str(len(data)),
        }
    return _head(f"{method} {path} HTTP/{version}", {**defaults, **headers}) + data


def answer(
    body: object = b"",
    status: str = "200 OK",
    *,
    version: str = "1.1",
    **headers: str | None,
) -> bytes:
    """An answer whose length is told."""
    data = body if isinstance(body, bytes) else dump(body).encode()
    defaults = {"Content_Type": "application/json", "Content_Length": str(len(data))}
    return _head(f"HTTP/{version} {status}", {**defaults, **headers}) + data


def stream_head(**headers: str | None) -> bytes:
    """The head of a streamed answer."""
    defaults = {
        "date": "Sun, 06 Nov 1994 08:49:37 GMT",
        "server": "uvicorn",
        "content-type": "text/event-stream; charset=utf-8",
        "transfer-encoding": "chunked",
    }
    return _head("HTTP/1.1 200 OK", {**defaults, **headers})


def chunks(
    parts: Iterable[bytes],
    *,
    extension: bytes = b"",
    trailers: bytes = b"",
    upper: bool = False,
) -> bytes:
    """Parts in the chunked encoding."""
    size = b"%X" if upper else b"%x"
    blocks = [
        size % len(part) + extension + b"\r\n" + part + b"\r\n"
        for part in parts
        if part
    ]
    return b"".join(blocks) + b"0" + extension + b"\r\n" + trailers + b"\r\n"


def streamed(parts: Iterable[bytes], **headers: str | None) -> bytes:
    """A streamed answer, each part a chunk."""
    return stream_head(**headers) + chunks(parts)


def split(answer: bytes) -> tuple[bytes, bytes]:
    """Return the head and the rest."""
    head, end, body = answer.partition(b"\r\n\r\n")
    return head + end, body


def header_of(head: bytes, name: bytes) -> bytes:
    """The value of a header in a head, empty without it; the name is in lower case."""
    return head.lower().partition(name + b": ")[2].partition(b"\r\n")[0]


def byte_by_byte(data: bytes) -> list[bytes]:
    """Bytes, each by itself."""
    return [bytes((byte,)) for byte in data]


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """Cut bytes in two, at 500 places and after each CR and LF, and byte by byte."""
    ends = (line_end.end() for line_end in re.finditer(rb"[\r\n]", data[:-1]))
    for cut in sorted({*range(1, len(data), 1 + len(data) // 500), *ends}):
        yield [data[:cut], data[cut:]]
    yield byte_by_byte(data)
    yield [data]


def cut_at(data: bytes, places: Iterable[int]) -> list[bytes]:
    """Bytes cut at these places, wherever they are."""
    edges = [0, *sorted({cut % (len(data) + 1) for cut in places}), len(data)]
    return [data[start:end] for start, end in pairwise(edges) if start < end]


def _head(first: str, headers: Mapping[str, str | None]) -> bytes:
    lines = [first]
    for name, value in headers.items():
        if value is not None:
            lines.append(f"{name.replace('_', '-')}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


#: A stream that asks for its usage; the events of its answer; that answer, its first
#: two events and the rest.
ASKED = request(chat_request(stream=True, stream_options={"include_usage": True}))
EVENTS = events([*chat_documents(), usage_chunk(record=RECORD), DONE])
BEGUN = stream_head() + chunks(EVENTS[:2])[:-5]
REST = chunks(EVENTS[2:])
STREAMED = BEGUN + REST
#: A chat that does not stream, and its answer.
ASKED_PLAIN = request(chat_request())
ANSWERED_PLAIN = answer(chat_answer())
#: Bytes: more than all buffers between two ends hold.
UPLOAD = 50 * 1024 * 1024
