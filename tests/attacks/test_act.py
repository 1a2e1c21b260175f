"""Attacks on `act` by somebody who may send alerts, or write beside its state file."""

import re
import stat
from pathlib import Path

import pytest

from act.receiver import act
from act.webhook import alert_document, body_of, calls_in, recorder
from support.commands import run
from vllm_specdec_exporter.commands.act.decision import DecisionKey
from vllm_specdec_exporter.commands.act.history import HOUR, MAX_DECISIONS, ActionHistory, Limits

pytestmark = pytest.mark.full


@pytest.fixture
def kubectl(tmp_path: Path) -> dict[str, str]:
    """The environment of an `act` whose kubectl only records its calls."""
    (tmp_path / "bin").mkdir()
    recorder(tmp_path / "bin" / "kubectl", tmp_path / "record")
    return {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}


def test_other_labels_do_not_lift_the_limit_of_a_workload(tmp_path: Path, kubectl: dict[str, str]) -> None:
    """One workload is changed once, whatever cluster the alerts name: it is that of the mapping or none."""
    flags = ("--kubernetes.workload", "llama=prod/deployment/llama", "--execute", "--limit.per-hour", "9")
    with act(*flags, **kubectl) as running:
        for action, cluster in (("decrease_k", ""), ("increase_k", ""), ("increase_k", "a"), ("enable", "b")):
            running.post(body_of(alert_document(action, cluster=cluster)))
        running.post(body_of(alert_document("enable"), alert_document("increase_k")))
        events = running.events(6)
    assert [event["event"] for event in events] == [
        *("acted", "skipped", "rejected", "rejected", "skipped", "skipped")
    ]
    assert "--limit.per-model" in events[1]["why"]
    assert all("none of them is acted upon" in event["why"] for event in events[4:])
    assert len(calls_in(tmp_path / "record")) == 1


def test_a_payload_of_many_repeats_is_saved_once(tmp_path: Path) -> None:
    """Not once for each of its alerts; and nobody else can read what is saved."""
    state = tmp_path / "state.json"
    script = recorder(tmp_path / "script", tmp_path / "record")
    alerts = [
        alert_document("disable", starts_at=f"2026-03-01T12:{n // 60:02}:{n % 60:02}Z") for n in range(400)
    ]
    with act("--script", str(script), "--execute", "--state.file", str(state)) as running:
        running.post(body_of(*alerts))
        running.events(400)
        counts = Path(f"/proc/{running.process.pid}/io").read_text("ascii")
        assert running.stop() == 0
    written = int(re.findall(r"wchar: (\d+)", counts)[0])
    assert written < 4_000_000, "bytes"  # the events are 300 kB, the state 100 kB; saved each time, 20 MB
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert len(calls_in(tmp_path / "record")) == 1


def test_repeats_do_not_push_out_the_action_that_limits_a_workload() -> None:
    """However many repeats of another model's alert are remembered, the limit of each model holds."""
    now, limits = 1e9, Limits(HOUR, 9)
    flood, victim = (DecisionKey("", "", model, "disable", "0", "") for model in ("flood", "victim"))
    history = ActionHistory()
    for started, key in ((now - 600, victim), (now, flood)):
        history = history.begin(key, started).finish(key, succeeded=True)
    repeats = {flood._replace(starts_at=str(n)): history.decisions[flood] for n in range(MAX_DECISIONS)}
    history = ActionHistory({**history.decisions, **repeats}, history.starts).prune(now)
    assert len(history.decisions) == MAX_DECISIONS
    for key in (victim, flood):
        again = key._replace(starts_at="again")
        assert history.reason_against(again, now, limits).startswith("this model was acted upon")


def test_the_lock_does_not_empty_what_a_link_points_to(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "state.json.lock").symlink_to(victim)
    script = recorder(tmp_path / "script", tmp_path / "record")
    refused = run("act", "--script", str(script), "--state.file", str(tmp_path / "state.json"))
    assert refused.code != 0
    assert "state.json.lock cannot be made" in refused.err
    assert victim.read_text() == "precious"


def test_scripts_do_not_see_the_credentials_of_an_exporter(tmp_path: Path) -> None:
    script = recorder(tmp_path / "script", tmp_path / "record")
    secret = {"VLLM_SPECDEC_EXPORTER_VLLM_URL": "http://user:secret@vllm"}
    with act("--script", str(script), "--execute", **secret) as running:
        running.post(body_of(alert_document("disable")))
        running.events(1)
    [call] = calls_in(tmp_path / "record")
    assert not set(call["environment"]) & set(secret)
