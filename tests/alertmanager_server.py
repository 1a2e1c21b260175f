"""A real Alertmanager for tests: on a free port, with a configuration and a storage of its own.

    with AlertmanagerServer(config) as alertmanager:
        alertmanager.post({"labels": {"alertname": "Down"}})
        assert alertmanager.alerts()[0]["status"]["state"] == "active"

`amtool` runs the program of that name, which looks at a configuration without a server.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

from ports import free_port
from prometheus_server import find_program

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGE = "prometheus-alertmanager"

_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_ANSWER_SECONDS = 30.0


class AlertmanagerError(RuntimeError):
    """There is no Alertmanager, or it did not do what it was told."""


def amtool(*arguments: str) -> str:
    """Run amtool, and return what it prints.

    Raises:
        AlertmanagerError: it failed; the message is its own.
    """
    done = subprocess.run([find_program("amtool", PACKAGE), *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        msg = f"amtool {' '.join(arguments)}: {done.stdout}{done.stderr}"
        raise AlertmanagerError(msg)
    return done.stdout


class AlertmanagerServer:
    """An Alertmanager that runs from entering to leaving the context.

    Args:
        config: its configuration.
        external_url: the address that it writes into notifications.
    """

    def __init__(
        self, config: Mapping[str, Any], *, external_url: str = "https://alertmanager.example.com"
    ) -> None:
        self._config = config
        self._external_url = external_url
        self._stack = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path()
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it is ready.

        Raises:
            AlertmanagerError: it did not become ready, for example because of its configuration.
        """
        program = find_program("prometheus-alertmanager", PACKAGE)
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="test-alertmanager-")))
        (folder / "alertmanager.yml").write_text(yaml.safe_dump(dict(self._config)), encoding="utf-8")
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}"
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={folder / 'alertmanager.yml'}",
                    f"--storage.path={folder / 'data'}",
                    f"--web.listen-address={address}",
                    f"--web.external-url={self._external_url}",
                    "--cluster.listen-address=",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end = time.monotonic() + _START_SECONDS
        try:
            while not self._ready():
                if self._process.poll() is not None or time.monotonic() > end:
                    msg = f"Alertmanager did not start: {self.log()[-2000:]}"
                    raise AlertmanagerError(msg)
                time.sleep(0.05)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it and remove what it stored."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._stack.close()

    def log(self) -> str:
        """Return what it logged."""
        return self._log.read_text("utf-8", "replace")

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    # --- alerts

    def post(self, *alerts: Mapping[str, Any]) -> None:
        """Give it alerts, as Prometheus does.

        Raises:
            AlertmanagerError: it refused; the message is its own.
        """
        self._ask("/api/v2/alerts", json.dumps(alerts).encode())

    def alerts(self, *matchers: str, **parameters: str) -> list[dict[str, Any]]:
        """Return the alerts that it has, such as `alerts('severity="critical"', inhibited="false")`."""
        query = urllib.parse.urlencode([*(("filter", one) for one in matchers), *parameters.items()])
        return list(json.loads(self._ask(f"/api/v2/alerts?{query}")))

    def failures(self) -> float:
        """Return how many notifications could not be delivered."""
        lines = self._ask("/metrics").splitlines()
        found = [line for line in lines if line.startswith("alertmanager_notifications_failed_total{")]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def _ask(self, path: str, body: bytes | None = None) -> str:
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                msg = f"{path}: {error.read().decode('utf-8', 'replace')}"
            raise AlertmanagerError(msg) from error
