"""The receiver as a whole: a real process, real HTTP, real programs."""

import asyncio
import contextlib
import json
import re
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from act.receiver import Act, act
from act.webhook import alert_document, body_of, calls_in, decision_of, recorder
from faults.rig import connect, read_answer
from support.commands import run, run_here
from support.programs import answers, eventually
from vllm_specdec_exporter.commands.act import EVENTS, _log, add_arguments, runner
from vllm_specdec_exporter.commands.act.history import ActionHistory
from vllm_specdec_exporter.config.options import Parser

FREE = ("--limit.per-model", "0s", "--limit.per-hour", "1000")
DISABLE = body_of(alert_document("disable", namespace="prod"))


def executing(
    program: Path, *flags: str, **environment: str
) -> contextlib.AbstractContextManager[Act]:
    """Run a receiver that calls a program."""
    return act("--script", str(program), "--execute", *flags, **environment)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Where the recording program of a test records."""
    return tmp_path / "record"


@pytest.fixture
def program(tmp_path: Path, record: Path) -> Path:
    """A program that records its calls."""
    return recorder(tmp_path / "program", record)


def wait_for(record: Path, times: int) -> None:
    """Wait until a recorder was called so often."""
    eventually(lambda: len(calls_in(record)) >= times, 120)


def test_it_listens_on_loopback_by_default() -> None:
    """And executes nothing."""
    parser = Parser(prog="act", description="")
    add_arguments(parser)
    defaults = parser.parse_args([])
    assert defaults.web_listen_address == ("127.0.0.1", 9851)
    assert defaults.execute is False


# --- dry run


def test_a_dry_run_tells_what_would_be_done_within_the_limits_and_does_nothing(
    program: Path, record: Path
) -> None:
    """One line an alert, with the exact command, on standard output."""
    with act("--script", str(program), "--limit.per-hour", "2") as running:
        for body in (
            DISABLE,
            DISABLE,
            body_of(alert_document("enable", namespace="prod")),
            body_of(alert_document("disable", model_name="mistral")),
            body_of(alert_document("disable", model_name="qwen")),
        ):
            assert running.post(body).status == 200, body
        event, *others = running.events(5)
        assert "dry-run: nothing is executed" in running.said()
    assert event.pop("time").endswith("Z")
    assert event == {
        "event": "would_act",
        "why": "dry-run: nothing is executed",
        "action": "disable",
        "recommended_k": "0",
        "model_name": "llama",
        "namespace": "prod",
        "cluster": "",
        "alertname": "VLLMSpecDecodeDisable",
        "starts_at": "2026-03-01T12:00:00.500000Z",
        "command": [str(program), "disable", "llama", "0", "prod", ""],
        "exit_code": None,
        "output": "",
    }
    kinds = ["skipped", "skipped", "would_act", "skipped"]
    assert [each["event"] for each in others] == kinds
    assert others[0]["why"].startswith("already acted upon at ")
    assert "--limit.per-model ago: allowed again at" in others[1]["why"]
    assert "--limit.per-hour 2 is reached" in others[3]["why"]
    assert calls_in(record) == []


# --- execution


def test_the_program_is_run_once_however_often_the_alert_comes(
    program: Path, record: Path
) -> None:
    """Also where it fires anew at once; every value arrives word for word, and no shell
    sees it.

    The exporter's variables, which may have passwords, do not.
    """
    hostile = (
        "$(touch owned) `touch owned`; touch owned | & > owned '\" \\ * ~ #é {a,b} %s "
        "!!"
    )
    alert = alert_document("disable", model_name=hostile, namespace="prod")
    environment = {
        "VLLM_SPECDEC_URL": "u",
        "VLLM_SPECDEC_EXPORTER_VLLM_URL": "s",
        "SECRET": "s",
    }
    with executing(program, *FREE, **environment) as running:
        for _ in range(3):
            running.post(body_of(alert))
        event, *others = running.events(3)
        running.post(body_of({**alert, "status": "resolved"}))
        running.post(body_of({**alert, "startsAt": "2026-03-02T00:00:00Z"}))
        running.post(body_of({**alert, "labels": alert["labels"] | {"cluster": "eu"}}))
        assert running.kinds(6)[3:] == ["resolved", "skipped", "acted"]
    ending = {"event": "acted", "exit_code": 0, "output": "recorded\n"}
    assert event.items() >= ending.items()
    assert [repeated["event"] for repeated in others] == ["skipped", "skipped"]
    call, _ = calls_in(record)
    assert call["argv"] == ["disable", hostile, "0", "prod", ""]
    assert json.loads(call["stdin"]) == alert
    assert call["environment"]["VLLM_SPECDEC_URL"] == "u"
    assert not {"SECRET", "VLLM_SPECDEC_EXPORTER_VLLM_URL"} & set(call["environment"])
    assert not Path("owned").exists()


def test_what_several_alerts_request_is_done_once_and_the_others_are_noted(
    program: Path, record: Path
) -> None:
    """Also when the one that it was done for resolves before the others; the metrics
    count all.
    """
    first = alert_document("disable", reason="acceptance")
    second = alert_document(
        "disable", reason="speedup", starts_at="2026-03-01T13:00:00Z"
    )
    with executing(program, *FREE) as running:
        for alerts in (
            [first],
            [first, second],
            [{**first, "status": "resolved"}, second],
            [second],
        ):
            running.post(body_of(*alerts))
        events = running.events(6)
        noted = (
            alert_document(""),
            alert_document("reboot"),
            alert_document("disable", status="resolved", model_name="mistral"),
            alert_document("disable", model_name="-rf"),
        )
        assert running.post(body_of(*noted)).text == "4 accepted\n"
        assert running.kinds(10)[6:] == ["skipped", "skipped", "resolved", "rejected"]
        metrics = running.get("/metrics").text
    kinds = [event["event"] for event in events]
    assert kinds == ["acted", "skipped", "skipped", "resolved", "skipped", "skipped"]
    assert "requests the same" in events[2]["why"]
    assert events[5]["why"].startswith("already acted upon")
    assert len(calls_in(record)) == 1
    assert re.findall(r"act_events_total(\{.* [1-9].*)", metrics) == [
        '{action="disable",event="acted"} 1.0',
        '{action="disable",event="skipped"} 4.0',
        '{action="none",event="skipped"} 1.0',
        '{action="unknown",event="skipped"} 1.0',
        '{action="disable",event="resolved"} 2.0',
        '{action="disable",event="rejected"} 1.0',
    ]
    assert 'act_events_total{action="disable",event="failed"} 0.0\n' in metrics
    assert "_created" not in metrics


def test_a_failure_is_tried_again_and_given_up_and_a_program_that_hangs_is_killed(
    tmp_path: Path, record: Path
) -> None:
    """The answer is 200 all the same: only Alertmanager's next repeat tries again."""
    program = tmp_path / "program"
    program.write_text(
        f"#!/bin/sh\necho >> {record}\ntest $2 = hangs && sleep 600\necho no >&2\n"
        "exit 3\n"
    )
    program.chmod(0o755)
    with executing(program, *FREE, "--script.timeout=6s") as running:
        assert [running.post(DISABLE).status for _ in range(4)] == [200] * 4
        assert len(running.events(4)) == 4
        running.post(DISABLE.replace(b"firing", b"resolved"))
        running.post(DISABLE)
        running.post(body_of(alert_document("disable", model_name="hangs")))
        events = running.events(7)
    kinds = [event["event"] for event in events]
    assert kinds == [*["failed"] * 3, "skipped", "resolved", "failed", "failed"]
    assert events[0]["exit_code"] == 3
    assert events[0]["output"] == "no\n"
    assert "given up after 3 failures" in events[3]["why"]
    assert events[6]["why"] == "it took longer than 6s and was killed"
    assert record.read_text().count("\n") == 5


# --- state


def test_what_was_done_is_known_after_a_restart_and_a_dry_run_saves_nothing(
    tmp_path: Path, program: Path, record: Path
) -> None:
    """With a state file, that no second process may use: each would forget what the
    other did.
    """
    state = str(tmp_path / "state.json")
    flags = ("--script", str(program), "--state.file", state)
    for more, result in (
        ((), "would_act"),
        (("--execute",), "acted"),
        (("--execute",), "skipped"),
        ((), "skipped"),
    ):
        with act(*flags, *more) as running:
            running.post(DISABLE)
            assert running.kinds(1) == [result], more
            second = run_here("act", "--state.file", state)
        why = f'--state.file "{state}": another process of act uses it'
        assert second.code == 2, more
        assert second.err == f"vllm-specdec-exporter act: error: {why}\n", more
    assert len(calls_in(record)) == 1


def test_what_ran_when_the_process_died_counts_as_failed(
    tmp_path: Path, record: Path
) -> None:
    """Nobody knows what became of it: it is tried again, as often as other failures
    are.
    """
    end = f"test $(wc -l < {record}) -lt 3 && exit 3; sleep 60"
    program = recorder(tmp_path / "program", record, end)
    state = f"--state.file={tmp_path / 'state.json'}"
    with executing(program, state) as running:
        for _ in range(3):
            running.post(DISABLE)
        wait_for(record, 3)
        running.stop(signal.SIGKILL)
    with executing(program, state) as running:
        running.post(DISABLE)
        assert "given up after 3 failures" in running.events(1)[0]["why"]


def test_a_log_that_cannot_be_written_stops_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event is on standard error instead, and is counted."""
    registry = CollectorRegistry()
    labels = {"event": "acted", "action": "disable"}
    # Closing the file writes again.
    with contextlib.suppress(OSError), Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        _log(labels, Counter(EVENTS, "", tuple(labels), registry=registry))
    said = capfd.readouterr().err
    assert (
        "standard output: cannot be written: No space left on device; the event was {"
        in said
    )
    assert registry.get_sample_value(EVENTS, labels) == 1


# --- what waits


def test_a_slow_program_never_holds_up_the_answer(tmp_path: Path, record: Path) -> None:
    """A hundred alerts wait; more are refused with 503, so that Alertmanager sends them
    again.
    """
    program = recorder(tmp_path / "program", record, "sleep 120")
    with executing(program, *FREE, "--script.timeout=10m") as running:
        running.post(DISABLE)
        wait_for(record, 1)
        models = [alert_document("disable", model_name=f"m{n}") for n in range(101)]
        assert running.post(body_of(*models[:60])).status == 200
        assert running.post(body_of(*models[:41])).status == 503
        assert running.post(body_of(*models[:40])).status == 200
        assert running.post(body_of(models[0])).status == 503
        assert running.get("/-/ready").status == 200
        assert len(calls_in(record)) == 1
        running.process.kill()


def test_what_resolves_while_it_waits_is_not_done_nor_what_waits_at_the_end(
    tmp_path: Path, record: Path
) -> None:
    """At the end the running program may finish; Alertmanager will repeat the rest."""
    end = f'while ! test -e {tmp_path}/go-"$2"; do sleep 0.05; done; echo finished'
    program = recorder(tmp_path / "program", record, end)
    with executing(program, *FREE) as running:
        running.post(DISABLE)
        wait_for(record, 1)
        for model, status in (
            ("mistral", "firing"),
            ("mistral", "resolved"),
            ("qwen", "firing"),
            ("yi", "firing"),
        ):
            running.post(
                body_of(alert_document("disable", model_name=model, status=status))
            )
        (tmp_path / "go-llama").touch()
        wait_for(record, 2)
        running.process.send_signal(signal.SIGTERM)
        eventually(lambda: "stopping" in running.said())
        (tmp_path / "go-qwen").touch()
        assert running.stop() == 0
        events = running.events()
        assert not answers(running.url)
    assert ["{event} {model_name}: {why}".format(**event) for event in events] == [
        "acted llama: the command ended with 0",
        "skipped mistral: the alert resolved while it waited",
        "resolved mistral: the alert no longer fires",
        "acted qwen: the command ended with 0",
        "skipped yi: act is stopping",
    ]
    assert events[3]["output"] == "recorded\nfinished\n"
    assert len(calls_in(record)) == 2


async def test_a_program_that_still_runs_at_the_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After eight seconds, and noted as failed."""
    assert runner.MAX_SHUTDOWN_SECONDS == 8.0
    monkeypatch.setattr(runner, "MAX_SHUTDOWN_SECONDS", 0.1)
    program = tmp_path / "program"
    written = tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {written}\nsleep 600\n")
    program.chmod(0o755)
    events = []
    settings = runner.RunnerSettings(execute=True, script=str(program))
    tested = runner.Runner(settings, ActionHistory(), events.append, print)
    assert tested.offer((decision_of("disable"),))
    running = asyncio.ensure_future(tested.run())
    pid = await asyncio.to_thread(
        eventually, lambda: written.exists() and written.read_text().strip()
    )
    await tested.stop(running)
    assert not tested.offer((decision_of("disable"),))
    (event,) = events
    assert event["event"] == "failed"
    assert event["why"] == "it still ran when act was stopped, and was killed"
    assert not Path(f"/proc/{pid}").exists()  # noqa: ASYNC240


# --- HTTP


#: The head of a payload but for its length.
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
MAX_BODY = 1024 * 1024


@pytest.fixture(scope="module")
def running() -> Iterator[Act]:
    """A receiver in dry-run."""
    with act(*FREE) as running:
        yield running


@pytest.mark.parametrize(
    ("sent", "status", "why"),
    [
        ({}, 200, "0 accepted\n"),
        ({"Content_Type": "application/json; charset=utf-8"}, 200, "0 acc"),
        ({"method": "GET", "path": "/-/healthy"}, 200, "healthy\n"),
        ({"method": "GET", "path": "/-/ready"}, 200, "ready\n"),
        ({"method": "GET"}, 405, ""),
        ({"method": "PUT"}, 405, ""),
        ({"path": "/api/v1/snapshot"}, 404, ""),
        ({"body": b"{]"}, 400, "not a webhook payload of Alertmanager"),
        ({"body": b" " * (MAX_BODY + 1)}, 413, f"body size {MAX_BODY} exceeded"),
        ({"Content_Encoding": "gzip"}, 415, ""),
        ({"Origin": "http://evil.example"}, 403, ""),
        ({"Content_Type": "text/plain"}, 415, ""),
    ],
    ids=str,
)
def test_payloads_are_accepted_and_anything_else_is_refused_in_one_line(
    running: Act, sent: dict[str, Any], status: int, why: str
) -> None:
    """Alertmanager logs the line, and compresses nothing; web pages must not reach what
    is on loopback.
    """
    answer = running.post(**{"body": body_of(), **sent})
    assert answer.status == status
    assert why in answer.text
    assert not why or answer.text.strip().count("\n") == 0


def test_clients_that_talk_nonsense_or_go_away_are_no_trouble(running: Act) -> None:
    """They fill no log."""
    for sent in (
        b"Content-Length: 9\r\n\r\n{",
        b"Content-Length: none\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}oops",
        b"Transfer-Encoding: chunked\r\n\r\noops\r\n",
        b"\0\r\n\r\n",
    ):
        with connect(running.url) as client:
            client.sendall(POST + sent)
            client.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                client.recv(1000)
        assert running.get("/-/ready").status == 200, sent
    assert running.said().count("\n") == 1


def test_hostile_labels_are_one_line_of_ascii(running: Act) -> None:
    """Whoever reads the log in a terminal sees only what is there."""
    count = len(running.events())
    model = "a\n\x1b[31m\u202e\x9b"
    running.post(
        body_of(alert_document("disable", model_name=model, alertname="é\u2028"))
    )
    (event,) = running.events(count + 1)[count:]
    assert event["event"] == "rejected"
    assert event["model_name"] == model
    assert running.log().isascii()


def test_a_payload_larger_than_the_queue_is_accepted_if_nothing_waits(
    running: Act,
) -> None:
    """Otherwise it never could be.

    Without a program, there is an event all the same.
    """
    count = len(running.events())
    models = [alert_document("disable", model_name=f"m{n}") for n in range(150)]
    assert running.post(body_of(*models)).status == 200
    events = running.events(count + 150)[count:]
    without_program = {"event": "would_act", "action": "disable", "command": None}
    assert all(event.items() >= without_program.items() for event in events)
    assert len(events) == 150


# --- the token


WRONG = (
    "Bearer",
    "Bearer wrong",
    "Bearer s3cre",
    "Bearer s3crets",
    "Bearer s\xe9cret",
    "s3cret",
)


def test_only_the_bearer_of_the_token_is_served_and_the_file_is_read_anew(
    tmp_path: Path,
) -> None:
    """On any address; health and metrics are open.

    A file that holds none lets nobody in.
    """
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    with act(
        "--web.token-file", str(file), "--web.listen-address", "0.0.0.0:{port}"
    ) as running:
        refused = {
            value: running.post(DISABLE, Authorization=value)
            for value in (*WRONG, "Basic s3cret", "Basic YTpzM2NyZXQ=")
        }
        refused["none"] = running.post(DISABLE)
        assert {
            value: answer.status
            for value, answer in refused.items()
            if answer.status != 401
            or not answer.headers["www-authenticate"].startswith("Bearer ")
        } == {}
        assert running.events() == []
        open_pages = [running.get(path).status for path in ("/-/healthy", "/metrics")]
        assert open_pages == [200, 200]
        assert running.post(DISABLE, Authorization="Bearer s3cret").status == 200
        assert running.post(DISABLE, Authorization="bearer s3cret").status == 200
        assert running.kinds(2) == ["would_act", "skipped"]

        # The refusal comes before the body.
        with connect(running.url) as client:
            client.sendall(POST + b"Content-Length: 1000000\r\n\r\n")
            assert read_answer(client).startswith(b"HTTP/1.1 401 ")

        def status(token: str) -> int:
            return running.post(body_of(), Authorization=f"Bearer {token}").status

        file.write_text("other")
        assert status("s3cret") == 401
        assert status("other") == 200
        file.write_text("\n")
        assert status("") == 503
        assert status("other") == 503
        assert running.said().count("--web.token-file") == 1
        assert "holds no token" in running.said()
        file.unlink()
        assert status("other") == 503
        file.write_text("third")
        assert status("third") == 200


# --- the address


def test_an_address_in_use() -> None:
    """One line, and exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        outcome = run("act", "--web.listen-address", address)
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err == (
        f'vllm-specdec-exporter act: error: --web.listen-address "{address}": cannot '
        "listen: "
        "Address already in use\n"
    )
