"""Streams that are asked for their usage: a client sees what it would have seen without the question."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from vllm_specdec_exporter.requests.exchange import UsageEventFilter
from vllm_specdec_exporter.requests.openai_api import with_include_usage

CHAT = "/v1/chat/completions"


def test_a_stream_is_asked() -> None:
    """The question is added, and nothing else of the request changes; other routes do not know it."""
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    for path in ("/v1/chat/completions", "/v1/completions", "/prefix/v1/chat/completions?x=1"):
        found = with_include_usage(path, json.dumps(body).encode())
        assert found is not None
        assert json.loads(found) == {**body, "stream_options": {"include_usage": True}}
    for path in ("/v1/embeddings", "/inference/v1/generate", "/invocations"):
        assert with_include_usage(path, json.dumps(body).encode()) is None
    assert with_include_usage("/v1/completions", b'{"stream": false}') is None


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
    hider = UsageEventFilter()
    edges = [0, *cuts, len(whole)]
    passed = [hider.feed(whole[a:b]) for a, b in pairwise(edges)]

    assert b"".join([*passed, hider.end()]) == without
