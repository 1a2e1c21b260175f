"""A real Alertmanager for tests: on a free port, with a configuration and a storage of
its own.
"""

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

import yaml

from support.programs import Program, ProgramError, find_program

PACKAGE = "prometheus-alertmanager"

_ANSWER_SECONDS = 30.0


def amtool(*arguments: str) -> str:
    """Run amtool, and return what it prints."""
    done = subprocess.run(
        [find_program("amtool", PACKAGE), *arguments], capture_output=True, text=True
    )
    if done.returncode != 0:
        msg = f"amtool {' '.join(arguments)}: {done.stdout}{done.stderr}"
        raise ProgramError(msg)
    return done.stdout


class AlertmanagerServer(Program):
    """An Alertmanager that runs from entering to leaving the context."""

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        external_url: str = "https://alertmanager.example.com",
    ) -> None:
        super().__init__(
            [
                find_program("prometheus-alertmanager", PACKAGE),
                "--config.file={folder}/alertmanager.yml",
                "--storage.path={folder}/data",
                "--web.listen-address={address}",
                f"--web.external-url={external_url}",
                "--cluster.listen-address=",
            ],
            ready="/-/ready",
            files={"alertmanager.yml": yaml.safe_dump(dict(config))},
        )

    # --- alerts

    def post(self, *alerts: Mapping[str, Any]) -> None:
        """Give it alerts, as Prometheus does."""
        self._ask("/api/v2/alerts", json.dumps(alerts).encode())

    def alerts(self, *matchers: str, **parameters: str) -> list[dict[str, Any]]:
        """Return the alerts that it has, such as `alerts('severity="critical"',
        inhibited="false")`.
        """
        query = urllib.parse.urlencode(
            [*(("filter", matcher) for matcher in matchers), *parameters.items()]
        )
        return list(json.loads(self._ask(f"/api/v2/alerts?{query}")))

    def failures(self) -> float:
        """Return how many notifications could not be delivered."""
        failed = re.findall(
            r"^alertmanager_notifications_failed_total{.*} (.*)$",
            self._ask("/metrics"),
            re.MULTILINE,
        )
        return sum(map(float, failed))

    def _ask(self, path: str, body: bytes | None = None) -> str:
        request = urllib.request.Request(
            self.url + path, body, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                msg = f"{path}: {error.read().decode('utf-8', 'replace')}"
            raise ProgramError(msg) from error
