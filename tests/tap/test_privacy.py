"""No content, name or key of requests and responses is published or logged."""

import asyncio
import json
import re
from typing import Any

from support.ports import free_port
from tap.ends import HOST, Server, connect, serving
from tap.process import Process, numbers, process
from tap.streams import (
    CHAT,
    COMPLETIONS,
    DONE,
    MODEL,
    RECORD,
    answer,
    chat_answer,
    chat_documents,
    chat_request,
    chunk,
    chunks,
    events,
    header_of,
    request,
    split,
    stream_head,
    usage_chunk,
)

_COUNT = iter(range(10_000))


def _secret() -> str:
    """A text that stands nowhere else; what it consists of could be a name, a label or
    a header.
    """
    return f"canary{next(_COUNT):04d}x"


def _headers() -> dict[str, str | None]:
    names = (
        "Authorization X_Request_Id X_Tenant User_Agent Cookie X_Forwarded_For Baggage "
        "Traceparent X_Api_Key"
    )
    return {name: _secret() for name in names.split()} | {
        "X_Type": f"{_secret()} of {_secret()}"
    }


def _request(path: str = CHAT, **more: Any) -> bytes:
    """A chat in which every text is a secret, with such headers."""
    return request(_asked(**more), path, **_headers())


def _asked(**more: Any) -> dict[str, Any]:
    body = chat_request(
        messages=[
            {"role": "system", "content": _secret(), "name": _secret()},
            {"role": "user", "content": [{"type": "text", "text": _secret()}]},
        ],
        tools=[
            {
                "type": "function",
                "function": {"name": _secret(), "description": _secret()},
            }
        ],
        user=_secret(),
        metadata={_secret(): _secret()},
        stop=[_secret()],
        **more,
    )
    return {**body, _secret(): _secret()}


def _answered(**more: Any) -> dict[str, Any]:
    document = chat_answer()
    document["choices"][0]["message"] |= {"content": _secret(), "reasoning": _secret()}
    # Servers make identifiers of what clients sent.
    return {
        **document,
        "id": f"chatcmpl-{_secret()}",
        "system_fingerprint": _secret(),
        **more,
    }


def _streamed() -> bytes:
    documents = [
        *chat_documents((_secret(), _secret())),
        chunk(
            {"tool_calls": [{"function": {"name": _secret(), "arguments": _secret()}}]}
        ),
        usage_chunk(record=RECORD),
    ]
    for document in documents:
        document["id"] = f"chatcmpl-{_secret()}"
    written = events([*documents, DONE])
    return stream_head(X_Secret=_secret()) + chunks(
        [f": {_secret()}\n\n".encode(), *written]
    )


def _exchanges() -> list[tuple[bytes, bytes]]:
    """Requests of every outcome, and their answers; every text in them is a secret."""
    streaming = {"stream": True, "stream_options": {"include_usage": True}}
    path = f"{CHAT}?key={_secret()}"
    wrong = {**RECORD, "num_draft_tokens": _secret(), _secret(): 1}
    failed = events([*chat_documents()[:2], {"error": {"message": _secret()}}])
    refused = {"error": {"message": _secret()}}
    return [
        (_request(path), answer(_answered(), X_Secret=_secret())),
        (_request(path, **streaming), _streamed()),
        (_request(stream=True), _streamed()),
        (
            request({"prompt": _secret()}, COMPLETIONS, **_headers()),
            answer(_answered()),
        ),
        (_request(), answer(_answered(metrics={"speculative_decoding": wrong}))),
        (_request(), answer(_answered(metrics={_secret(): _secret()}))),
        (_request(model=_secret()), answer(refused, "404 Not Found")),
        (_request(**streaming), stream_head() + chunks(failed)),
        (
            request(f'{{"model": "{_secret()}'.encode()),
            answer({"error": _secret()}, "400 No"),
        ),
        (_request(temperature=_secret()), answer(refused, f"400 {_secret()}")),
        (_request(n=_secret()), answer(_answered())),
        (_request(), answer(f'{{"id": "{_secret()}'.encode())),
        (_request(), answer(_secret().encode(), Content_Type=f"text/{_secret()}")),
        (_request(), answer(_secret().encode(), Content_Encoding=_secret())),
        (
            request(method="GET", path=f"/{_secret()}?{_secret()}", **_headers()),
            answer({_secret(): 1}),
        ),
        (
            request(_secret().encode(), f"/{_secret()}{CHAT}", Content_Type=_secret()),
            answer({}),
        ),
    ]


_BROKEN = [
    lambda: b"GET /" + _secret().encode() + b" nonsense\r\n\r\n",
    lambda: _secret().encode() + b"\r\n\r\n",
    lambda: request(_asked(), Connection="Upgrade", Upgrade=_secret()),
    lambda: _request()[:-20],
]


async def _hold(running: Process, upstream: Server, sent: bytes, back: bytes) -> None:
    client = await connect(running.port)
    await client.send(sent)
    server = await upstream.connection()
    head = await server.read_head()
    await server.read(int(header_of(head, b"content-length") or 0))
    await server.send(back)
    assert await client.read(len(split(back)[0])) == split(back)[0]
    if b"0\r\n\r\n" in back:
        await client.reader.readuntil(b"\r\n0\r\n\r\n")
    await client.close()
    await server.close()


PAGES = [
    "/metrics",
    "/api/v1/snapshot",
    "/config",
    "/",
    "/-/healthy",
    "/-/ready",
    "/nothing",
]


async def _told(running: Process) -> dict[str, str]:
    """All that it tells, by where."""

    async def text(path: str, **headers: str) -> str:
        answered = await asyncio.to_thread(running.exporter.get, path, **headers)
        return answered.text

    texts = {path: await text(path) for path in PAGES}
    accept = "application/openmetrics-text"
    texts["openmetrics"] = await text("/metrics", Accept=accept)
    return {**texts, "log": running.exporter.log()}


async def test_no_content_is_published() -> None:
    """Not in metrics, the snapshot, pages or the log at level debug."""
    flags = ["--log.level=debug", "--log.format=json", "--log.interval=1s"]
    flags += ["--requests.type-header=X-Type", "--requests.type=rules=field:tools"]
    flags += ["--requests.tenant-header=X-Tenant", "--requests.tenant=blue"]
    port = free_port()
    async with process(*flags, upstream=f"http://{HOST}:{port}") as running:
        async with serving(port=port) as upstream:
            for sent, back in _exchanges():
                await _hold(running, upstream, sent, back)
            for broken in _BROKEN:
                client = await connect(running.port)
                await client.send(broken())
                client.end()
                server = await upstream.connection()
                await server.rest()
                await server.send(answer(_secret().encode(), f"400 {_secret()}"))
                await server.close()
                await client.rest()
                await client.close()
        await running.becomes(
            lambda texts: texts.value("tap_open_connections") == 0,
            "tap_open_connections",
        )
        client = await connect(running.port)
        await client.send(_exchanges()[0][0])
        # the tap's own answer: there is no server any more
        refused, _ = await client.rest()
        await client.close()

        metrics = await running.metrics()
        assert numbers(metrics, "request_observations_total")["detailed,tap"] >= 3
        assert numbers(metrics, "tap_upstream_errors_total") == {"refused": 1}
        reasons = set(numbers(metrics, "tap_unobserved_total"))
        assert {"connection", "encoded", "malformed", "refused"} <= reasons
        assert metrics.values("tenant_requests_total", tenant="other")
        assert metrics.values(
            "request_drafts_total", request_type="other", model_name=MODEL
        )
        texts = {**await _told(running), "the answer of the tap": refused.decode()}

    assert len(texts) == 10
    for path, text in texts.items():
        assert (
            "vllm" in text or path.startswith(("/-/", "/nothing")) or "error" in text
        ), path
        assert not re.search(r"canary|Q0FOQ", text, re.IGNORECASE), path
    json.loads(texts["/api/v1/snapshot"])
