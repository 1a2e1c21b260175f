"""VictoriaMetrics as Debian ships it, for tests: it is asked like Prometheus."""

import urllib.request
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alerts.lint import Rule
from alerts.promtool import RULES
from dashboards import worlds_write
from dashboards.worlds_pods import Storage
from dashboards.worlds_rules import _Evaluation, _levels
from support.programs import Program, find_program
from support.prometheus import PrometheusServer
from support.repository import data_of

#: The Debian package; it has vmalert and vmagent too.
PACKAGE = "victoria-metrics"


class VictoriaMetrics(PrometheusServer):
    """A single-node server with a storage of its own and further flags."""

    def __init__(self, *flags: str, program: str = "") -> None:
        Program.__init__(
            self,
            [
                program or find_program("victoria-metrics", PACKAGE),
                "-httpListenAddr={address}",
                "-storageDataPath={folder}/data",
                "-retentionPeriod=1y",
                "-memory.allowedBytes=256MB",
                "-loggerLevel=ERROR",
                *flags,
            ],
            ready="/health",
        )

    def api(self, path: str, **parameters: str) -> Any:
        """Return the `data` of an answer of the HTTP API, over all that was written;
        nothing is cached.
        """
        with urllib.request.urlopen(f"{self.url}/internal/force_flush", timeout=60):
            pass
        return super().api(path, nocache="1", **parameters)


def evaluate(scraped: Storage, times: NDArray[np.float64]) -> Storage:
    """Return what all rules give in VictoriaMetrics at these times, those first that
    others are made of.
    """
    rules: list[Rule] = []
    for path in RULES.glob("*.yml"):
        for group in data_of(path)["groups"]:
            rules += map(Rule, group["rules"])
    with VictoriaMetrics() as server:
        worlds_write.push(server.url, scraped.times, scraped.series)
        evaluation = _Evaluation(server, times)
        for level in _levels(rules):
            evaluation.run(level)
        return evaluation.found
