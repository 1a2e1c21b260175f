"""Streams and pushes that are built as servers and gateways build them, then damaged: the promises hold."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from fuzz.targets import push, relay
from tap.streams import RECORD, chunks, stream_head

ways = st.binary(min_size=1, max_size=1)
ends = st.sampled_from(["\n", "\r\n", "\r"])
#: Fields and values of events, with everything that lines may begin with.
fields = st.sampled_from(["data", "data:", "data: ", "event: ", "id", ":", "", "retry:"])
lines = st.builds("".join, st.tuples(fields, st.text("ab{}:\u00e9 ", max_size=12)))


@given(ways, st.lists(st.tuples(lines, ends), max_size=14), st.lists(st.integers(0, 400), max_size=2))
def test_events_with_every_line_end(way: bytes, written: list[tuple[str, str]], gone: list[int]) -> None:
    """Lines with LF, CR LF and CR in turn, empty ones among them, and with bytes missing."""
    text = "".join(line + end for line, end in written).encode()
    for place in gone:
        text = text[:place] + text[place + 1 :]
    relay.check(b"0" + way + text)
    relay.check(b"4" + way + text)


usages = st.sampled_from([None, {}, {"completion_tokens": 3}, {"completion_tokens": "x"}, 5])
events = st.builds(
    lambda choices, usage, more: {"model": "m", "choices": choices, "usage": usage, **more},
    st.sampled_from([[], None, [{"delta": {"content": "a"}}], [{"index": 0, "text": "b"}], [7]]),
    usages,
    st.sampled_from([{}, {"error": "no"}, {"metrics": {"speculative_decoding": RECORD}}, {"id": 5}]),
)


@given(ways, st.lists(events, max_size=5), ends, st.lists(st.integers(1, 90), max_size=5), st.integers(0, 3))
def test_answers_with_and_without_usage(
    way: bytes, documents: list[object], end: str, sizes: list[int], cut: int
) -> None:
    """Streams of any events, in chunks of any sizes, whole and cut off."""
    body = "".join(f"data: {json.dumps(document)}{end}{end}" for document in documents).encode()
    parts = []
    for size in sizes:
        parts.append(body[:size])
        body = body[size:]
    answered = stream_head() + chunks([*parts, body])
    answered = answered[: len(answered) - cut]
    relay.check(b"1" + way + answered)
    relay.check(b"3" + way + relay._TURN.join((relay.ASKED, answered)))


requests = st.fixed_dictionaries(
    {},
    optional={
        "model": st.none() | st.text(max_size=5),
        "temperature": st.none() | st.floats() | st.integers() | st.just(push.MARK),
        "completion_tokens": st.integers() | st.floats() | st.just([push.MARK]),
        "stream": st.booleans() | st.just(push.MARK),
        "time_to_first_token_seconds": st.none() | st.floats(),
        "speculative_decoding": st.none()
        | st.just(push.MARK)
        | st.fixed_dictionaries(
            {},
            optional={
                name: st.integers(-1, 20) | st.lists(st.integers(-1, 5), max_size=4) | st.just(push.MARK)
                for name in RECORD
            },
        ),
        "messages": st.just([{"content": push.MARK}]),
        push.MARK: st.just(push.MARK),
    },
)


@given(
    st.lists(requests, max_size=5),
    st.lists(st.tuples(st.integers(0, 600), st.binary(max_size=2)), max_size=2),
)
def test_pushes(found: list[object], damages: list[tuple[int, bytes]]) -> None:
    """Requests of every form, good and bad, whole and damaged: each is counted, and none is quoted."""
    body = json.dumps({"requests": found}).encode()
    for place, new in damages:
        body = body[:place] + new + body[place + 1 :]
    push.check(body)
