"""Faults where single requests are observed: the end of the tap, and pushes.

Its others are in tests/tap.
"""

import gzip
import itertools
import json
import socket
from pathlib import Path

import pytest

from faults.rig import assert_alive
from service import test_push
from service.test_push import ONE, TOKEN, post
from support.exporter import NO_SERVER, Metrics, RunningExporter, running_exporter
from support.faulty_server import FaultyServer, hang
from support.ports import free_port
from support.programs import eventually
from tap import streams
from vllm_specdec_exporter.per_request.push_schema import MAX_REQUESTS

pytestmark = pytest.mark.full

token_file = test_push.token_file
shared = test_push.shared


def _observed(metrics: Metrics) -> float:
    return metrics.total("request_observations_total")


def test_tap_exporter_told_to_end() -> None:
    port = free_port()
    with FaultyServer(hang(streams.ANSWERED_PLAIN[:-10])) as server:
        flags = (
            "--tap.listen-address",
            f"127.0.0.1:{port}",
            "--tap.upstream",
            server.url,
        )
        with running_exporter(*NO_SERVER, *flags) as exporter:
            exporter.wait_for(lambda m: m.value("tap_listening") == 1)
            with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
                client.sendall(streams.ASKED_PLAIN)
                eventually(lambda: server.requests)
                exporter.process.terminate()
                eventually(
                    lambda: exporter.log_lines("tap waits for requests under way")
                )
                assert exporter.process.poll() is None
                # Whoever asks again does not want to wait.
                code, seconds = exporter.terminate()
            assert code == 0
            assert seconds < 20  # the tap would wait for 25


# --- pushes


def _assert_takes(exporter: RunningExporter, observed: float) -> None:
    assert _observed(exporter.metrics()) == observed
    assert post(exporter, {"requests": [ONE]}).status == 200
    assert _observed(exporter.metrics()) == observed + 1
    assert_alive(exporter)


def test_push_token_file_empty(shared: RunningExporter, token_file: Path) -> None:
    observed = _observed(shared.metrics())
    token_file.unlink()
    answers = {}
    for content in (None, b"", b" \n", b"\xff\xfe"):
        if content is not None:
            token_file.write_bytes(content)
        for token in (TOKEN, "", None):
            refused = post(shared, {"requests": [ONE]}, token=token)
            answers[content, token] = (refused.status, str(token_file) in refused.text)
    assert answers == dict.fromkeys(answers, (503, False))
    token_file.write_text(TOKEN)
    _assert_takes(shared, observed)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{}",
        b"\xff\xfe",
        b'{"requests": [' + b"[" * 100_000,
        b"null",
        b'{"requests": {}}',
    ],
    ids=itertools.count(),
)
def test_push_nonsense(shared: RunningExporter, body: bytes) -> None:
    metrics = shared.metrics()
    refused = post(shared, body)
    assert refused.status == 400
    assert '{"requests": [...]}' in json.loads(refused.body)["error"]
    rejected = shared.metrics().total("push_rejected_total")
    assert rejected == metrics.total("push_rejected_total") + 1
    _assert_takes(shared, _observed(metrics))


def test_push_too_large(shared: RunningExporter) -> None:
    observed = _observed(shared.metrics())
    large = b" " * (2 << 20)
    assert post(shared, large).status == 413
    assert post(shared, gzip.compress(large), Content_Encoding="gzip").status == 415
    assert post(shared, {"requests": [{}] * (MAX_REQUESTS + 1)}).status == 400
    assert post(shared, {"requests": [{}] * MAX_REQUESTS}).status == 200
    _assert_takes(shared, observed + MAX_REQUESTS)
