"""A real Alertmanager for tests: on a free port, with a configuration and a storage of
its own.
"""

import json
import re
import urllib.error
import urllib.parse
import urllib.request

import yaml

from support.programs import Program, ProgramError, find_program, printed
from support.repository import Json

PACKAGE = "prometheus-alertmanager"

_ANSWER_SECONDS = 30.0


def amtool(*arguments: str) -> str:
    """Run amtool, and return what it prints."""
    return printed(find_program("amtool", PACKAGE), *arguments)


class AlertmanagerServer(Program):
    """An Alertmanager that runs from entering to leaving the context."""

    def __init__(
        self,
        config: Json,
        *,
        external_url: str = "https://alertmanager.example.com",
        program: str | None = None,
    ) -> None:
        super().__init__(
            [
                program or find_program("prometheus-alertmanager", PACKAGE),
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

    def post(self, *alerts: Json) -> None:
        """Give it alerts, as Prometheus does."""
        self._ask("/api/v2/alerts", json.dumps(alerts).encode())

    def alerts(self, *matchers: str, **parameters: str) -> list[Json]:
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
            r"(?m)^alertmanager_notifications_failed_total{.*} (.*)$",
            self._ask("/metrics"),
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
