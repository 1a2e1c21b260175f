"""Pushes: any body is counted in full, or refused, and nothing of what it says is
repeated.

What is promised: accepted and rejected requests add up to those in the body; else
`PushError`. A message names fields, types and numbers; of the texts in a body it has
none (`MARK` stands for one). What is accepted is within what the tallies take.
"""

import json
import math
from collections.abc import Iterator

from tap.streams import RECORD
from vllm_specdec_exporter.per_request.push_schema import (
    MAX_REQUESTS,
    PushError,
    read_push,
)

#: Stands for a prompt, a user, a key: for what is nobody's business.
MARK = "s3cr3t"


def check(data: bytes) -> None:
    """Raise unless a push keeps the promises for one body."""
    try:
        pushed = read_push(data, 1e9)
    except PushError as error:
        refusal = error
    else:
        _check_counts(data, pushed)
        return
    assert MARK not in str(refusal), f"content in {refusal}"
    assert refusal.count >= 1, f"a refusal of {refusal.count}"
    assert refusal.count == 1 or refusal.count > MAX_REQUESTS, (
        f"a refusal of {refusal.count}"
    )


def _check_counts(data: bytes, pushed: object) -> None:
    observations = pushed.observations
    errors = pushed.errors
    warnings = pushed.warnings
    # Nobody looks at the UTF-8 of what is skipped. Of fields with one name the last
    # counts, for both readers.
    try:
        count = len(json.loads(data.decode("utf-8", "replace"))["requests"])
    except RecursionError:  # Python's reader gives up before the other does
        return
    assert len(observations) + len(errors) == count, (
        f"{len(observations)} and {len(errors)} of {count}"
    )
    assert count <= MAX_REQUESTS, f"{count} requests"
    places = [index for index, _ in errors]
    assert places == sorted(set(places)), f"places {places}"
    assert len(warnings) <= len(observations), (
        f"{len(warnings)} warnings of {len(observations)}"
    )
    for index, message in (*errors, *warnings):
        assert 0 <= index < count, f"place {index} of {count}"
        assert MARK not in message, f"content in {message}"
        assert message, "an error without a message"
        assert message.isprintable(), f"a message that steers a terminal: {message!r}"
    for observation in observations:
        numbers = (
            observation.temperature,
            observation.ttft_seconds,
            observation.tpot_seconds,
        )
        assert all(n is None or (math.isfinite(n) and n >= 0) for n in numbers), (
            f"{observation}"
        )
        tokens = observation.completion_tokens
        assert tokens is None or 0 <= tokens < 2**53, f"{tokens} tokens"


def seeds() -> Iterator[bytes]:
    """Yield pushes of every form, good and bad."""
    good = {
        "model": f"org/{MARK}",
        "temperature": 0.7,
        "request_type": MARK,
        "tenant": MARK,
        "stream": True,
        "completion_tokens": 212,
        "time_to_first_token_seconds": 0.1,
        "time_per_output_token_seconds": 0.01,
        "prompt": MARK,
        "speculative_decoding": RECORD,
    }
    yield json.dumps({"requests": [good, {}]}).encode()
    yield json.dumps({"requests": [dict.fromkeys(good, MARK)]}).encode()
    for name in good:
        yield json.dumps(
            {"requests": [{name: good[name]}, {name: -1}, {name: [MARK]}]}
        ).encode()
    for name in RECORD:
        yield json.dumps(
            {"requests": [{"speculative_decoding": {**RECORD, name: [MARK]}}]}
        ).encode()
    yield json.dumps(
        {"requests": [{}] * (MAX_REQUESTS + 1)}, separators=(",", ":")
    ).encode()
    yield json.dumps({"requests": {MARK: MARK}}).encode()
    yield b'{"requests":[],"requests":[{}]}'
