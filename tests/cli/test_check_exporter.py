"""`check --exporter`: the report on what a running exporter knows, single requests included."""

import base64
import json
import re
import ssl
import urllib.request
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from per_request.results import RESULTS
from per_request.traffic import CHAT, CODE, MODEL, pairs
from prometheus.replay import ReplayServer, series
from statuspage.examples import PAGES
from support.certificates import Authority, server_side
from support.commands import run_here, wrong_refusals
from support.exporter import running_exporter
from support.faulty_server import FaultyServer, Request, answer
from support.ports import free_port
from vllm_specdec_exporter import ExporterResult, get_metrics
from vllm_specdec_exporter.commands.check import exit_code
from vllm_specdec_exporter.publish import snapshot
from vllm_specdec_exporter.publish import terminal_report as report

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


def answering(body: bytes, status: str = "200 OK", tls: ssl.SSLContext | None = None) -> FaultyServer:
    """An exporter that has one answer to everything."""
    return FaultyServer(answer(body, status, "application/json"), tls=tls)


def asked(server: FaultyServer) -> list[tuple[str, str]]:
    """What it was asked, and with which authorization."""

    def one(request: Request) -> tuple[str, str]:
        return request.path, request.headers.get("authorization", "")

    return [one(request) for request in server.requests]


# --- exit codes and the report


def test_a_problem_with_requests_is_one_of_the_exporter() -> None:
    """Whatever the mean says; that too few were seen is none."""
    assert {names: exit_code(both(*names)) for names in CODES} == CODES


@pytest.mark.parametrize(
    ("server", "requests"), [("healthy", "gaining"), ("healthy", "mixed"), ("down", "mixed")]
)
def test_the_command_says_what_the_exporter_knows(server: str, requests: str) -> None:
    """The report and the exit code are those of its snapshot; its JSON is that snapshot in one line."""
    page = both(server, requests)
    with answering(snapshot.encode(page)) as running:
        outcome = run_here("check", "--exporter", running.url)
        as_json = run_here("check", "--exporter", f"{running.url}/", "--json")
    assert (outcome.code, outcome.err) == (CODES[server, requests], "")
    assert outcome.out == report.render(page) + "\n"
    assert asked(running) == [("/api/v1/snapshot?", "")] * 2
    assert (as_json.code, as_json.out.count("\n")) == (outcome.code, 1)
    jsonschema.validate(json.loads(as_json.out), snapshot.schema())
    assert snapshot.decode(as_json.out.encode()) == page


def test_a_user_in_the_address_is_sent_and_not_shown() -> None:
    """As for servers; and a path before the exporter's own is kept."""
    with answering(b'{"error": "no"}', "401 Unauthorized") as running:
        address = running.url.removeprefix("http://")
        outcome = run_here("check", "--exporter", f"http://somebody:hunter2@{address}/prefix")
    assert (outcome.code, outcome.out) == (4, "")
    assert "hunter2" not in outcome.err
    expected = f"Basic {base64.b64encode(b'somebody:hunter2').decode()}"
    assert asked(running) == [("/prefix/api/v1/snapshot?", expected)]


def test_an_exporter_with_tls_is_trusted_by_its_file_and_may_ask_for_a_certificate(tmp_path: Path) -> None:
    """Whoever does not trust it, asks nothing; the reason is the last word. Half a pair is refused before."""
    authority = Authority(tmp_path, "authority")
    certificate, key = authority.issue("127.0.0.1")
    page = both("healthy", "gaining")
    ours = ("--vllm.ca-file", str(authority.file))
    own = ("--vllm.cert-file", certificate, "--vllm.key-file", key)

    def codes(clients: Authority | None, *ways: tuple[str, ...]) -> list[int]:
        tls = server_side((certificate, key), clients=clients)
        with answering(snapshot.encode(page), tls=tls) as running:
            outcomes = [run_here("check", "--exporter", running.url, *way) for way in ways]
        for outcome in outcomes:
            assert outcome.out == (report.render(page) + "\n" if outcome.code == 0 else "")
        said.append(outcomes[-1].err)
        return [outcome.code for outcome in outcomes]

    said: list[str] = []
    assert codes(None, ours, ("--vllm.insecure-skip-verify", "true"), ()) == [0, 0, 4]
    assert "CERTIFICATE_VERIFY_FAILED" in said[0]
    assert codes(authority, (*ours, *own), ours, (*ours, *own[:2])) == [0, 4, 2]
    assert "--vllm.cert-file and --vllm.key-file go together" in said[1]


# --- refusals


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        ("503 Busy", b'{"error": "not ready"}', "answered 503: not ready"),
        ("200 OK", b"<!doctype html>", "did not answer with a snapshot: "),
        ("200 OK", b"node_load1 1\n", "did not answer with a snapshot: "),
        ("500 Oops", b'{"error": "\\u001b[31m"}', "answered 500: \N{REPLACEMENT CHARACTER}[31m"),
    ],
)
def test_what_is_no_exporter_ends_with_4_and_one_line(status: str, body: bytes, message: str) -> None:
    """The line says what came instead; nothing in it steers the terminal."""
    with answering(body, status) as running:
        table = [(("--exporter", running.url), f"error: {running.url} {message}")]
        assert wrong_refusals("check", table, code=4) == []


def test_an_exporter_that_does_not_listen_ends_with_4() -> None:
    """As a server does that cannot be reached."""
    table = [(("--exporter", f"http://127.0.0.1:{free_port()}"), "cannot be reached: ")]
    assert wrong_refusals("check", table, code=4) == []


USAGE = [
    (("http://a:8000",), "URL does not go with --exporter"),
    (("--for", "5s"), "--for does not go with --exporter"),
    (("--threshold", "minimum_drafts=2"), "--threshold does not go with --exporter"),
    (
        ("--vllm.bearer-token-file", "/dev/null"),
        "--vllm.bearer-token-file does not go with --exporter",
    ),
    (("--exporter", "ftp://x"), '--exporter "ftp://x": not an address; allowed: http://host:port'),
    (
        ("--exporter", "http://a:hunter2@b:99999999"),
        '--exporter "http://<secret>@b:99999999": not an address',
    ),
    (("--exporter", "unix:/run/x.sock"), "--exporter: an exporter listens on no Unix socket"),
    (("--vllm.ca-file", "/dev/null"), '--vllm.ca-file "/dev/null": no certificates in it'),
]


def test_bad_usage_ends_with_2_and_one_line() -> None:
    """What would have no effect is refused: the exporter has its own settings, and has watched already."""
    table = [(("--exporter", "http://127.0.0.1:1", *words), f"error: {why}") for words, why in USAGE]
    assert wrong_refusals("check", table) == []


def test_the_environment_of_a_server_does_not_matter() -> None:
    """In a pod, variables may name the server and its token: neither is the exporter's."""
    server = {
        "VLLM_SPECDEC_EXPORTER_VLLM_URL": "http://a,http://b",
        "VLLM_SPECDEC_EXPORTER_VLLM_BEARER_TOKEN_FILE": "/nowhere",
    }
    with answering(snapshot.encode(both("healthy", "gaining"))) as running:
        outcome = run_here("check", "--exporter", running.url, **server)
    assert (outcome.code, outcome.err) == (0, "")
    assert asked(running) == [("/api/v1/snapshot?", "")]


# --- a real exporter


def test_a_real_exporter_tells_who_loses(tmp_path: Path) -> None:
    """Of requests that were pushed 60 % gain and 40 % lose: report and exit code say which."""
    token = tmp_path / "token"
    token.write_text("secret")
    requests = [
        {
            "model": pair["response"]["model"],
            "temperature": pair["request"]["body"]["temperature"],
            "request_type": pair["request"]["headers"]["x-kind"],
            "completion_tokens": pair["response"]["usage"]["completion_tokens"],
            **pair["response"]["metrics"],
        }
        for pair in pairs((replace(CODE, requests=60), replace(CHAT, requests=40)))
    ]
    last = series("ngram-phases")[-1]
    flags = ("--push.bearer-token-file", str(token))
    with ReplayServer([last]) as server, running_exporter("--vllm.url", server.url, *flags) as exporter:
        request = urllib.request.Request(
            f"{exporter.url}/api/v1/requests",
            data=json.dumps({"requests": requests}).encode(),
            headers={"Authorization": "Bearer secret"},
        )
        with urllib.request.urlopen(request, timeout=120) as taken:
            assert json.loads(taken.read())["accepted"] == 100
        exporter.wait_until_up()
        outcome = run_here("check", "--exporter", exporter.url)
        thin = get_metrics(exporter.url, metric=("request_drafts_total", "window_requests"))
    assert (outcome.code, outcome.err) == (1, "")
    text = " ".join(outcome.out.split())
    assert "single requests records 100 detailed MIXED" in text
    assert re.search(rf"MIXED {MODEL}: \d\d\.\d% of 100 requests gain and \d\d\.\d% lose", text)
    assert "hint: requests of type chat lose: 40% of the requests" in text
    assert thin.requests is not None
    assert [group.drafts for group in thin.requests.groups] == [2400, 1600]
    assert [model.window_requests for model in thin.requests.models] == [100]
