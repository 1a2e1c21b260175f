"""What docs/push.md shows is what happens."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jsonschema
import pytest
import yaml
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from client.collector import Collector
from support.exporter import running_exporter
from support.fake_vllm import CANARIES, MODEL, RECORD, FakeVLLM, whole
from support.programs import clean_environment
from vllm_specdec_exporter.client import asgi
from vllm_specdec_exporter.client.asgi import VARIABLES
from vllm_specdec_exporter.client.watch import Labels
from vllm_specdec_exporter.requests.observation import parse_record

pytestmark = pytest.mark.full

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "push.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"^```(?:python|yaml|sh)\n# (\S+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE))
SCHEMA = json.loads((DOCS / "reference" / "push.schema.json").read_text("utf-8"))
RECORDED = json.loads((Path(__file__).parent / "recorded" / "litellm_calls.json").read_text("utf-8"))
EXPORTER = "http://127.0.0.1:9850"
REQUEST = {"model": MODEL, "messages": [{"role": "user", "content": "CANARY-PROMPT"}], "tools": [{"x": 1}]}


@pytest.fixture
def collector(collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Collector:
    """An exporter, whose token is where the examples have it."""
    (tmp_path / "specdec-token").write_text("a-token\n")
    monkeypatch.chdir(tmp_path)
    return collector


def execute(name: str, collector: Collector, **known: Any) -> dict[str, Any]:
    """Run an example with what it takes for granted; return its names."""
    code = BLOCKS[name].replace(EXPORTER, collector.url)
    assert collector.url in code
    found = dict(known)
    exec(compile(code, name, "exec"), found)
    return found


def pushed(found: dict[str, Any], collector: Collector) -> list[Any]:
    """What an example's reporter pushed."""
    found["reporter"].close(10)
    assert not any(canary in collector.text for canary in CANARIES)
    assert all(push.headers["authorization"] == "Bearer a-token" for push in collector.pushes)
    for push in collector.pushes:
        jsonschema.validate(json.loads(push.body), SCHEMA)
    return collector.observations


def test_every_example_is_known() -> None:
    """No block goes untested."""
    assert set(BLOCKS) == {"reporter", "openai", "httpx", "asgi", "vllm", "litellm", "litellm-client"}
    assert TEXT.count("```") == 2 * (len(BLOCKS) + 3)  # and the command, and curl with its answer


def test_curl(tmp_path: Path) -> None:
    """The first example gets the answer that is shown, and fits the schema."""
    [command] = re.findall(r"^```sh\n(curl .*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    [answer] = re.findall(r"^```json\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    [body] = re.findall(r"-d '(.*)'", command, re.DOTALL)
    (tmp_path / "specdec-token").write_text("a-token\n")
    flags = ("--vllm.url", "http://127.0.0.1:1", "--push.bearer-token-file", str(tmp_path / "specdec-token"))
    with running_exporter(*flags) as exporter:
        done = subprocess.run(
            ["bash", "-c", command.replace(EXPORTER, exporter.url)],
            cwd=tmp_path,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert json.loads(done.stdout) == json.loads(answer)
        assert exporter.metrics().value("request_drafts_total", request_type="code") == 4
    jsonschema.validate(json.loads(body), SCHEMA)


def test_reporter(collector: Collector) -> None:
    """The reporter."""
    found = execute("reporter", collector, answer=whole())

    [one] = pushed(found, collector)
    assert (one.model_name, one.temperature, one.request_type) == ("llama", 0.7, "code")
    assert one.record == parse_record(RECORD)


def test_openai(collector: Collector, vllm: FakeVLLM) -> None:
    """The client of openai, with a stream that did not ask for its usage."""
    found = execute("openai", collector, VLLM=f"{vllm.url}/v1")

    assert found["text"] == "CANARY-ANSWER one two three "
    [one] = pushed(found, collector)
    assert (one.request_type, one.stream, one.record) == ("code-edit", True, parse_record(RECORD))
    found["client"].close()


def test_httpx(collector: Collector, vllm: FakeVLLM) -> None:
    """Both ways of httpx."""
    found = execute("httpx", collector, VLLM=f"{vllm.url}/v1", REQUEST=REQUEST)

    assert found["answer"].json() == whole()
    assert [one.request_type for one in pushed(found, collector)] == ["tools", "chat"]


def test_asgi(collector: Collector) -> None:
    """The gateway."""

    async def chat(request: Request) -> JSONResponse:
        assert await request.json() == REQUEST
        return JSONResponse(whole())

    routes = [Route("/v1/chat/completions", chat, methods=["POST"])]
    found = execute("asgi", collector, ROUTES=routes)
    with TestClient(found["app"]) as client:
        for team in ("search", "CANARY-USER"):
            client.post("/v1/chat/completions", json=REQUEST, headers={"X-Team": team}).raise_for_status()

    assert [one.tenant for one in pushed(found, collector)] == ["search", "other"]


def test_vllm() -> None:
    """The class exists, the variables are known, and the table has them all as the code does."""
    block = BLOCKS["vllm"]
    [name] = re.findall(r"--middleware (\S+)", block)
    module, _, kind = name.rpartition(".")

    assert module == asgi.__name__
    assert issubclass(getattr(asgi, kind), asgi.RequestObservation)
    assert set(re.findall(r"(\w+)=", block)) <= set(VARIABLES)
    rows = dict(re.findall(r"^\| `(SPECDEC_\w+)` \| (.*) \|$", TEXT, re.MULTILINE))
    assert rows == VARIABLES


def test_options() -> None:
    """The table of options has every one."""
    table = TEXT[TEXT.index("| option | meaning |") : TEXT.index("### A gateway in Python")]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))))

    assert named == {*Labels.__annotations__, "ask_for_usage"}
    assert all(f"    {name}: " in cleandoc(Labels.__doc__ or "") for name in Labels.__annotations__)


class TestLiteLLM:
    """LiteLLM itself needs another openai than this project: what it tells a callback was recorded."""

    @pytest.fixture
    def hook(self, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        """The callback, as the proxy imports it."""
        [name] = yaml.safe_load(BLOCKS["litellm"])["litellm_settings"].values()
        module, _, attribute = name.rpartition(".")
        for stub in ("litellm", "litellm.integrations", "litellm.integrations.custom_logger"):
            monkeypatch.setitem(sys.modules, stub, ModuleType(stub))
        sys.modules["litellm.integrations.custom_logger"].CustomLogger = object  # type: ignore[attr-defined]
        monkeypatch.setenv("SPECDEC_PUSH_URL", collector.url)
        monkeypatch.setenv("SPECDEC_PUSH_TOKEN_FILE", "specdec-token")
        code = (DOCS / "hooks" / f"{module}.py").read_text("utf-8")
        found: dict[str, Any] = {}
        exec(compile(code, module, "exec"), found)
        yield SimpleNamespace(told=found[attribute], reporter=found["reporter"])
        found["reporter"].close()

    async def test_what_it_pushes(self, hook: Any, collector: Collector) -> None:
        """Whole answers of both providers; a stream, which has lost its record, is left to the other way."""
        assert TEXT.count(f"LiteLLM {RECORDED['litellm'].rpartition('.')[0]}") == 1
        for call in RECORDED["calls"]:
            usage = SimpleNamespace(**call["response"].pop("usage"))
            answer = SimpleNamespace(usage=usage, **call["response"])
            await hook.told.async_log_success_event(
                kwargs=call["kwargs"], response_obj=answer, start_time=None, end_time=None
            )
        assert hook.reporter.flush(60)

        found = collector.observations
        assert [(one.request_type, one.temperature, one.completion_tokens) for one in found] == [
            ("code", 0.3, 10)
        ] * 2
        assert all(one.record == parse_record(RECORD) for one in found)
        assert not any(canary in collector.text for canary in CANARIES)

    async def test_its_http_client(
        self, collector: Collector, vllm: FakeVLLM, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The clients that LiteLLM is given report."""
        litellm: Any = ModuleType("litellm")
        monkeypatch.setitem(sys.modules, "litellm", litellm)
        found = execute("litellm-client", collector)
        async with litellm.aclient_session as client:
            await client.post(f"{vllm.url}/v1/chat/completions", json={**REQUEST, "stream": True})
        with litellm.client_session as client:
            client.post(f"{vllm.url}/v1/chat/completions", json=REQUEST)

        assert [one.record for one in pushed(found, collector)] == [parse_record(RECORD)] * 2
