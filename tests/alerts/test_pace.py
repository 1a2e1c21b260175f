"""What production evaluates every three minutes concludes the same at that pace.

promtool evaluates all rules at one pace, in the other tests once a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from alerts.case import Case, full_name
from alerts.lint import read_bundle
from alerts.promtool import History, Query, verify
from alerts.test_rules import CASES, LONG

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PACE = "3m"


def _decisive() -> Iterator[tuple[str, list[Case]]]:
    """Yield alerts of that pace, each with the first short case in which it fires, and one in which not."""
    groups = (group for group in read_bundle().groups if group.get("interval") == _PACE)
    slow = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    for alert in sorted(slow):
        short = [case for case in CASES if full_name(case.alert) == alert and max(case.fires) <= LONG]
        fires, silent = ([case for case in short if any(case.fires.values()) is one] for one in (True, False))
        if fires or silent:
            yield alert, [*fires[:1], *silent[:1]]


def _ever(case: Case) -> Query:
    """Return the query that says which series of a case's alert have fired at any time of it."""
    last = max(case.fires)
    every = [query for query in case.queries() if query.samples]
    series = {name: value for query in every for name, value in query.samples.items()}
    now = case.queries()[0].expr.replace("ALERTS{", "max_over_time(ALERTS{")
    return Query(last, now.replace('alertstate="firing"}', f'alertstate="firing"}}[{last}m])'), series)


@pytest.mark.full
@pytest.mark.parametrize(("alert", "cases"), [pytest.param(*one, id=one[0]) for one in _decisive()])
def test_rules_conclude_the_same_at_their_own_pace(alert: str, cases: list[Case], tmp_path: Path) -> None:
    histories = [History(case.name, case.world(), [_ever(case)]) for case in cases]
    complaint = verify(tmp_path, *histories, rules={alert}, interval=_PACE)
    assert complaint == "", complaint
