"""The reporter: reporting never blocks and never raises, whatever the exporter does."""

import logging
import socket
import ssl
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client.collector import Collector, Push, Reply, taken
from support.certificates import Authority, server_side
from support.fake_vllm import RECORD
from support.programs import clean_environment, eventually
from vllm_specdec_exporter.client import Reporter, reporter
from vllm_specdec_exporter.requests.observation import DraftRecord, Observation, parse_record
from vllm_specdec_exporter.requests.push_schema import PushedRequest
from vllm_specdec_exporter.requests.routes import PUSH_PATH

TOKEN = "a-token"
ONE = Observation(1_700_000_000.0, "llama", temperature=0.3, record=parse_record(RECORD))


def numbered(number: int) -> Observation:
    """An observation that can be told from others."""
    return replace(ONE, completion_tokens=number)


def numbers(collector: Collector) -> list[int | None]:
    """Which of those came, in order."""
    return [observation.completion_tokens for observation in collector.observations]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "_FIRST_PAUSE", 0.02)


def reporting(url: str, **options: Any) -> Reporter:
    """A reporter with a short interval."""
    return Reporter(url, **{"token": TOKEN, "interval": 0.02, "timeout": 60, **options})


class TestDelivery:
    def test_batches(self, collector: Collector) -> None:
        """A full batch is pushed at once; the rest after the interval, or by `flush`."""
        with reporting(collector.url, batch=10, interval=3600) as reporter:
            for number in range(25):
                reporter.report(numbered(number))
            eventually(lambda: reporter.sent == 20)
            assert reporter.waiting == 5
            assert reporter.flush(60)
        assert [len(push.observations) for push in collector.pushes] == [10, 10, 5]
        assert numbers(collector) == list(range(25))
        headers = collector.pushes[0].headers
        assert (headers["authorization"], headers["content-type"]) == (f"Bearer {TOKEN}", "application/json")
        assert collector.observations[0].record == parse_record(RECORD)

    def test_a_push_has_a_limit(self, collector: Collector) -> None:
        """Long records are divided among pushes that the exporter takes."""
        steps = 20_000
        record = DraftRecord(steps, 3 * steps, steps, (0, steps), {(3, 1): steps})
        with reporting(collector.url, batch=100, interval=3600) as reporter:
            for _ in range(40):
                reporter.report(replace(ONE, record=record))
            assert reporter.flush(60)
            assert reporter.sent == 40
        assert len(collector.pushes) > 1
        assert all(len(push.body) < 1024 * 1024 for push in collector.pushes)
        assert all(found.record == record for found in collector.observations)

    def test_paths(self, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
        """An address may have a path, and may be the whole one. A proxy of the environment is not asked."""
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        for path in ("", "/", "/specdec", "/specdec/", PUSH_PATH, f"/specdec{PUSH_PATH}"):
            with reporting(collector.url + path) as reporter:
                reporter.report(ONE)
                assert reporter.flush(60)
            assert collector.pushes[-1].path == ("/specdec" if "specdec" in path else "") + PUSH_PATH

    def test_tls(self, tmp_path: Path) -> None:
        """Over https only an exporter whose certificate is trusted gets the token."""
        authority = Authority(tmp_path, "authority")
        trusting = ssl.create_default_context(cafile=str(authority.file))
        with Collector(tls=server_side(authority.issue("localhost"))) as collector:
            url = collector.url.replace("127.0.0.1", "localhost")
            with reporting(url, tls=trusting) as reporter:
                reporter.report(ONE)
                assert reporter.flush(60)
                assert reporter.sent == 1
            with reporting(url, patience=0.1) as wary:
                wary.report(ONE)
                assert wary.flush(60)
                assert (wary.sent, wary.failed) == (0, 1)
            assert len(collector.pushes) == 1


class TestToken:
    def test_exchanged(self, collector: Collector, tmp_path: Path) -> None:
        """A push that is refused while the token is rotated is retried."""
        file = tmp_path / "token"
        file.write_text("old")
        collector.reply = lambda push: (
            taken(push) if push.headers["authorization"] == "Bearer new" else (401, {"error": "no"})
        )
        with reporting(collector.url, token="", token_file=file) as reporter:
            reporter.report(ONE)
            eventually(lambda: len(collector.pushes) > 1)
            assert (reporter.sent, reporter.failed) == (0, 0)
            file.write_text("new")
            eventually(lambda: reporter.sent == 1)

    @pytest.mark.parametrize("content", [None, b"", b"two\nlines", "ümlaut".encode(), b"\xff"])
    def test_unusable(self, collector: Collector, tmp_path: Path, content: bytes | None, caplog: Any) -> None:
        """Without a valid token nothing is sent; with one, queued requests are."""
        file = tmp_path / "token"
        if content is not None:
            file.write_bytes(content)
        with reporting(collector.url, token="", token_file=file) as reporter:
            reporter.report(ONE)
            eventually(lambda: "token" in caplog.text)
            assert collector.pushes == []
            file.write_text("good")
            eventually(lambda: reporter.sent == 1)

    def test_never_shown(self, caplog: Any) -> None:
        """No log says the token."""
        caplog.set_level(logging.DEBUG, "vllm_specdec_exporter.client")
        with reporting("http://127.0.0.1:1", token="CANARY-KEY", patience=0.05) as reporter:
            reporter.report(ONE)
            assert reporter.flush(60)
        assert "cannot push to http://127.0.0.1:1: " in caplog.text
        assert "CANARY-KEY" not in caplog.text + repr(reporter)


class TestFaults:
    def test_down_and_up_again(self, caplog: Any) -> None:
        """Requests queued while the exporter is down arrive later; the log has two lines."""
        caplog.set_level(logging.INFO, "vllm_specdec_exporter.client")
        with socket.create_server(("127.0.0.1", 0)) as taken_port:
            port = taken_port.getsockname()[1]
        with reporting(f"http://127.0.0.1:{port}") as reporter:
            for number in range(5):
                reporter.report(numbered(number))
            eventually(lambda: "cannot be reached" in caplog.text)
            with Collector(port=port) as collector:
                eventually(lambda: reporter.sent == 5)
                assert numbers(collector) == list(range(5))
                eventually(lambda: "pushing" in caplog.text)
        assert [record.message.split(" ")[0] for record in caplog.records] == ["cannot", "pushing"]

    def test_later(self, collector: Collector) -> None:
        """A push with a temporary error is retried until it is accepted, and counts once."""
        replies: list[Reply] = [(status, {"error": "not now"}) for status in (401, 403, 429, 503)]
        collector.reply = lambda push: replies.pop() if replies else taken(push)
        with reporting(collector.url) as reporter:
            reporter.report(ONE)
            assert reporter.flush(60)
            assert (reporter.sent, reporter.failed, reporter.rejected) == (1, 0, 0)
        assert len(collector.pushes) == 5
        assert len({push.body for push in collector.pushes}) == 1

    @pytest.mark.parametrize(
        "reply",
        [
            *[(status, {}) for status in (404, 405, 413, 500, 502, 504, 302)],
            (200, {"hello": "I am no exporter"}),
            (200, {"accepted": 1, "rejected": 7}),
            (200, []),
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{",
            b"SSH-2.0-OpenSSH\r\n",
            None,
        ],
        ids=str,
    )
    def test_never(self, collector: Collector, reply: Reply, caplog: Any) -> None:
        """A push that failed for good, or may have been counted, is not retried; the next one is sent."""
        replies = [reply]
        collector.reply = lambda push: replies.pop() if replies else taken(push)
        with reporting(collector.url) as reporter:
            reporter.report(ONE)
            assert reporter.flush(60)
            assert (reporter.sent, reporter.failed) == (0, 1)
            assert "cannot push" in caplog.text
            reporter.report(ONE)
            assert reporter.flush(60)
            assert reporter.sent == 1
        assert len(collector.pushes) == 2

    def test_slow(self, collector: Collector) -> None:
        """After a timeout the push may have been counted, so it is not retried."""
        go_on = threading.Event()

        def slow(push: Push) -> Reply:
            go_on.wait(10)
            return taken(push)

        collector.reply = slow
        with reporting(collector.url, timeout=0.5) as reporter:
            reporter.report(ONE)
            assert reporter.flush(60)
            assert (reporter.sent, reporter.failed) == (0, 1)
            go_on.set()
        assert len(collector.pushes) == 1

    def test_rejected(self, collector: Collector, caplog: Any) -> None:
        """Rejected and invalid requests are counted, and the reason is logged."""
        with reporting(collector.url, batch=2, interval=3600) as reporter:
            reporter.report(ONE)
            reporter.report(PushedRequest(model="m", temperature=-1.0))
            assert reporter.flush(60)
            assert (reporter.sent, reporter.rejected, reporter.failed) == (1, 1, 0)
            reporter.report(PushedRequest(model="\udcff"))  # cannot be written as JSON
            reporter.report(ONE)
            assert reporter.flush(60)
            assert (reporter.sent, reporter.rejected, reporter.failed) == (2, 1, 1)
            reporter.report(PushedRequest(model="m", completion_tokens=-1))
            assert reporter.flush(60)
            assert (reporter.sent, reporter.rejected, reporter.failed) == (2, 2, 1)
        assert "requests[1]: temperature is -1" in caplog.text
        assert "invalid request" in caplog.text

    def test_a_defect(self, collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
        """After a defect of its own, the next push is sent."""

        def broken(_item: object) -> bytes:
            raise RuntimeError

        with reporting(collector.url) as reporter_:
            with monkeypatch.context() as patch:
                patch.setattr(reporter, "encode", broken)
                reporter_.report(ONE)
                eventually(lambda: reporter_.failed == 1)
            reporter_.report(ONE)
            eventually(lambda: reporter_.sent == 1)
        assert "a push failed" in caplog.text


class TestQueue:
    def test_the_oldest_are_dropped(self, collector: Collector) -> None:
        """While a push hangs, the newest requests are kept, and dropped ones are counted."""
        go_on = threading.Event()

        def hang(push: Push) -> Reply:
            go_on.wait(20)
            return taken(push)

        collector.reply = hang
        with reporting(collector.url, queue=10, batch=1, timeout=30) as reporter:
            reporter.report(numbered(0))
            eventually(lambda: len(collector.pushes) == 1)
            for number in range(1, 31):
                reporter.report(numbered(number))
            assert (reporter.dropped, reporter.waiting) == (20, 11)
            assert len(collector.pushes) == 1  # it still hangs
            go_on.set()
            assert reporter.flush(60)
        assert numbers(collector) == [0, *range(21, 31)]

    def test_reported_by_a_collection_of_garbage(self, collector: Collector) -> None:
        """Garbage collection may report while the lock is held."""
        with reporting(collector.url) as reporter:
            with reporter._changed:  # as if this thread were within it
                reporter.report(ONE)
            assert reporter.flush(60)
            assert reporter.sent == 1

    def test_no_growth(self, collector: Collector) -> None:
        """Reporters that end leave no thread, and a busy one keeps nothing."""
        before = threading.active_count()
        for _ in range(5):
            with reporting(collector.url) as reporter:
                reporter.report(ONE)
                assert reporter.flush(60)
        eventually(lambda: threading.active_count() <= before + 1)
        with reporting(collector.url) as reporter:
            items = [replace(ONE) for _ in range(100)]
            for item in items:
                reporter.report(item)
            assert reporter.flush(60)
            del item
            # Only the list and the loop refer to them.
            eventually(lambda: {sys.getrefcount(item) for item in items} <= {2, 3})


def run(url: str, *lines: str) -> int:
    """Run a program with a reporter; return its exit code."""
    code = (
        "import os",
        "from vllm_specdec_exporter.client import Reporter",
        "from vllm_specdec_exporter.requests.observation import Observation",
        f"reporter = Reporter({url!r}, token='t', interval=3600)",
        *lines,
    )
    words = [sys.executable, "-c", "\n".join(code)]
    return subprocess.run(words, env=clean_environment(), timeout=60).returncode


class TestEnd:
    def test_close_pushes_what_waits(self, collector: Collector) -> None:
        """Queued requests are pushed; later ones are counted as dropped."""
        reporter = reporting(collector.url, interval=3600)
        reporter.report(ONE)
        reporter.close(10)
        assert reporter.sent == 1
        reporter.report(ONE)
        reporter.close()
        assert (reporter.sent, reporter.dropped) == (1, 1)

    def test_close_without_an_exporter(self) -> None:
        """It returns, and lost requests are counted."""
        reporter = reporting("http://127.0.0.1:1", patience=3600, batch=1)
        for _ in range(20):
            reporter.report(ONE)
        reporter.close(10)
        assert (reporter.failed, reporter.waiting) == (20, 0)

    def test_exit(self, collector: Collector) -> None:
        """Queued requests are pushed when a program ends, also with an error."""
        report = "reporter.report(Observation(0.0, 'llama'))"
        assert run(collector.url, report, "raise SystemExit(3)") == 3
        assert [found.model_name for found in collector.observations] == ["llama"]

    def test_fork(self, collector: Collector) -> None:
        """A child pushes its own requests; those of the parent are pushed once, as it ends."""
        code = run(
            collector.url,
            "reporter.report(Observation(0.0, 'parent'))",
            "with reporter._changed:",  # a lock that nobody in the child will ever release
            "    child = os.fork()",
            "if child == 0:",
            "    assert reporter.waiting == 0",
            "    reporter.report(Observation(0.0, 'child'))",
            "    assert reporter.flush(60) and reporter.sent == 1",
            "    os._exit(0)",
            "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0",
        )
        assert code == 0
        assert sorted(found.model_name for found in collector.observations) == ["child", "parent"]


def test_invalid_arguments() -> None:
    """Each is an error that names it, without secrets."""
    options: Any
    for options, says in (
        ({"url": "unix:/run/x.sock"}, "url: allowed"),
        ({"url": "http://[::1"}, "url: allowed"),
        ({"url": "http://h/?a=b"}, "url: allowed"),
        ({"url": "http://me:secret@h"}, "url: must not have a user"),
        ({"token": ""}, "token or token_file is needed"),
        ({"token_file": "x"}, "either token or token_file"),
        ({"batch": 0}, "batch: 0; allowed: 1 to 1000"),
        ({"interval": 0}, "interval: 0"),
        ({"queue": -1}, "queue: -1"),
        ({"timeout": float("nan")}, "timeout: nan"),
        ({"patience": float("inf")}, "patience: inf"),
    ):
        with pytest.raises(ValueError, match=says) as caught:
            Reporter(**{"url": "http://127.0.0.1:1", "token": TOKEN, **options})
        assert "secret" not in str(caught.value)


def test_it_needs_msgspec_alone() -> None:
    """Of the exporter's dependencies, the library imports only msgspec."""
    code = (
        "import sys\n"
        "for name in ('aiohttp', 'bcrypt', 'httptools', 'prometheus_client', 'yaml'):\n"
        "    sys.modules[name] = None\n"
        "import vllm_specdec_exporter.client.asgi, vllm_specdec_exporter.client.httpx_transport\n"
        "import vllm_specdec_exporter.client.openai\n"
        "assert not {'httpx', 'httpx2', 'openai'} & set(sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], env=clean_environment(), timeout=60).returncode == 0
