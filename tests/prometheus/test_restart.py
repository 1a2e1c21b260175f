"""An alert that holds itself by its own ALERTS goes on over a restart of Prometheus,
which writes none of them in its first evaluations.

Time goes twenty times as fast, for the samples, in the rules and in the flags.
"""

import contextlib
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from alerts.promtool import RULES
from dashboards import worlds_write
from dashboards.worlds_traffic import pairs_of
from support.newer import of_suite
from support.programs import eventually
from support.prometheus import PrometheusServer
from vllm_specdec_exporter.commands.demo import faster, faster_rules

pytestmark = pytest.mark.full

FACTOR = 20
#: Seconds of a minute.
MINUTE = 60 / FACTOR
MODEL = pairs_of({"namespace": "chat", "model_name": "m"})
RATIO = ("model:vllm_specdec_disable_rule:ratio", MODEL)
FIRING = (
    'ALERTS{alertname="VLLMSpecDecodeDisable",action="disable",alertstate="firing",'
    'severity="warning"}'
)


# The decision takes a minute to fire, so both tests look at the same one.
@pytest.fixture(scope="module", params=["installed", "newest"])
def prometheus(request: pytest.FixtureRequest) -> Iterator[PrometheusServer]:
    """Run a Prometheus with the rules of decisions alone."""
    config = {
        **worlds_write.CONFIG,
        "global": {"evaluation_interval": faster("20s", FACTOR)},
        "rule_files": ["decisions.yml"],
    }
    text = faster_rules((RULES / "decisions.yml").read_text("utf-8"), FACTOR)
    flags = (
        *worlds_write.FLAGS,
        f"--query.lookback-delta={faster('5m', FACTOR)}",
        f"--rules.alert.for-grace-period={faster('10m', FACTOR)}",
    )
    program = of_suite(request.param, "prometheus", "prometheus")
    with PrometheusServer(
        config=config, files={"decisions.yml": text}, flags=flags, program=program
    ) as running:
        yield running


class Feed(threading.Thread):
    """Writes what the decision rests on, once a second."""

    def __init__(self, prometheus: PrometheusServer) -> None:
        super().__init__(daemon=True)
        self.value = 0.9
        self._prometheus = prometheus
        self._ended = threading.Event()

    def run(self) -> None:
        """Write until it is ended; nothing while Prometheus is down."""
        while not self._ended.wait(1.0):
            times = np.array([time.time()])
            with contextlib.suppress(OSError):
                worlds_write.push(
                    self._prometheus.url, times, {RATIO: np.array([self.value])}
                )

    def end(self) -> None:
        """Write no more."""
        self._ended.set()
        self.join()


@pytest.fixture(scope="module")
def feed(prometheus: PrometheusServer) -> Iterator[Feed]:
    """Run a feed until the decision fires."""
    feed = Feed(prometheus)
    feed.start()
    eventually(lambda: prometheus.query(FIRING), within=40 * MINUTE)
    yield feed
    feed.end()


def test_a_decision_stands_over_a_restart(
    prometheus: PrometheusServer, feed: Feed
) -> None:
    """At 2 % above its threshold it stands only because it fires."""
    time.sleep(4 * MINUTE)
    feed.value = 1.02
    time.sleep(6 * MINUTE)
    assert prometheus.query(FIRING)
    prometheus.end()
    prometheus.again()
    # The third evaluation is the first whose ALERTS are written.
    time.sleep(15 * MINUTE)
    assert prometheus.query(FIRING)


def test_a_decision_that_ended_does_not_come_back(
    prometheus: PrometheusServer, feed: Feed
) -> None:
    """Though it is remembered for a quarter of an hour that it fired."""
    feed.value = 1.1
    eventually(lambda: not prometheus.query(FIRING), within=15 * MINUTE)
    feed.value = 1.02
    time.sleep(6 * MINUTE)
    firing = {
        alert["labels"]["alertname"]
        for alert in prometheus.api("alerts")["alerts"]
        if alert["state"] == "firing"
    }
    assert "VLLMSpecDecodeDisable" not in firing
