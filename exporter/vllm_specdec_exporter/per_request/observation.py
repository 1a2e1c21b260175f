"""An observation: what is kept of one request. Nothing of what was asked or answered is in it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .record import DraftRecord


class Source(StrEnum):
    """Who saw the request: values of the label `source`."""

    TAP = "tap"
    PUSH = "push"
    FILE = "file"


class RecordState(StrEnum):
    """What the answer told of speculation: values of the label `record`."""

    DETAILED = "detailed"
    SUMMARY = "summary"
    NOT_DRAFTED = "not_drafted"
    NONE = "none"
    MALFORMED = "malformed"


#: What each state means, for the documentation.
RECORD_STATES = {
    RecordState.DETAILED: "a record with what each step drafted",
    RecordState.SUMMARY: "a record with totals only",
    RecordState.NOT_DRAFTED: "a record that says that nothing was drafted for the request",
    RecordState.NONE: "no record: vLLM runs without --per-request-spec-decode-metrics, the request asked for "
    "several answers, or it streamed without include_usage",
    RecordState.MALFORMED: "a record that contradicts itself",
}


@dataclass(frozen=True, slots=True)
class Observation:
    """One finished request.

    Attributes:
        time: Unix time of its end, in seconds.
        model_name: the model that the answer names, empty where it names none.
        temperature: as the request had it, ``None`` where it had none.
        request_type: by the rules of classification, empty where none applies.
        tenant: by the configured header, empty without one.
        stream: whether the answer came as a stream of events.
        request_id: the server's own identifier, where it is one made by the server.
        completion_tokens: generated tokens, where the answer tells.
        record: what speculation did, where the answer tells.
        malformed: whether the answer had a record that contradicts itself.
        ttft_seconds: from the request to its first token; streams only.
        tpot_seconds: from the first token to the last, for each token after the first; streams only.
    """

    time: float
    model_name: str = ""
    temperature: float | None = None
    request_type: str = ""
    tenant: str = ""
    stream: bool = False
    request_id: str = ""
    completion_tokens: int | None = None
    record: DraftRecord | None = None
    malformed: bool = False
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None

    @property
    def state(self) -> RecordState:
        """What the answer told of speculation."""
        if self.malformed:
            return RecordState.MALFORMED
        if self.record is None:
            return RecordState.NONE
        if not self.record.draft_tokens:
            return RecordState.NOT_DRAFTED
        return RecordState.DETAILED if self.record.steps else RecordState.SUMMARY
