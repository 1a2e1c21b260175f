"""Pushed observations: what a gateway or a client saw, as the JSON of ``POST /api/v1/requests``.

::

    {"requests": [{"model": "llama", "temperature": 0.7, "request_type": "code", "completion_tokens": 212,
                   "speculative_decoding": {...}}]}

where ``speculative_decoding`` is vLLM's own record, as it stood in the answer. Fields that are not known here
are left alone, and nothing is kept of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from .answer import LONGEST
from .observation import Observation
from .record import RecordError, parse_record

#: Where an exporter takes pushes.
PATH = "/api/v1/requests"

#: Temperatures above it are a mistake.
_HOTTEST = 1000.0

#: Observations in one push.
MOST_REQUESTS = 1000


class PushError(ValueError):
    """A push that cannot be used at all. The message says what is allowed.

    Attributes:
        count: requests in it; 1 where it cannot be told.
    """

    def __init__(self, message: str, count: int = 1) -> None:
        super().__init__(message)
        self.count = count


class PushedRequest(msgspec.Struct, kw_only=True):
    """One observed request.

    Attributes:
        model: the model that answered.
        temperature: as the request had it; absent where it named none.
        request_type: the type of request.
        tenant: the tenant; only those that the exporter was told of are told apart.
        stream: whether the answer streamed.
        completion_tokens: generated tokens, of the answer's usage.
        time_to_first_token_seconds: from the end of the request to the first token.
        time_per_output_token_seconds: from the first token to the last, over the tokens after the first.
        speculative_decoding: vLLM's record, `metrics.speculative_decoding` of the answer; absent where it
            had none.
    """

    model: str = ""
    temperature: float | None = None
    request_type: str = ""
    tenant: str = ""
    stream: bool = False
    completion_tokens: int | None = None
    time_to_first_token_seconds: float | None = None
    time_per_output_token_seconds: float | None = None
    speculative_decoding: dict[str, Any] | None = None


class _Push(msgspec.Struct):
    requests: list[msgspec.Raw]


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push holds.

    Attributes:
        observations: what can be used.
        errors: what cannot: place in the push, and why.
        warnings: what is doubtful about those that are counted: place in the push, and why.
    """

    observations: tuple[Observation, ...]
    errors: tuple[tuple[int, str], ...] = ()
    warnings: tuple[tuple[int, str], ...] = ()


_PUSH = msgspec.json.Decoder(_Push)
_REQUEST = msgspec.json.Decoder(PushedRequest)


def read_push(body: bytes, wall: float) -> Pushed:
    """Return what a push holds.

    Args:
        body: the JSON.
        wall: Unix time in seconds, at which the requests are taken to have ended.

    Raises:
        PushError: not such a JSON, or too many requests.
    """
    try:
        items = _PUSH.decode(body).requests
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f'not {{"requests": [...]}}: {error}'
        raise PushError(msg) from error
    if len(items) > MOST_REQUESTS:
        msg = f"{len(items)} requests in one push; allowed: up to {MOST_REQUESTS}"
        raise PushError(msg, len(items))
    observations, errors, warnings = [], [], []
    for place, item in enumerate(items):
        try:
            observation, doubt = _observation(_REQUEST.decode(item), wall)
            observations.append(observation)
            if doubt:
                warnings.append((place, doubt))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            errors.append((place, str(error)))
    return Pushed(tuple(observations), tuple(errors), tuple(warnings))


def _observation(item: PushedRequest, wall: float) -> tuple[Observation, str]:
    """Return the observation, and what is doubtful about it; empty where nothing is."""
    record, malformed, doubt = None, False, ""
    if not item.model:
        doubt = "model is missing: the name by which vLLM serves it ties the request to its engine"
    if item.speculative_decoding is not None:
        try:
            record = parse_record(item.speculative_decoding)
        except RecordError as error:
            malformed, doubt = True, str(error)  # counted as malformed, for vLLM wrote it
    observation = Observation(
        time=wall,
        model_name=item.model,
        temperature=_number(item.temperature, "temperature", _HOTTEST),
        request_type=item.request_type,
        tenant=item.tenant,
        stream=item.stream,
        completion_tokens=_tokens(item.completion_tokens),
        record=record,
        malformed=malformed,
        ttft_seconds=_number(item.time_to_first_token_seconds, "time_to_first_token_seconds", LONGEST),
        tpot_seconds=_number(item.time_per_output_token_seconds, "time_per_output_token_seconds", LONGEST),
    )
    return observation, doubt


def _number(value: float | None, name: str, most: float) -> float | None:
    if value is not None and not 0 <= value <= most:
        msg = f"{name} is {value:g}; a number from 0 to {most:g} is expected"
        raise ValueError(msg)
    return value


def _tokens(value: int | None) -> int | None:
    if value is not None and not 0 <= value < 2**53:
        msg = f"completion_tokens is {value}; a count is expected"
        raise ValueError(msg)
    return value
