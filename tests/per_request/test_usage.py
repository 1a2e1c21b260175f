"""Streams that are asked for their usage: a client sees what it would have seen without the question."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.fake_vllm import events
from vllm_specdec_exporter.per_request.exchange import MAX_EVENT
from vllm_specdec_exporter.per_request.usage import Hider, ask

CHAT = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"


def asked(body: dict[str, Any], path: str = CHAT) -> bytes | None:
    return ask(path, json.dumps(body).encode())


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/prefix/v1/chat/completions?x=1"])
def test_a_stream_is_asked(path: str) -> None:
    """The question is added, and nothing else of the request changes."""
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    found = asked(body, path)

    assert found is not None
    assert json.loads(found) == {**body, "stream_options": {"include_usage": True}}


def test_options_that_say_nothing() -> None:
    """They are what would be sent for no options, so the stream is asked; no field is there twice."""
    found = ask(CHAT, b'{"a": {"stream_options": 1}, "stream_options" : null, "stream": true}')

    assert found == b'{"a": {"stream_options": 1}, "stream_options" : {"include_usage":true}, "stream": true}'


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "m"}',
        b'{"model": "m", "stream": false}',
        b'{"model": "m", "stream": null}',
        b'{"stream": true, "stream_options": {"include_usage": false}}',
        b'{"stream": true, "stream_options": null, "stream_options": null}',
        b'[{"stream": true}]',
        b'x{"stream": true}',
        b'{"stream": true',
        b"",
        b"\xff",
    ],
)
def test_others_are_left_alone(body: bytes) -> None:
    """Whoever does not stream, says what it wants, or sends no JSON, sends what it sends."""
    assert ask(CHAT, body) is None


@pytest.mark.parametrize("path", ["/v1/embeddings", "/inference/v1/generate", "/invocations"])
def test_other_routes(path: str) -> None:
    """Only routes that know the question are asked."""
    assert asked({"stream": True}, path) is None


_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
_texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=20)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, bytes, list[int]]:
    """A stream with the event, the same without, and where it is cut."""
    end = draw(_ends)
    lines = st.one_of(
        _texts.map(lambda text: b"data: " + json.dumps({"choices": [{"text": text}]}).encode()),
        _texts.map(
            lambda text: b"data: " + json.dumps({"choices": [{"text": text}], "usage": None}).encode()
        ),
        _texts.map(lambda text: b": " + text.encode()),
        _texts.map(lambda text: b"event: x" + end + b"data: " + text.encode()),
        st.just(b'data: {"choices": [{"text": "\\"usage\\""}], "usage": {"completion_tokens": 3}}'),
    )
    before = [line + end + end for line in draw(st.lists(lines, max_size=6))]
    usage = b'data: {"choices": [], "usage": {"completion_tokens": 3}, "metrics": {}}' + end + end
    after = draw(st.sampled_from([[], [b"data: [DONE]" + end + end], [b"data: [DONE]"], [b"data: {"]]))
    whole = b"".join([*before, usage, *after])
    cuts = draw(st.lists(st.integers(0, len(whole)), max_size=8))
    return whole, b"".join([*before, *after]), sorted(cuts)


@given(streams())
def test_nothing_else_is_hidden(stream: tuple[bytes, bytes, list[int]]) -> None:
    """Wherever a stream is cut, just the one event is missing from it."""
    whole, without, cuts = stream
    hider = Hider()
    edges = [0, *cuts, len(whole)]
    passed = [hider.feed(whole[a:b]) for a, b in pairwise(edges)]

    assert b"".join([*passed, hider.rest()]) == without


def test_events_pass_as_soon_as_they_are_whole() -> None:
    """What the server sends as an event is passed on at once."""
    hider = Hider()
    *tokens, usage = events()

    assert [hider.feed(event) for event in tokens] == tokens
    assert hider.feed(usage) == b""
    assert hider.feed(DONE) == DONE
    assert hider.rest() == b""


@pytest.mark.parametrize("size", [1000, MAX_EVENT // 3, 10 * MAX_EVENT])
def test_what_is_too_large_passes(size: int) -> None:
    """An event that is too large to be kept ends the hiding: the stream passes as it is, and whole."""
    whole = events()[0] + b"data: " + b"x" * (MAX_EVENT + 10) + b"\n\n" + b"".join(events())
    hider = Hider()
    passed = b"".join(hider.feed(whole[at : at + size]) for at in range(0, len(whole), size))

    assert passed + hider.rest() == whole
