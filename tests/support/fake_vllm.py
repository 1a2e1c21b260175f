"""A server with the form of vLLM's OpenAI API that answers as it is told, and remembers
what it was asked.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from aiohttp import web

from support.closing import clean_up, loop_in_a_thread
from support.repository import Json
from tap import streams

MODEL = "tiny-llama"
#: What no push may ever hold: they stand in every request, in every answer, and in
#: headers.
CANARIES = ("CANARY-PROMPT", "CANARY-ANSWER", "CANARY-KEY", "CANARY-USER")

#: As vLLM 0.32 writes it with `detailed`.
RECORD: Json = {
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
class Script:
    """What the server answers."""

    status: int = 200
    record: Json | None = field(default_factory=lambda: dict(RECORD))


class FakeVLLM:
    """The server, in a thread of its own."""

    def __init__(self) -> None:
        self.script = Script()  # what it answers; may be assigned anew at any time
        self.asked: list[Json] = []  # the bodies of the requests, in order
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
        return web.json_response(
            {"object": "list", "data": [{"id": MODEL, "object": "model"}]}
        )

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        script = self.script
        self.asked.append(asked)
        if script.status != 200:
            return web.json_response(
                {"error": {"message": "CANARY-ANSWER no"}}, status=script.status
            )
        if asked.get("stream"):
            return await self._stream(request, script)
        chat = request.path.endswith("/chat/completions")
        return web.json_response(whole(chat=chat, record=script.record))

    async def _stream(self, request: web.Request, script: Script) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8"}
        )
        await response.prepare(request)
        for event in stream(script.record):
            await response.write(event)
        await response.write_eof()
        return response


def whole(*, chat: bool = True, record: Json | None = RECORD) -> Json:
    """An answer that does not stream."""
    message = {"role": "assistant", "content": "CANARY-ANSWER"}
    text = {"message": message} if chat else {"text": message["content"]}
    return {
        **streams.chat_answer(record),
        "model": MODEL,
        "object": "chat.completion" if chat else "text_completion",
        "choices": [{"index": 0, "finish_reason": "stop", **text}],
        "usage": streams.usage_chunk(COMPLETION_TOKENS)["usage"],
    }


def stream(record: Json | None = RECORD) -> list[bytes]:
    """The events of a chat that streams."""
    chat = streams.chat_documents(("CANARY-ANSWER one ", "two ", "three "))
    return streams.events(
        [*chat, streams.usage_chunk(COMPLETION_TOKENS, record), streams.DONE]
    )
