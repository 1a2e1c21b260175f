"""The ASGI middleware: messages of application and server pass unchanged, and requests are reported."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Mount, Route

from client.collector import Collector, arrived
from support.fake_vllm import MODEL, RECORD, events, whole
from support.programs import eventually
from vllm_specdec_exporter.client import Reporter
from vllm_specdec_exporter.client.asgi import VARIABLES, RequestObservation, VLLMRequestObservation
from vllm_specdec_exporter.requests.observation import Observation, parse_record

Message = MutableMapping[str, Any]

PATH = "/v1/chat/completions"
BODY = json.dumps(
    {"model": MODEL, "temperature": 0.3, "messages": [{"role": "user", "content": "CANARY-PROMPT"}]}
).encode()
SSE = (b"content-type", b"text/event-stream; charset=utf-8")
JSON = (b"content-type", b"application/json")


class Kept(Reporter):
    """A reporter that keeps the observations."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", token="x")
        self.found: list[Observation] = []

    def report(self, item: Any) -> None:
        self.found.append(item)


def a_scope(path: str = PATH, method: str = "POST", **more: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [JSON, (b"authorization", b"Bearer CANARY-KEY")],
        **more,
    }


async def drive(
    app: Any, scope: dict[str, Any], incoming: list[Message]
) -> tuple[list[Message], BaseException | None]:
    """Run an application; return what it sent, and what it raised."""
    left, sent = list(incoming), []

    async def receive() -> Message:
        return left.pop(0) if left else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    try:
        await app(scope, receive, send)
    except Exception as error:  # noqa: BLE001 - the application's, whatever it is
        return sent, error
    return sent, None


def answering(messages: list[Message], error: Exception | None = None, seen: Any = None) -> Any:
    """An application that reads the request, and sends these messages."""

    async def app(scope: Message, receive: Any, send: Any) -> None:
        got = []
        while not got or got[-1].get("more_body"):
            got.append(await receive())
        if seen is not None:
            seen.append((scope, got))
        for message in messages:
            await send(message)
        if error is not None:
            raise error

    return app


def start(*headers: tuple[bytes, bytes], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


def request(data: bytes = BODY, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": data, "more_body": more}


ANSWER = [start(JSON), body(json.dumps(whole()).encode())]
STREAM = [start(SSE), *(body(event, more=True) for event in events()), body(b"data: [DONE]\n\n")]


class TestMessages:
    @pytest.mark.parametrize(("messages", "stream"), [(ANSWER, False), (STREAM, True)])
    async def test_observed(self, messages: list[Message], stream: bool) -> None:
        """A request is reported, whole or streamed."""
        with Kept() as reporter:
            app = RequestObservation(answering(messages), reporter, request_type="code")
            sent, error = await drive(app, a_scope(), [request(BODY[:9], more=True), request(BODY[9:])])

        assert (sent, error) == (messages, None)
        [found] = reporter.found
        assert (found.stream, found.record) == (stream, parse_record(RECORD))
        assert (found.model_name, found.temperature, found.request_type) == (MODEL, 0.3, "code")

    @given(st.data())
    def test_whatever_passes_is_passed(self, data: st.DataObject) -> None:
        """With the middleware, both sides get the same objects in the same order as without."""
        pieces = st.one_of(
            st.builds(body, st.binary(max_size=40), more=st.booleans()),
            st.sampled_from([*ANSWER, *STREAM]),
            st.builds(start, st.just(SSE), status=st.integers(100, 599)),
            st.sampled_from(
                [
                    {"type": "http.response.trailers", "headers": []},
                    {"type": "http.response.pathsend", "path": "/x"},
                    {"type": "http.response.body"},
                    {"type": "http.response.start", "status": "none", "headers": None},
                    {"type": "x"},
                ]
            ),
        )
        outgoing = data.draw(st.lists(pieces, max_size=8))
        incoming = data.draw(
            st.lists(
                st.one_of(
                    st.builds(request, st.binary(max_size=20), more=st.booleans()),
                    st.sampled_from([request(), {"type": "http.disconnect"}, {"type": "http.request"}]),
                ),
                max_size=4,
            )
        )
        error = data.draw(st.sampled_from([None, RuntimeError("the application's own")]))
        scope = data.draw(
            st.sampled_from(
                [a_scope(), a_scope("/v1/models", "GET"), a_scope(headers=[(b"content-encoding", b"gzip")])]
            )
        )
        runs = []
        with Kept() as reporter:
            for wrap in (False, True):
                seen: list[Any] = []
                app = answering(outgoing, error, seen)
                sent, raised = asyncio.run(
                    drive(RequestObservation(app, reporter) if wrap else app, scope, incoming)
                )
                runs.append(([id(message) for message in sent], raised, seen))
        (sent, raised, [(scope_seen, got)]), (sent_too, raised_too, [(scope_too, got_too)]) = runs

        assert sent == sent_too
        assert raised is raised_too
        assert scope_seen is scope_too
        assert [id(message) for message in got] == [id(message) for message in got_too] or got == got_too

    async def test_everything_else(self) -> None:
        """WebSockets and lifespan get the channels of the server itself."""
        got: list[Any] = []

        async def app(*parts: Any) -> None:
            got.append(parts)

        given: list[Any] = [
            ({**a_scope(), "type": kind}, object(), object()) for kind in ("lifespan", "websocket")
        ]
        with Kept() as reporter:
            for parts in given:
                await RequestObservation(app, reporter)(*parts)
        assert got == given

    @pytest.mark.parametrize(
        ("messages", "failure", "reason"),
        [
            (STREAM[:4], None, "aborted"),
            (STREAM[:3], RuntimeError("its own"), "aborted"),
            ([start(JSON, status=429), body(b"{}")], None, "refused"),
        ],
        ids=["a client that leaves", "an application that fails", "a refusal"],
    )
    async def test_unobserved(self, messages: list[Message], failure: Exception | None, reason: str) -> None:
        """Incomplete responses are counted by reason; an error of the application is raised."""
        with Kept() as reporter:
            app = RequestObservation(answering(messages, failure), reporter)
            sent, error = await drive(app, a_scope(), [request()])

        assert (sent, error) == (messages, failure)
        assert (reporter.found, reporter.unobserved) == ([], {reason: 1})

    async def test_a_defect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A defect of the observation does not affect the response."""

        def broken(*_: object) -> None:
            raise RuntimeError

        names = ("request_data", "request_end", "response_head", "response_data", "response_end")
        for name in ("RequestWatcher.begin", *(f"RequestWatch.{name}" for name in names)):
            with monkeypatch.context() as patch, Kept() as reporter:
                patch.setattr(f"vllm_specdec_exporter.client.watch.{name}", broken)
                app = RequestObservation(answering(STREAM), reporter)
                assert await drive(app, a_scope(), [request()]) == (STREAM, None)


@pytest.fixture
def environ(collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of vLLM."""
    (tmp_path / "token").write_text("a-token\n")
    values = {
        "SPECDEC_PUSH_URL": collector.url,
        "SPECDEC_PUSH_TOKEN_FILE": str(tmp_path / "token"),
        "SPECDEC_PUSH_TYPES": "warm=field:temperature\n rag=path:/rag/*",
        "SPECDEC_PUSH_TENANT_HEADER": "X-Team",
        "SPECDEC_PUSH_TENANTS": "team-a, team-b",
    }
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)


class TestVLLM:
    @pytest.mark.parametrize(
        ("header", "expected"), [(None, "by-default"), ("X-Kind", "by-name"), ("", "warm")]
    )
    @pytest.mark.usefixtures("environ")
    async def test_by_the_environment(
        self, header: str | None, expected: str, collector: Collector, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The environment configures the reporter; an empty header of the type means that there is none."""
        if header is not None:
            monkeypatch.setenv("SPECDEC_PUSH_TYPE_HEADER", header)
        app = VLLMRequestObservation(answering(STREAM))
        scope = a_scope()
        named = {b"x-team": b"team-b", b"x-request-type": b"by-default", b"x-kind": b"by-name"}
        scope["headers"] += named.items()
        await drive(app, scope, [request()])

        with app._watcher.reporter as reporter:
            [found] = arrived(reporter, collector)
        assert (found.request_type, found.tenant) == (expected, "team-b")
        assert found.record == parse_record(RECORD)
        assert collector.pushes[0].headers["authorization"] == "Bearer a-token"

    @pytest.mark.usefixtures("environ")
    def test_wrong_settings(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A missing or invalid setting is an error with its name."""
        for variable, value, says in (
            ("SPECDEC_PUSH_URL", "", "SPECDEC_PUSH_URL is needed"),
            ("SPECDEC_PUSH_TOKEN_FILE", "", "SPECDEC_PUSH_TOKEN_FILE is needed"),
            ("SPECDEC_PUSH_URL", "localhost:9850", "SPECDEC_PUSH_URL: url: allowed"),
            ("SPECDEC_PUSH_CA_FILE", "/nowhere.pem", "SPECDEC_PUSH_CA_FILE: /nowhere.pem cannot be loaded"),
            ("SPECDEC_PUSH_TYPES", "nonsense", "allowed: NAME=WHERE:PATTERN"),
        ):
            with monkeypatch.context() as patch:
                patch.setenv(variable, value)
                with pytest.raises(ValueError, match=says):
                    VLLMRequestObservation(answering(ANSWER))


# --- behind a real server


async def _chat(request: Request) -> JSONResponse | StreamingResponse:
    asked = await request.json()
    if not asked.get("stream"):
        return JSONResponse(whole())

    async def stream() -> AsyncIterator[bytes]:
        for event in [*events(), b"data: [DONE]\n\n"]:
            yield event

    return StreamingResponse(stream(), media_type="text/event-stream")


@pytest.fixture
def gateway(reporter: Reporter) -> Iterator[str]:
    """A gateway: its address."""
    route = Route(PATH, _chat, methods=["POST"])
    app = Starlette(routes=[route, Mount("/mounted", routes=[route])])
    app.add_middleware(RequestObservation, reporter=reporter, tenant="team-a")
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        eventually(lambda: server.started)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(20)


def test_a_gateway(gateway: str, reporter: Reporter, collector: Collector) -> None:
    """A gateway of Starlette behind uvicorn: whole answers and streams at once, also of what it mounts."""

    async def one(client: httpx2.AsyncClient, number: int) -> None:
        asked = {**json.loads(BODY), "stream": bool(number % 2)}
        path = ("/mounted" if number % 3 else "") + PATH
        answer = await client.post(path, json=asked, headers={"X-Request-Type": f"t{number}"})
        streamed = b"".join([*events(), b"data: [DONE]\n\n"])
        assert answer.content == (streamed if number % 2 else JSONResponse(whole()).body)

    async def ask() -> None:
        async with httpx2.AsyncClient(base_url=gateway, timeout=30) as client:
            await asyncio.gather(*(one(client, number) for number in range(40)))

    asyncio.run(ask())
    found = {seen.request_type: seen for seen in arrived(reporter, collector)}
    assert {name: seen.stream for name, seen in found.items()} == {f"t{n}": bool(n % 2) for n in range(40)}
    assert {seen.tenant for seen in found.values()} == {"team-a"}
    assert all(seen.record == parse_record(RECORD) for seen in found.values())
