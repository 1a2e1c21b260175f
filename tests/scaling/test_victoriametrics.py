"""The rules over the same samples in Prometheus and VictoriaMetrics: they record and alert alike.

The samples are those of the dashboards' worlds, written to both; each rule is asked over the whole history,
those first that others are made of.
"""

import re
from collections.abc import Iterator

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from alerts.lint import Rule
from alerts.promtool import RULES
from dashboards import worlds_write
from dashboards.worlds import World, open_world, shared_folder
from dashboards.worlds_pods import Storage
from dashboards.worlds_rules import _Evaluation, _levels
from dashboards.worlds_traffic import Key
from scaling.victoria import VictoriaMetrics

pytestmark = pytest.mark.full

_UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0}
#: Relative difference of what both calculate in the same way.
_SAME = 1e-6
#: Records over means and sums of a window: Prometheus before 3.0 takes the sample on its left border too.
_OVER_TIME = re.compile(
    r"_running:|_requests:avg|losing_drafts|judged_drafts:sum|speedup:ratio_rate(30m|1h)|budget"
)


def evaluate(scraped: Storage, times: NDArray[np.float64]) -> Storage:
    """Return what all rules give in VictoriaMetrics at these times."""
    files = [yaml.safe_load(path.read_text("utf-8")) for path in RULES.glob("*.yml")]
    rules = [Rule(rule) for file in files for group in file["groups"] for rule in group["rules"]]
    with VictoriaMetrics() as server:
        worlds_write.push(server.url, scraped.times, scraped.series)
        evaluation = _Evaluation(server, times)
        for level in _levels(rules):
            evaluation.run(level)
        return evaluation.found


@pytest.fixture(scope="module", params=["healthy", "two-clusters", "measured"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[World, Storage]]:
    """A world with what Prometheus recorded of it, and what VictoriaMetrics did."""
    with open_world(request.param, shared_folder(tmp_path_factory)) as world:
        yield world, evaluate(world.scraped, world.recorded.times)


def _is_alert(key: Key) -> bool:
    return key[0].startswith("ALERTS")


def _window(name: str) -> float:
    """Return how far back a record looks, in seconds."""
    match = re.search(r"(\d+)([mhd])$", name)
    return float(match[1]) * _UNITS[match[2]] if match else 0.0


def test_both_record_the_same_series(both: tuple[World, Storage]) -> None:
    """No rule gives a series in one that it does not give in the other."""
    world, theirs = both
    ours = {key for key in world.recorded.series if not _is_alert(key)}
    assert len(ours) > 100
    assert ours - theirs.series.keys() == set()
    assert {key for key in theirs.series if not _is_alert(key)} - world.recorded.series.keys() == set()


def test_windows_that_are_full_have_the_same_values(both: tuple[World, Storage]) -> None:
    """Rates, increases, ratios, speedups and thresholds agree to a millionth; means over time within 5 %."""
    world, theirs = both
    times = world.recorded.times
    compared, exact = 0, 0
    for key, rows in world.recorded.series.items():
        if _is_alert(key):
            continue
        full = times >= times[0] + _window(key[0]) + 120
        if not full.any():
            continue
        ours, other = rows[full], theirs.series[key][full]
        there = ~np.isnan(ours)
        assert (np.isnan(other) == ~there).mean() > 0.98, key
        there &= ~np.isnan(other)
        bound = 0.05 if _OVER_TIME.search(key[0]) else _SAME
        np.testing.assert_allclose(other[there], ours[there], rtol=bound, atol=1e-9, err_msg=str(key))
        compared += int(there.sum())
        exact += int(there.sum()) if bound == _SAME else 0
    assert exact > 8_000
    assert compared > exact


def test_the_same_alerts_fire(both: tuple[World, Storage]) -> None:
    """Alerts fire at the same times in both, to one evaluation."""
    world, theirs = both
    fired = 0
    for key, rows in world.recorded.series.items():
        if key[0] != "ALERTS":
            continue
        different = np.isnan(rows) != np.isnan(theirs.series[key])
        assert different.sum() <= 1, key
        fired += int((~np.isnan(rows)).sum())
    assert fired > 100


def test_no_rule_asks_for_changes() -> None:
    """VictoriaMetrics counts the birth of a series as a change: alerts would be silent for hours after it."""
    assert not [path.name for path in RULES.glob("*.yml") if "changes(" in path.read_text("utf-8")]
