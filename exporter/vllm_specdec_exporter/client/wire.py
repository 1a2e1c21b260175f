"""The JSON of a push, from observations: the way back from `..per_request.push`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..per_request.observation import Observation
from ..per_request.push import PushedRequest
from ..per_request.record import DraftRecord, RecordError, parse_record

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Bytes of one request in a push. A longer answer goes without its steps.
MAX_REQUEST = 256 * 1024
#: Bytes of a push: below what the exporter takes, and below the megabyte that most proxies take.
MAX_PUSH = 768 * 1024

#: What is sent for a record that contradicts itself: nothing of it, so that it is counted as one.
_MALFORMED: dict[str, Any] = {}


def encode(item: Observation | PushedRequest) -> bytes:
    """Return the JSON of one request.

    Of a record only its counts are sent, whatever else an answer had in it.

    Raises:
        ValueError: values that are none, or more than one request may have.
    """
    request = of_observation(item) if isinstance(item, Observation) else _cleaned(item)
    try:
        text = _encode(request)
    except (msgspec.MsgspecError, TypeError, UnicodeError, OverflowError) as error:
        msg = f"no request that can be pushed: {error}"
        raise ValueError(msg) from error
    if len(text) > MAX_REQUEST and request.speculative_decoding:
        kept = request.speculative_decoding.items()
        totals = {name: value for name, value in kept if not name.startswith("per_step_")}
        text = _encode(msgspec.structs.replace(request, speculative_decoding=totals))
    if len(text) > MAX_REQUEST:
        msg = f"a request of {len(text)} bytes; allowed: up to {MAX_REQUEST}"
        raise ValueError(msg)
    return text


def join(requests: Iterable[bytes]) -> bytes:
    """Return the push that holds these requests."""
    return b'{"requests":[' + b",".join(requests) + b"]}"


def of_observation(observation: Observation) -> PushedRequest:
    """Return what is pushed of an observation: all but when it ended and the server's identifier."""
    record: dict[str, Any] | None = None
    if observation.malformed:
        record = _MALFORMED
    elif observation.record is not None:
        record = of_record(observation.record)
    return PushedRequest(
        model=observation.model_name,
        temperature=observation.temperature,
        request_type=observation.request_type,
        tenant=observation.tenant,
        stream=observation.stream,
        completion_tokens=observation.completion_tokens,
        time_to_first_token_seconds=observation.ttft_seconds,
        time_per_output_token_seconds=observation.tpot_seconds,
        speculative_decoding=record,
    )


def of_record(record: DraftRecord) -> dict[str, Any]:
    """Return a record in vLLM's own form. The order of its steps is not kept, and matters to nothing."""
    document: dict[str, Any] = {
        "num_spec_steps": record.drafts,
        "num_draft_tokens": record.draft_tokens,
        "num_accepted_draft_tokens": record.accepted_tokens,
    }
    if record.histogram:
        document["acceptance_histogram"] = list(record.histogram)
    if record.steps:
        steps = [step for step, count in record.steps.items() for _ in range(count)]
        document["per_step_drafted"] = [drafted for drafted, _ in steps]
        document["per_step_accepted"] = [accepted for _, accepted in steps]
    return document


def _cleaned(request: PushedRequest) -> PushedRequest:
    if request.speculative_decoding is None:
        return request
    try:
        record = of_record(parse_record(request.speculative_decoding))
    except RecordError:
        record = _MALFORMED
    return msgspec.structs.replace(request, speculative_decoding=record)


def _encode(request: PushedRequest) -> bytes:
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    return msgspec.json.encode({name: value for name, value in fields.items() if value not in (None, "")})
