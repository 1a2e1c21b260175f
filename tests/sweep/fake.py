"""A small OpenAI endpoint with vLLM's counters, for what a real one does rarely: fail,
restart, be disturbed.

It answers at once. A request of n tokens has n / 5 drafts of K = 4 tokens; which share
of them is accepted depends on the temperature alone, in whole drafts, so the expected
numbers can be worked out by hand.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

from support.closing import clean_up
from tap.streams import DONE, chunk, usage_chunk
from tap.streams import events as streamed_events

K = 4
NO_TEMPLATE = (
    "As of transformers v4.44, default chat template is no longer allowed, so you "
    "must provide a chat template if the tokenizer does not define one."
)


@dataclass
class Engine:
    """The counters of one life."""

    generated: float = 0
    histogram: Counter[int] = field(default_factory=Counter)
    running: int = 0
    created: float = 1.0

    def render(self, model: str, *, speculating: bool) -> str:
        model = model.replace("\n", "\\n")
        label = f'{{engine="0",model_name="{model}"}}'
        lines = [
            f"vllm:num_requests_running{label} {self.running}",
            f"vllm:num_requests_waiting{label} 0",
            f"vllm:generation_tokens_total{label} {self.generated}",
        ]
        if speculating:
            name = "vllm:spec_decode_num"
            drafts = self.histogram.total()
            lines += [
                f"{name}_drafts_total{label} {drafts}",
                f"{name}_drafts_created{label} {self.created}",
                f"{name}_draft_tokens_total{label} {drafts * K}",
                (
                    f"{name}_accepted_tokens_total{label} "
                    f"{sum(j * n for j, n in self.histogram.items())}"
                ),
            ]
            by_position = f"{name}_accepted_tokens_per_pos_total{label[:-1]}"
            for i in range(K):
                reached = sum(n for j, n in self.histogram.items() if j > i)
                lines.append(f'{by_position},position="{i}"}} {reached}')
        return "\n".join(lines) + "\n"


class FakeServer:
    """The server; its attributes say how it behaves and may change at any time."""

    def __init__(self) -> None:
        self.models = ["fake-model"]
        self.records = True
        self.speculating = True
        self.api = self.chat_template = True
        self.api_key = ""
        self.metrics_path = "/metrics"
        self.other_tokens_per_request = 0
        self.on_request: (
            Callable[[int, dict[str, Any]], Awaitable[web.StreamResponse | None]] | None
        ) = None
        self.engine = Engine()
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.port = 0
        self.delay = 0.0
        self.tls: ssl.SSLContext | None = None
        self.socket = ""
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        if self.socket:
            return f"unix:{self.socket}"
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    @property
    def measured(self) -> list[dict[str, Any]]:
        """The bodies of the requests behind the probe and the warm-up."""
        return [body for body in self.bodies if body["max_tokens"] > 8]

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        if self.socket:
            await web.UnixSite(runner, self.socket).start()
        else:
            await web.TCPSite(
                runner, "127.0.0.1", self.port, ssl_context=self.tls
            ).start()
            self.port = runner.addresses[0][1]
        self._runner = runner

    async def close(self) -> None:
        runner = self._runner
        self._runner = None
        if runner is not None:
            await clean_up(runner)

    def restart(self) -> None:
        """Begin all counters anew."""
        self.engine = Engine(created=self.engine.created + 1)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        self.paths.append(path)
        if path == self.metrics_path:
            engines = (
                self.engine.render(name, speculating=self.speculating)
                for name in self.models
            )
            return web.Response(text="".join(engines))
        if path == "/version":
            return web.json_response({"version": "0.32.0"})
        if self.api_key:
            wanted = f"Bearer {self.api_key}"
        else:
            wanted = request.headers.get("Authorization")
        if path.startswith("/v1/") and request.headers.get("Authorization") != wanted:
            return web.json_response({"error": "Unauthorized"}, status=401)
        if (
            self.api
            and request.method == "POST"
            and path in ("/v1/chat/completions", "/v1/completions")
        ):
            return await self._complete(request, chat="chat" in path)
        return web.Response(status=404, text="nothing here")

    async def _complete(
        self, request: web.Request, *, chat: bool
    ) -> web.StreamResponse:
        body = await request.json()
        if body["model"] not in self.models:
            return refusal(f"The model `{body['model']}` does not exist.", 404)
        if chat and not self.chat_template:
            return refusal(NO_TEMPLATE)
        self.bodies.append(body)
        if self.on_request is not None:
            special = await self.on_request(len(self.measured), body)
            if special is not None:
                return special
        self.engine.running += 1
        engine = self.engine
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            if self.delay:
                await asyncio.sleep(self.delay)
            histogram = drafts_of(body["max_tokens"], body["temperature"])
            for event in events(
                body["max_tokens"], histogram if self.records else None, chat=chat
            ):
                await response.write(event)
            engine.generated += body["max_tokens"] + self.other_tokens_per_request
            engine.histogram += histogram
            return response
        finally:
            engine.running -= 1


def refusal(text: str, status: int = 400) -> web.Response:
    return web.json_response(
        {"error": {"message": text, "type": "BadRequestError"}}, status=status
    )


def drafts_of(tokens: int, temperature: float) -> Counter[int]:
    """Return the drafts of a request: 3, 2 or 1 accepted tokens, by temperature."""
    if temperature < 0.5:
        accepted = 3
    elif temperature < 0.9:
        accepted = 2
    else:
        accepted = 1
    return Counter({accepted: tokens // 5})


def events(tokens: int, histogram: Counter[int] | None, *, chat: bool) -> list[bytes]:
    """Return the events of an answer as vLLM streams them."""

    def choice(text: str, finish: str | None = None) -> dict[str, Any]:
        content = {"delta": {"content": text}} if chat else {"text": text}
        return {"choices": [{"index": 0, **content, "finish_reason": finish}]}

    documents = [chunk({"role": "assistant", "content": ""})] if chat else []
    documents += [choice("a") for _ in range(tokens - 1)] + [choice("z", "length")]
    record = histogram and {
        "num_spec_steps": histogram.total(),
        "num_draft_tokens": K * histogram.total(),
        "num_accepted_draft_tokens": sum(j * n for j, n in histogram.items()),
        "acceptance_histogram": [histogram[j] for j in range(K + 1)],
        "num_spec_tokens": K,
    }
    return streamed_events([*documents, usage_chunk(tokens, record), DONE])
