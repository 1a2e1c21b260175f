"""Attacks on `act` by somebody who may send alerts, or write beside its state file."""

import contextlib
import re
import stat
import subprocess
import time
from datetime import datetime
from pathlib import Path

import pytest

from act.receiver import act
from act.webhook import alert_document, body_of, calls_in, recorder
from attacks.test_listeners import leave, post
from faults.rig import Surroundings, get
from support.commands import run
from support.exporter import request
from support.ports import free_port
from support.programs import COMMAND, clean_environment, eventually
from vllm_specdec_exporter.commands.act.history import HOUR, load

pytestmark = pytest.mark.full


def test_a_payload_of_many_repeats_is_saved_once(tmp_path: Path) -> None:
    """Not once for each of its alerts; and nobody else can read what is saved."""
    state = tmp_path / "state.json"
    script = recorder(tmp_path / "script", tmp_path / "record")
    alerts = [
        alert_document("disable", starts_at=f"2026-03-01T12:{n // 60:02}:{n % 60:02}Z")
        for n in range(400)
    ]
    flags = ("--script", str(script), "--state.file", str(state))
    with act("--execute", *flags) as running:
        running.post(body_of(*alerts))
        running.events(400)
        counts = Path(f"/proc/{running.process.pid}/io").read_text("ascii")
        assert running.stop() == 0
    written = int(re.findall(r"wchar: (\d+)", counts)[0])
    # the events are 300 kB, the state 100 kB; saved each time, 20 MB
    assert written < 4_000_000, "bytes"
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert len(calls_in(tmp_path / "record")) == 1


def test_the_lock_does_not_empty_what_a_link_points_to(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "state.json.lock").symlink_to(victim)
    script = recorder(tmp_path / "script", tmp_path / "record")
    flags = ("--script", str(script), "--state.file", str(tmp_path / "state.json"))
    refused = run("act", *flags)
    assert refused.code != 0
    assert "state.json.lock cannot be made" in refused.err
    assert victim.read_text() == "precious"


def test_clients_that_leave_do_not_fill_the_log() -> None:
    with act("--script", "/bin/true") as running:
        log = running.log()
        expect = "Expect: 100-continue"
        leave(
            running.url,
            get("/-/healthy", expect),
            get("/metrics", "Expect: x"),
            post(b"{}", expect, path="/"),
        )
        assert request(f"{running.url}/-/healthy", source="127.0.0.9").status == 200
        assert running.log() == log


def test_output_that_nobody_reads() -> None:
    """SIGTERM ends it within ten seconds, though its output has waited since long."""
    port = free_port()
    process = subprocess.Popen(
        [COMMAND, "act", "--web.listen-address", f"127.0.0.1:{port}"],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        with contextlib.suppress(OSError):
            return request(f"{url}/-/ready").status == 200
        return False

    try:
        eventually(answers)
        alerts = [
            alert_document("disable", model_name=f"{number:0>250}")
            for number in range(400)
        ]
        headers = {"Content_Type": "application/json"}
        status = request(f"{url}/alerts", "POST", body=body_of(*alerts), **headers)
        assert status.status == 200
        time.sleep(1)  # until the pipe is full
        assert request(f"{url}/-/healthy").status == 200
        process.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("hours", [1, -1, 30 * 24])
def test_a_clock_that_jumps(tmp_path: Path, hours: int) -> None:
    """It neither shortens a limit nor prolongs it, and nothing that was done is done
    again.
    """
    script = recorder(tmp_path / "script", tmp_path / "record")
    (folder := tmp_path / "surroundings").mkdir()
    surroundings = Surroundings(folder)
    flags = ("--script", str(script), "--state.file", str(tmp_path / "state.json"))
    flags += ("--execute", "--limit.per-hour", "1")
    with act(*flags, **surroundings.env) as running:
        begin = time.time()
        running.post(body_of(alert_document("disable")))
        running.events(1)
        surroundings.shift_clock(hours * HOUR + 1)
        running.post(
            body_of(
                alert_document("disable"), alert_document("disable", model_name="other")
            )
        )
        _, again, limited = running.events(3)
    assert again["why"].startswith("already acted upon")
    reason, _, moment = limited["why"].partition(": allowed again at ")
    assert reason == "--limit.per-hour 1 is reached"
    allowed = datetime.fromisoformat(moment).timestamp() - hours * HOUR
    assert begin + HOUR <= allowed <= time.time() + HOUR + 2
    assert load(tmp_path / "state.json").starts[0] == pytest.approx(
        begin + hours * HOUR, abs=60
    )
