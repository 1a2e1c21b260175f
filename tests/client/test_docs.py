"""What docs/requests.md says of pushes, and docs/hooks/, show what happens."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jsonschema
import pytest

from client.collector import Collector
from support.exporter import NO_SERVER, running_exporter
from support.fake_vllm import CANARIES, COMPLETION_TOKENS, MODEL, RECORD, whole
from support.programs import clean_environment, eventually
from vllm_specdec_exporter.per_request.observation import Observation
from vllm_specdec_exporter.per_request.records import parse_record

pytestmark = pytest.mark.full

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (
    (DOCS / "requests.md")
    .read_text("utf-8")
    .partition("\n## Push\n")[2]
    .partition("\n## ")[0]
)
SCHEMA = json.loads((DOCS / "reference" / "push.schema.json").read_text("utf-8"))
RECORDED = json.loads(
    (Path(__file__).parent / "recorded" / "litellm_calls.json").read_text("utf-8")
)
EXPORTER = "http://127.0.0.1:9850"
GATEWAY = DOCS / "hooks" / "gateway.py"


@pytest.fixture
def collector(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Collector:
    """An exporter, whose token is where the examples have it."""
    (tmp_path / "specdec-token").write_text("a-token\n")
    monkeypatch.chdir(tmp_path)
    return collector


def pushed(collector: Collector, count: int) -> list[Observation]:
    """What was pushed, once there are so many: by the schema, with the token, and
    without any text.
    """
    eventually(lambda: len(collector.pushes) >= count)
    assert not any(canary in collector.text for canary in CANARIES)
    for push in collector.pushes:
        assert push.request.headers["authorization"] == "Bearer a-token", push
        jsonschema.validate(json.loads(push.body), SCHEMA)
    return collector.observations


def test_curl(tmp_path: Path) -> None:
    """The first example gets the answer that is shown, and fits the schema."""
    [command] = re.findall(r"^```sh\n(curl .*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    [answer] = re.findall(r"^```json\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    [body] = re.findall(r"-d '(.*)'", command, re.DOTALL)
    (tmp_path / "specdec-token").write_text("a-token\n")
    flags = (*NO_SERVER, "--push.bearer-token-file", str(tmp_path / "specdec-token"))
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
        assert (
            exporter.metrics().value("request_drafts_total", request_type="code") == 4
        )
    jsonschema.validate(json.loads(body), SCHEMA)


def test_python_on_the_page_is_a_part_of_a_hook() -> None:
    """So that every line that pushes is one that runs in these tests."""
    hooks = [path.read_text("utf-8") for path in (DOCS / "hooks").glob("*.py")]
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    all_hooks = "\n".join(hooks)
    pushing = [block for block in blocks if "push_request" in block]
    assert [block for block in pushing if block.strip() not in all_hooks] == []


def test_the_gateway(collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    """Responses with and without a record are pushed; without an exporter, the gateway
    goes on.
    """
    # Executed as it is read by users, but for the address of the exporter.
    code = GATEWAY.read_text("utf-8")
    assert code.count(EXPORTER) == 1
    hook = {}
    exec(compile(code.replace(EXPORTER, collector.url), "gateway.py", "exec"), hook)
    request = {
        "model": MODEL,
        "temperature": 0.3,
        "messages": [{"content": "CANARY-PROMPT"}],
    }
    hook["report"](request, whole())
    hook["report"](
        {"model": MODEL, "prompt": "CANARY-PROMPT", "stream": True}, {"model": MODEL}
    )

    chat, stream = pushed(collector, 2)
    assert chat.model_name == MODEL
    assert chat.request_type == "chat"
    assert chat.temperature == 0.3
    assert chat.completion_tokens == COMPLETION_TOKENS
    assert chat.record == parse_record(RECORD)
    assert stream.request_type == "completions"
    assert stream.stream is True
    assert stream.record is None
    collector.reply = lambda _: (503, {"error": "CANARY-REASON"})
    hook["report"](request, whole())
    hook["pool"].shutdown()
    assert "the request is not counted" in caplog.text
    with pytest.raises(ValueError, match="Semaphore"):  # all places are free again
        hook["room"].release()


class TestLiteLLM:
    """LiteLLM itself needs another openai than this project: its calls of a callback
    were recorded.
    """

    @pytest.fixture
    def hook(self, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Any:
        """The callback, as the proxy imports it."""
        for stub in (
            "litellm",
            "litellm.integrations",
            "litellm.integrations.custom_logger",
        ):
            monkeypatch.setitem(sys.modules, stub, ModuleType(stub))
        sys.modules["litellm.integrations.custom_logger"].CustomLogger = object
        monkeypatch.setenv("SPECDEC_PUSH_URL", collector.url)
        monkeypatch.setenv("SPECDEC_PUSH_TOKEN_FILE", "specdec-token")
        names = {}
        code = (DOCS / "hooks" / "litellm_callback.py").read_text("utf-8")
        exec(compile(code, "litellm_callback.py", "exec"), names)
        return names["specdec"]

    async def test_what_it_pushes(
        self, hook: Any, collector: Collector, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whole responses of both providers; not a stream, which LiteLLM assembles
        without its record.
        """
        assert TEXT.count(f"LiteLLM {RECORDED['litellm'].rpartition('.')[0]}") == 1
        for call in RECORDED["calls"]:
            usage = SimpleNamespace(**call["response"]["usage"])
            answer = SimpleNamespace(**{**call["response"], "usage": usage})
            await hook.async_log_success_event(
                kwargs=call["kwargs"],
                response_obj=answer,
                start_time=None,
                end_time=None,
            )
        observations = pushed(collector, 2)
        for observation in observations:
            assert observation.request_type == "code", observation
            assert observation.temperature == 0.3, observation
            assert observation.completion_tokens == 10, observation
            assert observation.record == parse_record(RECORD), observation
        assert len(observations) == 2
        collector.reply = lambda _: (503, {"error": "not now"})
        await hook.async_log_success_event(
            kwargs={}, response_obj=SimpleNamespace(), start_time=None, end_time=None
        )
        assert "the request is not counted: " in caplog.text

    def test_a_call_is_pushed_once(self, hook: Any, collector: Collector) -> None:
        """LiteLLM calls back twice for some, with one id, from two threads; ids are
        kept up to a limit.
        """
        answer = SimpleNamespace(model="m")
        calls = [f"call-{number}" for number in range(10)]
        with ThreadPoolExecutor(4) as threads:
            for call in calls * 2:
                kwargs = {"litellm_call_id": call, "call_type": "text_completion"}
                threads.submit(
                    hook.log_success_event,
                    kwargs,
                    answer,
                    start_time=None,
                    end_time=None,
                )
        assert len(pushed(collector, 10)) == 10
        for number in range(20_000):
            assert hook.is_new(f"later-{number}")
        assert len(hook.pushed) == 10_000
        assert hook.is_new("call-0")
        assert hook.is_new(None)
        assert hook.is_new(None)
