"""docs/hooks/envoy.yaml in a real Envoy."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from client.collector import Collector
from support.fake_vllm import (
    CANARIES,
    COMPLETION_TOKENS,
    MODEL,
    RECORD,
    FakeVLLM,
    stream,
    whole,
)
from support.ports import free_port
from support.programs import clean_environment, eventually
from vllm_specdec_exporter.per_request.observation import Observation
from vllm_specdec_exporter.per_request.records import parse_record

pytestmark = pytest.mark.full

FILE = Path(__file__).parents[2] / "docs" / "hooks" / "envoy.yaml"
ENVOY = str(Path(sys.executable).with_name("envoy"))
BODY = {
    "model": MODEL,
    "temperature": 0.3,
    "messages": [
        {
            "role": "user",
            "content": 'CANARY-PROMPT "temperature": 9, \\"temperature\\": 8',
        }
    ],
}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def config(
    running_vllm: FakeVLLM,
    running_collector: Collector,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, int]:
    """The file with this machine's ports, and the port that Envoy listens on."""
    folder = tmp_path_factory.mktemp("envoy")
    port = free_port()
    (folder / "specdec-token").write_text("a-token\n")
    text = FILE.read_text("utf-8")
    for old, new in (
        ("/etc/envoy/specdec-token", str(folder / "specdec-token")),
        (
            "address: 0.0.0.0, port_value: 8080",
            f"address: 127.0.0.1, port_value: {port}",
        ),
        ("port_value: 8000", f"port_value: {running_vllm.url.rpartition(':')[2]}"),
        ("port_value: 9850", f"port_value: {running_collector.port}"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = folder / "envoy.yaml"
    path.write_text(text)
    return path, port


@pytest.fixture(scope="module")
def envoy(config: tuple[Path, int]) -> Iterator[str]:
    """Envoy with it: its address."""
    path, port = config
    flags = ("--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning")
    with (path.parent / "log").open("wb") as log:
        process = subprocess.Popen(
            [ENVOY, "-c", str(path), *flags],
            stderr=log,
            stdout=log,
            env=clean_environment(),
        )
    try:

        def listens() -> bool:
            assert process.poll() is None, (path.parent / "log").read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        eventually(listens, 60)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)
    assert "script log" not in (path.parent / "log").read_text()


@pytest.fixture
def client(envoy: str, vllm: FakeVLLM, collector: Collector) -> Iterator[httpx2.Client]:
    assert vllm.asked == []
    assert collector.pushes == []
    with httpx2.Client(base_url=envoy, trust_env=False, timeout=30) as client:
        yield client


def pushed(collector: Collector) -> Observation:
    """The one request that was pushed."""
    [observation] = eventually(lambda: collector.observations)
    assert not any(canary in collector.text for canary in CANARIES)
    assert collector.pushes[0].request.headers["authorization"] == "Bearer a-token"
    return observation


def nothing_but(client: httpx2.Client, collector: Collector) -> None:
    """See to it that nothing was pushed before what is pushed now."""
    client.post(CHAT, json=BODY, headers={"X-Request-Type": "last"}).raise_for_status()
    assert pushed(collector).request_type == "last"


@pytest.mark.parametrize(
    ("path", "headers", "kind"),
    [
        (f"/prefix{CHAT}?x=1", {}, "chat"),
        ("/v1/completions", {}, "completions"),
        (CHAT, {"X-Request-Type": 'co"de,{'}, "code"),
    ],
)
def test_a_record(
    client: httpx2.Client,
    collector: Collector,
    path: str,
    headers: dict[str, str],
    kind: str,
) -> None:
    """An answer passes as it is, and its record is pushed; what stands in texts is not
    taken for fields.
    """
    answer = client.post(path, json=BODY, headers={**headers, "X-User": "CANARY-USER"})

    assert answer.json() == whole(chat="chat" in path)
    observation = pushed(collector)
    assert observation.model_name == MODEL
    assert observation.temperature == 0.3
    assert observation.request_type == kind
    assert observation.completion_tokens == COMPLETION_TOKENS
    assert observation.record == parse_record(RECORD)


def test_without_a_record(
    client: httpx2.Client, collector: Collector, vllm: FakeVLLM
) -> None:
    """A request without a record or a temperature is pushed as such."""
    vllm.script.record = None
    client.post(CHAT, json={"model": MODEL}).raise_for_status()

    observation = pushed(collector)
    assert observation.temperature is None
    assert observation.record is None


def test_a_stream(client: httpx2.Client, collector: Collector) -> None:
    """A stream passes untouched, and is not observed."""
    answer = client.post(
        CHAT, json={**BODY, "stream": True, "stream_options": {"include_usage": True}}
    )

    assert answer.content == b"".join(stream())
    nothing_but(client, collector)


def test_others(client: httpx2.Client, collector: Collector, vllm: FakeVLLM) -> None:
    """What is refused, too large to be held, of unknown length or no request for text
    passes untouched.
    """
    vllm.script.status = 429
    assert client.post(CHAT, json=BODY).status_code == 429
    vllm.script.status = 200
    large = {**BODY, "messages": [{"role": "user", "content": "x" * 3_000_000}]}
    assert client.post(CHAT, json=large).json() == whole()
    assert vllm.asked[-1] == large
    content = iter([json.dumps(BODY).encode()])
    headers = {"Content-Type": "application/json"}
    assert client.post(CHAT, content=content, headers=headers).json() == whole()
    assert client.get("/v1/models").status_code == 200
    assert client.post("/v1/embeddings", json=BODY).status_code == 200
    nothing_but(client, collector)
