"""One streamed answer: the times of its tokens, its usage, and vLLM's record of its
drafts.

The events are read by the room of single requests, as the tap reads them. Times come
in.
"""

import json
from itertools import pairwise
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from ...per_request.exchange import MAX_EVENT, EventSizeError, EventSplitter, data_of
from ...per_request.openai_api import UnreadableError, read_response
from ...per_request.records import DraftRecord

#: Characters of a server's error message: what a line of a terminal report can hold.
_MAX_MESSAGE = 300


class AnswerError(Exception):
    """A request got no complete answer.

    `status` is its HTTP status, 0 without one.
    """

    def __init__(self, message: str, status: int = 200) -> None:
        super().__init__(message)
        self.status = status


class StreamedAnswer(Struct, frozen=True):
    """The client's view of one request."""

    request: int  # its number in the cell, from 0
    prompt: int  # the index of its prompt in the set, from 0
    error: str = ""  # why the response is incomplete; empty if it is complete
    prompt_tokens: int = 0  # from the server's usage
    completion_tokens: int = 0  # from the server's usage
    ttft_seconds: float | None = None  # from sending the request to the first token
    #: (last token - first token) / (completion tokens - 1); ``None`` for a single
    #: token.
    tpot_seconds: float | None = None
    events: int = 0  # number of events with tokens; vLLM sends one for each step
    #: Median time between two of them; ``None`` for a single one.
    event_seconds: float | None = None
    seconds: float = 0.0  # from sending the request to the end of the response
    drafts: DraftRecord | None = None  # the server's record of the drafts, if given


class Stream:
    """Collects the response to a request that was sent at the time `started`, in
    seconds.
    """

    def __init__(self, started: float) -> None:
        self._started = started
        self._events = EventSplitter(MAX_EVENT)
        self._times: list[float] = []
        self._prompt_tokens = 0
        self._completion_tokens: int | None = None
        self._drafts: DraftRecord | None = None

    def feed(self, data: bytes, time: float) -> None:
        """Handle bytes received at `time`; AnswerError if they are no events, or report
        a failed request.
        """
        try:
            for event in self._events.feed(data):
                self._event(data_of(event), time)
        except EventSizeError as error:
            raise AnswerError(str(error)) from error
        except UnreadableError as error:
            why = "an event of the stream is not the JSON of a response"
            raise AnswerError(why) from error

    def _event(self, data: bytes, time: float) -> None:
        if not data:
            return
        response = read_response(data)
        if response.failed:
            why = error_message(json.loads(data))
            raise AnswerError(why or "the stream says that the request failed")
        # An event without text may still have a token, whose text follows when its
        # bytes are complete.
        if response.tokens and (self._times or not response.only_role):
            self._times.append(time)
        if response.completion_tokens is not None:
            self._prompt_tokens = response.prompt_tokens or 0
            self._completion_tokens = response.completion_tokens
        # Events behind the record, such as the one with the usage, have none.
        self._drafts = _of_vllm(response.record) or self._drafts

    def answer(self, request: int, prompt: int, time: float) -> StreamedAnswer:
        """Return the response that ended at `time`; AnswerError if it ended early."""
        tokens = self._completion_tokens
        if tokens is None:
            raise AnswerError("the stream ended without usage")
        times = self._times
        ttft: float | None = None
        tpot: float | None = None
        gap: float | None = None
        if times:
            ttft = times[0] - self._started
        if times and tokens > 1:
            tpot = (times[-1] - times[0]) / (tokens - 1)
        if len(times) > 1:
            gap = median(end - start for start, end in pairwise(times))
        return StreamedAnswer(
            request=request,
            prompt=prompt,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=tokens,
            ttft_seconds=ttft,
            tpot_seconds=tpot,
            events=len(times),
            event_seconds=gap,
            seconds=time - self._started,
            drafts=self._drafts,
        )


def _of_vllm(record: DraftRecord | None) -> DraftRecord | None:
    """Return vLLM's record, without its steps; those of other engines lack counts, or
    compute them from K.
    """
    if record is None or record.configured_k:
        return None
    if record.draft_tokens and not record.drafts:
        return None
    return replace(record, steps={})


def error_message(document: object) -> str:
    """Return the message of an OpenAI error document in one line; empty if it is not
    one.
    """
    if not isinstance(document, dict):
        return ""
    message = document.get("error") or document
    if isinstance(message, dict):
        message = message.get("message") or message.get("detail")
    if not isinstance(message, str):
        return ""
    shown = "".join(c if c.isprintable() else " " for c in message)
    return " ".join(shown.split())[:_MAX_MESSAGE]
