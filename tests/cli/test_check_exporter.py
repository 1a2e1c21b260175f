"""`check --exporter`: the report on what a running exporter shows, single requests
included.
"""

import base64
import json
import ssl
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace

from per_request.results import RESULTS
from statuspage.examples import PAGES
from support.certificates import Authority, server_side
from support.commands import run_here, wrong_refusals
from support.faulty_server import FaultyServer, answer
from support.ports import free_port
from vllm_specdec_exporter import ExporterResult
from vllm_specdec_exporter.commands.check import exit_code
from vllm_specdec_exporter.publish import snapshot
from vllm_specdec_exporter.publish import terminal_report as report

#: What is known of servers and of single requests, and what a script should know of
#: both.
CODES = {
    **dict.fromkeys(
        [("healthy", "gaining"), ("healthy", "few"), ("healthy", "unrecorded")], 0
    ),
    **dict.fromkeys(
        [("healthy", "mixed"), ("healthy", "partly-losing"), ("healthy", "two-models")],
        1,
    ),
    **dict.fromkeys([("poor", "gaining"), ("idle", "losing")], 1),
    ("idle", "gaining"): 3,
    ("down", "mixed"): 4,
}


def both(server: str, requests: str) -> ExporterResult:
    return replace(PAGES[server], requests=RESULTS[requests])


def answering(
    body: bytes, status: str = "200 OK", tls: ssl.SSLContext | None = None
) -> FaultyServer:
    """An exporter that has one answer to everything."""
    return FaultyServer(answer(body, status, "application/json"), tls=tls)


def asked(server: FaultyServer) -> list[tuple[str, str]]:
    """What it was asked, and with which authorization."""
    return [
        (request.path, request.headers.get("authorization", ""))
        for request in server.requests
    ]


# --- exit codes and the report


def test_a_problem_with_requests_is_one_of_the_exporter() -> None:
    """Whatever the mean says; that too few were seen is none."""
    assert {names: exit_code(both(*names)) for names in CODES} == CODES


@pytest.mark.parametrize(
    ("server", "requests"), [("healthy", "mixed"), ("down", "mixed")]
)
def test_the_command_says_what_the_exporter_knows(server: str, requests: str) -> None:
    """The report and the exit code are those of its snapshot; its JSON is that snapshot
    in one line.

    In a pod, variables may name the server and its token: neither is the exporter's.
    """
    page = both(server, requests)
    servers = {
        "VLLM_SPECDEC_EXPORTER_VLLM_URL": "http://a,http://b",
        "VLLM_SPECDEC_EXPORTER_VLLM_BEARER_TOKEN_FILE": "/nowhere",
    }
    with answering(snapshot.encode(page)) as running:
        outcome = run_here("check", "--exporter", running.url, **servers)
        as_json = run_here("check", "--exporter", f"{running.url}/", "--json")
    assert outcome.code == CODES[server, requests]
    assert outcome.err == ""
    assert outcome.out == report.render(page) + "\n"
    assert asked(running) == [("/api/v1/snapshot?", "")] * 2
    assert as_json.code == outcome.code
    assert as_json.out.count("\n") == 1
    jsonschema.validate(json.loads(as_json.out), snapshot.schema())
    assert snapshot.decode(as_json.out.encode()) == page


def test_a_user_in_the_address_is_sent_and_not_shown() -> None:
    """As for servers; and a path before the exporter's own is kept."""
    with answering(b'{"error": "no"}', "401 Unauthorized") as running:
        address = running.url.removeprefix("http://")
        outcome = run_here(
            "check", "--exporter", f"http://somebody:hunter2@{address}/prefix"
        )
    assert outcome.code == 4
    assert outcome.out == ""
    assert "hunter2" not in outcome.err
    expected = f"Basic {base64.b64encode(b'somebody:hunter2').decode()}"
    assert asked(running) == [("/prefix/api/v1/snapshot?", expected)]


def test_an_exporter_with_tls_is_trusted_by_its_file_and_may_ask_for_a_certificate(
    tmp_path: Path,
) -> None:
    """Whoever does not trust it, asks nothing; the reason is the last word.

    Half a pair is refused before.
    """
    authority = Authority(tmp_path, "authority")
    certificate, key = authority.issue("127.0.0.1")
    page = both("healthy", "gaining")
    ours = ("--vllm.ca-file", str(authority.file))
    certified = ("--vllm.cert-file", certificate, "--vllm.key-file", key)

    def codes(clients: Authority | None, *ways: tuple[str, ...]) -> list[int]:
        tls = server_side((certificate, key), clients=clients)
        with answering(snapshot.encode(page), tls=tls) as running:
            outcomes = [
                run_here("check", "--exporter", running.url, *way) for way in ways
            ]
        for outcome in outcomes:
            assert outcome.out == (
                report.render(page) + "\n" if outcome.code == 0 else ""
            ), outcome
        said.append(outcomes[-1].err)
        return [outcome.code for outcome in outcomes]

    said = []
    assert codes(None, ours, ("--vllm.insecure-skip-verify", "true"), ()) == [0, 0, 4]
    assert "CERTIFICATE_VERIFY_FAILED" in said[0]
    assert codes(authority, (*ours, *certified), ours, (*ours, *certified[:2])) == [
        0,
        4,
        2,
    ]
    assert "--vllm.cert-file and --vllm.key-file go together" in said[1]


# --- refusals


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        ("503 Busy", b'{"error": "not ready"}', "answered 503: not ready"),
        ("200 OK", b"<!doctype html>", "did not answer with a snapshot: "),
        (
            "500 Oops",
            b'{"error": "\\u001b[31m"}',
            "answered 500: \N{REPLACEMENT CHARACTER}[31m",
        ),
    ],
)
def test_what_is_no_exporter_ends_with_4_and_one_line(
    status: str, body: bytes, message: str
) -> None:
    """The line says what came instead; nothing in it steers the terminal."""
    with answering(body, status) as running:
        table = [
            (("--exporter", running.url), f"error: {running.url} {message}"),
            (("--exporter", f"http://127.0.0.1:{free_port()}"), "cannot be reached: "),
        ]
        assert wrong_refusals("check", table, code=4) == []
