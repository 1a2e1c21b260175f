"""Faults of files: gone, half written, exchanged, on a full disk; and of the log that
nobody takes.
"""

import contextlib
import fcntl
import os
import resource
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from act.receiver import Act, act
from act.webhook import alert_document, body_of, calls_in, recorder
from faults.rig import PROMPT, STEADY, assert_alive, limited, new_errors, vllm
from support.exporter import (
    Metrics,
    RunningExporter,
    parse_logfmt,
    request,
    running_exporter,
)
from support.faulty_server import FaultyServer, answer, replay
from support.ports import free_port
from support.programs import COMMAND, clean_environment, eventually

pytestmark = pytest.mark.full

# --- the configuration file


def _settings(server: FaultyServer, drafts: int) -> dict[str, Any]:
    return {"vllm": {"url": server.url}, "threshold": {"minimum_drafts": drafts}}


def _drafts(exporter: RunningExporter) -> float | None:
    return exporter.metrics().value("threshold", threshold="minimum_drafts")


def _assert_refused(exporter: RunningExporter, drafts: float) -> None:
    """A reload is refused, in words, and everything goes on as before."""
    refused = exporter.post("/-/reload")
    assert refused.status == 500
    assert refused.text.startswith("not reloaded: ")
    assert refused.text.count("\n") == 1
    refusals = len(exporter.log_lines("configuration not reloaded"))
    exporter.send(signal.SIGHUP)
    eventually(
        lambda: len(exporter.log_lines("configuration not reloaded")) == refusals + 1
    )
    metrics = exporter.metrics()
    assert metrics.value("config_last_reload_successful") == 0
    assert _drafts(exporter) == drafts
    exporter.wait_until_up()
    assert_alive(exporter)


def test_configuration_unusable() -> None:
    with (
        FaultyServer(replay()) as server,
        running_exporter(*STEADY, config=_settings(server, 50)) as exporter,
    ):
        exporter.wait_until_up()
        settings = exporter.config_file.read_text()
        half = settings[: settings.index("minimum") + 3]
        nonsense = "log: {level: loud}\n"
        for drafts, left in ((50, None), (70, half), (90, nonsense)):
            exporter.config_file.unlink()
            if left is not None:
                exporter.config_file.write_text(left)
            _assert_refused(exporter, drafts)
            exporter.configure(_settings(server, drafts + 20))
            assert exporter.post("/-/reload").status == 200, drafts
            assert exporter.metrics().value("config_last_reload_successful") == 1, (
                drafts
            )
            assert _drafts(exporter) == drafts + 20, drafts
        exporter.config_file.unlink()
        exporter.config_file.mkdir()  # nobody can read that, whoever he is
        _assert_refused(exporter, 110)


# --- disks that take nothing


def test_no_room_to_write() -> None:
    reader, writer = os.pipe()
    with (
        FaultyServer(replay()) as server,
        _logging_to(server, writer) as (process, url),
    ):
        os.close(writer)
        with limited(process.pid, resource.RLIMIT_FSIZE, 0):
            assert request(f"{url}/-/reload", "POST").status == 200
            _assert_goes_on(server, process, url)
        _assert_ends(process)
    with os.fdopen(reader, "rb") as log:
        assert b"Traceback" not in log.read()


def test_act_state_disk_full(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    record = tmp_path / "record"
    script = recorder(tmp_path / "script", record)
    alerts = body_of(alert_document(model_name="m" * 200))
    flags = ("--script", str(script), "--state.file", str(state))
    with act("--execute", *flags) as receiver:
        written = len(receiver.said())
        # The line on it still fits into what takes standard error, the state does not
        # fit into its file.
        with limited(receiver.process.pid, resource.RLIMIT_FSIZE, written + 200):
            assert receiver.post(alerts).status == 200
            eventually(lambda: "--state.file" in receiver.said())
            assert "cannot be written" in receiver.said()
            eventually(lambda: _events(receiver, "skipped") == 1)
            assert _events(receiver, "acted") + _events(receiver, "failed") == 0
            # What is saved of a short name fits; what its command would read does not.
            assert receiver.post(body_of(alert_document())).status == 200
            eventually(lambda: _events(receiver, "failed") == 1)
            assert receiver.get("/-/healthy").status == 200
        assert receiver.post(alerts).status == 200
        eventually(lambda: record.exists() and len(calls_in(record)) == 1)
        eventually(lambda: _events(receiver, "acted") == 1)
        assert state.exists()
        assert receiver.stop() == 0


def _events(receiver: Act, kind: str) -> float:
    """How many alerts that ask to switch off came to this."""
    metrics = Metrics(receiver.get("/metrics").text)
    return metrics.total("act_events_total", event=kind, action="disable")


# --- the log


@contextlib.contextmanager
def _logging_to(
    server: FaultyServer, stream: int | None, *flags: str
) -> Iterator[tuple[Any, str]]:
    """Run an exporter that logs much to a descriptor, or with standard error closed."""
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        COMMAND,
        "--vllm.url",
        server.url,
        *STEADY,
        "--web.listen-address",
        url.removeprefix("http://"),
    ]
    if stream is None:
        command = ["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    process = subprocess.Popen(
        [*command, *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stream if stream is not None else subprocess.DEVNULL,
        env=clean_environment(),
    )
    try:
        eventually(lambda: _is_up(url))
        yield process, url
    finally:
        process.kill()
        process.wait(10)


def _is_up(url: str) -> bool:
    try:
        return Metrics(request(f"{url}/metrics").text).value("up") == 1
    except OSError:
        return False


def _assert_goes_on(
    server: FaultyServer, process: subprocess.Popen[bytes], url: str
) -> None:
    """Polls, probes and scrapes go on."""
    polled = len(server.polls())
    eventually(lambda: len(server.polls()) >= polled + 4)
    eventually(lambda: _is_up(url))
    assert new_errors(None, Metrics(request(f"{url}/metrics").text)) == set()
    assert process.poll() is None
    healthy = request(f"{url}/-/healthy")
    assert healthy.status == 200
    assert healthy.text == "healthy\n"
    assert healthy.seconds < PROMPT


def _assert_ends(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM ends it at once, with the usual exit code."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(PROMPT) == 0


def test_log_reader_stops() -> None:
    # A line for each engine, more than the pipe and the exporter's own buffer hold
    # within a second.
    many = answer(vllm(engines=100))
    reader, writer = os.pipe()
    with (
        FaultyServer(many) as server,
        _logging_to(server, writer, "--log.interval", "20ms") as (process, url),
    ):
        os.close(writer)
        # Of the pipe's 64 KiB, 48 wait to be read.
        eventually(
            lambda: (
                struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, bytes(4)))[0]
                >= 48 * 1024
            )
        )
        _assert_goes_on(server, process, url)
        log = b""
        while b"lines dropped" not in log:
            assert select.select([reader], [], [], 10.0)[0], log[-500:]
            log += os.read(reader, 1 << 16)
        for line in log.decode().split("\n")[:-1]:
            parse_logfmt(line)
        _assert_ends(process)
    os.close(reader)


def test_log_unwritable() -> None:
    with FaultyServer(replay()) as server, contextlib.ExitStack() as stack:
        reader, writer = os.pipe()
        full = os.open("/dev/full", os.O_WRONLY)
        flags = ("--log.interval", "50ms")
        logging = [
            stack.enter_context(_logging_to(server, to, *flags))
            for to in (writer, full, None)
        ]
        for descriptor in (reader, writer, full):
            os.close(descriptor)
        for process, url in logging:
            _assert_goes_on(server, process, url)
            _assert_ends(process)
