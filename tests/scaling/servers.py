"""The servers that evaluate rules, and what all rules give in one of them."""

import numpy as np

from alerts.lint import Rule
from alerts.promtool import RULES
from dashboards import worlds_write
from dashboards.worlds_pods import Storage
from dashboards.worlds_rules import _Evaluation, _levels
from dashboards.worlds_traffic import Samples
from scaling.victoria import PACKAGE, VictoriaMetrics
from support.newer import of_suite
from support.programs import eventually
from support.prometheus import PrometheusServer
from support.repository import data_of


def server_of(program: str, suite: str) -> PrometheusServer:
    """Return a server of a suite that takes samples of the past."""
    if program == PACKAGE:
        return VictoriaMetrics(program=of_suite(suite, program, PACKAGE))
    return PrometheusServer(
        config=worlds_write.CONFIG,
        flags=worlds_write.FLAGS,
        program=of_suite(suite, program, program),
    )


def all_rules() -> list[Rule]:
    """Return the rules of all files."""
    rules: list[Rule] = []
    for path in sorted(RULES.glob("*.yml")):
        for group in data_of(path)["groups"]:
            rules += map(Rule, group["rules"])
    return rules


def _await(server: PrometheusServer, *written: Storage) -> None:
    """Wait until all that was written is found; a rule would give nothing before."""
    number = sum(
        not np.isnan(rows).all()
        for storage in written
        for rows in storage.series.values()
    )
    matches = {"match[]": '{__name__!=""}', "start": f"{written[0].times[0]:.0f}"}
    eventually(lambda: len(server.api("series", **matches)) >= number, within=60)


def recorded(server: PrometheusServer, times: Samples, *scraped: Storage) -> Storage:
    """Return what all rules give in a server at these times, those first that others
    are made of.
    """
    for storage in scraped:
        worlds_write.push(server.url, storage.times, storage.series)
    # Once is enough for those that ask for alerts: no value is written twice.
    *levels, _ = _levels(all_rules())
    evaluation = _Evaluation(server, times)
    _await(server, *scraped)
    for level in levels:
        evaluation.run(level)
        _await(server, *scraped, evaluation.found)
    return evaluation.found
