"""`check --exporter`: the report on what a running exporter knows, single requests included."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import threading
import time
import urllib.request
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import jsonschema
import pytest

from per_request.results import RESULTS
from per_request.traffic import CHAT, CODE, MODEL, pairs
from prometheus.replay import ReplayServer, series
from statuspage.examples import PAGES
from support.certificates import Authority, server_side
from support.commands import run
from support.exporter import exporter
from support.ports import free_port
from vllm_specdec_exporter import get_metrics, report, snapshot
from vllm_specdec_exporter.check import exit_code

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_specdec_exporter import ExporterResult

#: What is known of servers and of single requests, and what a script should know of both.
CODES = {
    ("healthy", "gaining"): 0,
    ("healthy", "few"): 0,
    ("healthy", "unrecorded"): 0,
    ("healthy", "mixed"): 1,
    ("healthy", "partly-losing"): 1,
    ("healthy", "two-models"): 1,
    ("poor", "gaining"): 1,
    ("idle", "gaining"): 3,
    ("idle", "losing"): 1,
    ("down", "mixed"): 4,
}


def both(server: str, requests: str) -> ExporterResult:
    return replace(PAGES[server], requests=RESULTS[requests])


class Answering:
    """An exporter that has one answer to everything, and takes down what it was asked."""

    def __init__(self, status: int, body: bytes, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, self.headers.get("Authorization", "")))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Write nothing into the output of the tests."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Answering:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


# --- exit codes and the report


@pytest.mark.parametrize(("server", "requests"), CODES)
def test_a_problem_with_requests_is_one_of_the_exporter(server: str, requests: str) -> None:
    """Whatever the mean says; that too few were seen is none."""
    assert exit_code(both(server, requests)) == CODES[server, requests]


@pytest.mark.parametrize(
    ("server", "requests"), [("healthy", "gaining"), ("healthy", "mixed"), ("down", "mixed")]
)
def test_the_command_says_what_the_exporter_knows(server: str, requests: str) -> None:
    """The report is that of its snapshot, and so is the exit code."""
    page = both(server, requests)
    with Answering(200, snapshot.encode(page)) as running:
        outcome = run("check", "--exporter", f"http://{running.address}")
    assert (outcome.code, outcome.err) == (CODES[server, requests], "")
    assert outcome.out == report.render(page) + "\n"
    assert running.asked == [("/api/v1/snapshot?", "")]


def test_json_is_the_exporters_snapshot() -> None:
    """One line, as `check --json` of a server gives it."""
    page = both("healthy", "mixed")
    with Answering(200, snapshot.encode(page)) as running:
        outcome = run("check", "--exporter", f"http://{running.address}/", "--json")
    assert outcome.code == 1
    jsonschema.validate(json.loads(outcome.out), snapshot.schema())
    assert snapshot.decode(outcome.out.encode()) == page


def test_a_user_in_the_address_is_sent_and_not_shown() -> None:
    """As for servers; and a path before the exporter's own is kept."""
    with Answering(401, b'{"error": "no"}') as running:
        outcome = run("check", "--exporter", f"http://somebody:hunter2@{running.address}/prefix")
    assert (outcome.code, outcome.out) == (4, "")
    assert "hunter2" not in outcome.err
    expected = f"Basic {base64.b64encode(b'somebody:hunter2').decode()}"
    assert running.asked == [("/prefix/api/v1/snapshot?", expected)]


def test_an_exporter_with_tls_is_trusted_by_its_file(tmp_path: Path) -> None:
    """Whoever does not trust it, asks nothing; the reason is the last word."""
    authority = Authority(tmp_path, "authority")
    page = both("healthy", "gaining")
    with Answering(200, snapshot.encode(page), server_side(authority.issue("127.0.0.1"))) as running:
        url = f"https://{running.address}"
        trusted = run("check", "--exporter", url, "--vllm.ca-file", str(authority.file))
        careless = run("check", "--exporter", url, "--vllm.insecure-skip-verify", "true")
        strange = run("check", "--exporter", url)
    assert (trusted.code, careless.code) == (0, 0)
    assert trusted.out == report.render(page) + "\n"
    assert (strange.code, strange.out) == (4, "")
    assert "CERTIFICATE_VERIFY_FAILED" in strange.err


def test_an_exporter_that_asks_who_it_is_gets_a_certificate(tmp_path: Path) -> None:
    """As a web configuration with RequireAndVerifyClientCert does; half a pair is refused before."""
    authority = Authority(tmp_path, "authority")
    certificate, key = authority.issue("127.0.0.1")
    page = both("healthy", "gaining")
    with Answering(200, snapshot.encode(page), server_side((certificate, key), clients=authority)) as running:
        asking = ("check", "--exporter", f"https://{running.address}", "--vllm.ca-file", str(authority.file))
        known = run(*asking, "--vllm.cert-file", certificate, "--vllm.key-file", key)
        unknown = run(*asking)
        half = run(*asking, "--vllm.cert-file", certificate)
    assert (known.code, known.out) == (0, report.render(page) + "\n")
    assert (unknown.code, unknown.out) == (4, "")
    assert half.code == 2
    assert "--vllm.cert-file and --vllm.key-file go together" in half.err


UNREACHABLE = {
    "refused": (503, b'{"error": "not ready"}', "answered 503: not ready"),
    "no snapshot": (200, b"<!doctype html>", "did not answer with a snapshot: "),
    "metrics": (200, b"node_load1 1\n", "did not answer with a snapshot: "),
    "hostile": (500, b'{"error": "\\u001b[31m"}', "answered 500: \N{REPLACEMENT CHARACTER}[31m"),
}


@pytest.mark.parametrize("name", UNREACHABLE)
def test_what_is_no_exporter_ends_with_4_and_one_line(name: str) -> None:
    """The line says what came instead; nothing in it steers the terminal."""
    status, body, message = UNREACHABLE[name]
    with Answering(status, body) as running:
        outcome = run("check", "--exporter", f"http://{running.address}")
    assert (outcome.code, outcome.out) == (4, "")
    assert outcome.err.startswith(f"vllm-specdec-exporter check: error: http://{running.address} ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_an_exporter_that_does_not_listen_ends_with_4() -> None:
    """As a server does that cannot be reached."""
    outcome = run("check", "--exporter", f"http://127.0.0.1:{free_port()}")
    assert (outcome.code, outcome.out) == (4, "")
    assert "cannot be reached: " in outcome.err


USAGE = {
    "a server too": (("http://a:8000",), "URL does not go with --exporter"),
    "a duration": (("--for", "5s"), "--for does not go with --exporter"),
    "a threshold": (("--threshold", "minimum_drafts=2"), "--threshold does not go with --exporter"),
    "another's token": (
        ("--vllm.bearer-token-file", "/dev/null"),
        "--vllm.bearer-token-file does not go with --exporter",
    ),
    "no address": (
        ("--exporter", "ftp://x"),
        '--exporter "ftp://x": not an address; allowed: http://host:port',
    ),
    "a secret": (
        ("--exporter", "http://a:hunter2@b:99999999"),
        '--exporter "http://<secret>@b:99999999": not an address',
    ),
    "a socket": (("--exporter", "unix:/run/x.sock"), "--exporter: an exporter listens on no Unix socket"),
    "no certificates": (
        ("--vllm.ca-file", "/dev/null"),
        '--vllm.ca-file "/dev/null": no certificates in it',
    ),
}


@pytest.mark.parametrize("name", USAGE)
def test_bad_usage_ends_with_2_and_one_line(name: str) -> None:
    """What would have no effect is refused: the exporter has its own settings, and has watched already."""
    flags, message = USAGE[name]
    outcome = run("check", "--exporter", "http://127.0.0.1:1", *flags)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"vllm-specdec-exporter check: error: {message}")
    assert outcome.err.count("\n") == 1


def test_the_environment_of_a_server_does_not_matter() -> None:
    """In a pod, variables may name the server and its token: neither is the exporter's."""
    with Answering(200, snapshot.encode(both("healthy", "gaining"))) as running:
        outcome = run(
            "check",
            "--exporter",
            f"http://{running.address}",
            VLLM_SPECDEC_EXPORTER_VLLM_URL="http://a,http://b",
            VLLM_SPECDEC_EXPORTER_VLLM_BEARER_TOKEN_FILE="/nowhere",
        )
    assert (outcome.code, outcome.err) == (0, "")
    assert running.asked[0][1] == ""


# --- a real exporter


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("push") / "token"
    path.write_text("secret")
    return path


@contextlib.contextmanager
def pushed(token: Path) -> Iterator[str]:
    """Run an exporter, and push it requests of which 60 % gain and 40 % lose."""
    kinds = (replace(CODE, requests=60), replace(CHAT, requests=40))
    requests = [
        {
            "model": pair["response"]["model"],
            "temperature": pair["request"]["body"]["temperature"],
            "request_type": pair["request"]["headers"]["x-kind"],
            "completion_tokens": pair["response"]["usage"]["completion_tokens"],
            **pair["response"]["metrics"],
        }
        for pair in pairs(kinds)
    ]
    served = ReplayServer([series("ngram-phases")[-1]])
    flags = ("--push.bearer-token-file", str(token))
    with served as server, exporter("--vllm.url", server.url, *flags) as address:
        request = urllib.request.Request(
            f"http://{address}/api/v1/requests",
            data=json.dumps({"requests": requests}).encode(),
            headers={"Authorization": "Bearer secret"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert json.loads(answer.read())["accepted"] == 100
        end = time.monotonic() + 20
        while not get_metrics(f"http://{address}").targets[0].up:
            assert time.monotonic() < end, "the exporter did not poll"
            time.sleep(0.05)
        yield address


def test_a_real_exporter_tells_who_loses(token: Path) -> None:
    """Requests were pushed to it; the report names the type that loses, and the exit code says so."""
    with pushed(token) as address:
        outcome = run("check", "--exporter", f"http://{address}")
        thin = get_metrics(f"http://{address}", metric=("request_drafts_total", "window_requests"))
    assert (outcome.code, outcome.err) == (1, "")
    text = " ".join(outcome.out.split())
    assert "single requests records 100 detailed MIXED" in text
    assert re.search(rf"MIXED {MODEL}: \d\d\.\d% of 100 requests gain and \d\d\.\d% lose", text)
    assert "hint: requests of type chat lose: 40% of the requests" in text
    assert thin.requests is not None
    assert [group.drafts for group in thin.requests.groups] == [2400, 1600]
    assert [model.window_requests for model in thin.requests.models] == [100]


def test_an_exporter_without_tap_and_push_is_reported_as_ever() -> None:
    """Its servers, and not a word of requests."""
    with ReplayServer([series("ngram-phases")[-1]]) as server, exporter("--vllm.url", server.url) as address:
        end = time.monotonic() + 20
        while not get_metrics(f"http://{address}").targets[0].up:
            assert time.monotonic() < end, "the exporter did not poll"
            time.sleep(0.05)
        outcome = run("check", "--exporter", f"http://{address}")
    assert outcome.code == 3
    assert outcome.out.startswith(f"{server.url}\n")
    assert "single requests" not in outcome.out
