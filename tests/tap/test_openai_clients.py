"""The OpenAI client, synchronous and not: what it makes of answers is the same with and without the tap."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import openai
import pytest
from aiohttp import web

from support.closing import clean_up
from tap.ends import HOST, Relay, eventually, tapping
from tap.streams import (
    CHAT,
    COMPLETIONS,
    DONE,
    ID,
    MODEL,
    RECORD,
    chat_answer,
    chat_documents,
    chunk,
    events,
    usage_chunk,
)
from vllm_specdec_exporter.requests.observation import RecordState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

pytestmark = pytest.mark.full

_MESSAGES: list[Any] = [{"role": "user", "content": "Hi \u00e9\U0001f600"}]
_TOOL = {"name": "look", "arguments": '{"at": "'}


@dataclass
class _Vllm:
    """A server that answers as vLLM does.

    Attributes:
        port: where it listens.
        asked: the bodies of the requests, in order.
        busy: requests that it refuses for now.
        compresses: whether it compresses streams for who accepts it.
    """

    port: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    busy: int = 0
    compresses: bool = False

    async def answer(self, asked: web.Request) -> web.StreamResponse:
        """Answer a request for text."""
        body = json.loads(await asked.read())
        self.asked.append(body)
        chat = asked.path.endswith(CHAT)
        if body.get("temperature", 0) > 2:
            error = {"message": "temperature must be at most 2", "type": "BadRequestError", "code": 400}
            return web.json_response({"error": error}, status=400)
        if self.busy:
            self.busy -= 1
            return web.json_response(
                {"error": {"message": "busy"}}, status=429, headers={"Retry-After-Ms": "1"}
            )
        if not body.get("stream"):
            return web.json_response(chat_answer() if chat else _completion())
        answered = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        if self.compresses:
            answered.enable_compression()
        await answered.prepare(asked)
        documents = _chat(body) if chat else _completions()
        if body.get("user") == "fails":
            documents = [*documents[:2], {"error": {"message": "the engine died", "code": 500}}]
        elif (body.get("stream_options") or {}).get("include_usage"):
            documents = [*documents, usage_chunk(record=RECORD)]
        for event in events([*documents, DONE]):
            await answered.write(event)
        return answered


def _chat(body: dict[str, Any]) -> list[Any]:
    if not body.get("tools"):
        return chat_documents()
    call = {"index": 0, "id": "call_1", "type": "function", "function": _TOOL}
    more = {"index": 0, "function": {"arguments": 'home"}'}}
    return [
        chunk({"role": "assistant", "content": None}),
        chunk({"tool_calls": [call]}),
        chunk({"tool_calls": [more]}),
        chunk({}, "tool_calls"),
    ]


def _completion(text: str = "Hi", finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "finish_reason": finish, "logprobs": None}
    return {"id": ID, "object": "text_completion", "created": 1, "model": MODEL, "choices": [choice], **more}


def _completions() -> list[Any]:
    return [_completion("a", None), _completion("b\u00e9", None), _completion("", "length")]


@asynccontextmanager
async def _ways(*, ask: bool) -> AsyncIterator[tuple[_Vllm, Relay]]:
    vllm = _Vllm()
    app = web.Application()
    for route in (CHAT, COMPLETIONS):
        app.router.add_post(route, vllm.answer)
    app.router.add_get("/v1/models", _models)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    vllm.port = int(runner.addresses[0][1])
    try:
        async with tapping(f"http://{HOST}:{vllm.port}", ask=ask) as relay:
            yield vllm, relay
            await eventually(lambda: relay.result.connections == 0)
    finally:
        await clean_up(runner)


async def _models(_: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})


def _client(port: int) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://{HOST}:{port}/v1", api_key="key", max_retries=3, timeout=30)


def _async_client(port: int) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"http://{HOST}:{port}/v1", api_key="key", max_retries=3, timeout=30)


#: Calls, what they say, and what the tap makes of the answer: with a tap that asks, without.
_RECORDED, _UNRECORDED, _REFUSED = RecordState.DETAILED, RecordState.NONE, "refused"
_ASK = {"stream": True, "stream_options": {"include_usage": True}}
_CASES: dict[str, tuple[str, dict[str, Any], object, object]] = {
    "chat": ("chat", {}, _RECORDED, _RECORDED),
    "chat stream": ("chat", {"stream": True}, _RECORDED, _UNRECORDED),
    "chat stream with usage": ("chat", _ASK, _RECORDED, _RECORDED),
    "chat stream without usage": (
        "chat",
        {"stream": True, "stream_options": {"include_usage": False}},
        _UNRECORDED,
        _UNRECORDED,
    ),
    "tools": (
        "chat",
        {"stream": True, "tools": [{"type": "function", "function": {"name": "look"}}]},
        _RECORDED,
        _UNRECORDED,
    ),
    "extra fields": (
        "chat",
        {"stream": True, "extra_body": {"top_k": 5, "min_p": 0.1}, "extra_headers": {"X-A": "b"}},
        _RECORDED,
        _UNRECORDED,
    ),
    "completions": ("completions", {}, _UNRECORDED, _UNRECORDED),
    "completions stream": ("completions", {"stream": True}, _RECORDED, _UNRECORDED),
    "completions stream with usage": ("completions", _ASK, _RECORDED, _RECORDED),
    "refused": ("chat", {"temperature": 3.0}, _REFUSED, _REFUSED),
    "refused stream": ("chat", {"temperature": 3.0, "stream": True}, _REFUSED, _REFUSED),
    "a stream that fails": ("chat", {"user": "fails", "stream": True}, _REFUSED, _REFUSED),
}


def _arguments(api: str, more: dict[str, Any]) -> dict[str, Any]:
    first = {"messages": _MESSAGES} if api == "chat" else {"prompt": "Hi"}
    return {"model": MODEL, **first, **more}


def _said(error: openai.APIError) -> list[object]:
    status = getattr(error, "status_code", None)
    return [type(error).__name__, status, error.message, error.body]


def _sync(port: int, api: str, more: dict[str, Any]) -> list[object]:
    """Everything that the client hands out, event by event."""
    with _client(port) as client:
        create: Any = client.chat.completions.create if api == "chat" else client.completions.create
        try:
            found = create(**_arguments(api, more))
            if not more.get("stream"):
                return [found.to_dict()]
            got: list[object] = []
            try:
                got += [event.to_dict() for event in found]
            except openai.APIError as error:
                got += _said(error)
        except openai.APIError as error:
            return _said(error)
        return got


async def _async(port: int, api: str, more: dict[str, Any]) -> list[object]:
    async with _async_client(port) as client:
        create: Any = client.chat.completions.create if api == "chat" else client.completions.create
        try:
            found = await create(**_arguments(api, more))
            if not more.get("stream"):
                return [found.to_dict()]
            got: list[object] = []
            try:
                async for event in found:
                    got.append(event.to_dict())  # noqa: PERF401 - what came before an error counts
            except openai.APIError as error:
                got += _said(error)
        except openai.APIError as error:
            return _said(error)
        return got


async def _sync_apart(port: int, api: str, more: dict[str, Any]) -> list[object]:
    return await asyncio.to_thread(_sync, port, api, more)


@pytest.mark.parametrize("ask", [False, True], ids=["tap", "asking"])
@pytest.mark.parametrize("call", [_sync_apart, _async], ids=["sync", "async"])
@pytest.mark.parametrize("name", _CASES)
async def test_the_same_results(
    name: str, call: Callable[[int, str, dict[str, Any]], Awaitable[list[object]]], ask: bool
) -> None:
    api, more, with_question, without = _CASES[name]
    async with _ways(ask=ask) as (vllm, relay):
        direct = await call(vllm.port, api, more)
        assert direct
        assert await call(relay.port, api, more) == direct
        state = with_question if ask else without
        if state is _REFUSED:
            assert relay.unobserved == {"refused": 1}
            return
        (seen,) = relay.told
        assert seen.state is state
        assert seen.stream == bool(more.get("stream"))
        plain, tapped = vllm.asked
        asked = ask and state is _RECORDED and "stream" in more and "stream_options" not in more
        assert tapped == {**plain, **({"stream_options": {"include_usage": True}} if asked else {})}


@pytest.mark.parametrize("ask", [False, True], ids=["tap", "asking"])
@pytest.mark.parametrize("call", [_sync_apart, _async], ids=["sync", "async"])
async def test_retries(
    call: Callable[[int, str, dict[str, Any]], Awaitable[list[object]]], ask: bool
) -> None:
    """A server that is busy is asked again, as the client does it, and answers then."""
    async with _ways(ask=ask) as (vllm, relay):
        vllm.busy = 2
        direct = await call(vllm.port, "chat", {"stream": True})
        vllm.busy = 2
        assert await call(relay.port, "chat", {"stream": True}) == direct
        assert len(direct) == len(chat_documents())
        assert relay.unobserved == {"refused": 2}
        assert len(relay.told) == 1
        assert relay.result.requests_total == 3
        vllm.busy = 9
        assert (await call(relay.port, "chat", {}))[:2] == ["RateLimitError", 429]


@pytest.mark.parametrize("call", [_sync_apart, _async], ids=["sync", "async"])
async def test_a_server_that_compresses(
    call: Callable[[int, str, dict[str, Any]], Awaitable[list[object]]],
) -> None:
    """A stream that is asked comes uncompressed, so that its extra event can be taken out; others as ever."""
    async with _ways(ask=True) as (vllm, relay):
        vllm.compresses = True
        for more in ({"stream": True}, _ASK):
            direct = await call(vllm.port, "chat", more)
            assert await call(relay.port, "chat", more) == direct
        assert [seen.record is not None for seen in relay.told] == [True]
        assert relay.unobserved == {"encoded": 1}


async def test_no_server_is_an_error_that_clients_know() -> None:
    """They try again, and tell what the tap says."""
    async with _ways(ask=False) as (vllm, _):
        async with tapping("http://127.0.0.1:1") as relay, _async_client(relay.port) as client:
            with pytest.raises(openai.InternalServerError) as caught:
                await client.with_options(max_retries=1).models.list()
            assert caught.value.status_code == 502
            assert "the server cannot be reached" in caught.value.message
            assert relay.errors == {"refused": 2}
        assert vllm.asked == []


@pytest.mark.parametrize("ask", [False, True], ids=["tap", "asking"])
async def test_one_connection_for_many_calls(ask: bool) -> None:
    """Kept alive through the tap as without it, also after a stream that was left early."""
    async with _ways(ask=ask) as (_, relay), _async_client(relay.port) as client:
        for number in range(10):
            await client.models.list()
            stream: Any = await client.chat.completions.create(
                model=MODEL, messages=_MESSAGES, stream=True, user=str(number)
            )
            assert len([event async for event in stream]) == len(chat_documents())
        assert relay.result.connections_total == 1
        stream = await client.chat.completions.create(model=MODEL, messages=_MESSAGES, stream=True)
        async for _event in stream:
            break
        await stream.close()
        await client.models.list()
        assert relay.result.requests_total == 22
        await client.close()
        await eventually(lambda: relay.result.connections == 0)
        assert len(relay.told) + relay.result.unobserved_total["aborted"] == 11


@pytest.mark.parametrize("ask", [False, True], ids=["tap", "asking"])
async def test_many_clients_at_once(ask: bool) -> None:
    """Each gets its own answer."""
    async with _ways(ask=ask) as (vllm, relay):
        expected = await _async(vllm.port, "chat", {"stream": True})
        found = await asyncio.gather(*(_async(relay.port, "chat", {"stream": True}) for _ in range(20)))
        assert found == [expected] * 20
        assert len(relay.told) == 20
