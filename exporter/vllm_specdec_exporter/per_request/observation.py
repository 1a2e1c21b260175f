"""Observations: finished requests, each with the record of its response."""

from enum import StrEnum

from msgspec import Struct

from .records import DraftRecord


class Source(StrEnum):
    """Where an observation comes from: values of the label `source`."""

    TAP = "tap"
    PUSH = "push"
    FILE = "file"


class RecordState(StrEnum):
    """The record of a response: values of the label `record`."""

    DETAILED = "detailed"
    SUMMARY = "summary"
    NOT_DRAFTED = "not_drafted"
    NONE = "none"
    MALFORMED = "malformed"


#: Descriptions for the documentation.
RECORD_STATES = {
    RecordState.DETAILED: (
        "a record with the drafted and accepted tokens of each step, or with a "
        "histogram that gives them, because all drafts had K tokens"
    ),
    RecordState.SUMMARY: "a record with totals only",
    RecordState.NOT_DRAFTED: "a record, but nothing was drafted for the request",
    RecordState.NONE: (
        "no record: vLLM runs without --per-request-spec-decode-metrics, the request "
        "had several choices, it streamed without include_usage, or SGLang drafts "
        "trees or changes K itself"
    ),
    RecordState.MALFORMED: "a record that contradicts itself",
}


class Observation(Struct, frozen=True):
    """One finished request."""

    time: float  # Unix time of its end, in seconds
    model_name: str = ""  # the model in the response, empty if absent
    #: The temperature in the request, ``None`` if absent.
    temperature: float | None = None
    request_type: str = ""  # by the rules of classification, empty if none applies
    tenant: str = ""  # by the configured header, empty without one
    stream: bool = False  # whether the response was streamed
    request_id: str = ""  # the server's identifier, if the server generated it
    completion_tokens: int | None = None  # generated tokens, if known
    record: DraftRecord | None = None  # the record of speculation, if present
    malformed: bool = False  # whether the response had a record that contradicts itself
    ttft_seconds: float | None = None  # time to first token; streams only
    #: Time per output token, without the first; streams only.
    tpot_seconds: float | None = None

    @property
    def state(self) -> RecordState:
        """What kind of record the response had."""
        if self.malformed:
            return RecordState.MALFORMED
        if self.record is None:
            return RecordState.NONE
        if not self.record.draft_tokens:
            return RecordState.NOT_DRAFTED
        if self.record.steps:
            return RecordState.DETAILED
        return RecordState.SUMMARY
