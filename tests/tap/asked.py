"""Requests that a tap asks for their usage: as they were, as they have to become, and what is answered."""

from collections.abc import Iterable

from tap.streams import DONE, RECORD, chat_documents, chat_request, events, request, split, usage_chunk
from vllm_specdec_exporter.serve.tap.usage import UsageRewriter

#: What a request gets that is asked.
ADDED = b'"stream_options":{"include_usage":true},'
#: A stream that does not ask itself.
STREAM = request(chat_request(stream=True))
#: The events of its answer: what they are, as it is without a question, and with one.
DOCUMENTS = chat_documents()
WITHOUT = events([*DOCUMENTS, DONE])
WITH = events([*DOCUMENTS, usage_chunk(record=RECORD), DONE])


def requests(asking: UsageRewriter, parts: Iterable[bytes], *, alone: bool = True) -> bytes:
    """What the server gets."""
    return b"".join(asking.request(part, alone=alone) for part in parts)


def answers(asking: UsageRewriter, parts: Iterable[bytes]) -> bytes:
    """What the client gets."""
    return b"".join(asking.response(part) for part in parts)


def with_question(sent: bytes) -> bytes:
    """The request with the question, as it has to be."""
    head, body = split(sent)
    length = str(len(body) + len(ADDED)).encode()
    first = b"\r\n".join(
        line[: line.index(b":") + 2] + length if line.lower().startswith(b"content-length:") else line
        for line in head.split(b"\r\n")
    )
    return first + body.replace(b"{", b"{" + ADDED, 1)


def after_asking() -> UsageRewriter:
    """One that has just asked."""
    asking = UsageRewriter()
    assert asking.request(STREAM) == with_question(STREAM)
    return asking
