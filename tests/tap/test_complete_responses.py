"""When a response is complete for the observer: with [DONE], or with the end of its connection."""

import pytest

from tap.streams import (
    ASKED,
    ASKED_PLAIN,
    DONE,
    STREAMED,
    answer,
    chat_answer,
    chat_documents,
    chat_stream,
    chunks,
    cut_at,
    cuts,
    events,
    request,
    stream_head,
)
from tap.watching import Watched, observe
from vllm_specdec_exporter.per_request.observation import RecordState

_NO_CHUNKS = {"transfer-encoding": None, "connection": "close"}


@pytest.mark.parametrize("body", [cut_at(chat_stream(), range(0, 3000, 7)), [chat_stream(end="\r\n")]])
def test_a_stream_is_whole_with_its_last_word(body: list[bytes]) -> None:
    """A client that has read it leaves, and the last chunk need not have come; before it, none is whole."""
    answered = stream_head() + chunks(body)
    (whole,) = observe(([ASKED], [answered])).told
    done = answered.rindex(b"]") + 1
    for place in (*range(0, done - 50, 9), *range(done - 50, len(answered))):
        watched = observe(([ASKED], [answered[:place]]))
        assert watched.told == ([whole] if place >= done else [])
        assert watched.unobserved == ({} if place >= done else {"aborted": 1})
        assert watched.watch.requests == 1


@pytest.mark.parametrize(
    "text", ["data: [DONE]", "\ndata: [DONE]", "\r\ndata:[DONE] ", '"}]}\n\ndata: [DONE]\n\n']
)
def test_a_text_that_looks_like_the_last_word(text: str) -> None:
    """Whoever leaves behind it leaves in the middle."""
    answered = stream_head() + chunks(events([*chat_documents(("x", text)), DONE]))
    end = answered.index(b"DONE]")
    for place in range(end, end + 30):
        assert observe(([ASKED], [answered[:place]])).unobserved == {"aborted": 1}


def test_the_last_word_of_another_answer() -> None:
    """It counts for its own only: neither for one that has not begun, nor for one that does not stream."""
    for begun in (b"", stream_head(), stream_head() + b"5\r\nda", answer(chat_answer())[:-1]):
        watched = observe(([ASKED], [STREAMED]), ([ASKED], [begun]))
        assert len(watched.told) == 1
        assert watched.unobserved == {"aborted": 1}
    plain = answer(b"\ndata: [DONE]", Content_Length="99")
    assert observe(([ASKED_PLAIN], [plain])).unobserved == {"aborted": 1}


def test_a_request_between_the_last_word_and_the_last_chunk() -> None:
    """It cannot be followed; the answer before it was whole."""
    watched = observe(([ASKED], [STREAMED[:-5]]), ([ASKED], []))
    assert len(watched.told) == 1
    assert watched.unobserved == {"connection": 1}


_UNTIL_THE_END = {
    "a stream": (ASKED, stream_head(**_NO_CHUNKS) + chat_stream()),
    "a stream in CRLF": (ASKED, stream_head(**_NO_CHUNKS) + chat_stream(end="\r\n")),
    "a chat in HTTP/1.0": (ASKED_PLAIN, answer(chat_answer(), version="1.0", Content_Length=None)),
}


@pytest.mark.parametrize("name", _UNTIL_THE_END)
def test_an_answer_that_ends_with_its_connection(name: str) -> None:
    """The server's end is its end, whatever the pieces, told at once and once."""
    asked, answered = _UNTIL_THE_END[name]
    for parts in cuts(answered):
        watched = Watched()
        watched.client(asked)
        watched.server(*parts)
        assert (len(watched.told), watched.observer.busy) == (0, True)
        watched.server_ends()
        (seen,) = watched.told
        assert (watched.observer.busy, watched.watch.held) == (False, 0)
        assert (seen.state, seen.completion_tokens) == (RecordState.DETAILED, 9)
        watched.close()
        assert (len(watched.told), watched.unobserved) == (1, {})


@pytest.mark.parametrize("name", _UNTIL_THE_END)
@pytest.mark.parametrize(("ends", "reasons"), [(True, ("aborted", "malformed")), (False, ("aborted",))])
def test_half_an_answer_that_would_end_with_its_connection(
    name: str, ends: bool, reasons: tuple[str, ...]
) -> None:
    """It is not observed, whether the server ends its connection or not."""
    asked, answered = _UNTIL_THE_END[name]
    done = answered.index(b"[DONE]") + 6 if b"[DONE]" in answered else len(answered)
    for place in (*range(0, done - 50, 7), *range(done - 50, done)):
        watched = Watched()
        watched.client(asked)
        watched.server(answered[:place])
        if ends:
            watched.server_ends()
        watched.close()
        assert watched.told == []
        assert watched.unobserved in [{reason: 1} for reason in reasons]


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


@pytest.mark.parametrize("begun", [answer(chat_answer())[:-1], STREAMED[: STREAMED.index(b"[DONE]")], b""])
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
