"""All rules, played in whatever evaluates rules: vmalert over VictoriaMetrics, started
as docs/deployment.md has it, and Prometheus 3 with its features, beside Debian's
Prometheus 2; each has the same samples, and pages.

Time goes fifteen times as fast, for the samples, in the rules and in the flags. What
vmalert does in production with a group of three minutes it does here with one of
twelve seconds: it is evaluated at a time of the past, and its series are as old as that
when others read them.
"""

import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import numpy as np
import pytest

from alerts.promtool import RULES
from alerts.world import Phase, World
from dashboards import worlds_write
from scaling.samples import every_quarter, typed
from scaling.victoria import VictoriaMetrics
from support.newer import newer
from support.programs import Program, eventually
from support.prometheus import PrometheusServer, Series
from support.repository import text_of
from vllm_specdec_exporter.commands.demo import faster, faster_rules

#: The ticket alone may take 400 s.
pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

FACTOR = 15
MINUTE = 60 / FACTOR
#: How long the engines live, in minutes of theirs, and of them before the rules start.
MINUTES = 112
PAST = 20
#: What a loss is told by after at most so many minutes: half an hour of enough drafts,
#: and then half an hour of `for`.
TOLD = 80
#: What has the series that vmalert reads and writes.
_STORES = ("datasource", "remoteWrite", "remoteRead")
CRITICAL, WARNING = "critical", "warning"
FEATURES = (
    "type-and-unit-labels",
    "promql-delayed-name-removal",
    "concurrent-rule-eval",
)
LOSING = "loses by a third"
BURNING = "loses a little"

_BLOCK = re.compile(r"(?s)^vmalert (.*?)^```", re.MULTILINE)


def shorter(duration: str) -> str:
    """Return a duration, or a flag with one, as fast as the rest."""
    return faster(duration, FACTOR)


def documented_flags() -> list[str]:
    """Return vmalert's flags in the documents, but for addresses and files."""
    (command,) = _BLOCK.findall(text_of("docs/deployment.md"))
    flags = re.findall(r"-[\w.]+=\S+", command.replace("\\\n", " "))
    return [flag for flag in flags if ".url=" not in flag and "-rule=" not in flag]


def _world() -> World:
    world = World()
    poor = {"acceptance": (0.12, 0.03, 0.01), "basis": "calibrated"}
    for model, phase in {
        LOSING: Phase(MINUTES, speedup=0.66, **poor),
        BURNING: Phase(MINUTES, speedup=0.96, basis="calibrated"),
        "gains": Phase(MINUTES),
    }.items():
        for number in range(2):
            world.engine(phase, model=model, instance=f"{model}-{number}:9850")
    return world


class Writer(threading.Thread):
    """Writes the samples into servers, each when its time has come."""

    def __init__(self, start: float, urls: list[str], typed_urls: list[str]) -> None:
        super().__init__(daemon=True)
        self.start_time = start
        series = every_quarter(_world(), MINUTES - 1)
        self._written = [(url, series) for url in urls]
        self._written += [(url, typed(series)) for url in typed_urls]
        self._ended = threading.Event()

    def minute(self) -> float:
        """Return how old the world is."""
        return (time.time() - self.start_time) / MINUTE

    def write(self, first: int, end: int) -> None:
        """Write some quarters of minutes."""
        times = self.start_time + np.arange(first, end) * MINUTE / 4
        for url, series in self._written:
            part = {key: rows[first:end] for key, rows in series.items()}
            worlds_write.push(url, times, part, markers=False)

    def run(self) -> None:
        """Write until the end of the world, or until it is ended."""
        number = 0
        while not self._ended.is_set():
            now = min(int(self.minute() * 4), 4 * (MINUTES - 1))
            if now > number:
                self.write(number, now)
                number = now
            self._ended.wait(0.1)

    def end(self) -> None:
        """Write no more."""
        self._ended.set()
        self.join()


#: Name, severity, action and model.
Alert = tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """What evaluates the rules: vmalert over VictoriaMetrics, and Prometheus."""

    store: VictoriaMetrics
    vmalert: Program
    prometheus: PrometheusServer
    featured: PrometheusServer  # with all features that change what rules give

    def firing(self) -> list[set[Alert]]:
        """Return what fires in each of them."""
        servers = (self.vmalert, self.prometheus, self.featured)
        return [_firing(server.url) for server in servers]


def _firing(url: str) -> set[Alert]:
    """Return what fires, but for a ticket that the page ends: whether it began before
    that is a matter of seconds, and Alertmanager hides it.
    """
    with urllib.request.urlopen(f"{url}/api/v1/alerts", timeout=60) as answer:
        alerts = json.load(answer)["data"]["alerts"]
    wanted = ("alertname", "severity", "action", "model_name")
    firing = {
        tuple(alert["labels"].get(name, "") for name in wanted)
        for alert in alerts
        if alert["state"] == "firing"
    }
    return firing - {("VLLMSpecDecodeHarmful", WARNING, "", LOSING)}


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Let the engines live, and both evaluate the rules from some minutes on."""
    rules = {
        path.name: faster_rules(path.read_text("utf-8"), FACTOR)
        for path in RULES.glob("*.yml")
    }
    config = {
        **worlds_write.CONFIG,
        "global": {"evaluation_interval": shorter("20s")},
        "rule_files": list(rules),
    }
    flags = (*worlds_write.FLAGS, f"--query.lookback-delta={shorter('5m')}")
    with ExitStack() as stack:
        store = stack.enter_context(
            VictoriaMetrics(
                f"-search.latencyOffset={shorter('30s')}",
                program=newer("victoria-metrics"),
            )
        )
        prometheus = stack.enter_context(
            PrometheusServer(config=config, files=rules, flags=flags)
        )
        featured = stack.enter_context(
            PrometheusServer(
                config=config,
                files=rules,
                flags=(*flags, f"--enable-feature={','.join(FEATURES)}"),
                program=newer("prometheus"),
            )
        )
        writer = Writer(
            time.time() - PAST * MINUTE,
            [store.url, prometheus.url],
            [featured.url],
        )
        writer.start()
        stack.callback(writer.end)
        vmalert = stack.enter_context(
            Program(
                [
                    newer("vmalert"),
                    "-httpListenAddr={address}",
                    "-rule={folder}/*.yml",
                    *(f"-{name}.url={store.url}" for name in _STORES),
                    "-notifier.blackhole",
                    # Its defaults, and what it writes at once.
                    f"-rule.evalDelay={shorter('30s')}",
                    f"-remoteWrite.flushInterval={shorter('2s')}",
                    *map(shorter, documented_flags()),
                ],
                ready="/health",
                files=rules,
            )
        )
        yield Run(store, vmalert, prometheus, featured)


def test_all_alerts_fire_that_fire_in_prometheus(run: Run) -> None:
    """A page of a heavy loss, and a ticket that waits for half an hour on what slow
    groups record.
    """
    page = ("VLLMSpecDecodeHarmful", CRITICAL, "", LOSING)
    ticket = ("VLLMSpecDecodeObjectiveBurning", WARNING, "", BURNING)
    told = (PAST + TOLD) * MINUTE

    def both_told() -> bool:
        return all({page, ticket} <= alerts for alerts in run.firing())

    eventually(both_told, within=told)
    with suppress(AssertionError):
        eventually(
            lambda: len(set(map(frozenset, run.firing()))) == 1, within=10 * MINUTE
        )
    in_vmalert, in_prometheus, with_features = run.firing()
    assert in_vmalert == in_prometheus
    assert with_features == in_prometheus


def test_records_have_no_label_that_a_feature_adds(run: Run) -> None:
    """And there are as many of each as without features."""
    made = '{__name__=~"(engine|instance|method|model|namespace):.+"'
    number = f"count by (__name__) ({made}}})"

    def others() -> dict[Series, float]:
        without = run.prometheus.query(number)
        return dict(without.items() ^ run.featured.query(number).items())

    # What has just been recorded for the first time is not there in both.
    with suppress(AssertionError):
        eventually(lambda: not others(), within=10 * MINUTE)
    assert others() == {}
    assert run.featured.query(f'{made},__type__!=""}}') == {}
    assert run.featured.query('vllm_specdec_up{__type__="gauge"}')


def test_what_fires_is_there_for_whoever_asks_as_the_rules_do(run: Run) -> None:
    """ALERTS of a group of three minutes are as old as six when they are read."""
    (step,) = re.findall(r"queryStep=(\S+)", " ".join(documented_flags()))
    fires = f'ALERTS{{alertname="VLLMSpecDecodeDisable",model_name="{LOSING}"}}'
    now = time.time() - MINUTE
    for back in range(24):
        asked = run.store.api(
            "query", query=fires, time=f"{now - back / 2:.3f}", step=shorter(step)
        )
        assert asked["result"], back
