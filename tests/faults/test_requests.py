"""Faults where single requests are observed: the tap before vLLM, and pushes."""

import contextlib
import gzip
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.rig import NO_SERVER, assert_alive
from service.test_push import ONE, TOKEN, post
from support.exporter import Metrics, RunningExporter, running_exporter
from support.faulty_server import Behaviour, FaultyServer, hang, head, raw
from support.ports import free_port
from support.programs import eventually
from tap import streams
from vllm_specdec_exporter.per_request.push_schema import MAX_REQUESTS

pytestmark = pytest.mark.full

CHAT = streams.request(streams.dump(streams.chat_request()).encode())
WHOLE = streams.answer(streams.dump(streams.chat_answer()).encode())

# --- the tap


@contextlib.contextmanager
def _tapped(behaviour: Behaviour) -> Iterator[tuple[FaultyServer, RunningExporter, int]]:
    """An exporter with a tap before a server, and the tap's port."""
    port = free_port()
    with FaultyServer(behaviour) as server:
        flags = ("--tap.listen-address", f"127.0.0.1:{port}", "--tap.upstream", server.url)
        address = ("--web.listen-address", f"127.0.0.1:{free_port()}")
        with running_exporter(*NO_SERVER, *address, *flags) as exporter:
            exporter.wait_for(lambda m: m.value("tap_listening") == 1)
            yield server, exporter, port


def _chat(port: int) -> bytes:
    """Send a request through the tap; return all that comes back."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(CHAT)
        with contextlib.suppress(ConnectionResetError):
            while block := client.recv(1 << 16):
                found += block
    return found


def _observed(metrics: Metrics) -> float:
    return sum(metrics.values("request_observations_total").values())


def _reasons(metrics: Metrics, name: str) -> dict[str, float]:
    return {dict(key)["reason"]: value for key, value in metrics.values(name).items() if value}


def _assert_recovers(server: FaultyServer, exporter: RunningExporter, port: int) -> None:
    """The next request passes byte for byte, and is observed."""
    before = _observed(exporter.metrics())
    server.behaviour = raw(_closing(WHOLE))
    assert _chat(port) == _closing(WHOLE)
    exporter.wait_for(lambda m: _observed(m) == before + 1)
    assert_alive(exporter)


def _closing(whole: bytes) -> bytes:
    """An answer that says that the connection ends with it."""
    return whole.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)


def test_tap_server_refuses() -> None:
    with _tapped(raw(_closing(WHOLE))) as (server, exporter, port):
        server.refuse()
        assert _chat(port).startswith(b"HTTP/1.1 502 ")
        exporter.wait_for(lambda m: _reasons(m, "tap_upstream_errors_total") == {"refused": 1})
        server.listen()
        _assert_recovers(server, exporter, port)


def test_tap_server_dies_in_answer() -> None:
    part = head(Content_Type="text/event-stream", Transfer_Encoding="chunked") + b"5\r\ndata:\r\n"
    with _tapped(raw(part, 0.1, reset=True)) as (server, exporter, port):
        assert _chat(port) == part
        exporter.wait_for(lambda m: _reasons(m, "tap_unobserved_total") == {"aborted": 1})
        assert _observed(exporter.metrics()) == 0
        assert exporter.metrics().value("tap_open_connections") == 0
        _assert_recovers(server, exporter, port)


def test_tap_record_malformed() -> None:
    document = streams.chat_answer({**streams.RECORD, "num_draft_tokens": -3})
    broken = _closing(streams.answer(streams.dump(document).encode()))
    with _tapped(raw(broken)) as (server, exporter, port):
        assert _chat(port) == broken
        said = exporter.wait_for(lambda m: m if _observed(m) == 1 else None)
        records = {dict(key)["record"] for key, v in said.values("request_observations_total").items() if v}
        assert records == {"malformed"}
        assert sum(said.values("request_drafts_total").values()) == 0
        _assert_recovers(server, exporter, port)


def test_tap_exporter_told_to_end() -> None:
    with _tapped(hang(WHOLE[:-10])) as (server, exporter, port):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(CHAT)
            eventually(lambda: server.requests)
            exporter.process.terminate()
            eventually(lambda: exporter.log_lines("tap waits for requests under way"))
            assert exporter.process.poll() is None
            # Whoever asks again does not want to wait.
            code, seconds = exporter.terminate()
        assert code == 0
        assert seconds < 20  # the tap would wait for 25


# --- pushes


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("push") / "token"
    file.write_text(f"{TOKEN}\n")
    return file


@pytest.fixture(scope="module")
def taking(token_file: Path) -> Iterator[RunningExporter]:
    """An exporter that takes pushes."""
    with running_exporter(*NO_SERVER, "--push.bearer-token-file", str(token_file)) as exporter:
        yield exporter


def _assert_takes(exporter: RunningExporter, before: float) -> None:
    assert _observed(exporter.metrics()) == before
    assert post(exporter, {"requests": [ONE]}).status == 200
    assert _observed(exporter.metrics()) == before + 1
    assert_alive(exporter)


def test_push_token_wrong(taking: RunningExporter) -> None:
    before = _observed(taking.metrics())
    for token in ("", "another", f"{TOKEN}x", f"x{TOKEN}", "\xff"):
        refused = post(taking, {"requests": [ONE]}, token=token)
        assert refused.status == 401
        assert TOKEN not in refused.text + taking.log()
    _assert_takes(taking, before)


def test_push_token_file_empty(taking: RunningExporter, token_file: Path) -> None:
    before = _observed(taking.metrics())
    for content in (None, b"", b" \n", b"\xff\xfe"):
        token_file.unlink(missing_ok=True)
        if content is not None:
            token_file.write_bytes(content)
        for token in (TOKEN, "", None):
            refused = post(taking, {"requests": [ONE]}, token=token)
            assert refused.status == 503, content
            assert str(token_file) not in refused.text
    token_file.write_text(TOKEN)
    _assert_takes(taking, before)


def test_push_nonsense(taking: RunningExporter) -> None:
    before = taking.metrics()
    bodies = (b"", b"{", b"{}", b"\xff\xfe", b'{"requests": [' + b"[" * 100_000, b"null", b'{"requests": {}}')
    for body in bodies:
        refused = post(taking, body)
        assert refused.status == 400, body[:20]
        assert '{"requests": [...]}' in json.loads(refused.body)["error"]
    mixed = post(taking, {"requests": [{**ONE, "completion_tokens": -1}, ONE]})
    assert mixed.status == 200
    rejected = taking.metrics().value("push_rejected_total") - before.value("push_rejected_total")
    assert rejected == len(bodies) + 1
    _assert_takes(taking, _observed(before) + 1)


def test_push_too_large(taking: RunningExporter) -> None:
    before = _observed(taking.metrics())
    large = b" " * (2 << 20)
    assert post(taking, large).status == 413
    assert post(taking, gzip.compress(large), Content_Encoding="gzip").status == 415
    assert post(taking, {"requests": [{}] * (MAX_REQUESTS + 1)}).status == 400
    assert post(taking, {"requests": [{}] * MAX_REQUESTS}).status == 200
    _assert_takes(taking, before + MAX_REQUESTS)
