"""All checks of dashboards, by name, and what they have to say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import (
    aggregations,
    codes,
    colours,
    fields,
    form,
    layout,
    selectors,
    targets,
    variables,
    words,
)
from .queries import Query, queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .document import Dashboard, Panel

    DashboardCheck = Callable[[Dashboard], list[str]]
    PanelCheck = Callable[[Panel, Dashboard], list[str]]
    QueryCheck = Callable[[Query, Dashboard], list[str]]

#: Checks of a dashboard as a whole.
DASHBOARD_CHECKS: Mapping[str, DashboardCheck] = {
    check.__name__: check
    for check in (
        form.uneditable_dashboard, form.schema_version, form.stable_uid, form.manners, form.panel_ids,
        form.leftovers, form.dashboard_keys, form.annotations, layout.overlaps,
        layout.columns, layout.holes, layout.floating,
        layout.reading_order, variables.template_datasource, variables.template_job,
        variables.template_instance, variables.template_choice, variables.template_label,
        variables.template_on_time_change_reload, variables.variable_names, variables.unused_variables,
        variables.chosen_at_first, colours.palette_of_annotations,
    )
}  # fmt: skip
#: Checks of every panel.
PANEL_CHECKS: Mapping[str, PanelCheck] = {
    check.__name__: check
    for check in (
        form.panel_type, form.legacy_keys, form.panel_keys, form.missing_keys, words.panel_title,
        words.panel_title_description, words.named_series, words.no_value, words.text_panel,
        words.variables_in_words, fields.panel_units,
        fields.ratio_limits, fields.zero_axis, fields.sorted_by, fields.table_columns, fields.idle_overrides,
        targets.panel_no_targets, targets.panel_datasource, targets.ref_ids, targets.instants,
        targets.formats, targets.transformations, targets.reductions, codes.mapped_codes,
        *colours.CHECKS.values(),
    )
}  # fmt: skip
#: Checks of every query: of panels, annotations and variables.
QUERY_CHECKS: Mapping[str, QueryCheck] = {
    **{
        check.__name__: check
        for check in (
            aggregations.target_promql, aggregations.target_rate_interval, aggregations.one_number,
            aggregations.legends, aggregations.averaged_ratio,
            selectors.known_series, selectors.known_labels, selectors.known_variables,
            selectors.target_matchers,
        )
    },
    **aggregations.SHARED,
}  # fmt: skip
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


def said(check: str, dashboard: Dashboard) -> Iterator[Complaint]:
    """Yield all that a check has to say of a dashboard."""
    for place, found in _said(check, dashboard):
        yield from (Complaint(check, dashboard.uid, place, text) for text in dict.fromkeys(found))


def _said(check: str, dashboard: Dashboard) -> Iterator[tuple[str, list[str]]]:
    if run := DASHBOARD_CHECKS.get(check):
        yield "", run(dashboard)
    elif of_panel := PANEL_CHECKS.get(check):
        yield from ((panel.place, of_panel(panel, dashboard)) for panel in dashboard.all_panels)
    else:
        of_query = QUERY_CHECKS[check]
        for query in queries(dashboard):
            if check in _OF_TEXTS or not aggregations.target_promql(query, dashboard):
                yield query.place, of_query(query, dashboard)
