"""The JSON of ``POST /api/v1/requests``: observations that gateways and clients push to
the exporter.

::

    {"requests": [{"model": "llama", "temperature": 0.7, "request_type": "code",
                   "completion_tokens": 212, "speculative_decoding": {...}}]}

where ``speculative_decoding`` is vLLM's record, copied from the response. Unknown
fields are ignored.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Struct

from .observation import Observation
from .records import RecordError, read_record

#: Limit of observations in one push: as many of usual size are below the 1 MiB of a
#: body.
MAX_REQUESTS = 1000

#: A plausible temperature: OpenAI's API allows up to 2.
_Temperature = Annotated[float, msgspec.Meta(ge=0, le=1000)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]  # a day
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]  # what a float can hold


class PushError(ValueError):
    """An invalid push of `count` requests, 1 if unknown.

    The message has what is allowed.
    """

    def __init__(self, message: str, count: int = 1) -> None:
        super().__init__(message)
        self.count = count


class PushedRequest(msgspec.Struct, kw_only=True):
    """One observed request.

    Attributes:
        model: the model in the response.
        temperature: the temperature in the request; absent if it had none.
        request_type: the type of request.
        tenant: the tenant; those that the exporter is not configured with count as
            `other`.
        stream: whether the response was streamed.
        completion_tokens: generated tokens, from the usage in the response.
        time_to_first_token_seconds: from the end of the request to the first token.
        time_per_output_token_seconds: from the first token to the last, over the tokens
            after the first.
        speculative_decoding: the record of the response, if it has one:
            `metrics.speculative_decoding` of vLLM, or that of another engine
            (docs/requests.md).
    """

    model: str = ""
    temperature: _Temperature | None = None
    request_type: str = ""
    tenant: str = ""
    stream: bool = False
    completion_tokens: _Count | None = None
    time_to_first_token_seconds: _Seconds | None = None
    time_per_output_token_seconds: _Seconds | None = None
    speculative_decoding: dict[str, Any] | None = None


class _Push(msgspec.Struct):
    requests: list[msgspec.Raw]


class Pushed(Struct, frozen=True):
    """The contents of a push."""

    observations: tuple[Observation, ...]  # the valid requests
    errors: tuple[tuple[int, str], ...] = ()  # index and error of each invalid request
    #: Index and warning of valid requests with a defect.
    warnings: tuple[tuple[int, str], ...] = ()


_PUSH = msgspec.json.Decoder(_Push)
_REQUEST = msgspec.json.Decoder(PushedRequest)


def read_push(body: bytes, wall: float) -> Pushed:
    """Return the contents of a push whose requests ended at the Unix time `wall`, or
    raise PushError.
    """
    try:
        items = _PUSH.decode(body).requests
    except (ValueError, RecursionError) as error:
        raise PushError(f'not {{"requests": [...]}}: {error}') from error
    if len(items) > MAX_REQUESTS:
        raise PushError(
            f"{len(items)} requests in one push; allowed: up to {MAX_REQUESTS}",
            count=len(items),
        )
    observations = []
    errors = []
    warnings = []
    for index, item in enumerate(items):
        try:
            observation, warning = read_pushed(item, wall)
        except (ValueError, RecursionError) as error:
            errors.append((index, str(error)))
            continue
        observations.append(observation)
        if warning:
            warnings.append((index, warning))
    return Pushed(tuple(observations), tuple(errors), tuple(warnings))


def read_pushed(body: bytes | msgspec.Raw, wall: float) -> tuple[Observation, str]:
    """Return the observation of one request of a push, and a warning, which may be
    empty.

    ValueError or RecursionError if it cannot be used.
    """
    item = _REQUEST.decode(body)
    record = None
    malformed = False
    warning = ""
    if not item.model:
        warning = (
            "model is missing: its served name is needed to match the request with its "
            "engine"
        )
    if item.speculative_decoding is not None:
        try:
            record = read_record(item.speculative_decoding)
        except RecordError as error:
            # Not rejected: the record is vLLM's, and the client cannot mend it.
            malformed = True
            warning = str(error)
    observation = Observation(
        time=wall,
        model_name=item.model,
        temperature=item.temperature,
        request_type=item.request_type,
        tenant=item.tenant,
        stream=item.stream,
        completion_tokens=item.completion_tokens,
        record=record,
        malformed=malformed,
        ttft_seconds=item.time_to_first_token_seconds,
        tpot_seconds=item.time_per_output_token_seconds,
    )
    return observation, warning
