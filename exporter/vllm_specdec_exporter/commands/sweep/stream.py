"""A streamed response: its events combined into the client's view of one request. Pure: times come in.

An event is one ``data:`` line. The last event before ``[DONE]`` has the usage and, with vLLM's
``--per-request-spec-decode-metrics``, the record of the request's drafts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any


class StreamError(Exception):
    """The stream is not from an OpenAI endpoint, or reports a failed request."""


@dataclass(frozen=True, slots=True)
class StreamedDrafts:
    """vLLM's record of the drafts of one request.

    Attributes:
        histogram: at index j, the drafts with j accepted tokens.
    """

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    histogram: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """The client's view of one request.

    Attributes:
        request: its number in the cell, from 0.
        prompt: the index of its prompt in the set, from 0.
        error: why the response is incomplete; empty if it is complete.
        prompt_tokens: from the server's usage.
        completion_tokens: from the server's usage.
        ttft_seconds: from sending the request to the first token.
        tpot_seconds: (last token - first token) / (completion tokens - 1); ``None`` for a single token.
        events: number of events with tokens; vLLM sends one for each step.
        event_seconds: median time between two of them; ``None`` for a single one.
        seconds: from sending the request to the end of the response.
        finish_reason: ``length``, ``stop``.
        drafts: the server's record of the drafts, if given.
    """

    request: int
    prompt: int
    error: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    events: int = 0
    event_seconds: float | None = None
    seconds: float = 0.0
    finish_reason: str = ""
    drafts: StreamedDrafts | None = None


class Stream:
    """Collects the lines of the response to a request that was sent at the time `started`, in seconds."""

    def __init__(self, started: float) -> None:
        self._started = started
        self._times: list[float] = []
        self._finish_reason = ""
        self._summary: dict[str, Any] | None = None

    def feed(self, line: bytes, time: float) -> None:
        """Handle one line that was received at `time`.

        Raises:
            StreamError: the line is not an event, or reports a failed request.
        """
        if not line.startswith(b"data:"):
            return
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise StreamError("an event of the stream is not JSON") from error
        if not isinstance(event, dict):
            raise StreamError("an event of the stream is no object")
        if event.get("error"):
            raise StreamError(error_message(event) or "the stream says that the request failed")
        if isinstance(event.get("usage"), dict):
            self._summary = event
        for choice in event.get("choices") or ():
            self._choice(choice, time)

    def _choice(self, choice: Any, time: float) -> None:
        if not isinstance(choice, dict):
            return
        finish = choice.get("finish_reason")
        # An event without text may still have a token, whose text follows when its bytes are complete.
        if self._times or finish is not None or not _opens_chat(choice):
            self._times.append(time)
        if isinstance(finish, str):
            self._finish_reason = finish

    def answer(self, request: int, prompt: int, time: float) -> StreamedAnswer:
        """Return the response that ended at `time`.

        Raises:
            StreamError: the stream ended early.
        """
        if self._summary is None:
            raise StreamError("the stream ended without usage")
        usage = self._summary["usage"]
        tokens = _count(usage.get("completion_tokens"))
        times = self._times
        first = times[0] if times else None
        between = [later - earlier for earlier, later in pairwise(times)]
        return StreamedAnswer(
            request=request,
            prompt=prompt,
            prompt_tokens=_count(usage.get("prompt_tokens")),
            completion_tokens=tokens,
            ttft_seconds=None if first is None else first - self._started,
            tpot_seconds=None if first is None or tokens < 2 else (times[-1] - first) / (tokens - 1),
            events=len(times),
            event_seconds=median(between) if between else None,
            seconds=time - self._started,
            finish_reason=self._finish_reason,
            drafts=_drafts(self._summary),
        )


def error_message(document: object) -> str:
    """Return the message of an OpenAI error document in one line; empty if it is not one."""
    if not isinstance(document, dict):
        return ""
    error = document.get("error") or document
    words = error if isinstance(error, str) else None
    if isinstance(error, dict):
        words = error.get("message") or error.get("detail")
    if not isinstance(words, str):
        return ""
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())[:300]


def _opens_chat(choice: dict[str, Any]) -> bool:
    """Return whether this is the first event, which has only the role."""
    delta = choice.get("delta")
    texts = ("content", "reasoning", "reasoning_content", "tool_calls")
    return isinstance(delta, dict) and "role" in delta and not any(delta.get(key) for key in texts)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise StreamError("the usage of the answer holds no token counts")
    return value


def _drafts(summary: dict[str, Any]) -> StreamedDrafts | None:
    metrics = summary.get("metrics")
    record = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    if not isinstance(record, dict):
        return None
    try:
        return StreamedDrafts(
            drafts=_count(record.get("num_spec_steps")),
            draft_tokens=_count(record.get("num_draft_tokens")),
            accepted_tokens=_count(record.get("num_accepted_draft_tokens")),
            histogram=tuple(_count(value) for value in record.get("acceptance_histogram") or ()),
        )
    except (StreamError, TypeError):
        return None  # vLLM's record is experimental; the counters do not depend on it
