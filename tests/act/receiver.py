"""The real command as a process, and its event log."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from support.programs import COMMAND, clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 30.0


class Answer(NamedTuple):
    """What the server answers."""

    status: int
    text: str
    headers: dict[str, str]


class Act:
    """A running `act`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, errors: Path, url: str) -> None:
        self.process = process
        self.log = log
        self.errors = errors
        self.url = url

    def post(self, body: bytes, path: str = "/alerts", method: str = "POST", **headers: str) -> Answer:
        """Send a payload; underscores in the names of headers are hyphens."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(
            self.url + path, body or None, {"Content-Type": "application/json", **named}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                return Answer(answer.status, answer.read().decode(), dict(answer.headers))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read().decode(), dict(error.headers))

    def get(self, path: str) -> Answer:
        """Ask for a page."""
        return self.post(b"", path, "GET")

    def events(self, least: int = 0) -> list[dict[str, Any]]:
        """The events in the log, once there are so many."""
        end = time.monotonic() + _SECONDS
        while True:
            text = self.log.read_text("ascii")
            found = [json.loads(line) for line in text.splitlines()] if text.endswith("\n") else []
            if len(found) >= least:
                return found
            assert time.monotonic() < end, f"{len(found)} of {least} events: {found}; {self.said()}"
            time.sleep(0.02)

    def kinds(self, least: int = 0) -> list[str]:
        """What became of each alert, in one word."""
        return [event["event"] for event in self.events(least)]

    def said(self) -> str:
        """What is on standard error."""
        return self.errors.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(_SECONDS)


@contextlib.contextmanager
def act(*flags: str, log_to_stdout: bool = False, **environment: str) -> Iterator[Act]:
    """Run `act` on a free port, once it listens, until the end of the context."""
    with tempfile.TemporaryDirectory(prefix="test-act-") as folder:
        log, errors = Path(folder) / "events", Path(folder) / "errors"
        log.touch()
        where = () if log_to_stdout else ("--log.file", str(log))
        address = () if "--web.listen-address" in flags else ("--web.listen-address", "127.0.0.1:0")
        with log.open("ab") as stdout, errors.open("wb") as stderr:
            process = subprocess.Popen(
                [COMMAND, "act", *address, *where, *flags],
                stdout=stdout if log_to_stdout else stderr,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                env=clean_environment(**environment),
            )
        running = Act(process, log, errors, "")
        try:
            end = time.monotonic() + _SECONDS
            while "listening on " not in running.said():
                assert process.poll() is None, running.said()
                assert time.monotonic() < end, running.said()
                time.sleep(0.02)
            running.url = (
                running.said().partition("listening on ")[2].split()[0].replace("0.0.0.0", "127.0.0.1")
            )
            yield running
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    raise
        assert "Traceback" not in running.said(), running.said()
