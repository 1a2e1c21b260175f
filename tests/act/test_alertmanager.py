"""A real Alertmanager delivers to a real receiver."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from act.receiver import act
from act.webhook import NAMES, calls_in, recorder
from support.alertmanager import AlertmanagerServer
from support.programs import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from act.receiver import Act

pytestmark = pytest.mark.full


def alertmanager(folder: Path, url: str) -> AlertmanagerServer:
    """An Alertmanager that sends everything to this address, with a token from a file, and often."""
    http = {"authorization": {"credentials_file": str(folder / "token")}}
    webhook = {"url": url, "send_resolved": True, "http_config": http}
    times = {"group_wait": "0s", "group_interval": "1s", "repeat_interval": "1s"}
    return AlertmanagerServer(
        {
            "route": {"receiver": "act", "group_by": ["model_name"], **times},
            "receivers": [{"name": "act", "webhook_configs": [webhook]}],
        }
    )


def alert(action: str, k: str, **labels: str) -> dict[str, Any]:
    """An alert as Prometheus sends it."""
    own = {"alertname": NAMES[action], "action": action, "recommended_k": k, "severity": "warning"}
    return {
        "labels": {**own, **labels},
        "annotations": {"summary": "drafting costs more than it gains"},
        "generatorURL": "http://prometheus/graph",
    }


@pytest.fixture
def flags(tmp_path: Path) -> tuple[str, ...]:
    """A receiver that records what it runs, with a token."""
    (tmp_path / "token").write_text("s3cret\n")
    program = recorder(tmp_path / "program", tmp_path / "record")
    return ("--script", str(program), "--execute", "--web.token-file", str(tmp_path / "token"))


def of(running: Act, action: str) -> list[dict[str, Any]]:
    """The events about alerts with this action."""
    return [event for event in running.events() if event["action"] == action]


def kinds_of(running: Act, action: str) -> list[str]:
    """What became of them."""
    return [event["event"] for event in of(running, action)]


def test_an_alert_that_keeps_firing_is_acted_upon_once(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """It is repeated, it resolves, and it fires anew; contradictions within one group leave `disable`."""
    record = tmp_path / "record"
    hostile = "org/llama;$(reboot) \"'`é"
    with (
        act(*flags, "--limit.per-model", "0s") as running,
        alertmanager(tmp_path, f"{running.url}/alerts") as manager,
    ):
        started = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
        place = {"model_name": hostile, "namespace": "prod"}
        alerts = [
            alert("disable", "0", **place),
            alert("increase_k", "7", **place),
            {"labels": {"alertname": "Watchdog", "model_name": hostile}},
        ]
        firing = [{**one, "startsAt": started} for one in alerts]
        manager.post(*firing)
        eventually(lambda: len(running.events()) >= 9)  # three deliveries at least
        first, *others = of(running, "disable")
        assert (first["event"], {event["event"] for event in others}) == ("acted", {"skipped"})
        assert others[-1]["why"].startswith("already acted upon at ")
        assert {event["why"] for event in of(running, "increase_k")} == {
            "one payload asks for disable, increase_k (K 7) for the same model: disable wins"
        }
        assert {event["why"] for event in of(running, "")} == {"the alert has no label action"}
        (call,) = calls_in(record)
        assert call["argv"] == ["disable", hostile, "0", "prod", ""]
        assert json.loads(call["stdin"])["annotations"] == firing[0]["annotations"]

        manager.post(*({**one, "endsAt": datetime.now(UTC).isoformat()} for one in firing))
        eventually(lambda: "resolved" in kinds_of(running, "disable"))
        assert len(calls_in(record)) == 1

        manager.post(alert("disable", "0", **place))
        eventually(lambda: kinds_of(running, "disable").count("acted") == 2)
        assert len(calls_in(record)) == 2
        assert manager.failures() == 0
