"""A server with the form of vLLM's OpenAI API that answers as it is told, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from support.closing import clean_up, loop_in_a_thread

MODEL = "tiny-llama"
#: What no push may ever hold: they stand in every request, in every answer, and in headers.
CANARIES = ("CANARY-PROMPT", "CANARY-ANSWER", "CANARY-KEY", "CANARY-USER")

#: As vLLM 0.32 writes it with `detailed`.
RECORD: dict[str, Any] = {
    "mean_acceptance_length": 2.5,
    "draft_acceptance_rate": 0.5,
    "acceptance_histogram": [1, 1, 1, 1],
    "num_spec_steps": 4,
    "num_accepted_draft_tokens": 6,
    "num_draft_tokens": 12,
    "num_spec_tokens": 3,
    "per_step_accepted": [0, 1, 2, 3],
    "per_step_drafted": [3, 3, 3, 3],
}
COMPLETION_TOKENS = 10


@dataclass
class Asked:
    """What the server was asked."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.body))


@dataclass
class Script:
    """What the server answers."""

    status: int = 200
    record: dict[str, Any] | None = field(default_factory=lambda: dict(RECORD))


class FakeVLLM:
    """The server, in a thread of its own."""

    def __init__(self) -> None:
        self.script = Script()  # what it answers; may be assigned anew at any time
        self.asked: list[Asked] = []  # what it was asked, in order
        self.url = ""  # its address
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> FakeVLLM:
        finish = self._stack.enter_context(loop_in_a_thread())
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/{path:.*}", self._answer)
        app.router.add_get("/v1/models", self._models)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        finish(self._start(runner))
        self._stack.callback(lambda: finish(clean_up(runner)))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def _start(self, runner: web.AppRunner) -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.asked.append(Asked(request.path_qs, headers, body))
        script = self.script
        if script.status != 200:
            return web.json_response({"error": {"message": "CANARY-ANSWER no"}}, status=script.status)
        asked = json.loads(body)
        chat = request.path.endswith("/chat/completions")
        if asked.get("stream"):
            return await self._stream(request, asked, chat=chat, script=script)
        return web.json_response(whole(chat=chat, record=script.record))

    async def _stream(
        self, request: web.Request, asked: dict[str, Any], *, chat: bool, script: Script
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        for event in events(chat=chat, usage=usage, record=script.record):
            await response.write(event)
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def whole(*, chat: bool = True, record: dict[str, Any] | None = RECORD) -> dict[str, Any]:
    """An answer that does not stream."""
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
    if chat:
        choice["message"] = {"role": "assistant", "content": "CANARY-ANSWER"}
    else:
        choice["text"] = "CANARY-ANSWER"
    document: dict[str, Any] = {
        **_head(chat=chat),
        "object": "chat.completion" if chat else "text_completion",
        "choices": [choice],
        "usage": _usage(),
    }
    if record is not None:
        document["metrics"] = {"speculative_decoding": record}
    return document


def events(*, chat: bool = True, usage: bool = True, record: dict[str, Any] | None = RECORD) -> list[bytes]:
    """The events of a stream, without the last word."""
    kind = "chat.completion.chunk" if chat else "text_completion"

    def event(choices: list[dict[str, Any]], **more: Any) -> bytes:
        document = {**_head(chat=chat), "object": kind, "choices": choices, **more}
        return b"data: " + json.dumps(document).encode() + b"\n\n"

    def token(text: str, finish: str | None = None) -> bytes:
        piece = {"delta": {"content": text}} if chat else {"text": text}
        return event([{"index": 0, **piece, "finish_reason": finish}])

    found = []
    if chat:
        delta = {"role": "assistant", "content": ""}
        found.append(event([{"index": 0, "delta": delta, "finish_reason": None}]))
    found += [token("CANARY-ANSWER one "), token("two "), token("three "), token("", "stop")]
    if usage:
        metrics = {} if record is None else {"metrics": {"speculative_decoding": record}}
        found.append(event([], usage=_usage(), **metrics))
    return found


def _head(*, chat: bool) -> dict[str, Any]:
    prefix = "chatcmpl" if chat else "cmpl"
    return {"id": f"{prefix}-0123456789abcdef0123456789abcdef", "created": 1_700_000_000, "model": MODEL}


def _usage() -> dict[str, int]:
    return {
        "prompt_tokens": 7,
        "completion_tokens": COMPLETION_TOKENS,
        "total_tokens": 7 + COMPLETION_TOKENS,
    }
