"""Observations as the JSON of a push: the exporter reads from it what was observed."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fake_vllm import CANARIES, RECORD
from vllm_specdec_exporter.requests import push_schema as wire
from vllm_specdec_exporter.requests.observation import DraftRecord, Observation, RecordState, parse_record
from vllm_specdec_exporter.requests.push_schema import PushedRequest, read_push

WALL = 1_700_000_000.0

_counts = st.integers(0, 2**53 - 1)
_seconds = st.none() | st.floats(0, 1000)
_names = st.text(st.characters(codec="utf-8"), max_size=30)


@st.composite
def records(draw: st.DrawFn) -> DraftRecord:
    """Any record that vLLM may write: detailed or not, with its distribution or without."""
    steps = [
        (drafted, draw(st.integers(0, drafted))) for drafted in draw(st.lists(st.integers(0, 9), max_size=40))
    ]
    accepted = Counter(accepted for _, accepted in steps)
    histogram = tuple(accepted[count] for count in range(max(accepted, default=-1) + 1))
    return DraftRecord(
        len(steps),
        sum(drafted for drafted, _ in steps),
        sum(accepted for _, accepted in steps),
        draw(st.sampled_from([histogram, ()])),
        dict(Counter(steps)) if draw(st.booleans()) else {},
    )


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """Any observation."""
    malformed = draw(st.booleans())
    return Observation(
        time=draw(st.floats(0, 2e9)),
        model_name=draw(_names),
        temperature=draw(_seconds),
        request_type=draw(_names),
        tenant=draw(_names),
        stream=draw(st.booleans()),
        request_id=draw(_names),
        completion_tokens=draw(st.none() | _counts),
        record=None if malformed else draw(st.none() | records()),
        malformed=malformed,
        ttft_seconds=draw(_seconds),
        tpot_seconds=draw(_seconds),
    )


@given(st.lists(observations(), max_size=5))
def test_round_trip(items: list[Observation]) -> None:
    """All fields survive, except the time of the end and the server's identifier."""
    pushed = read_push(wire.join(map(wire.encode, items)), WALL)

    assert pushed.errors == ()
    assert pushed.observations == tuple(replace(item, time=WALL, request_id="") for item in items)


def test_a_contradictory_record_stays_one() -> None:
    """A malformed record is counted as such on the other side, and nothing of it is sent."""
    contradictory = PushedRequest(speculative_decoding={**RECORD, "num_spec_steps": CANARIES[0]})
    for item in (Observation(WALL, record=parse_record(RECORD), malformed=True), contradictory):
        text = wire.encode(item)
        [found] = read_push(wire.join([text]), WALL).observations

        assert json.loads(text)["speculative_decoding"] == {}
        assert found.state is RecordState.MALFORMED


def test_only_counts_leave_a_record() -> None:
    """Whatever else an answer had in its record is not sent, nor what is not known."""
    assert json.loads(wire.encode(Observation(WALL, "m"))) == {"model": "m", "stream": False}
    record: dict[str, Any] = {**RECORD, "text": CANARIES[0], "per_step_text": [CANARIES[1]], CANARIES[2]: 1}
    text = wire.encode(PushedRequest(model="m", speculative_decoding=record)).decode()

    assert not any(canary in text for canary in CANARIES)
    assert json.loads(text)["speculative_decoding"] == wire.of_record(parse_record(RECORD))


def test_a_long_answer_goes_without_its_steps() -> None:
    """A record whose steps would not fit keeps its totals and its distribution."""
    count = 100_000
    record = DraftRecord(count, 3 * count, 2 * count, (0, 0, count), {(3, 2): count})
    text = wire.encode(Observation(WALL, "m", record=record))
    [found] = read_push(wire.join([text]), WALL).observations

    assert len(text) < wire.MAX_REQUEST
    assert found.record == replace(record, steps={})
    assert found.state is RecordState.SUMMARY


def test_what_cannot_be_sent() -> None:
    """What is too large, no text or no JSON is an error that says so."""
    model: Any
    for model in ("m" * (wire.MAX_REQUEST + 1), "\udcff", object()):
        with pytest.raises(ValueError, match="request"):
            wire.encode(PushedRequest(model=model))
