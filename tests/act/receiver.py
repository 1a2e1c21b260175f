"""The real command as a process, and its event log."""

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

from support.exporter import Answer, request
from support.programs import COMMAND, Program, clean_environment, eventually


class Act(Program):
    """A running `act`."""

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process itself."""
        return self._process

    def post(
        self, body: bytes, path: str = "/alerts", method: str = "POST", **headers: str
    ) -> Answer:
        """Send a payload; underscores in the names of headers are hyphens."""
        headers.setdefault("Content_Type", "application/json")
        return request(self.url + path, method, 30.0, body=body or None, **headers)

    def get(self, path: str) -> Answer:
        """Ask for a page."""
        return self.post(b"", path, "GET")

    def events(self, minimum: int = 0) -> list[dict[str, Any]]:
        """The events in the log, once there are so many."""

        def found() -> list[dict[str, Any]]:
            text = self.log()
            lines = text[: text.rfind("\n") + 1].splitlines()
            return [json.loads(line) for line in lines if line.startswith("{")]

        eventually(lambda: len(found()) >= minimum, 120)
        return found()

    def kinds(self, minimum: int = 0) -> list[str]:
        """What became of each alert, in one word."""
        return [event["event"] for event in self.events(minimum)]

    def said(self) -> str:
        """What is on standard error, which has no events."""
        return "".join(
            line for line in self.log().splitlines(True) if not line.startswith("{")
        )

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit code.

        The log stays until the end of the context.
        """
        return self.end(number)

    def __exit__(self, *_: object) -> None:
        super().stop()


@contextlib.contextmanager
def act(*flags: str, **environment: str) -> Iterator[Act]:
    """Run `act` on a free port, once it listens, until the end of the context."""
    arguments = [COMMAND, "act", *flags]
    if "--web.listen-address" not in flags:
        arguments += ["--web.listen-address", "{address}"]
    with Act(
        arguments, ready="/-/ready", environment=clean_environment(**environment)
    ) as running:
        yield running
        said = running.said()
        assert "Traceback" not in said, said
