"""All that stands between a server and a pager, for real: exporter, Prometheus,
Alertmanager, receivers.

The committed rules and the committed Alertmanager configuration, on a clock that runs
`FACTOR` times as fast: what takes a minute in production takes a second.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alertmanager.bundle import Addresses, faster_config, write_secrets
from alertmanager.receivers import Delivery, Receivers, receivers
from alerts.promtool import RULES
from support.alertmanager import AlertmanagerServer
from support.calibrated import calibrated_file
from support.exporter import RunningExporter, running_exporter
from support.programs import COMMAND, Program, clean_environment
from support.prometheus import PrometheusServer
from vllm_specdec_exporter.commands.demo import faster_rules

FACTOR = 60.0
PREFIX = "VLLMSpecDecode"
_POLL = 0.1
# Looking takes a few hundredths of a second.
_STILL = 1.0


def seconds(minutes: float) -> float:
    """Return how long so many minutes of production take here."""
    return 60.0 * minutes / FACTOR


@dataclass
class Stack:
    """What is running, and what came out of it."""

    prometheus: PrometheusServer
    alertmanager: AlertmanagerServer
    received: Receivers  # what Alertmanager's receivers got
    exporter: RunningExporter
    acting: Program  # `act`, with its events in its log

    # --- what Alertmanager sent

    def pages(self, action: str) -> list[dict[str, Any]]:
        """Return the pages that began something (`trigger`) or ended it (`resolve`)."""
        return [
            delivery.body
            for delivery in self._to("/pagerduty")
            if delivery.body["event_action"] == action
        ]

    def slack(self, channel: str) -> list[dict[str, Any]]:
        """Return what a Slack channel got."""
        return [
            delivery.body
            for delivery in self._to("/slack")
            if delivery.body["channel"] == channel
        ]

    def watchdogs(self) -> int:
        """Return how often the dead man's switch was held down."""
        return len(self._to("/watchdog"))

    def _to(self, path: str) -> list[Delivery]:
        return [
            delivery for delivery in self.received.deliveries if delivery.path == path
        ]

    def actions(self) -> list[dict[str, Any]]:
        """Return the events that `act` wrote."""
        return [
            json.loads(line)
            for line in self.acting.log().splitlines()
            if line.startswith("{")
        ]

    # --- what the programs say of themselves

    def firing(self, name: str, **labels: str) -> bool:
        """Return whether Prometheus has an alert firing."""
        matchers = "".join(f',{key}="{value}"' for key, value in labels.items())
        query = f'ALERTS{{alertname="{PREFIX}{name}",alertstate="firing"{matchers}}}'
        return bool(self.prometheus.query(query))

    def suppressed(self) -> set[str]:
        """Return the names of the alerts that others silence at the moment."""
        return self._names(lambda status: bool(status["inhibitedBy"]))

    def active(self) -> set[str]:
        """Return the names of the alerts that nothing silences, the watchdog apart."""
        return self._names(lambda status: status["state"] == "active") - {"Watchdog"}

    def _names(self, condition: Callable[[dict[str, Any]], bool]) -> set[str]:
        return {
            alert["labels"]["alertname"].removeprefix(PREFIX)
            for alert in self.alertmanager.alerts()
            if condition(alert["status"])
        }

    def wait(
        self, condition: Callable[[], object], minutes: float, grace: float = 8.0
    ) -> float:
        """Wait until something is so, and return the minutes of production that it
        took.

        A machine that stands still does so for all of the programs, and longer than
        `_STILL` is not counted.

        Raises:
            AssertionError: it took longer; `grace` is in real seconds, for a busy
                machine.
        """
        took = 0.0
        last_look = time.monotonic()
        while not condition():
            lateness = took - seconds(minutes)
            assert lateness < grace, (
                f"not within {minutes} minutes; active: {self.active()}"
            )
            time.sleep(_POLL)
            moment = time.monotonic()
            took = took + min(moment - last_look, _STILL)
            last_look = moment
        return took * FACTOR / 60.0


@contextlib.contextmanager
def stack(
    folder: Path, server: str, speculation: dict[str, object], *flags: str
) -> Iterator[Stack]:
    """Run everything behind a server, and take it down again."""
    with contextlib.ExitStack() as running:
        received = running.enter_context(receivers())
        write_secrets(folder, received.http)
        act = [COMMAND, "act", "--web.listen-address", "{address}"]
        act += ["--web.token-file", str(folder / "specdec-act-token")]
        acting = running.enter_context(
            Program(act, ready="/-/ready", environment=clean_environment())
        )
        config = faster_config(Addresses(folder, received.http, received.smtp), FACTOR)
        (actions,) = (
            receiver
            for receiver in config["receivers"]
            if receiver["name"] == "actions"
        )
        actions["webhook_configs"][0]["url"] = f"{acting.url}/"
        manager = running.enter_context(AlertmanagerServer(config))
        window = f"{seconds(5):g}s"
        options = (
            f"--vllm.url={server}",
            f"--spec.config={json.dumps(speculation)}",
            f"--cost.file={calibrated_file()}",
            "--poll.interval=500ms",
            f"--window={window}",
            f"--judgement.window={window}",
        )
        exporter = running.enter_context(running_exporter(*options, *flags, fast=False))
        prometheus = running.enter_context(
            PrometheusServer(
                scrape={
                    "vllm-specdec-exporter": exporter.address,
                    "vllm": server.removeprefix("http://"),
                },
                interval="1s",
                config={
                    "rule_files": [path.name for path in RULES.glob("*.yml")],
                    "alerting": {
                        "alertmanagers": [
                            {"static_configs": [{"targets": [manager.address]}]}
                        ]
                    },
                },
                files={
                    p.name: faster_rules(p.read_text("utf-8"), FACTOR)
                    for p in RULES.glob("*.yml")
                },
                # How often what still fires is told again: a minute of production, too.
                flags=(
                    "--rules.alert.resend-delay=1s",
                    "--rules.alert.for-grace-period=10s",
                ),
            )
        )
        yield Stack(
            prometheus, manager, received=received, exporter=exporter, acting=acting
        )
