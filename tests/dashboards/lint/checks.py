"""All checks of dashboards, by name, and what they have to say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from . import aggregations, codes, colours, fields, form, selectors, words
from .queries import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .document import Dashboard

    Check = Callable[..., Iterable[str]]


def _by_name(*checks: Check) -> dict[str, Check]:
    return {check.__name__: check for check in checks}


#: Checks of a dashboard as a whole.
DASHBOARD_CHECKS = _by_name(
    form.manners, form.panel_ids, form.leftovers, form.annotations, form.grid, form.variables, form.choices,
    form.unused_variables, colours.palette,
)  # fmt: skip
#: Checks of every panel.
PANEL_CHECKS = _by_name(
    form.missing_keys, form.asking, form.transformations, words.panel_title, words.panel_title_description,
    words.named_series, words.says_something, words.variables_in_words, fields.panel_units,
    fields.ratio_limits, fields.zero_axis, fields.sorted_by, fields.table_columns, fields.idle_overrides,
    codes.mapped_codes, colours.colour_modes, colours.literal_thresholds, colours.mapped_words,
    colours.indistinct, colours.unreadable,
)  # fmt: skip
#: Checks of every query: of panels, annotations and variables.
QUERY_CHECKS = _by_name(
    aggregations.target_promql, aggregations.target_rate_interval, aggregations.one_number,
    aggregations.legends, aggregations.averaged_ratio, selectors.known_series, selectors.known_labels,
    selectors.known_variables, selectors.target_matchers, *aggregations.SHARED,
)  # fmt: skip
CHECKS = (*DASHBOARD_CHECKS, *PANEL_CHECKS, *QUERY_CHECKS)


#: Checks of queries that need not parse.
_OF_TEXTS = ("target_promql", "known_variables")


@dataclass(frozen=True, slots=True)
class Complaint:
    """What a check has to say.

    Attributes:
        check: its name.
        uid: of the dashboard.
        place: the panel, annotation or variable; "" for the dashboard as a whole.
        words: what is wrong.
    """

    check: str
    uid: str
    place: str
    words: str

    def __str__(self) -> str:
        return f"{self.uid}, {self.place}: {self.words}" if self.place else f"{self.uid}: {self.words}"


@cache
def said(check: str, dashboard: Dashboard) -> tuple[Complaint, ...]:
    """Return all that a check has to say of a dashboard."""
    return tuple(
        Complaint(check, dashboard.uid, place, text)
        for place, found in _said(check, dashboard)
        for text in dict.fromkeys(found)
    )


def _said(check: str, dashboard: Dashboard) -> Iterator[tuple[str, Iterable[str]]]:
    if run := DASHBOARD_CHECKS.get(check):
        yield "", run(dashboard)
    elif of_panel := PANEL_CHECKS.get(check):
        yield from ((panel.place, of_panel(panel, dashboard)) for panel in dashboard.all_panels)
    else:
        of_query = QUERY_CHECKS[check]
        for query in queries(dashboard):
            if check in _OF_TEXTS or not aggregations.target_promql(query, dashboard):
                yield query.place, of_query(query, dashboard)
