"""Clients of httpx, and of its successor, that report: the same bytes, the same errors, one observation."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import httpx
import httpx2
import pytest

from client.collector import Collector, arrived
from support.fake_vllm import COMPLETION_TOKENS, MODEL, RECORD, FakeVLLM, events, whole
from vllm_specdec_exporter.client import Reporter
from vllm_specdec_exporter.client.httpx_transport import AsyncObservingTransport, ObservingTransport, observe
from vllm_specdec_exporter.requests.observation import parse_record

BODY: dict[str, Any] = {
    "model": MODEL,
    "temperature": 0.3,
    "messages": [{"role": "user", "content": "CANARY-PROMPT"}],
}
STREAM = {**BODY, "stream": True}
USAGE = {**STREAM, "stream_options": {"include_usage": True}}
HEADERS = {"Authorization": "Bearer CANARY-KEY", "X-User": "CANARY-USER"}
PATH = "/v1/chat/completions"


class Awaited:
    """An asynchronous client that a test uses like a synchronous one."""

    def __init__(self, client: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = client

    def __enter__(self) -> Awaited:
        self._runner.run(self._client.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._client.__aexit__(*error))
        self._runner.close()

    def get(self, url: str) -> Any:
        return self._runner.run(self._client.get(url))

    def post(self, url: str, **more: Any) -> Any:
        if isinstance(content := more.get("content"), Iterator):
            more["content"] = _asynchronous(content)
        return self._runner.run(self._client.post(url, **more))

    @contextmanager
    def stream(self, method: str, url: str, **more: Any) -> Iterator[Any]:
        context = self._client.stream(method, url, **more)
        answer = self._runner.run(context.__aenter__())
        try:
            yield SimpleNamespace(
                headers=answer.headers,
                iter_raw=lambda: self._iterate(answer.aiter_raw()),
                iter_bytes=lambda: self._iterate(answer.aiter_bytes()),
                iter_lines=lambda: self._iterate(answer.aiter_lines()),
            )
        finally:
            self._runner.run(context.__aexit__(None, None, None))

    def _iterate(self, items: Any) -> Iterator[Any]:
        with suppress(StopAsyncIteration):
            while True:
                yield self._runner.run(anext(items))


async def _asynchronous(items: Iterator[bytes]) -> AsyncIterator[bytes]:
    for item in items:
        yield item


def a_client(library: Any, way: str, reporter: Reporter, **options: Any) -> Any:
    """A client that reports."""
    if way == "hooks":
        return observe(library.Client(timeout=60), reporter, **options)
    if way == "transport":
        return library.Client(transport=ObservingTransport(reporter, **options), timeout=60)
    if way == "async hooks":
        return Awaited(observe(library.AsyncClient(timeout=60), reporter, **options))
    return Awaited(library.AsyncClient(transport=AsyncObservingTransport(reporter, **options), timeout=60))


@pytest.mark.parametrize(
    ("library", "way"),
    [
        (httpx, "hooks"),
        (httpx2, "transport"),
        (httpx2, "async hooks"),
        (httpx, "async transport"),
        (httpx2, "async transport"),
    ],
)
class TestEveryWay:
    @pytest.fixture
    def client(self, library: Any, way: str, reporter: Reporter) -> Iterator[Any]:
        with a_client(library, way, reporter) as client:
            yield client

    @pytest.fixture
    def asking(self, library: Any, way: str, reporter: Reporter) -> Iterator[Any]:
        """One that asks for usage, and says its type."""
        with a_client(library, way, reporter, ask_for_usage=True, request_type="code") as client:
            yield client

    def test_whole(self, asking: Any, reporter: Reporter, collector: Collector, vllm: FakeVLLM) -> None:
        """An answer is what the server sent, and its record is reported."""
        answer = asking.post(vllm.url + PATH, json=BODY, headers=HEADERS)

        assert answer.json() == whole()
        assert answer.elapsed.total_seconds() > 0
        [found] = arrived(reporter, collector)
        assert (found.model_name, found.temperature, found.request_type) == (MODEL, 0.3, "code")
        assert (found.stream, found.completion_tokens) == (False, COMPLETION_TOKENS)
        assert found.record == parse_record(RECORD)

    def test_stream(self, client: Any, reporter: Reporter, collector: Collector, vllm: FakeVLLM) -> None:
        """A stream passes as it came, and token by token; its times are reported."""
        vllm.script.gate = threading.Event()
        chunks = []
        with client.stream("POST", vllm.url + PATH, json=USAGE, headers=HEADERS) as answer:
            for chunk in answer.iter_raw():
                chunks.append(chunk)
                if b"two" in chunk:
                    vllm.script.gate.set()  # the server would wait for ever if anything here did
        assert b"".join(chunks) == b"".join([*events(), b"data: [DONE]\n\n"])
        [found] = arrived(reporter, collector)
        assert (found.stream, found.record) == (True, parse_record(RECORD))
        assert None not in (found.ttft_seconds, found.tpot_seconds)

    def test_asks_for_usage(
        self, asking: Any, reporter: Reporter, collector: Collector, vllm: FakeVLLM
    ) -> None:
        """A stream that did not ask is asked, and not compressed, and its reader sees no usage."""
        vllm.script.compress = True
        with asking.stream("POST", vllm.url + PATH, json=STREAM, headers=HEADERS) as answer:
            body = b"".join(answer.iter_bytes())

        assert body == b"".join([*events(usage=False), b"data: [DONE]\n\n"])
        assert vllm.asked[0].json == USAGE
        [found] = arrived(reporter, collector)
        assert (found.record, found.completion_tokens) == (parse_record(RECORD), COMPLETION_TOKENS)

    def test_compressed(self, client: Any, reporter: Reporter, collector: Collector, vllm: FakeVLLM) -> None:
        """A compressed answer is observed, and reaches its reader as compressed as it came."""
        vllm.script.compress = True
        with client.stream("POST", vllm.url + PATH, json=BODY) as answer:
            raw = b"".join(answer.iter_raw())

        assert answer.headers["content-encoding"] == "gzip"
        assert json.loads(gzip.decompress(raw)) == whole()
        [found] = arrived(reporter, collector)
        assert found.record == parse_record(RECORD)

    def test_cut_off(
        self, library: Any, client: Any, reporter: Reporter, collector: Collector, vllm: FakeVLLM
    ) -> None:
        """No connection, or one that breaks, raises what it would have raised; only the latter is counted."""
        with pytest.raises(library.ConnectError):
            client.post(f"http://127.0.0.1:1{PATH}", json=BODY)
        assert reporter.unobserved == {}
        vllm.script.cut = True
        with (
            pytest.raises(library.TransportError),
            client.stream("POST", vllm.url + PATH, json=USAGE) as answer,
        ):
            for _ in answer.iter_raw():
                pass
        assert arrived(reporter, collector) == []
        assert reporter.unobserved == {"aborted": 1}

    def test_left(self, client: Any, reporter: Reporter, collector: Collector, vllm: FakeVLLM) -> None:
        """A stream read up to [DONE] is complete; one that is closed before is not observed."""
        for last, aborted in (("data: [DONE]", {}), ("data: ", {"aborted": 1})):
            with client.stream("POST", vllm.url + PATH, json=USAGE) as answer:
                next(line for line in answer.iter_lines() if line.startswith(last))
            assert [found.record for found in arrived(reporter, collector)] == [parse_record(RECORD)]
            assert reporter.unobserved == aborted

    def test_others(self, asking: Any, reporter: Reporter, collector: Collector, vllm: FakeVLLM) -> None:
        """Refused requests, other routes and streamed request bodies pass unobserved."""
        parts = iter([json.dumps(BODY).encode()])
        answer = asking.post(vllm.url + PATH, content=parts, headers={"Content-Type": "application/json"})
        assert answer.json() == whole()
        assert asking.get(f"{vllm.url}/v1/models").json()["data"][0]["id"] == MODEL
        asking.post(f"{vllm.url}/v1/embeddings", json=BODY).raise_for_status()
        assert reporter.unobserved == {}
        vllm.script.status = 500
        assert asking.post(vllm.url + PATH, json=BODY).status_code == 500
        assert arrived(reporter, collector) == []
        assert reporter.unobserved == {"refused": 1}


@pytest.mark.parametrize("way", ["hooks", "transport"])
def test_many_at_once(way: str, reporter: Reporter, collector: Collector, vllm: FakeVLLM) -> None:
    """Threads may share a client."""
    with a_client(httpx2, way, reporter, ask_for_usage=True) as client:

        def ask(number: int) -> None:
            headers = {"X-Request-Type": f"type-{number}"}
            body = STREAM if number % 2 else BODY
            client.post(vllm.url + PATH, json=body, headers=headers).raise_for_status()

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(ask, range(30)))
    found = arrived(reporter, collector)
    assert len(found) == 30
    assert all(one.record == parse_record(RECORD) for one in found)
    assert all(one.stream == bool(int(one.request_type[-1]) % 2) for one in found)


async def test_cancelled(reporter: Reporter, collector: Collector, vllm: FakeVLLM) -> None:
    """A task that is cancelled within a stream ends, and reports nothing."""
    vllm.script.gate = threading.Event()
    first = asyncio.Event()

    async def read(client: Any) -> None:
        async with client.stream("POST", vllm.url + PATH, json=USAGE) as answer:
            async for _ in answer.aiter_raw():
                first.set()

    async with observe(httpx.AsyncClient(), reporter) as client:
        task = asyncio.create_task(read(client))
        await asyncio.wait_for(first.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    vllm.script.gate.set()
    assert arrived(reporter, collector) == []
    assert reporter.unobserved == {"aborted": 1}


#: Options of a client, headers of a request, and its type and tenant.
LABELS: list[tuple[dict[str, Any], dict[str, str], str, str]] = [
    ({}, {}, "chat", ""),
    ({}, {"X-Request-Type": "code"}, "code", ""),
    ({}, {"X-Request-Type": "two words: CANARY-USER"}, "other", ""),
    ({"request_type": "rag", "tenant": "team-a"}, {}, "rag", "team-a"),
    ({"request_type": "rag"}, {"X-Request-Type": "code"}, "code", ""),
    ({"types": ["cool=field:temperature"], "request_type": "rag"}, {}, "cool", ""),
    ({"type_header": "X-Kind"}, {"X-Kind": "a", "X-Request-Type": "b"}, "a", ""),
    ({"type_header": "", "tenant_header": "X-User"}, {"X-Request-Type": "b", **HEADERS}, "chat", "other"),
    ({"tenant_header": "X-Team", "tenants": ["team-b"]}, {"X-Team": "team-b"}, "chat", "team-b"),
]


class TestClassification:
    def test_labels(self, reporter: Reporter, collector: Collector, vllm: FakeVLLM) -> None:
        """A header comes first, then rules, then the type of the client, then the route.

        Only configured tenants leave the process. A gateway may omit the version in its paths.
        """
        for options, headers, kind, tenant in LABELS:
            with a_client(httpx2, "hooks", reporter, **options) as client:
                for path in (PATH, "/chat/completions", "/llm/chat/completions?api-version=1"):
                    client.post(vllm.url + path, json=BODY, headers=headers).raise_for_status()
            for found in arrived(reporter, collector)[-3:]:
                assert (found.request_type, found.tenant) == (kind, tenant), options
        assert len(collector.observations) == 3 * len(LABELS)

    def test_refused(self, reporter: Reporter) -> None:
        """Invalid labels are an error at once."""
        options: Any
        for options, says in (
            ({"request_type": "two words"}, "request_type: 'two words'"),
            ({"types": ["nonsense"]}, "allowed: NAME=WHERE:PATTERN"),
            ({"types": "code=field:tools"}, "types: a list"),
            ({"tenants": "team-a"}, "tenants: a list"),
            ({"kind": "x"}, "unknown: kind; known: request_type"),
        ):
            with httpx2.Client() as client, pytest.raises(ValueError, match=says):
                observe(client, reporter, **options)
            with pytest.raises(ValueError, match=says):
                ObservingTransport(reporter, **options)


class TestOwnHooksAndTransports:
    def test_a_hook_that_reads(self, reporter: Reporter, collector: Collector, vllm: FakeVLLM) -> None:
        """Hooks that were there go on, also one that reads the answer."""
        seen: list[Any] = []

        def hook(response: Any) -> None:
            seen.append(response.read())

        with httpx2.Client(event_hooks={"request": [seen.append], "response": [hook]}) as client:
            observe(client, reporter)
            assert client.post(vllm.url + PATH, json=BODY).json() == whole()
        assert json.loads(seen[1]) == whole()
        assert len(arrived(reporter, collector)) == 1

    def test_an_answer_that_is_there_already(self, reporter: Reporter, collector: Collector) -> None:
        """A response of a given transport is observed; the transport is closed with the client."""
        transport: Any = httpx.MockTransport(lambda _request: httpx.Response(200, json=whole()))
        closed: list[bool] = []
        transport.close = lambda: closed.append(True)
        with httpx.Client(transport=ObservingTransport(reporter, transport)) as client:
            assert client.post(f"http://nowhere{PATH}", json=BODY).json() == whole()
        assert [one.record for one in arrived(reporter, collector)] == [parse_record(RECORD)]

        async def aclose() -> None:
            closed.append(True)

        transport.aclose = aclose
        asyncio.run(AsyncObservingTransport(reporter, transport).aclose())
        assert closed == [True, True]

    def test_no_client(self, reporter: Reporter) -> None:
        """What is no client of httpx is an error that says so."""
        for thing in (None, httpx2.Request("GET", "http://a")):
            with pytest.raises(TypeError, match="a Client or an AsyncClient of httpx is expected"):
                observe(thing, reporter)

    def test_a_defect(
        self, reporter: Reporter, collector: Collector, vllm: FakeVLLM, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A defect of the observation does not affect the response."""

        def broken(*_: object) -> None:
            raise RuntimeError

        for name in ("request_end", "response_head", "response_data", "finish", "is_observable"):
            with monkeypatch.context() as patch, httpx2.Client() as client:
                patch.setattr(f"vllm_specdec_exporter.requests.exchange.Exchange.{name}", broken)
                observe(client, reporter)
                assert client.post(vllm.url + PATH, json=BODY).json() == whole()
        assert arrived(reporter, collector) == []
        assert reporter.unobserved == {"internal": 4}
