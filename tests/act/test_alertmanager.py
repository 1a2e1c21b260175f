"""A real Alertmanager delivers to a real receiver."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from act.receiver import act
from act.webhook import NAMES, calls_in, recorder
from support.ports import free_port
from support.programs import answers, find_program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SECONDS = 30.0


class Alertmanager:
    """A running Alertmanager."""

    def __init__(self, url: str) -> None:
        self.url = url

    def send(self, *alerts: dict[str, Any]) -> None:
        """Give it alerts, as Prometheus does."""
        request = urllib.request.Request(
            f"{self.url}/api/v2/alerts", json.dumps(alerts).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            assert answer.status == 200

    def metric(self, name: str, integration: str = "webhook") -> float:
        """The sum of one of its own counters for the webhook."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=_SECONDS) as answer:
            lines = answer.read().decode().splitlines()
        found = [
            line for line in lines if line.startswith(name + "{") and f'integration="{integration}"' in line
        ]
        return sum(float(line.rpartition(" ")[2]) for line in found)


@contextlib.contextmanager
def alertmanager(folder: Path, url: str, token: str) -> Iterator[Alertmanager]:
    """Run an Alertmanager that sends everything to this address, with a token from a file, and often."""
    program = find_program("prometheus-alertmanager", "prometheus-alertmanager")
    (folder / "token-of-alertmanager").write_text(token)
    http = {"authorization": {"credentials_file": str(folder / "token-of-alertmanager")}}
    config = {
        "route": {
            "receiver": "act",
            "group_by": ["model_name"],
            "group_wait": "0s",
            "group_interval": "1s",
            "repeat_interval": "1s",
        },
        "receivers": [
            {"name": "act", "webhook_configs": [{"url": url, "send_resolved": True, "http_config": http}]}
        ],
    }
    file = folder / "alertmanager.yml"
    file.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    with (folder / "alertmanager.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={file}",
                f"--storage.path={folder / 'alertmanager'}",
                f"--web.listen-address={address}",
                "--cluster.listen-address=",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        end = time.monotonic() + _SECONDS
        while not answers(f"http://{address}/-/ready"):
            assert process.poll() is None, (folder / "alertmanager.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.05)
        yield Alertmanager(f"http://{address}")
    finally:
        process.terminate()
        process.wait(_SECONDS)


def alert(action: str, k: str, **labels: str) -> dict[str, Any]:
    """An alert as Prometheus sends it."""
    return {
        "labels": {
            "alertname": NAMES[action],
            "action": action,
            "recommended_k": k,
            "severity": "warning",
            **labels,
        },
        "annotations": {"summary": "drafting costs more than it gains"},
        "generatorURL": "http://prometheus/graph",
    }


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """The receiver's token."""
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    return file


def test_an_alert_that_keeps_firing_is_acted_upon_once(tmp_path: Path, token_file: Path) -> None:
    """It is repeated, it resolves, and it fires anew; contradictions within one group leave `disable`."""
    record = tmp_path / "record"
    program = str(recorder(tmp_path / "program", record))
    hostile = "org/llama;$(reboot) \"'`é"
    flags = ("--web.token-file", str(token_file), "--limit.per-model", "0s")
    with (
        act("--script", program, "--execute", *flags) as running,
        alertmanager(tmp_path, f"{running.url}/alerts", "s3cret") as manager,
    ):
        started = datetime.now(UTC) - timedelta(minutes=1)
        firing = [
            {**alert("disable", "0", model_name=hostile, namespace="prod"), "startsAt": started.isoformat()},
            {
                **alert("increase_k", "7", model_name=hostile, namespace="prod"),
                "startsAt": started.isoformat(),
            },
            {"labels": {"alertname": "Watchdog", "model_name": hostile}, "startsAt": started.isoformat()},
        ]
        manager.send(*firing)
        events = running.events(9)  # three deliveries at least

        of = {
            action: [event for event in events if event["action"] == action]
            for action in ("disable", "increase_k", "")
        }
        assert [event["event"] for event in of["disable"]] == [
            "acted",
            *["skipped"] * (len(of["disable"]) - 1),
        ]
        assert of["disable"][-1]["why"].startswith("already acted upon at ")
        assert {event["why"] for event in of["increase_k"]} == {
            "one payload asks for disable, increase_k (K 7) for the same model: disable wins"
        }
        assert {event["why"] for event in of[""]} == {"the alert has no label action"}
        (call,) = calls_in(record)
        assert call["argv"] == ["disable", hostile, "0", "prod", ""]
        assert json.loads(call["stdin"])["annotations"] == firing[0]["annotations"]

        ended = datetime.now(UTC).isoformat()
        manager.send(*({**one, "endsAt": ended} for one in firing))
        wait_for_event(running, "resolved", "disable")
        assert len(calls_in(record)) == 1

        manager.send(alert("disable", "0", model_name=hostile, namespace="prod"))
        wait_for_event(running, "acted", "disable", times=2)
        assert len(calls_in(record)) == 2
        assert manager.metric("alertmanager_notifications_failed_total") == 0


def test_an_alertmanager_without_the_token_is_refused(tmp_path: Path, token_file: Path) -> None:
    """Nothing is done, nothing is logged as an event, and Alertmanager counts the failure."""
    record = tmp_path / "record"
    program = str(recorder(tmp_path / "program", record))
    with (
        act("--script", program, "--execute", "--web.token-file", str(token_file)) as running,
        alertmanager(tmp_path, f"{running.url}/alerts", "guessed") as manager,
    ):
        manager.send(alert("disable", "0", model_name="llama"))
        end = time.monotonic() + _SECONDS
        while manager.metric("alertmanager_notifications_failed_total") < 1:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert running.events() == []
        assert calls_in(record) == []


def wait_for_event(running: Any, kind: str, action: str, times: int = 1) -> None:
    """Wait until there are so many such events."""
    end = time.monotonic() + _SECONDS
    while sum((e["event"], e["action"]) == (kind, action) for e in running.events()) < times:
        assert time.monotonic() < end, running.events()
        time.sleep(0.05)
