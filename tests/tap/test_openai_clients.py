"""The OpenAI client: its results are the same with and without the tap."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from support.fake_vllm import MODEL, FakeVLLM, Script
from tap.ends import tapping

pytestmark = pytest.mark.full

_MESSAGES: list[Any] = [{"role": "user", "content": "Hi \u00e9\U0001f600"}]
_STREAM: dict[str, Any] = {"stream": True}
_USAGE = {"stream": True, "stream_options": {"include_usage": True}}
_NO_USAGE = {"stream": True, "stream_options": {"include_usage": False}}


@pytest.fixture(scope="module")
def vllm() -> Iterator[FakeVLLM]:
    with FakeVLLM() as server:
        yield server


async def _call(url: str, api: str, **more: Any) -> list[object]:
    """Everything that the client returns, event by event, and the error that ends it."""
    got: list[object] = []
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=1, timeout=30) as client:
        create: Any = client.chat.completions.create if api == "chat" else client.completions.create
        what = {"messages": _MESSAGES} if api == "chat" else {"prompt": "Hi"}
        try:
            found = await create(model=MODEL, **what, **more)
            if not more.get("stream"):
                return [found.to_dict()]
            async for event in found:
                got.append(event.to_dict())  # noqa: PERF401 - what came before an error counts
        except Exception as error:  # noqa: BLE001 - of whatever kind, it has to be the same
            return [*got, type(error), str(error)]
    return got


#: Calls, how the server answers, and the outcome.
_CASES: dict[str, tuple[dict[str, Any], Script, str]] = {
    "whole": ({}, Script(), "detailed"),
    "a stream": (_STREAM, Script(), "none"),
    "a stream with usage": (_USAGE, Script(), "detailed"),
    "a stream without usage": (_NO_USAGE, Script(), "none"),
    "a compressed stream with usage": (_USAGE, Script(compress=True), "encoded"),
    "a stream that is cut off": (_STREAM, Script(cut=True), "aborted"),
    "a busy server": (_STREAM, Script(status=429), "refused"),
}


@pytest.mark.parametrize("name", _CASES)
async def test_the_same_results(name: str, vllm: FakeVLLM) -> None:
    """For both routes. The tap observes the request, and changes nothing in it."""
    more, vllm.script, outcome = _CASES[name]
    for api in ("chat", "completions"):
        async with tapping(vllm.url) as relay:
            vllm.asked.clear()
            direct = await _call(vllm.url, api, **more)
            assert await _call(f"http://127.0.0.1:{relay.port}", api, **more) == direct
            await relay.becomes_quiet()
            assert direct
            assert vllm.asked[-1].json == vllm.asked[0].json
            told = [seen.state.value for seen in relay.told]
            assert {*told, *relay.unobserved} == {outcome}
            assert relay.result.requests_total == len(vllm.asked) / 2  # a busy server is asked twice
