"""The receiver as a whole: a real process, real HTTP, real programs."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from act.receiver import act
from act.webhook import alert_document, body_of, calls_in, recorder
from support.programs import COMMAND, answers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from act.receiver import Act

FREE = ("--limit.per-model", "0s", "--limit.per-hour", "1000")
DISABLE = body_of(alert_document("disable", namespace="prod"))


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Where the recording program of a test records."""
    return tmp_path / "record"


@pytest.fixture
def program(tmp_path: Path, record: Path) -> str:
    """A program that records its calls."""
    return str(recorder(tmp_path / "program", record))


class TestDryRun:
    def test_it_tells_what_would_be_done_and_does_nothing(self, program: str, record: Path) -> None:
        """One line an alert, with the exact command, on standard output unless told otherwise."""
        with act("--script", program, log_to_stdout=True) as running:
            assert running.post(DISABLE).status == 200
            (event,) = running.events(1)
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
            "command": [program, "disable", "llama", "0", "prod", ""],
            "exit_code": None,
            "output": "",
        }
        assert calls_in(record) == []

    def test_it_needs_no_program(self) -> None:
        """What the alert asks for is told all the same."""
        with act() as running:
            running.post(DISABLE)
            (event,) = running.events(1)
        assert (event["event"], event["action"], event["command"]) == ("would_act", "disable", None)

    def test_it_rehearses_repeats_and_limits(self) -> None:
        """What is shown is what would happen, not a line for each repeat."""
        with act() as running:
            running.post(DISABLE)
            running.post(DISABLE)
            running.post(body_of(alert_document("enable", namespace="prod")))
            events = running.events(3)
        assert [event["event"] for event in events] == ["would_act", "skipped", "skipped"]
        assert events[1]["why"].startswith("already acted upon at ")
        assert "--limit.per-model" in events[2]["why"]

    def test_a_rehearsal_is_not_the_act(self, tmp_path: Path, program: str, record: Path) -> None:
        """What dry-run put into the state file holds nothing back."""
        flags = ("--script", program, "--state.file", str(tmp_path / "state.json"))
        with act(*flags) as running:
            running.post(DISABLE)
            assert running.kinds(1) == ["would_act"]
        with act(*flags, "--execute") as running:
            running.post(DISABLE)
            assert running.kinds(1) == ["acted"]
        assert len(calls_in(record)) == 1


class TestExecute:
    def test_the_program_is_run_once_however_often_the_alert_comes(self, program: str, record: Path) -> None:
        """Arguments, alert and environment are those of the contract; the event says how it ended."""
        with act("--script", program, "--execute", VLLM_SPECDEC_URL="u", SECRET="s") as running:
            for _ in range(3):
                running.post(DISABLE)
            event, *others = running.events(3)
        assert (event["event"], event["exit_code"], event["output"]) == ("acted", 0, "recorded\n")
        assert [other["event"] for other in others] == ["skipped", "skipped"]
        (call,) = calls_in(record)
        assert call["argv"] == ["disable", "llama", "0", "prod", ""]
        assert json.loads(call["stdin"])["labels"]["namespace"] == "prod"
        assert call["environment"]["VLLM_SPECDEC_URL"] == "u"
        assert "SECRET" not in call["environment"]

    def test_an_alert_that_fires_anew_is_another_decision(self, program: str, record: Path) -> None:
        """It began at another time."""
        with act("--script", program, "--execute", *FREE) as running:
            running.post(DISABLE)
            running.post(body_of(alert_document("disable", status="resolved", namespace="prod")))
            running.post(
                body_of(alert_document("disable", starts_at="2026-03-02T00:00:00Z", namespace="prod"))
            )
            assert running.kinds(3) == ["acted", "resolved", "acted"]
        assert len(calls_in(record)) == 2

    def test_what_several_alerts_ask_for_is_done_once(self, program: str, record: Path) -> None:
        """Also when the one that it was done for resolves before the others."""
        first = alert_document("disable", reason="acceptance")
        second = alert_document("disable", reason="speedup", starts_at="2026-03-01T13:00:00Z")
        with act("--script", program, "--execute", *FREE) as running:
            running.post(body_of(first))
            running.post(body_of(first, second))
            running.post(body_of({**first, "status": "resolved"}, second))
            running.post(body_of(second))
            events = running.events(6)
        kinds = [event["event"] for event in events]
        assert kinds == ["acted", "skipped", "skipped", "resolved", "skipped", "skipped"]
        assert "asks for the same" in events[2]["why"]
        assert events[5]["why"].startswith("already acted upon")
        assert len(calls_in(record)) == 1

    def test_what_is_not_to_be_acted_upon_is_noted(self, program: str, record: Path) -> None:
        """Without an action, with an unknown one, resolved, or with values that are not passed on."""
        with act("--script", program, "--execute", *FREE) as running:
            alerts = (
                alert_document(""),
                alert_document("reboot"),
                alert_document("disable", status="resolved"),
                alert_document("disable", model_name="-rf"),
            )
            assert running.post(body_of(*alerts)).text == "4 taken\n"
            assert running.kinds(4) == ["skipped", "skipped", "resolved", "rejected"]
            metrics = running.get("/metrics").text
        assert calls_in(record) == []
        for labels in (
            'action="none",event="skipped"',
            'action="unknown",event="skipped"',
            'action="disable",event="resolved"',
            'action="disable",event="rejected"',
        ):
            assert f"vllm_specdec_act_events_total{{{labels}}} 1.0" in metrics
        assert 'vllm_specdec_act_events_total{action="disable",event="acted"} 0.0' in metrics
        assert "vllm_specdec_act_build_info{version=" in metrics

    def test_a_failure_is_tried_again_and_given_up_in_the_end(self, tmp_path: Path, record: Path) -> None:
        """The answer is 200 all the same: only Alertmanager's next repeat tries again."""
        program = str(recorder(tmp_path / "program", record, "echo no >&2; exit 3"))
        with act("--script", program, "--execute") as running:
            assert [running.post(DISABLE).status for _ in range(4)] == [200] * 4
            events = running.events(4)
            running.post(body_of(alert_document("disable", status="resolved", namespace="prod")))
            running.post(DISABLE)
            assert running.kinds(6)[4:] == ["resolved", "failed"]
        assert [event["event"] for event in events] == ["failed", "failed", "failed", "skipped"]
        assert (events[0]["exit_code"], events[0]["output"]) == (3, "recorded\nno\n")
        assert "given up after 3 failures" in events[3]["why"]
        assert len(calls_in(record)) == 4

    def test_a_program_that_hangs_is_killed(self, tmp_path: Path, record: Path) -> None:
        """After its time, and noted as failed."""
        program = str(recorder(tmp_path / "program", record, "sleep 60"))
        with act("--script", program, "--execute", "--script.timeout", "500ms") as running:
            running.post(DISABLE)
            (event,) = running.events(1)
        assert event["event"] == "failed"
        assert event["why"] == "it took longer than 500ms and was killed"

    def test_limits(self, program: str, record: Path) -> None:
        """What is over a limit is not done, and not remembered as done."""
        with act(
            "--script", program, "--execute", "--limit.per-hour", "2", "--limit.per-model", "2s"
        ) as running:
            running.post(DISABLE)
            running.post(body_of(alert_document("enable", namespace="prod")))
            assert running.kinds(2) == ["acted", "skipped"]
            assert "--limit.per-model ago: allowed again at" in running.events()[1]["why"]
            time.sleep(2.1)
            running.post(body_of(alert_document("enable", namespace="prod")))
            running.post(body_of(alert_document("disable", model_name="mistral")))
            assert running.kinds(4)[2:] == ["acted", "skipped"]
            assert "--limit.per-hour 2 is reached" in running.events()[3]["why"]
        assert [call["argv"][0] for call in calls_in(record)] == ["disable", "enable"]


class TestKubernetes:
    def test_kubectl_is_what_is_run(self, tmp_path: Path, record: Path) -> None:
        """With its arguments, and what it needs to find the cluster."""
        recorder(tmp_path / "kubectl", record)
        path = f"{tmp_path}:{os.environ['PATH']}"
        with act(
            "--execute",
            *("--kubernetes.workload", "a=b/llama=prod/statefulset/vllm.llama"),
            PATH=path,
            KUBECONFIG="/config",
        ) as running:
            running.post(body_of(alert_document("increase_k", model_name="a=b/llama", namespace="prod")))
            running.post(body_of(alert_document("increase_k", model_name="a=b/llama", namespace="dev")))
            running.post(body_of(alert_document("increase_k", model_name="llama")))
            assert running.kinds(3) == ["acted", "rejected", "skipped"]
        (call,) = calls_in(record)
        assert call["argv"] == [
            *("--namespace", "prod", "annotate", "--overwrite", "statefulset/vllm.llama"),
            "vllm-specdec-exporter/action=increase_k",
            "vllm-specdec-exporter/recommended-num-speculative-tokens=5",
            "vllm-specdec-exporter/alert=VLLMSpecDecodeRaiseK",
            "vllm-specdec-exporter/decided-at=2026-03-01T12:00:00.500000Z",
        ]
        assert call["environment"]["KUBECONFIG"] == "/config"


class TestState:
    def test_what_was_done_is_known_after_a_restart(self, tmp_path: Path, program: str, record: Path) -> None:
        """With a state file; without one it is forgotten."""
        flags = ("--script", program, "--execute", "--state.file", str(tmp_path / "state.json"))
        with act(*flags) as running:
            running.post(DISABLE)
            assert running.kinds(1) == ["acted"]
        with act(*flags) as running:
            running.post(DISABLE)
            assert running.kinds(1) == ["skipped"]
        assert len(calls_in(record)) == 1

    def test_a_second_process_with_the_same_file_does_not_start(self, tmp_path: Path) -> None:
        """Each would forget what the other did; another file is another matter."""
        flags = ("--state.file", str(tmp_path / "state.json"))
        with act(*flags):
            other = subprocess.run(
                [COMMAND, "act", "--web.listen-address", "127.0.0.1:0", *flags],
                capture_output=True,
                text=True,
            )
        assert other.returncode == 2
        assert other.stderr == (
            f'vllm-specdec-exporter act: error: --state.file "{tmp_path / "state.json"}": '
            "another process of act uses it\n"
        )

    def test_what_ran_when_the_process_died_counts_as_failed(self, tmp_path: Path, record: Path) -> None:
        """Nobody knows what became of it: it is tried again, as often as other failures are."""
        program = str(recorder(tmp_path / "program", record, "sleep 0.5"))
        flags = ("--script", program, "--execute", "--state.file", str(tmp_path / "state.json"))
        for times in (1, 2, 3):
            with act(*flags) as running:
                running.post(DISABLE)
                wait_for(record, times)
                running.stop(signal.SIGKILL)
        with act(*flags) as running:
            running.post(DISABLE)
            assert "given up after 3 failures" in running.events(1)[0]["why"]

    def test_nothing_is_done_that_could_not_be_remembered(
        self, tmp_path: Path, program: str, record: Path
    ) -> None:
        """The folder is gone, or the disk full: the command is not run, and the next repeat tries again."""
        folder = tmp_path / "folder"
        folder.mkdir()
        with act("--script", program, "--execute", "--state.file", str(folder / "state.json")) as running:
            shutil.rmtree(folder)
            running.post(DISABLE)
            (event,) = running.events(1)
            assert (event["event"], calls_in(record)) == ("skipped", [])
            assert "--state.file" in event["why"]
            assert "cannot be written: No such file or directory" in running.said()
            folder.mkdir()
            running.post(DISABLE)
            assert running.kinds(2)[1] == "acted"


def wait_for(record: Path, times: int) -> None:
    """Wait until a recorder was called so often."""
    end = time.monotonic() + 30
    while len(calls_in(record)) < times:
        assert time.monotonic() < end
        time.sleep(0.02)


class TestQueue:
    def test_a_slow_program_never_holds_up_the_answer(self, tmp_path: Path, record: Path) -> None:
        """A hundred alerts wait; more are refused with 503, so that Alertmanager sends them again."""
        program = str(recorder(tmp_path / "program", record, "sleep 60"))
        with act("--script", program, "--execute", *FREE) as running:
            begin = time.monotonic()
            running.post(DISABLE)
            wait_for(record, 1)
            models = [alert_document("disable", model_name=f"m{n}") for n in range(101)]
            assert running.post(body_of(*models[:60])).status == 200
            assert running.post(body_of(*models[:41])).status == 503
            assert running.post(body_of(*models[:40])).status == 200
            assert running.post(body_of(models[0])).status == 503
            assert running.get("/-/ready").status == 200
            assert time.monotonic() - begin < 20
            assert len(calls_in(record)) == 1
            running.process.kill()

    def test_a_payload_larger_than_the_queue_is_taken_when_nothing_waits(self) -> None:
        """Else it could never be."""
        with act(*FREE) as running:
            models = [alert_document("disable", model_name=f"m{n}") for n in range(150)]
            assert running.post(body_of(*models)).status == 200
            assert running.kinds(150) == ["would_act"] * 150

    def test_an_alert_that_resolves_takes_back_what_waits(self, tmp_path: Path, record: Path) -> None:
        """Nothing is done about what is over."""
        program = str(recorder(tmp_path / "program", record, "sleep 1"))
        with act("--script", program, "--execute", *FREE) as running:
            running.post(DISABLE)
            wait_for(record, 1)
            running.post(body_of(alert_document("disable", model_name="mistral")))
            running.post(body_of(alert_document("disable", model_name="mistral", status="resolved")))
            assert running.kinds(3) == ["acted", "skipped", "resolved"]
            assert running.events()[1]["why"] == "the alert resolved while it waited"
        assert len(calls_in(record)) == 1


class TestEnd:
    def test_the_running_program_may_finish(self, tmp_path: Path, record: Path) -> None:
        """What still waits is skipped: Alertmanager will repeat it."""
        program = str(recorder(tmp_path / "program", record, "sleep 1; echo finished"))
        with act("--script", program, "--execute", *FREE) as running:
            running.post(DISABLE)
            wait_for(record, 1)
            running.post(body_of(alert_document("disable", model_name="mistral")))
            assert running.stop() == 0
            events = running.events()
            assert not answers(running.url)
        assert [event["event"] for event in events] == ["acted", "skipped"]
        assert events[0]["output"] == "recorded\nfinished\n"
        assert events[1]["why"] == "act is stopping"

    def test_but_not_for_ever(self, tmp_path: Path, record: Path) -> None:
        """Ten seconds; then it is killed with all that it started, and noted as failed."""
        program = str(recorder(tmp_path / "program", record, f"echo $$ > {tmp_path / 'pid'}; sleep 60"))
        with act("--script", program, "--execute") as running:
            running.post(DISABLE)
            wait_for(record, 1)
            begin = time.monotonic()
            assert running.stop(signal.SIGINT) == 0
            assert 9 < time.monotonic() - begin < 20
            (event,) = running.events()
        assert event["event"] == "failed"
        assert event["why"] == "it still ran when act was stopped, and was killed"
        assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


class TestHttp:
    @pytest.fixture(scope="class")
    @staticmethod
    def running() -> Iterator[Act]:
        """A receiver in dry-run."""
        with act(*FREE) as running:
            yield running

    def test_both_paths_take_payloads(self, running: Act) -> None:
        """With the media type that Alertmanager sends, or with a character set."""
        assert running.post(body_of(), "/").status == 200
        answer = running.post(body_of(), "/alerts", Content_Type="application/json; charset=utf-8")
        assert (answer.status, answer.text) == (200, "0 taken\n")

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/", 405),
            ("PUT", "/alerts", 405),
            ("POST", "/metrics", 405),
            ("POST", "/-/ready", 405),
            ("GET", "/api/v1/snapshot", 404),
            ("POST", "/alerts/", 404),
        ],
    )
    def test_anything_else(self, running: Act, method: str, path: str, status: int) -> None:
        """There is nothing else."""
        assert running.post(body_of() if method != "GET" else b"", path, method).status == status

    def test_health(self, running: Act) -> None:
        """Both answer."""
        assert [running.get(path).text for path in ("/-/healthy", "/-/ready")] == ["healthy\n", "ready\n"]

    @pytest.mark.parametrize(
        ("body", "status", "why"),
        [
            (b"", 400, "not a webhook payload of Alertmanager"),
            (b"{]", 400, "not a webhook payload of Alertmanager"),
            (body_of(version="5"), 400, "its version is '5', and version 4 is understood"),
            (b" " * (1024 * 1024 + 1), 413, "at most 1048576 bytes"),
        ],
    )
    def test_what_is_no_payload_is_refused_in_one_line(
        self, running: Act, body: bytes, status: int, why: str
    ) -> None:
        """Alertmanager logs it."""
        answer = running.post(body)
        assert answer.status == status
        assert why in answer.text
        assert answer.text.count("\n") == 1

    @pytest.mark.parametrize("body", [gzip.compress(b" " * 50_000_000), gzip.compress(body_of()), b"no gzip"])
    def test_compressed_bodies_are_refused(self, running: Act, body: bytes) -> None:
        """Alertmanager sends none, and what is not unpacked cannot be too large when it is."""
        assert running.post(body, Content_Encoding="gzip").status == 415

    def test_web_pages_are_refused(self, running: Act) -> None:
        """A page that somebody on this machine looks at must not reach what listens on loopback."""
        assert running.post(body_of(), Origin="http://evil.example").status == 403
        assert running.post(body_of(), Content_Type="text/plain").status == 415

    @pytest.mark.parametrize(
        "sent",
        [
            b"Content-Length: 9\r\n\r\n{",
            b"Content-Length: none\r\n\r\n",
            b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}oops",
            b"Transfer-Encoding: chunked\r\n\r\noops\r\n",
            b"\0\r\n\r\n",
        ],
    )
    def test_a_client_that_talks_nonsense_or_goes_away(self, running: Act, sent: bytes) -> None:
        """It is no trouble, and fills no log."""
        host, port = str(urlsplit(running.url).hostname), int(urlsplit(running.url).port or 0)
        with socket.create_connection((host, port)) as client:
            client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + sent)
            client.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                client.recv(1000)
        assert running.get("/-/ready").status == 200
        assert running.said().count("\n") == 1

    def test_hostile_labels_are_one_line_of_ascii(self, running: Act) -> None:
        """Whoever reads the log in a terminal sees only what is there."""
        before = len(running.events())
        running.post(
            body_of(alert_document("disable", model_name="a\n\x1b[31m\u202e\x9b", alertname="é\u2028"))
        )
        (event,) = running.events(before + 1)[before:]
        assert (event["event"], event["model_name"]) == ("rejected", "a\n\x1b[31m\u202e\x9b")
        assert running.log.read_bytes().isascii()


class TestToken:
    @pytest.fixture
    def token_file(self, tmp_path: Path) -> Path:
        """A file with a token."""
        file = tmp_path / "token"
        file.write_text("s3cret\n")
        return file

    def test_only_its_bearer_is_served(self, token_file: Path) -> None:
        """On any address; health and metrics are open."""
        with act("--web.token-file", str(token_file), "--web.listen-address", "0.0.0.0:0") as running:
            refused = [
                running.post(DISABLE, **headers)
                for headers in (
                    {},
                    {"Authorization": "Bearer"},
                    {"Authorization": "Bearer wrong"},
                    {"Authorization": "Bearer s3cre"},
                    {"Authorization": "Bearer s3crets"},
                    {"Authorization": "Bearer s\xe9cret"},
                    {"Authorization": "s3cret"},
                    {"Authorization": "Basic s3cret"},
                    {"Authorization": "Basic YTpzM2NyZXQ="},
                )
            ]
            assert {answer.status for answer in refused} == {401}
            assert all(answer.headers["WWW-Authenticate"].startswith("Bearer ") for answer in refused)
            assert running.events() == []
            assert running.get("/-/healthy").status == 200
            assert running.get("/metrics").status == 200
            assert running.post(DISABLE, Authorization="Bearer s3cret").status == 200
            assert running.post(DISABLE, Authorization="bearer s3cret").status == 200
            assert running.kinds(2) == ["would_act", "skipped"]

    def test_a_refused_body_is_not_read(self, token_file: Path) -> None:
        """The answer comes before it."""
        with act("--web.token-file", str(token_file)) as running:
            place = urlsplit(running.url)
            connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=10)
            connection.putrequest("POST", "/alerts")
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", "1000000")
            connection.endheaders()
            assert connection.getresponse().status == 401
            connection.close()

    def test_it_is_read_anew(self, token_file: Path) -> None:
        """A new token holds at once; a file that holds none lets nobody in."""
        with act("--web.token-file", str(token_file)) as running:
            token_file.write_text("other")
            assert running.post(body_of(), Authorization="Bearer s3cret").status == 401
            assert running.post(body_of(), Authorization="Bearer other").status == 200
            token_file.write_text("\n")
            assert running.post(body_of(), Authorization="Bearer ").status == 503
            assert running.post(body_of(), Authorization="Bearer other").status == 503
            assert running.said().count("--web.token-file") == 1
            assert "holds no token" in running.said()
            token_file.unlink()
            assert running.post(body_of(), Authorization="Bearer other").status == 503
            token_file.write_text("third")
            assert running.post(body_of(), Authorization="Bearer third").status == 200

    def test_insecure_is_as_it_says(self) -> None:
        """Who asks for it gets it."""
        with act("--web.insecure", "--web.listen-address", "0.0.0.0:0") as running:
            assert running.post(body_of()).status == 200


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path, program: str, record: Path) -> None:
    """The event is on standard error instead."""
    log = tmp_path / "logs" / "events"
    log.parent.mkdir()
    with act("--script", program, "--execute", *FREE, "--log.file", str(log)) as running:
        running.post(DISABLE)
        wait_for(record, 1)
        while not log.exists() or not log.read_text():
            time.sleep(0.02)
        log.unlink()
        log.parent.rmdir()
        running.post(body_of(alert_document("disable", model_name="mistral")))
        wait_for(record, 2)
        end = time.monotonic() + 20
        while "cannot be written: No such file or directory" not in running.said():
            assert time.monotonic() < end
            time.sleep(0.02)
        assert '"model_name": "mistral"' in running.said()
